// Host memory from which one step's inputs are copied to the device: filled by one step, and free
// for another once that one's copies have run.
//
// Thread safety: belongs to the engine thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>

#include "common/check.h"

namespace baton {

// Steps that may be uncollected, each with slots of its own.
inline constexpr int kStepSlots = 2;

class StagingSlot {
 public:
  StagingSlot() = default;
  // `memory` is that of Device::AllocateStaging, and outlives this.
  explicit StagingSlot(std::span<std::byte> memory) : memory_(memory) {}

  // Forgets what is in it. REQUIRES: all copies out of it have run.
  void Clear() { used_ = 0; }
  // Takes a copy, which stays where it is until Clear. REQUIRES: it fits.
  const void* Put(const void* source, size_t bytes) {
    constexpr size_t kAlignment = 8;
    std::byte* const at = memory_.data() + used_;
    CHECK_LE(bytes, memory_.size() - used_) << "a staging slot of " << memory_.size() << " bytes";
    std::memcpy(at, source, bytes);
    used_ = std::min(used_ + (bytes + kAlignment - 1) / kAlignment * kAlignment, memory_.size());
    return at;
  }

 private:
  std::span<std::byte> memory_;
  size_t used_ = 0;
};

}  // namespace baton
