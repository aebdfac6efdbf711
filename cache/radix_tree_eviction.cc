// Removal of blocks from a RadixTree: eviction, Remove, Forget, EvictFrom and Clear.
#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "cache/radix_tree.h"
#include "common/check.h"

namespace baton {
namespace {

// Leaves to prefetch at once.
constexpr size_t kVictimsAhead = 16;

}  // namespace

// Frees the blocks of a queued leaf after its first `kept`. Frees the leaf itself if `kept` is 0.
// Returns the number of freed blocks.
int32_t RadixTree::DropTail(RadixNodeIndex leaf, int32_t kept) {
  const RadixNode& node = nodes_[leaf];
  const int32_t dropped = node.size() - kept;
  if (!windows_.empty()) windows_.Drop(std::span<const BlockId>(node.blocks).subspan(kept));
  for (int32_t i = 0; i < dropped; ++i) {
    if (IsPublished(node)) events_->Removed(node, node.size() - 1);
    const BlockId block = nodes_.PopBlock(leaf);
    allocator_->ReleaseHold(block, BlockHolder::kCache);
    CHECK(allocator_->is_free(block)) << "evicted block " << block << " is in use";
  }
  evictable_.Dropped(node, dropped);
  if (kept == 0) {
    evictable_.Unqueue(leaf);
    RemoveNode(leaf);
  }
  return dropped;
}

// REQUIRES: the node has no child, no lock and no block.
void RadixTree::RemoveNode(RadixNodeIndex index) {
  if (nodes_[index].is_root) owners_.RemoveNamespace(nodes_[index].owner);
  const RadixNodeIndex parent = nodes_.Remove(index);
  if (parent == kNoNode) return;
  if (nodes_[parent].is_root) {
    RemoveRootIfUnused(parent);
  } else {
    evictable_.QueueIfLeaf(parent);
  }
}

// Frees a leaf and then its ancestors while they are evictable. Returns the number of freed blocks.
int32_t RadixTree::DropUpwards(RadixNodeIndex leaf) {
  int32_t removed = 0;
  RadixNodeIndex parent = kNoNode;
  for (RadixNodeIndex at = leaf; nodes_[at].live && EvictableNodes::IsEvictableLeaf(nodes_[at]);
       at = parent) {
    parent = nodes_[at].parent;
    removed += DropTail(at, 0);
  }
  totals_.removed_blocks += removed;
  return removed;
}

// Prefetches the memory of the owner's next evictions, so that their cache misses overlap. It
// prefetches everything for the first kVictimsAhead leaves, and only the nodes for as many after
// them.
void RadixTree::PrefetchVictims(OwnerSlot owner) const {
  std::array<RadixNodeIndex, 2 * kVictimsAhead> ahead;
  const auto leaves = std::span(ahead).first(evictable_.First(owner, ahead));
  for (const RadixNodeIndex leaf : leaves) {
    __builtin_prefetch(&nodes_[leaf]);
    __builtin_prefetch(&nodes_[leaf].blocks);
  }
  for (const RadixNodeIndex leaf : leaves.first(std::min(leaves.size(), kVictimsAhead))) {
    const RadixNode& node = nodes_[leaf];
    const BlockId last = node.blocks.back();
    nodes_.PrefetchRemoval(node);
    __builtin_prefetch(allocator_->CountsOf(last));
    if (events_) __builtin_prefetch(events_->HashesOf(last));
  }
}

int32_t RadixTree::Evict(int32_t count, bool keeps_shares) {
  int32_t evicted = 0;
  for (size_t leaves = 0; evicted < count && !evictable_.empty(); ++leaves) {
    // Asks the queue again each time, because a removed leaf may have made its parent the next one.
    const OwnerQueues::Victim victim = evictable_.First(allocator_->limit());
    if (keeps_shares && !victim.over_share) break;
    if (leaves % kVictimsAhead == 0) PrefetchVictims(victim.slot);
    const int32_t most = std::min(count - evicted, victim.most_blocks);
    evicted += DropTail(victim.entry, std::max(0, nodes_[victim.entry].size() - most));
    ++totals_.evictions;
  }
  totals_.evicted_blocks += evicted;
  return evicted;
}

int32_t RadixTree::Remove(CacheNamespace cache_namespace, std::span<const CacheUnit> units) {
  const Position end = Find(cache_namespace, units);
  // If the end lies inside an edge, another sequence continues it.
  if (end.node == kNoNode || end.in_node < nodes_[end.node].size()) return 0;
  return DropUpwards(end.node);
}

void RadixTree::Forget(RadixLock lock) {
  CHECK(lock.tree_ == this);
  const RadixNodeIndex node = lock.node_;
  lock.Drop();
  DropUpwards(node);
}

int32_t RadixTree::EvictFrom(BlockId first) {
  constexpr int32_t kUnknown = -1;
  const auto count = static_cast<RadixNodeIndex>(nodes_.slots().size());
  // Number of blocks that a node may keep. It is zero if an ancestor loses a block.
  std::vector<int32_t> kept(count, kUnknown);
  std::vector<RadixNodeIndex> path;
  for (RadixNodeIndex i = 0; i < count; ++i) {
    if (!nodes_[i].live) continue;
    for (RadixNodeIndex at = i; at != kNoNode && kept[at] == kUnknown; at = nodes_[at].parent) {
      path.push_back(at);
    }
    for (; !path.empty(); path.pop_back()) {
      const RadixNode& node = nodes_[path.back()];
      const bool ancestor_cut =
          node.parent != kNoNode && kept[node.parent] < nodes_[node.parent].size();
      const auto cut = std::find_if(node.blocks.begin(), node.blocks.end(),
                                    [&](BlockId block) { return block >= first; });
      kept[path.back()] = ancestor_cut ? 0 : static_cast<int32_t>(cut - node.blocks.begin());
    }
  }
  int32_t removed = 0;
  for (RadixNodeIndex i = 0; i < count; ++i) {
    RadixNodeIndex parent = kNoNode;
    for (RadixNodeIndex at = i; at != kNoNode; at = parent) {
      const RadixNode& node = nodes_[at];
      if (!node.live || !EvictableNodes::IsEvictableLeaf(node) || kept[at] >= node.size()) break;
      parent = node.parent;
      removed += DropTail(at, kept[at]);
    }
  }
  totals_.removed_blocks += removed;
  evictable_.WatchFrom(first);
  return removed;
}

int32_t RadixTree::Clear() {
  nodes_.MakeAllUnreachable();  // existing nodes are not published from here on
  if (events_) events_->Cleared();
  int32_t removed = 0;
  while (!evictable_.empty()) removed += DropTail(evictable_.First(allocator_->limit()).entry, 0);
  totals_.removed_blocks += removed;
  nodes_.CutOffAll();
  return removed;
}

int32_t RadixTree::Clear(CacheNamespace cache_namespace) {
  const RadixNodeIndex root = nodes_.FindRoot(cache_namespace);
  if (root == kNoNode) return 0;
  const std::vector<std::vector<RadixNodeIndex>> children = nodes_.ChildrenOfAll();
  std::vector<RadixNodeIndex> below = {root};  // parents before their children
  for (size_t i = 0; i < below.size(); ++i) {
    const auto& next = children[below[i]];
    below.insert(below.end(), next.begin(), next.end());
  }
  int32_t removed = 0;
  for (size_t i = below.size(); i-- > 1;) {
    const RadixNode& node = nodes_[below[i]];
    if (EvictableNodes::IsEvictableLeaf(node)) {
      removed += DropTail(below[i], 0);
      continue;
    }
    if (IsPublished(node)) {
      for (int32_t at = node.size(); at-- > 0;) events_->Removed(node, at);
    }
    nodes_.MakeUnreachable(below[i]);  // it is no longer published
  }
  totals_.removed_blocks += removed;
  // An unlocked root was removed with its last child.
  if (nodes_.FindRoot(cache_namespace) != kNoNode) {
    nodes_.MakeUnreachable(root);
    nodes_.CutOff(cache_namespace);
  }
  return removed;
}

}  // namespace baton
