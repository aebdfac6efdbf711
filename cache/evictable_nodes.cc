#include "cache/evictable_nodes.h"

#include <algorithm>

#include "common/status_macros.h"
#include "common/str_cat.h"

namespace baton {

bool EvictableNodes::HasBehind(const RadixNode& node) const {
  return std::any_of(node.blocks.begin(), node.blocks.end(),
                     [&](BlockId block) { return block >= *watched_from_; });
}

void EvictableNodes::Queue(RadixNodeIndex index) {
  queue_.Push(index, KeyOfNode(nodes_[index]));
  nodes_[index].is_queued = true;
}

void EvictableNodes::Unqueue(RadixNodeIndex index) {
  queue_.Erase(index, KeyOfNode(nodes_[index]));
  nodes_[index].is_queued = false;
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
  if (node.is_queued != queue_.Contains(index, KeyOfNode(node))) {
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
  const auto slots = nodes_.slots();
  for (RadixNodeIndex i = 0; i < static_cast<RadixNodeIndex>(slots.size()); ++i) {
    if (!slots[i].live) continue;
    (slots[i].locks > 0 ? protected_count : evictable) += slots[i].size();
    queued += slots[i].is_queued;
    RETURN_IF_ERROR(CheckNode(i));
  }
  if (queued != queue_.size()) {
    return absl::InternalError("radix tree: the eviction queue has dead nodes");
  }
  if (evictable == evictable_blocks_ && protected_count == protected_blocks_) {
    return absl::OkStatus();
  }
  return absl::InternalError(StrCat("radix tree: counts ", evictable_blocks_, " evictable and ",
                                    protected_blocks_, " protected blocks, recount finds ",
                                    evictable, " and ", protected_count));
}

}  // namespace baton
