// Creates devices by name. This is the only file that knows which backends the binary contains.
//
// Thread safety: the functions are pure, except that CreateDevice makes a device.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "kernels/device_group.h"

namespace baton {

struct DeviceOptions {
  // One of KnownDevices(). Builds with tests also have "cuda-emulated": the CUDA backend on the
  // emulator of tests/gpu_emulator, whose library must lie beside the program.
  std::string name = "cpu";
  int threads = 0;  // CPU: compute threads; 0: as many as UsableProcessors() allows
  std::string instruction_set = "auto";  // CPU: auto or an InstructionSetName
  // auto, or a name of NumericsName. The auto of a CPU is r1. The auto of a GPU depends on its
  // compute capability (CudaDeviceOptions): Device::numerics() has the result.
  std::string numerics = "auto";
};

// Returns the index of "cuda" (0) or "cuda:N"; nothing for other names.
std::optional<int> CudaIndexOf(std::string_view name);

// Names of libraries for the dynamic loader; the first one found is used.
struct DeviceLibraries {
  std::vector<std::string> driver;
  std::vector<std::string> nccl;
};
// Returns CUDA's libraries for a device with this name. For "cuda-emulated" these are the emulator
// and NCCL's stand-in beside the program.
DeviceLibraries DeviceLibrariesOf(std::string_view name);

// Returns "cpu, cpu-async, cuda or cuda:N", for help and error texts.
std::string KnownDevices();

// Replaces "auto" and 0 by the values that take effect on this machine, except for the numerics of
// a GPU. InvalidArgument names the option, its value and the allowed values.
absl::Status SettleDeviceOptions(DeviceOptions& options);

// Errors: those of SettleDeviceOptions and those of the backend. Unavailable: the machine has no
// such GPU, or the driver, the compiled kernels or the emulator are missing.
absl::StatusOr<std::unique_ptr<Device>> CreateDevice(DeviceOptions options);

// Creates the devices of a tensor-parallel group of `degree` ranks. CPU ranks share the threads of
// the options, with at least one each, and are asynchronous. GPU ranks use the named GPU and those
// that follow it. Errors: those of CreateDevice and of CreateCudaDeviceGroup. InvalidArgument: the
// degree is out of range.
absl::StatusOr<DeviceGroup> CreateDeviceGroup(DeviceOptions options, int32_t degree);

}  // namespace baton
