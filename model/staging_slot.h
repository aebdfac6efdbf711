// Staging buffer for the inputs of one step. After the copies of that step have run, another step
// may use it.
//
// Thread safety: belongs to the engine thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>

#include "common/check.h"

namespace baton {

// Maximum number of uncollected steps. Each has its own slots.
inline constexpr int kStepSlots = 2;

class StagingSlot {
 public:
  StagingSlot() = default;
  // REQUIRES: `memory` is from Device::AllocateStaging and outlives this object.
  explicit StagingSlot(std::span<std::byte> memory) : memory_(memory) {}

  // Discards the contents. REQUIRES: all copies from this slot have run.
  void Clear() { used_ = 0; }
  // Stores a copy of the input and returns its address, which is valid until Clear. REQUIRES: it
  // fits.
  const void* Put(const void* source, size_t bytes) {
    constexpr size_t kAlignment = 16;  // of the fastest copies
    std::byte* const at = memory_.data() + used_;
    CHECK_LE(bytes, memory_.size() - used_)
        << "input does not fit a staging slot of " << memory_.size() << " bytes";
    std::memcpy(at, source, bytes);
    used_ = std::min(used_ + (bytes + kAlignment - 1) / kAlignment * kAlignment, memory_.size());
    return at;
  }

 private:
  std::span<std::byte> memory_;
  size_t used_ = 0;
};

}  // namespace baton
