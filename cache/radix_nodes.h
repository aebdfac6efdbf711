// The nodes of a prefix tree: which blocks lead to each, and how a walk finds the next one.
//
// A node stands for the edge that leads to it, a run of whole blocks. Each namespace has a root of
// its own, without blocks. What blocks hold is kept by block id, so that no node owns memory of its
// own size and a split copies no units. Locks, the order of eviction and the holds of blocks are
// the business of others (radix_tree.h).
//
// A node is reachable while a match can walk to it. Clearing makes nodes unreachable and cuts their
// root off: no namespace finds it, and the nodes below it live on until they are removed.
//
// Invariants:
//  1. Two children of one node never begin with equal blocks; a look-up compares units, the hash
//     only finds the place.
//  2. Every node but a root has a block; node_of(block) names the one node that has it.
//  3. All nodes of a path are reachable, or none is.
//  4. The lower part of a split keeps its index. The upper part gets a copy of its lock count, its
//     times, its number of uses and its priority.
//
// Cost: a look-up is O(1) and compares one block, a walk O(units compared), a split O(block ids of
// the edge). Nothing recurses.
//
// Thread safety: belongs to the engine thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "cache/block_units.h"
#include "cache/cache_key.h"
#include "cache/eviction_policy.h"
#include "cache/radix_children.h"
#include "common/strong_int.h"

namespace baton {

using RadixNodeIndex = int32_t;
inline constexpr RadixNodeIndex kNoNode = -1;

struct RadixNodeState {
  RadixNodeIndex parent = kNoNode;
  int32_t child_count = 0;
  int32_t locks = 0;          // held here or below (radix_locks.h)
  int32_t own_locks = 0;      // held here
  int32_t pinned_blocks = 0;  // pins taken here; while there are any, they are one own lock
  int32_t begin = 0;          // blocks before it on its path
  uint32_t generation = 0;    // of RadixNodes when its root was made; another one: unreachable
  uint32_t tag = 0;           // of parent and first block
  bool live = false;
  bool is_root = false;
  bool is_cut_off = false;  // a root that clearing left to its locks
  bool is_queued = false;   // for eviction (evictable_nodes.h)
  NodeUse use;
  CacheNamespace cache_namespace;  // of a root
};
// Two cache lines, side by side: an eviction in a large tree waits for memory.
struct alignas(64) RadixNode : RadixNodeState {
  absl::InlinedVector<BlockId, 4> blocks;
  int32_t size() const { return static_cast<int32_t>(blocks.size()); }
  int32_t end() const { return begin + size(); }  // blocks on its path, its own included
};

class RadixNodes {
 public:
  using Index = RadixNodeIndex;
  // Where a walk ended: `blocks` of the path, the last `in_node` of them in `node`.
  struct Position {
    Index node = kNoNode;
    int32_t in_node = 0;
    int32_t blocks = 0;
  };

  // REQUIRES: block_size >= 1. `blocks`: how many ids there are. Seed and mask as of RadixTree.
  RadixNodes(int32_t block_size, int32_t blocks, uint64_t hash_seed, uint32_t hash_mask);

  RadixNode& operator[](Index node) { return nodes_[node]; }
  const RadixNode& operator[](Index node) const { return nodes_[node]; }
  // Every slot, those of dead nodes included. Adding a node may move them.
  std::span<const RadixNode> slots() const { return nodes_; }
  int64_t size() const { return children_.size(); }  // without roots
  bool empty() const { return roots_.empty() && cut_off_roots_ == 0; }
  const absl::flat_hash_map<CacheNamespace, Index>& roots() const { return roots_; }
  Index node_of(BlockId block) const { return node_of_block_[block.value()]; }
  const BlockUnits& units() const { return units_; }

  // The root of a namespace, or kNoNode.
  Index FindRoot(CacheNamespace cache_namespace) const {
    const auto root = roots_.find(cache_namespace);
    return root == roots_.end() ? kNoNode : root->second;
  }
  Index FindOrAddRoot(CacheNamespace cache_namespace);
  // A child without blocks, to which they are appended next. `first`: units of its first block.
  // REQUIRES: the parent has no child that begins so.
  Index AddChild(Index parent, std::span<const CacheUnit> first);
  // Lengthens a node's edge. REQUIRES: no block is in the tree (CHECK); the node is a new one or
  // has no child; units.size() == blocks.size() * block_size.
  void Append(Index node, std::span<const CacheUnit> units, std::span<const BlockId> blocks);
  // Cuts an edge behind its first `blocks`. Returns the upper part. REQUIRES: 0 < blocks < size.
  Index Split(Index node, int32_t blocks);
  // Shortens a node's edge by its last block, and returns that. REQUIRES: a block, no child.
  BlockId PopBlock(Index node) {
    const BlockId block = nodes_[node].blocks.back();
    nodes_[node].blocks.pop_back();
    node_of_block_[block.value()] = kNoNode;
    return block;
  }
  // REQUIRES: no child, no block. Returns its parent, kNoNode of a root.
  Index Remove(Index node);

