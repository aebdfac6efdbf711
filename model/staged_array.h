// Growing array of plain values in staging memory, the source or destination of copies. It grows to
// the needs of the largest step.
//
// Thread safety: belongs to the engine thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>

#include "absl/status/status.h"
#include "common/status_macros.h"
#include "kernels/device.h"

namespace baton {

template <typename T>
class StagedArray {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  // Sets the size to `size`; the values are unspecified afterwards. ResourceExhausted: no memory.
  // REQUIRES: every copy from or to the array has run.
  absl::Status Resize(int64_t size, Device& device, std::string_view purpose) {
    if (size > capacity_) {
      const int64_t capacity = std::max(size, 2 * capacity_);
      ASSIGN_OR_RETURN(memory_, device.AllocateStaging(capacity * sizeof(T), purpose));
      capacity_ = capacity;
    }
    size_ = size;
    return absl::OkStatus();
  }

  T* data() const { return memory_ == nullptr ? nullptr : memory_->template as<T>(); }
  int64_t size() const { return size_; }
  size_t bytes() const { return static_cast<size_t>(size_) * sizeof(T); }
  T& operator[](int64_t index) const { return data()[index]; }
  std::span<T> values() const { return {data(), static_cast<size_t>(size_)}; }

 private:
  std::unique_ptr<DeviceBuffer> memory_;
  int64_t capacity_ = 0;
  int64_t size_ = 0;
};

}  // namespace baton
