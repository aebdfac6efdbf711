// RadixTree::CheckInvariants: every kept figure recounted.
#include <vector>

#include "absl/status/status.h"
#include "cache/radix_tree.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "common/str_cat.h"

namespace baton {

absl::Status RadixTree::CheckNode(NodeIndex index, int32_t child_count, int32_t child_locks) const {
  const Node& node = nodes_[index];
  const auto broken = [&](std::string_view what) {
    return absl::InternalError(StrCat("radix node ", index, ": ", what));
  };
  if (node.child_count != child_count) return broken("child count differs");
  if (node.locks != child_locks + node.own_locks) return broken("lock count differs");
  if (node.own_locks < (node.pinned_blocks > 0 ? 1 : 0)) return broken("pins without a lock");
  if (IsEvictable(node) != node.is_queued) return broken("queued wrongly");
  if (node.is_queued != eviction_queue_.Contains(index, KeyOfNode(node))) {
    return broken("eviction queue differs");
  }
  if (node.is_root) return CheckRoot(index);
  if (node.blocks.empty()) return broken("no blocks");
  const Node& parent = nodes_[node.parent];
  if (node.begin != parent.begin + parent.size()) return broken("begins elsewhere");
  if (node.generation != parent.generation) return broken("is of another generation");
  if (FindChild(node.parent, FirstUnits(node)) != index) {
    return broken("not found from its parent");
  }
  for (const BlockId block : node.blocks) {
    if (node_of_block_[block.value()] != index) return broken("block listed elsewhere");
    if (allocator_->holds(block, BlockHolder::kRadixNode) != 1) return broken("hold differs");
    const bool used =
        allocator_->holds(block, BlockHolder::kSequence) > 0 || allocator_->pins(block) > 0;
    if (used && node.locks == 0) return broken("block in use, node not locked");
    if (node.locks == 0 && evicted_from_ && block >= *evicted_from_ && !has_unlocked_behind_) {
      return broken("unlocked behind what was evicted, unnoticed");
    }
  }
  return absl::OkStatus();
}

absl::Status RadixTree::CheckRoot(NodeIndex index) const {
  const Node& root = nodes_[index];
  const auto broken = [&](std::string_view what) {
    return absl::InternalError(StrCat("radix root ", index, ": ", what));
  };
  if (!root.blocks.empty()) return broken("has blocks");
  if (root.locks == 0 && root.child_count == 0) return broken("is unused");
  const auto it = roots_.find(root.cache_namespace);
  const bool found = it != roots_.end() && it->second == index;
  if (found == root.is_cut_off) return broken("reachable if cut off, or not reachable");
  return absl::OkStatus();
}

absl::Status RadixTree::CheckInvariants() const {
  std::vector<int32_t> child_counts(nodes_.size());
  std::vector<int32_t> child_locks(nodes_.size());
  int32_t evictable = 0, protected_count = 0;
  for (const Node& node : nodes_) {
    if (!node.live) continue;
    (node.locks > 0 ? protected_count : evictable) += node.size();
    if (node.parent == kNone) continue;
    ++child_counts[node.parent];
    child_locks[node.parent] += node.locks;
  }
  int64_t live = 0, evictable_leaves = 0, cut_off = 0;
  for (NodeIndex i = 0; i < static_cast<NodeIndex>(nodes_.size()); ++i) {
    if (!nodes_[i].live) continue;
    ++live;
    evictable_leaves += nodes_[i].is_queued;
    cut_off += nodes_[i].is_cut_off;
    RETURN_IF_ERROR(CheckNode(i, child_counts[i], child_locks[i]));
  }
  if (cut_off != cut_off_roots_) return absl::InternalError("radix tree: cut-off roots differ");
  if (live != static_cast<int64_t>(roots_.size()) + cut_off_roots_ + children_.size()) {
    return absl::InternalError("radix tree: nodes live outside the tree");
  }
  if (evictable_leaves != eviction_queue_.size()) {
    return absl::InternalError("radix tree: dead nodes in the eviction queue");
  }
  if (evictable != evictable_blocks_ || protected_count != protected_blocks_) {
    return absl::InternalError(StrCat("radix tree: keeps ", evictable_blocks_, " evictable and ",
                                      protected_blocks_, " protected blocks, recount finds ",
                                      evictable, " and ", protected_count));
  }
  for (const WindowCache* window : windows_) {
    for (int32_t i = 0; i < allocator_->capacity(); ++i) {
      if (window->At(BlockId(i)) == kNoBlock || ContainsBlock(BlockId(i))) continue;
      return absl::InternalError(StrCat(
          "radix tree: block ", i, " is not here, yet has a block of window ", window->window()));
    }
  }
  return absl::OkStatus();
}

}  // namespace baton
