#include "cache/eviction_queue.h"

#include "common/check.h"

namespace baton {

void EvictionQueue::Push(int32_t node, EvictionKey key) {
  CHECK(entries_.insert({key, node}).second) << "node " << node << " is queued already";
}

void EvictionQueue::Erase(int32_t node, EvictionKey key) {
  CHECK_EQ(entries_.erase({key, node}), 1u) << "node " << node << " is not queued";
}

size_t EvictionQueue::First(std::span<int32_t> out) const {
  size_t count = 0;
  for (auto it = entries_.begin(); it != entries_.end() && count < out.size(); ++it) {
    out[count++] = it->node;
  }
  return count;
}

}  // namespace baton
