// Queue of evictable leaves, ordered by eviction key: a set of (key, node).
//
// It is a B-tree instead of a binary heap. Taking the first entry and adding at either end touch
// one leaf that is already in the CPU cache, at any size. A heap would touch log2 n uncached lines.
//
// Invariants:
//  1. No node is in the queue twice, and a node's key does not change while it is queued.
//  2. Push, Erase and Contains take O(log n), First O(1). No entry is ever stale.
//
// Thread safety: used by the engine thread only.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/container/btree_set.h"
#include "cache/eviction_policy.h"

namespace baton {

class EvictionQueue {
 public:
  bool empty() const { return entries_.empty(); }
  int64_t size() const { return static_cast<int64_t>(entries_.size()); }
  bool Contains(int32_t node, EvictionKey key) const { return entries_.contains({key, node}); }
  // The node with the lowest key. On equal keys, the lower node. REQUIRES: not empty.
  int32_t First() const { return entries_.begin()->node; }
  EvictionKey FirstKey() const { return entries_.begin()->key; }

  // Writes the next nodes to evict, in order, until `out` is full. Returns how many it wrote.
  size_t First(std::span<int32_t> out) const;

  // REQUIRES: not queued (CHECK).
  void Push(int32_t node, EvictionKey key);
  // REQUIRES: queued with exactly this key (CHECK).
  void Erase(int32_t node, EvictionKey key);

 private:
  struct Entry {
    EvictionKey key;
    int32_t node;
    auto operator<=>(const Entry&) const = default;
  };
  absl::btree_set<Entry> entries_;
};

}  // namespace baton
