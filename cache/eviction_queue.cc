#include "cache/eviction_queue.h"

#include "common/check.h"

namespace baton {

void EvictionQueue::Place(int32_t index, Entry entry) {
  heap_[index] = entry;
  position_[entry.node] = index;
}

void EvictionQueue::SiftUp(int32_t index, Entry entry) {
  while (index > 0) {
    const int32_t parent = (index - 1) / 2;
    if (heap_[parent].tick <= entry.tick) break;
    Place(index, heap_[parent]);
    index = parent;
  }
  Place(index, entry);
}

void EvictionQueue::SiftDown(int32_t index, Entry entry) {
  for (;;) {
    int32_t child = 2 * index + 1;
    if (child >= size()) break;
    if (child + 1 < size() && heap_[child + 1].tick < heap_[child].tick) ++child;
    if (entry.tick <= heap_[child].tick) break;
    Place(index, heap_[child]);
    index = child;
  }
  Place(index, entry);
}

void EvictionQueue::Push(int32_t node, uint64_t tick) {
  CHECK(node >= 0 && !Contains(node)) << "node " << node;
  if (node >= static_cast<int32_t>(position_.size())) position_.resize(node + 1, -1);
  heap_.push_back({});
  SiftUp(size() - 1, {.tick = tick, .node = node});
}

void EvictionQueue::Erase(int32_t node) {
  CHECK(Contains(node)) << "node " << node;
  const int32_t hole = position_[node];
  position_[node] = -1;
  const Entry last = heap_.back();
  heap_.pop_back();
  if (hole == size()) return;
  if (hole > 0 && last.tick < heap_[(hole - 1) / 2].tick) {
    SiftUp(hole, last);
  } else {
    SiftDown(hole, last);
  }
}

}  // namespace baton
