// Devices by name: the one place that knows which backends this binary has.
//
// Thread safety: pure functions, but for the device that is made.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"

namespace baton {

struct DeviceOptions {
  std::string name = "cpu";              // one of KnownDevices()
  int threads = 0;                       // CPU: compute threads; 0: all the process may use
  std::string instruction_set = "auto";  // CPU: auto, plain, avx2, avx512
};

// "cpu, cpu-async or cuda", for help and error texts.
std::string KnownDevices();

// Makes every option say what is in effect on this machine. InvalidArgument names the option, its
// value and what it may be; a device that is known but not built into this binary is refused too.
absl::Status SettleDeviceOptions(DeviceOptions& options);

// Errors as SettleDeviceOptions, and those of the backend.
absl::StatusOr<std::unique_ptr<Device>> CreateDevice(DeviceOptions options);

}  // namespace baton
