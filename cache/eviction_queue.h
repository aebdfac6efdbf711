// Which of the evictable leaves goes next: an ordered set of (key, node).
//
// A B-tree rather than a binary heap: taking the first and adding at either end stay inside one
// warm leaf however large the set is, where a heap sifts through log2 n cold lines.
//
// Invariants:
//  1. No node is in it twice, and a node's key does not change while it is in it.
//  2. Push, Erase and Contains take O(log n), First O(1). No entry is ever stale.
//
// Thread safety: belongs to the engine thread.
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
  // The lowest key's node; the lower node where keys are equal. REQUIRES: not empty.
  int32_t First() const { return entries_.begin()->node; }

  // Writes the nodes that would go first, in order, as many as there are and `out` has room for.
  // Returns how many.
  size_t First(std::span<int32_t> out) const;

  // REQUIRES: not contained (CHECK).
  void Push(int32_t node, EvictionKey key);
  // REQUIRES: contained with just this key (CHECK).
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
