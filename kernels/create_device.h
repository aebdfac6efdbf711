// Creates devices by name. This is the only file that knows which backends the binary contains.
//
// Thread safety: the functions are pure, except that CreateDevice makes a device.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"

namespace baton {

struct DeviceOptions {
  std::string name = "cpu";  // one of KnownDevices()
  int threads = 0;           // CPU: compute threads; 0: as many as UsableProcessors() allows
  std::string instruction_set = "auto";  // CPU: auto, plain, avx2, avx512
};

// Returns "cpu, cpu-async or cuda", for help and error texts.
std::string KnownDevices();

// Replaces "auto" and 0 by the values that take effect on this machine. InvalidArgument names the
// option, its value and the allowed values. A device that is known but not built into this binary
// is also InvalidArgument.
absl::Status SettleDeviceOptions(DeviceOptions& options);

// Errors: those of SettleDeviceOptions and those of the backend.
absl::StatusOr<std::unique_ptr<Device>> CreateDevice(DeviceOptions options);

}  // namespace baton
