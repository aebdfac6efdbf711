// Hash table that finds a node by its parent and its first block. It is one open-addressing table
// for the children of all nodes.
//
// A slot has eight bytes: a tag of the hash, and the node. So a lookup touches one cache line
// before the node itself, and growing the table reads no node. It uses linear probing and
// backward-shift deletion, and is at most three quarters full.
//
// Invariants:
//  1. Every entry is found from its tag's home slot without passing an empty slot.
//  2. Different children may have equal tags, so the caller compares the blocks.
//
// Thread safety: used by the engine thread only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/cache_key.h"

namespace baton {

// Tag of the child of `parent` that begins with the units of block `first`. Keep the seed secret. A
// client that knows it could choose blocks with equal tags and make lookups linear.
uint32_t ChildTag(uint64_t seed, int32_t parent, std::span<const CacheUnit> first);

class RadixChildren {
 public:
  static constexpr int32_t kNone = -1;
  static constexpr uint32_t kSlotBytes = 8;

  int64_t size() const { return size_; }

  // The first node with this tag for which `equal` returns true, or kNone.
  template <typename Equal>
  int32_t Find(uint32_t tag, Equal equal) const {
    if (size_ == 0) return kNone;
    for (uint32_t at = tag & mask_;; at = (at + 1) & mask_) {
      const Slot slot = slots_[at];
      if (slot.node == kNone) return kNone;
      if (slot.tag == tag && equal(slot.node)) return slot.node;
    }
  }

  // Address of a tag's home slot, for prefetching. REQUIRES: not empty.
  const void* HomeOf(uint32_t tag) const { return &slots_[tag & mask_]; }

  // REQUIRES: node >= 0, and it is not in the table.
  void Insert(uint32_t tag, int32_t node);
  // REQUIRES: the node is in the table under this tag (CHECK).
  void Erase(uint32_t tag, int32_t node);

 private:
  struct Slot {
    uint32_t tag = 0;
    int32_t node = kNone;
  };
  static_assert(sizeof(Slot) == kSlotBytes);
  void Put(Slot entry);
  void Grow();

  std::vector<Slot> slots_;  // size is zero or a power of two
  uint32_t mask_ = 0;
  int64_t size_ = 0;
};

}  // namespace baton
