// Writes values of the host into device memory, for weights and constants. Steps use staging slots
// instead (model/staging_slot.h).
//
// Thread safety: belongs to one thread.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "kernels/device.h"

namespace baton {

class DeviceWriter {
 public:
  // REQUIRES: the device outlives this object.
  explicit DeviceWriter(Device& device) : device_(device) {}

  // Calls fill(memory) with host memory of `bytes` bytes, and returns when device memory at `to`
  // has its contents. On a device that the host can access, `memory` is `to`. Internal: the device
  // failed.
  template <typename Fill>
  absl::Status Write(void* to, size_t bytes, const Fill& fill) {
    if (device_.host_accessible()) {
      fill(static_cast<std::byte*>(to));
      return absl::OkStatus();
    }
    host_.resize(bytes);
    fill(host_.data());
    return Upload(to);
  }

 private:
  absl::Status Upload(void* to);

  Device& device_;
  std::unique_ptr<Stream> stream_;  // null until the first upload
  std::vector<std::byte> host_;
};

}  // namespace baton
