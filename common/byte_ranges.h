// A set of bytes, kept as disjoint ranges. Buffers that grow and shrink remember with it which
// bytes of their address range are populated.
//
// Thread safety: the caller synchronises.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>

namespace baton {

class ByteRanges {
 public:
  // Adds [begin, end).
  void Add(size_t begin, size_t end) {
    if (begin >= end) return;
    auto at = FirstEndingAt(begin);
    while (at != ranges_.end() && at->first <= end) {
      begin = std::min(begin, at->first);
      end = std::max(end, at->second);
      at = ranges_.erase(at);
    }
    ranges_.emplace(begin, end);
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

  // Calls missing(begin, end) for each part of [begin, end) that is not in the set.
  template <typename Missing>
  void ForEachMissing(size_t begin, size_t end, const Missing& missing) const {
    size_t next = begin;
    auto at = ranges_.upper_bound(begin);
    if (at != ranges_.begin()) next = std::max(next, std::prev(at)->second);
    for (; at != ranges_.end() && at->first < end; ++at) {
      if (next < at->first) missing(next, at->first);
      next = at->second;
    }
    if (next < end) missing(next, end);
  }

  // Number of bytes of [begin, end) that are not in the set.
  size_t CountMissing(size_t begin, size_t end) const {
    size_t count = 0;
    ForEachMissing(begin, end, [&](size_t from, size_t to) { count += to - from; });
    return count;
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
