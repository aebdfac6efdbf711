// Which of the evictable leaves goes next: an indexed binary min-heap of (node, tick).
//
// The order is least recently used: the tick is the time of last use on the tree's own counter. A
// policy is another meaning of the key; nothing else knows it.
//
// Invariants:
//  1. position_[node] is the node's place in heap_, or -1; no node is in it twice.
//  2. Push and Erase take O(log n), Min and Contains O(1). No entry is ever stale.
//
// Thread safety: belongs to the engine thread.
#pragma once

#include <cstdint>
#include <vector>

namespace baton {

class EvictionQueue {
 public:
  bool empty() const { return heap_.empty(); }
  int32_t size() const { return static_cast<int32_t>(heap_.size()); }
  bool Contains(int32_t node) const {
    return node < static_cast<int32_t>(position_.size()) && position_[node] >= 0;
  }
  // REQUIRES: not empty.
  int32_t Min() const { return heap_.front().node; }

  // REQUIRES: node >= 0 and not contained.
  void Push(int32_t node, uint64_t tick);
  // REQUIRES: contained.
  void Erase(int32_t node);

 private:
  struct Entry {
    uint64_t tick;
    int32_t node;
  };
  void Place(int32_t index, Entry entry);
  void SiftUp(int32_t index, Entry entry);
  void SiftDown(int32_t index, Entry entry);

  std::vector<Entry> heap_;
  std::vector<int32_t> position_;  // by node
};

}  // namespace baton
