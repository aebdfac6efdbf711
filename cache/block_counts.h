// A number of blocks for each KV group. Used for requirements and for free blocks.
//
// Group 0 has full attention; the sliding windows follow. Groups that a cache does not have count
// as zero, so sums and comparisons can ignore the number of groups.
//
// Thread safety: plain data.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "cache/kv_cache_spec.h"

namespace baton {

class BlockCounts {
 public:
  BlockCounts() = default;
  explicit BlockCounts(int32_t full) { counts_[0] = full; }

  int32_t full() const { return counts_[0]; }
  int32_t operator[](int32_t group) const { return counts_[group]; }
  int32_t& operator[](int32_t group) { return counts_[group]; }

  BlockCounts& operator+=(const BlockCounts& other) {
    for (int i = 0; i < kMaxKvGroups; ++i) counts_[i] += other.counts_[i];
    return *this;
  }
  BlockCounts& operator-=(const BlockCounts& other) {
    for (int i = 0; i < kMaxKvGroups; ++i) counts_[i] -= other.counts_[i];
    return *this;
  }
  friend BlockCounts operator+(BlockCounts a, const BlockCounts& b) { return a += b; }
  friend BlockCounts operator-(BlockCounts a, const BlockCounts& b) { return a -= b; }
  friend BlockCounts operator*(BlockCounts a, int32_t times) {
    for (int32_t& count : a.counts_) count *= times;
    return a;
  }
  // Index of the first group with a negative count, or -1.
  int32_t FirstBelowZero() const {
    const auto at = std::find_if(counts_.begin(), counts_.end(), [](int32_t c) { return c < 0; });
    return at == counts_.end() ? -1 : static_cast<int32_t>(at - counts_.begin());
  }
  bool operator==(const BlockCounts&) const = default;

 private:
  std::array<int32_t, kMaxKvGroups> counts_{};
};

}  // namespace baton
