// A set of bytes, kept as disjoint ranges. CudaReservedBuffer remembers with it which bytes of its
// address range are in use.
//
// Thread safety: as a std::map's.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>

namespace baton {

class ByteRanges {
 public:
  // Adds [begin, end). Calls added(begin, end) for each part that was not in the set.
  template <typename Added>
  void Add(size_t begin, size_t end, const Added& added) {
    if (begin >= end) return;
    size_t first = begin;
    size_t last = end;
    size_t next = begin;  // everything before it is in the set or was passed to `added`
    auto at = FirstEndingAt(begin);
    while (at != ranges_.end() && at->first <= end) {
      if (next < at->first) added(next, at->first);
      next = std::max(next, at->second);
      first = std::min(first, at->first);
      last = std::max(last, at->second);
      at = ranges_.erase(at);
    }
    if (next < end) added(next, end);
    ranges_.emplace(first, last);
  }

  // Removes [begin, end).
  void Remove(size_t begin, size_t end) {
    if (begin >= end) return;
    auto at = FirstEndingAt(begin);
    while (at != ranges_.end() && at->first < end) {
      const auto [first, last] = *at;
      at = ranges_.erase(at);
      if (first < begin) ranges_.emplace(first, std::min(last, begin));
      if (last > end) ranges_.emplace(std::max(first, end), last);
    }
  }

  // Returns true if a byte of [begin, end) is in the set.
  bool Overlaps(size_t begin, size_t end) const {
    const auto after = ranges_.lower_bound(end);
    return begin < end && after != ranges_.begin() && std::prev(after)->second > begin;
  }

 private:
  // First range that ends at `begin` or later.
  std::map<size_t, size_t>::iterator FirstEndingAt(size_t begin) {
    auto at = ranges_.upper_bound(begin);
    if (at != ranges_.begin() && std::prev(at)->second >= begin) --at;
    return at;
  }

  std::map<size_t, size_t> ranges_;  // begin → end; neither empty nor adjacent
};

}  // namespace baton