  // Follows `units`, at most max_blocks whole blocks of them, down from the end of `start`.
  // visit(node, blocks) sees each node that is passed and how many of its blocks are.
  template <typename Visit>
  Position Walk(Index start, std::span<const CacheUnit> units, int32_t max_blocks,
                Visit visit) const;
  // The block `distance` places before block `at` of the node, on its path. REQUIRES: there is one.
  BlockId BlockBefore(Index node, int32_t at, int32_t distance) const;
  CacheNamespace NamespaceOf(Index node) const;

  bool IsReachable(const RadixNode& node) const { return node.generation == generation_; }
  // Nothing that is there is reachable from now on.
  void MakeAllUnreachable() { ++generation_; }
  // This node is not. REQUIRES: the caller does so for its root and all below that.
  void MakeUnreachable(Index node) { nodes_[node].generation = generation_ - 1; }
  // The namespace has no root from now on. REQUIRES: it has one.
  void CutOff(CacheNamespace cache_namespace);
  // No namespace has one.
  void CutOffAll();

  // A moment after all others: the time of a use.
  uint64_t Tick() { return ++tick_; }

  // The children of each node. O(nodes).
  std::vector<std::vector<Index>> ChildrenOfAll() const;
  // Nodes on the longest path, without its root. O(nodes).
  int32_t Depth() const;
  // Memory to ask for ahead of the node's removal.
  void PrefetchRemoval(const RadixNode& node) const {
    constexpr uint32_t kSlotsPerLine = 64 / RadixChildren::kSlotBytes;
    __builtin_prefetch(&nodes_[node.parent]);
    __builtin_prefetch(children_.HomeOf(node.tag));
    // The next line: what stands behind moves up when a slot is given back.
    __builtin_prefetch(children_.HomeOf(node.tag + kSlotsPerLine));
    __builtin_prefetch(&node_of_block_[node.blocks.back().value()]);
  }
  // Recounts the invariants above. Internal names what breaks. O(nodes + blocks).
  absl::Status CheckInvariants() const;

 private:
  Index New();
  std::vector<CacheUnit> FirstUnits(const RadixNode& node) const;  // of its first block
  uint32_t TagOf(Index parent, std::span<const CacheUnit> first) const;
  Index FindChild(Index parent, std::span<const CacheUnit> first) const;
  int32_t EqualBlocks(const RadixNode& node, std::span<const CacheUnit> units) const;
  absl::Status CheckNode(Index node) const;
  absl::Status CheckRoot(Index root) const;

  const int32_t block_size_;
  const uint64_t hash_seed_;
  const uint32_t hash_mask_;
  BlockUnits units_;  // of a block in the tree: what it was inserted with
  std::vector<RadixNode> nodes_;
  std::vector<Index> unused_;
  absl::flat_hash_map<CacheNamespace, Index> roots_;
  int64_t cut_off_roots_ = 0;
  RadixChildren children_;            // of all nodes
  std::vector<Index> node_of_block_;  // by block id, kNoNode: not in the tree
  uint32_t generation_ = 0;
  uint64_t tick_ = 0;
};

template <typename Visit>
RadixNodes::Position RadixNodes::Walk(Index start, std::span<const CacheUnit> units,
                                      int32_t max_blocks, Visit visit) const {
  Position at{.node = start, .in_node = nodes_[start].size(), .blocks = 0};
  const int32_t limit =
      static_cast<int32_t>(std::min<size_t>(std::max(max_blocks, 0), units.size() / block_size_));
  while (at.blocks < limit) {
    const auto rest =
        units.subspan(size_t(at.blocks) * block_size_, size_t(limit - at.blocks) * block_size_);
    const Index child = FindChild(at.node, rest.first(block_size_));
    if (child == kNoNode) break;
    const int32_t equal = EqualBlocks(nodes_[child], rest);
    visit(nodes_[child], equal);
    at = {.node = child, .in_node = equal, .blocks = at.blocks + equal};
    if (equal < nodes_[child].size()) break;
  }
  return at;
}

}  // namespace baton
