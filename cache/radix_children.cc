#include "cache/radix_children.h"

#include <xxhash.h>

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace baton {

uint32_t ChildTag(uint64_t seed, int32_t parent, std::span<const CacheUnit> first) {
  return static_cast<uint32_t>(
      XXH3_64bits_withSeed(first.data(), first.size_bytes(), seed ^ static_cast<uint32_t>(parent)));
}

void RadixChildren::Put(Slot entry) {
  uint32_t at = entry.tag & mask_;
  while (slots_[at].node != kNone) at = (at + 1) & mask_;
  slots_[at] = entry;
}

void RadixChildren::Grow() {
  const std::vector<Slot> old = std::exchange(slots_, {});
  slots_.resize(std::max<size_t>(16, 2 * old.size()));
  mask_ = static_cast<uint32_t>(slots_.size() - 1);
  for (const Slot& slot : old) {
    if (slot.node != kNone) Put(slot);
  }
}

void RadixChildren::Insert(uint32_t tag, int32_t node) {
  if (4 * (size_ + 1) > 3 * static_cast<int64_t>(slots_.size())) Grow();
  Put({.tag = tag, .node = node});
  ++size_;
}

void RadixChildren::Erase(uint32_t tag, int32_t node) {
  CHECK_GT(size_, 0);
  uint32_t hole = tag & mask_;
  while (slots_[hole].node != node) {
    CHECK_NE(slots_[hole].node, kNone) << "node " << node << " is not in the table";
    hole = (hole + 1) & mask_;
  }
  // Moves each later entry into the hole, unless its home slot lies after the hole.
  for (uint32_t at = (hole + 1) & mask_; slots_[at].node != kNone; at = (at + 1) & mask_) {
    const uint32_t from_home = (at - slots_[at].tag) & mask_;
    const uint32_t from_hole = (at - hole) & mask_;
    if (from_home < from_hole) continue;
    slots_[hole] = slots_[at];
    hole = at;
  }
  slots_[hole] = {};
  --size_;
}

}  // namespace baton
