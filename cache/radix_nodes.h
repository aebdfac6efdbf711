// The nodes of a prefix tree: the blocks of each node, and the walk from node to node.
//
// A node stands for the edge that leads to it, which is a run of whole blocks. Each namespace has
// its own root, without blocks. The units of blocks are stored by block id. So no node owns memory
// of variable size for them, and a split copies no units. Other classes handle locks, eviction
// order and holds (radix_tree.h).
//
// A node is reachable while a match can walk to it. Clearing makes nodes unreachable and cuts their
// root off. No namespace finds a cut-off root. The nodes below it exist until they are removed.
//
// Invariants:
//  1. Two children of one node never begin with equal blocks. A lookup compares units; the hash
//     only finds the slot.
//  2. Every node except a root has a block. node_of(block) is the one node that has it.
//  3. All nodes of a path are reachable, or none is.
//  4. The lower part of a split keeps its index. The upper part gets a copy of its lock count, its
//     times, its number of uses and its priority.
//  5. All nodes below a root have its owner.
//
// Cost: a lookup is O(1) and compares one block. A walk is O(units compared), a split O(block ids
// of the edge). Nothing recurses.
//
// Thread safety: used by the engine thread only.
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
#include "cache/cache_owners.h"
#include "cache/eviction_policy.h"
#include "cache/radix_children.h"
#include "common/strong_int.h"

namespace baton {

using RadixNodeIndex = int32_t;
inline constexpr RadixNodeIndex kNoNode = -1;

struct RadixNodeState {
  RadixNodeIndex parent = kNoNode;
  int32_t child_count = 0;
  int32_t locks = 0;          // locks on this node or below it (radix_locks.h)
  int32_t own_locks = 0;      // locks on this node
  int32_t pinned_blocks = 0;  // pins taken on this node; if not zero, they are one own lock
  int32_t begin = 0;          // number of blocks before it on its path
  uint32_t generation = 0;    // reachable if equal to that of RadixNodes
  uint32_t tag = 0;           // hash of its parent and its first block
  bool live = false;
  bool is_root = false;
  bool is_cut_off = false;        // a root that Clear kept because of locks below it
  bool is_queued = false;         // queued for eviction (evictable_nodes.h)
  OwnerSlot owner = kCommonSlot;  // the same as that of its root
  NodeUse use;
  CacheNamespace cache_namespace;  // roots only
};
// Two adjacent cache lines, because an eviction in a large tree waits for memory.
struct alignas(64) RadixNode : RadixNodeState {
  absl::InlinedVector<BlockId, 4> blocks;
  int32_t size() const { return static_cast<int32_t>(blocks.size()); }
  int32_t end() const { return begin + size(); }  // number of blocks on its path, its own included
};

class RadixNodes {
 public:
  using Index = RadixNodeIndex;
  // Where a walk ended: after `blocks` blocks of the path, of which the last `in_node` are in
  // `node`.
  struct Position {
    Index node = kNoNode;
    int32_t in_node = 0;
    int32_t blocks = 0;
  };

  // `blocks` is the number of block ids. Seed and mask as in RadixTree. REQUIRES: block_size >= 1.
  RadixNodes(int32_t block_size, int32_t blocks, uint64_t hash_seed, uint32_t hash_mask);

  RadixNode& operator[](Index node) { return nodes_[node]; }
  const RadixNode& operator[](Index node) const { return nodes_[node]; }
  // Every slot, including those of dead nodes. Valid until a node is added.
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
  // Adds a child without blocks; the caller appends them next. `first` holds the units of its first
  // block. REQUIRES: no child of the parent begins with these units.
  Index AddChild(Index parent, std::span<const CacheUnit> first);
  // Appends blocks to a node's edge. REQUIRES: none of them is in the tree (CHECK); the node is new
  // or has no child; units.size() == blocks.size() * block_size.
  void Append(Index node, std::span<const CacheUnit> units, std::span<const BlockId> blocks);
  // Splits an edge after its first `blocks` blocks. Returns the upper part. REQUIRES: 0 < blocks <
  // size.
  Index Split(Index node, int32_t blocks);
  // Removes and returns the last block of a node's edge. REQUIRES: the node has a block and no
  // child.
  BlockId PopBlock(Index node) {
    const BlockId block = nodes_[node].blocks.back();
    nodes_[node].blocks.pop_back();
    node_of_block_[block.value()] = kNoNode;
    return block;
  }
  // REQUIRES: the node has no child and no block. Returns its parent, or kNoNode for a root.
  Index Remove(Index node);

  // Walks down from the end of `start` along `units`, at most max_blocks whole blocks. It calls
  // visit(node, blocks) for each node on the way, with the number of matched blocks in it.
  template <typename Visit>
  Position Walk(Index start, std::span<const CacheUnit> units, int32_t max_blocks,
                Visit visit) const;
  // The block `distance` places before block `at` of the node, on its path. REQUIRES: it exists.
  BlockId BlockBefore(Index node, int32_t at, int32_t distance) const;
  CacheNamespace NamespaceOf(Index node) const;

  bool IsReachable(const RadixNode& node) const { return node.generation == generation_; }
  // Makes every existing node unreachable.
  void MakeAllUnreachable() { ++generation_; }
  // Makes one node unreachable. REQUIRES: the caller does the same for its root and all nodes
  // below.
  void MakeUnreachable(Index node) { nodes_[node].generation = generation_ - 1; }
  // Detaches the root from its namespace. REQUIRES: the namespace has a root.
  void CutOff(CacheNamespace cache_namespace);
  // Detaches all roots.
  void CutOffAll();

  // Returns the next time stamp of the tree.
  uint64_t Tick() { return ++tick_; }

  // The children of each node. O(nodes).
  std::vector<std::vector<Index>> ChildrenOfAll() const;
  // Number of nodes on the longest path, without its root. O(nodes).
  int32_t Depth() const;
  // Prefetches the memory that removing the node will touch.
  void PrefetchRemoval(const RadixNode& node) const {
    constexpr uint32_t kSlotsPerLine = 64 / RadixChildren::kSlotBytes;
    __builtin_prefetch(&nodes_[node.parent]);
    __builtin_prefetch(children_.HomeOf(node.tag));
    // The next line too, because entries after a freed slot may move up.
    __builtin_prefetch(children_.HomeOf(node.tag + kSlotsPerLine));
    __builtin_prefetch(&node_of_block_[node.blocks.back().value()]);
  }
  // Recounts the invariants above. Internal names the first violation. O(nodes + blocks).
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
  BlockUnits units_;  // units of every block in the tree
  std::vector<RadixNode> nodes_;
  std::vector<Index> unused_;
  absl::flat_hash_map<CacheNamespace, Index> roots_;
  int64_t cut_off_roots_ = 0;
  RadixChildren children_;            // of all nodes
  std::vector<Index> node_of_block_;  // by block id; kNoNode if not in the tree
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
