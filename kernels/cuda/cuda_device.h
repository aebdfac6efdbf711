// Device implementation for a GPU with CUDA.
//
// The program opens the driver and the kernels as libraries at run time. So the same binary runs on
// machines without them, and tests/gpu_emulator/ can replace both.
//
// Thread safety: the functions are safe from any thread. Devices follow the rules of Device.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "kernels/device_group.h"

namespace baton {

struct CudaDeviceOptions {
  int index = 0;                                                 // of the GPU, as the driver counts
  std::vector<std::string> driver_libraries = {"libcuda.so.1"};  // the first one found is used
  std::string kernel_library = {};  // path of the compiled kernels (kernels/cuda/cuda_kernels.h)
  // Absent: the t1 that describes the tensor cores of the GPU's compute capability (8.0 and 9.0),
  // otherwise r1.
  std::optional<Numerics> numerics = {};
};

// If the environment variable BATON_EARLY_KERNELS is 0, a kernel begins when those ahead of it have
// ended. Otherwise it may begin earlier, on compute capability 9.0
// (kernels/cuda/kernel_order.cuh). Results are the same.

// Unavailable: no driver, no such GPU, or no kernel library. FailedPrecondition: the kernels do not
// run on this GPU, or its tensor cores do not have these numerics. Unimplemented: the GPU lacks a
// feature that Baton needs.
absl::StatusOr<std::unique_ptr<Device>> CreateCudaDevice(const CudaDeviceOptions& options);

// Creates the GPUs of a tensor-parallel group of `degree` ranks, from `options.index` on, and
// NCCL's communicators between them. `nccl_libraries`: the first one found is used. Errors: those
// of CreateCudaDevice and of CreateNcclCommunicators. Unavailable also means that the machine has
// fewer GPUs, or no NCCL. FailedPrecondition: the GPUs would compute with different numerics.
// `reach_first` is set if the driver gives every GPU access to the memory of the first one.
absl::StatusOr<DeviceGroup> CreateCudaDeviceGroup(const CudaDeviceOptions& options,
                                                  const std::vector<std::string>& nccl_libraries,
                                                  int32_t degree);

}  // namespace baton
