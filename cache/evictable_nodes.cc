#include "cache/evictable_nodes.h"

#include <algorithm>
#include <array>

#include "common/status_macros.h"
#include "common/str_cat.h"

namespace baton {

bool EvictableNodes::HasBehind(const RadixNode& node) const {
  return std::any_of(node.blocks.begin(), node.blocks.end(),
                     [&](BlockId block) { return block >= *watched_from_; });
}

void EvictableNodes::Queue(RadixNodeIndex index) {
  queues_.Push(nodes_[index].owner, index, KeyOfNode(nodes_[index]));
  nodes_[index].is_queued = true;
}

void EvictableNodes::Unqueue(RadixNodeIndex index) {
  queues_.Erase(nodes_[index].owner, index, KeyOfNode(nodes_[index]));
  nodes_[index].is_queued = false;
}

void EvictableNodes::Reown(RadixNodeIndex index, OwnerSlot owner) {
  RadixNode& node = nodes_[index];
  const bool queued = node.is_queued;
  if (queued) Unqueue(index);
  queues_.Count(node.owner, -node.size());
  node.owner = owner;
  queues_.Count(owner, node.size());
  if (queued) Queue(index);
}

void EvictableNodes::WatchFrom(BlockId first) {
  watched_from_ = first;
  has_unlocked_behind_ = false;
}

absl::Status EvictableNodes::CheckNode(RadixNodeIndex index) const {
  const RadixNode& node = nodes_[index];
  const auto broken = [&](std::string_view what) {
    return absl::InternalError(StrCat("radix node ", index, ": ", what));
  };
  if (IsEvictableLeaf(node) != node.is_queued) return broken("is queued wrongly");
  if (node.is_queued != queues_.Contains(node.owner, index, KeyOfNode(node))) {
    return broken("the eviction queue differs");
  }
  if (node.locks == 0 && watched_from_ && !has_unlocked_behind_ && HasBehind(node)) {
    return broken("an unlocked block above the watch mark is not noted");
  }
  return absl::OkStatus();
}

absl::Status EvictableNodes::CheckInvariants() const {
  int32_t evictable = 0, protected_count = 0;
  int64_t queued = 0;
  std::array<int32_t, CacheOwners::kSlots> cached = {};
  const auto slots = nodes_.slots();
  for (RadixNodeIndex i = 0; i < static_cast<RadixNodeIndex>(slots.size()); ++i) {
    if (!slots[i].live) continue;
    (slots[i].locks > 0 ? protected_count : evictable) += slots[i].size();
    queued += slots[i].is_queued;
    cached[slots[i].owner] += slots[i].size();
    RETURN_IF_ERROR(CheckNode(i));
  }
  if (queued != queues_.size()) {
    return absl::InternalError("radix tree: the eviction queue has dead nodes");
  }
  for (int slot = 0; slot < CacheOwners::kSlots; ++slot) {
    const int32_t counted = cached_blocks(static_cast<OwnerSlot>(slot));
    if (counted == cached[slot]) continue;
    return absl::InternalError(StrCat("radix tree: counts ", counted, " blocks of owner slot ",
                                      slot, ", recount finds ", cached[slot]));
  }
  if (evictable == evictable_blocks_ && protected_count == protected_blocks_) {
    return absl::OkStatus();
  }
  return absl::InternalError(StrCat("radix tree: counts ", evictable_blocks_, " evictable and ",
                                    protected_blocks_, " protected blocks, recount finds ",
                                    evictable, " and ", protected_count));
}

}  // namespace baton
