// How blocks leave a RadixTree: eviction, removal, clearing.
#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "cache/radix_tree.h"
#include "common/check.h"

namespace baton {
namespace {

// How many victims' memory is asked for at once.
constexpr size_t kVictimsAhead = 16;

}  // namespace

void RadixTree::QueueIfEvictable(NodeIndex index) {
  Node& node = nodes_[index];
  if (!IsEvictable(node)) return;
  eviction_queue_.Push(index, KeyOfNode(node));
  node.is_queued = true;
}

void RadixTree::Unqueue(NodeIndex index) {
  eviction_queue_.Erase(index, KeyOfNode(nodes_[index]));
  nodes_[index].is_queued = false;
}

// Frees the blocks of a queued leaf behind its first `kept`, and the leaf itself with its last one.
// Returns how many.
int32_t RadixTree::DropTail(NodeIndex leaf, int32_t kept) {
  Node& node = nodes_[leaf];
  const int32_t dropped = node.size() - kept;
  if (!windows_.empty()) DropWindows(std::span<const BlockId>(node.blocks).subspan(kept));
  for (int32_t i = 0; i < dropped; ++i) {
    const BlockId block = node.blocks.back();
    if (IsPublished(node)) PublishRemoved(node, node.size() - 1);
    node.blocks.pop_back();
    node_of_block_[block.value()] = kNone;
    allocator_->ReleaseHold(block, BlockHolder::kRadixNode);
    CHECK(allocator_->is_free(block)) << "evicted block " << block << " is in use";
  }
  evictable_blocks_ -= dropped;
  if (kept == 0) {
    Unqueue(leaf);
    RemoveNode(leaf);
  }
  return dropped;
}

// Frees a leaf and then its ancestors for as long as they are evictable. Returns how many blocks.
int32_t RadixTree::DropUpwards(NodeIndex leaf) {
  int32_t removed = 0;
  NodeIndex parent = kNone;
  for (NodeIndex at = leaf; nodes_[at].live && IsEvictable(nodes_[at]); at = parent) {
    parent = nodes_[at].parent;
    removed += DropTail(at, 0);
  }
  totals_.removed_blocks += removed;
  return removed;
}

// Asks for what the next evictions will touch, so that they wait for memory together: everything of
// the first kVictimsAhead leaves, the nodes alone of as many behind them.
void RadixTree::PrefetchVictims() const {
  std::array<NodeIndex, 2 * kVictimsAhead> ahead;
  const auto leaves = std::span(ahead).first(eviction_queue_.First(ahead));
  for (const NodeIndex leaf : leaves) {
    __builtin_prefetch(&nodes_[leaf]);
    __builtin_prefetch(&nodes_[leaf].blocks);
  }
  for (const NodeIndex leaf : leaves.first(std::min(leaves.size(), kVictimsAhead))) {
    const Node& node = nodes_[leaf];
    const BlockId last = node.blocks.back();
    __builtin_prefetch(&nodes_[node.parent]);
    __builtin_prefetch(children_.HomeOf(node.tag));
    // The next line: what stands behind moves up when a slot is given back.
    __builtin_prefetch(children_.HomeOf(node.tag + 64 / RadixChildren::kSlotBytes));
    __builtin_prefetch(allocator_->CountsOf(last));
    __builtin_prefetch(&node_of_block_[last.value()]);
    if (published_ != nullptr) __builtin_prefetch(published_->HashesOf(last));
  }
}

int32_t RadixTree::Evict(int32_t count) {
  int32_t evicted = 0;
  for (size_t leaves = 0; evicted < count && !eviction_queue_.empty(); ++leaves) {
    if (leaves % kVictimsAhead == 0) PrefetchVictims();
    // The queue's first now: a leaf that went may have made its parent the next.
    const NodeIndex leaf = eviction_queue_.First();
    evicted += DropTail(leaf, std::max(0, nodes_[leaf].size() - (count - evicted)));
    ++totals_.evictions;
  }
  totals_.evicted_blocks += evicted;
  return evicted;
}

int32_t RadixTree::Remove(CacheNamespace cache_namespace, std::span<const CacheUnit> units) {
  const Position end = Find(cache_namespace, units);
  // Inside an edge, or above others, another sequence goes on.
  if (end.node == kNone || end.in_node < nodes_[end.node].size()) return 0;
  return DropUpwards(end.node);
}

void RadixTree::Forget(RadixLock lock) {
  CHECK(lock.tree_ == this);
  const NodeIndex node = lock.node_;
  lock.Drop();
  DropUpwards(node);
}

int32_t RadixTree::EvictFrom(BlockId first) {
  constexpr int32_t kUnknown = -1;
  const NodeIndex count = static_cast<NodeIndex>(nodes_.size());
  // How many of its blocks a node may keep: none when an ancestor loses any.
  std::vector<int32_t> kept(count, kUnknown);
  std::vector<NodeIndex> path;
  for (NodeIndex i = 0; i < count; ++i) {
    if (!nodes_[i].live) continue;
    for (NodeIndex at = i; at != kNone && kept[at] == kUnknown; at = nodes_[at].parent) {
      path.push_back(at);
    }
    for (; !path.empty(); path.pop_back()) {
      const Node& node = nodes_[path.back()];
      const bool ancestor_cut =
          node.parent != kNone && kept[node.parent] < nodes_[node.parent].size();
      const auto cut = std::find_if(node.blocks.begin(), node.blocks.end(),
                                    [&](BlockId block) { return block >= first; });
      kept[path.back()] = ancestor_cut ? 0 : static_cast<int32_t>(cut - node.blocks.begin());
    }
  }
  int32_t removed = 0;
  for (NodeIndex i = 0; i < count; ++i) {
    NodeIndex parent = kNone;
    for (NodeIndex at = i; at != kNone; at = parent) {
      const Node& node = nodes_[at];
      if (!node.live || !IsEvictable(node) || kept[at] >= node.size()) break;
      parent = node.parent;
      removed += DropTail(at, kept[at]);
    }
  }
  totals_.removed_blocks += removed;
  evicted_from_ = first;
  has_unlocked_behind_ = false;
  return removed;
}

void RadixTree::NoteUnlockedBehind(const Node& node) {
  if (!evicted_from_ || has_unlocked_behind_) return;
  has_unlocked_behind_ = std::any_of(node.blocks.begin(), node.blocks.end(),
                                     [&](BlockId block) { return block >= *evicted_from_; });
}

int32_t RadixTree::Clear() {
  ++generation_;  // from here on nothing that is there is published
  if (published_ != nullptr) published_->Cleared();
  int32_t removed = 0;
  while (!eviction_queue_.empty()) removed += DropTail(eviction_queue_.First(), 0);
  totals_.removed_blocks += removed;
  for (const auto& [cache_namespace, root] : roots_) CutOff(root);
  roots_.clear();
  return removed;
}

void RadixTree::CutOff(NodeIndex root) {
  nodes_[root].is_cut_off = true;
  ++cut_off_roots_;
}

int32_t RadixTree::Clear(CacheNamespace cache_namespace) {
  const auto found = roots_.find(cache_namespace);
  if (found == roots_.end()) return 0;
  const NodeIndex root = found->second;
  const std::vector<std::vector<NodeIndex>> children = ChildrenOfAll();
  std::vector<NodeIndex> below = {root};  // parents before their children
  for (size_t i = 0; i < below.size(); ++i) {
    const auto& next = children[below[i]];
    below.insert(below.end(), next.begin(), next.end());
  }
  int32_t removed = 0;
  for (size_t i = below.size(); i-- > 1;) {
    Node& node = nodes_[below[i]];
    if (IsEvictable(node)) {
      removed += DropTail(below[i], 0);
      continue;
    }
    if (IsPublished(node)) {
      for (int32_t at = node.size(); at-- > 0;) PublishRemoved(node, at);
    }
    node.generation = generation_ - 1;  // it is told of no more
  }
  totals_.removed_blocks += removed;
  // With its last child an unlocked root is gone.
  if (const auto it = roots_.find(cache_namespace); it != roots_.end()) {
    nodes_[root].generation = generation_ - 1;
    CutOff(root);
    roots_.erase(it);
  }
  return removed;
}

RadixStats RadixTree::Stats() const {
  RadixStats stats = totals_;
  stats.namespaces = static_cast<int64_t>(roots_.size());
  stats.nodes = children_.size();
  stats.evictable_blocks = evictable_blocks_;
  stats.protected_blocks = protected_blocks_;
  return stats;
}

}  // namespace baton
