// Finds a node from its parent and the first block behind it: one open-addressing table for the
// children of all nodes.
//
// A slot is eight bytes, a tag of the hash and the node, so a look-up costs one cache line before
// the node itself, and growing the table reads no node. Linear probing, backward-shift deletion, at
// most three quarters full.
//
// Invariants:
//  1. Every entry is found from its tag's home slot without passing an empty one.
//  2. Equal tags mean nothing: the caller compares what it looks for.
//
// Thread safety: belongs to the engine thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/cache_key.h"

namespace baton {

// The tag of the node behind `parent` that begins with the units of block `first`. Who does not
// know the seed cannot choose blocks whose tags collide, which would make look-ups linear.
uint32_t ChildTag(uint64_t seed, int32_t parent, std::span<const CacheUnit> first);

class RadixChildren {
 public:
  static constexpr int32_t kNone = -1;
  static constexpr uint32_t kSlotBytes = 8;

  int64_t size() const { return size_; }

  // The first node with this tag that `equal` accepts, or kNone.
  template <typename Equal>
  int32_t Find(uint32_t tag, Equal equal) const {
    if (size_ == 0) return kNone;
    for (uint32_t at = tag & mask_;; at = (at + 1) & mask_) {
      const Slot slot = slots_[at];
      if (slot.node == kNone) return kNone;
      if (slot.tag == tag && equal(slot.node)) return slot.node;
    }
  }

  // Where a tag's look-up begins: memory to ask for ahead of its use. REQUIRES: not empty.
  const void* HomeOf(uint32_t tag) const { return &slots_[tag & mask_]; }

  // REQUIRES: node >= 0 and not there.
  void Insert(uint32_t tag, int32_t node);
  // REQUIRES: there under this tag (CHECK).
  void Erase(uint32_t tag, int32_t node);

 private:
  struct Slot {
    uint32_t tag = 0;
    int32_t node = kNone;
  };
  static_assert(sizeof(Slot) == kSlotBytes);
  void Put(Slot entry);
  void Grow();

  std::vector<Slot> slots_;  // a power of two, or none
  uint32_t mask_ = 0;
  int64_t size_ = 0;
};

}  // namespace baton
