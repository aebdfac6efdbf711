// The prefixes whose KV is cached: a radix tree over full blocks of units.
//
// An edge (a node and the run of blocks that leads to it) carries whole blocks: their units, which
// are compared on every match, and their block ids, each with one kRadixNode hold. The namespace is
// the first step of every path: each namespace has a root of its own, so no walk can leave it.
//
// A lock protects a prefix from eviction. It is taken by a match, which splits the edge it ends in
// (so that a lock always covers whole nodes), moves when its holder inserts behind it, and counts
// along the path to the root: a node whose count is zero is evictable, and so is all below it.
// A split leaves the lower part its identity and gives the upper part a copy of the count, so locks
// stay valid. A transfer locks in the same way what it reads (PinBlock).
//
// Eviction takes blocks from the end of the least recently used unlocked leaf; a parent that
// becomes a leaf follows in its turn. "Used" means: the last lock that covered it was dropped.
//
// Invariants:
//  1. Two children of one node never begin with equal blocks; lookup compares units, the hash only
//     finds the place.
//  2. locks(node) = locks held at it + sum of locks(children). A node without locks has no block
//     with a sequence or transfer hold, hence evicting a block frees it.
//  3. evictable + protected = blocks in the tree, kept incrementally.
//  4. A node is in the eviction queue exactly when it is no root, has no child and no lock.
//  5. A root without child and lock is removed: namespaces cost nothing once they are gone.
//
// Cost: match and insert O(units compared), a split O(blocks of the edge), lock and unlock
// O(nodes on the path), eviction O(log nodes) per node and O(1) per block. Nothing recurses, so
// depth is bounded by memory alone. After SGLang's radix cache and vLLM's prefix cache.
//
// Thread safety: belongs to the engine thread.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/hash/hash.h"
#include "absl/status/status.h"
#include "cache/block_allocator.h"
#include "cache/cache_key.h"
#include "cache/eviction_queue.h"
#include "common/strong_int.h"

namespace baton {

class RadixTree;

// A held prefix; dropping it lets go. Outlived by its tree. Empty when default-made or moved from.
class RadixLock {
 public:
  RadixLock() = default;
  RadixLock(RadixLock&& other) noexcept { *this = std::move(other); }
  RadixLock& operator=(RadixLock&& other) noexcept;
  RadixLock(const RadixLock&) = delete;
  RadixLock& operator=(const RadixLock&) = delete;
  ~RadixLock() { Drop(); }

  void Drop();
  explicit operator bool() const { return tree_ != nullptr; }

 private:
  friend class RadixTree;
  RadixLock(RadixTree* tree, int32_t node) : tree_(tree), node_(node) {}

  RadixTree* tree_ = nullptr;
  int32_t node_ = -1;
};

struct RadixMatch {
  RadixLock lock;  // of the matched prefix; of the namespace alone when nothing matched
  std::vector<BlockId> blocks;
};

struct RadixPeek {
  int32_t blocks = 0;            // matched
  int32_t evictable_blocks = 0;  // of those, not locked by anyone now
};

struct RadixStats {
  int64_t nodes = 0;  // without roots
  int64_t namespaces = 0;
  int32_t evictable_blocks = 0;
  int32_t protected_blocks = 0;
  int64_t inserted_blocks = 0;   // ever
  int64_t duplicate_blocks = 0;  // handed to Insert, yet there already
  int64_t evicted_blocks = 0;
  int64_t splits = 0;
};

class RadixTree {
 public:
  // REQUIRES: block_size >= 1; allocator outlives the tree. A narrow hash_mask makes hashes of
  // blocks collide: for tests that nothing depends on them but speed.
  RadixTree(int32_t block_size, BlockAllocator* allocator, size_t hash_mask = SIZE_MAX);
  // Gives every block back. REQUIRES: no lock is left.
  ~RadixTree();
  RadixTree(const RadixTree&) = delete;
  RadixTree& operator=(const RadixTree&) = delete;

  // Locks the longest cached prefix of `units`, of whole blocks and at most max_blocks of them. A
  // prefix shorter than min_blocks counts as none.
  RadixMatch Match(CacheNamespace cache_namespace, std::span<const CacheUnit> units,
                   int32_t max_blocks, int32_t min_blocks = 0);
  // The same walk without an effect.
  RadixPeek Peek(CacheNamespace cache_namespace, std::span<const CacheUnit> units,
                 int32_t max_blocks) const;

  // Inserts blocks behind the locked prefix; `units` are theirs alone. Where the tree already has
  // an equal block, its id replaces the caller's in `blocks`; other blocks gain a kRadixNode hold.
  // The lock then covers all of it. Returns how many blocks were there already: they lead.
  // REQUIRES: lock is of this tree; units.size() == blocks.size() * block_size; the caller holds
  // each block, none of which is in the tree.
  int32_t Insert(RadixLock& lock, std::span<const CacheUnit> units, std::span<BlockId> blocks);

  // Frees up to `count` blocks. Returns how many.
  int32_t Evict(int32_t count);

  // A transfer took its first hold on / dropped its last hold on `block`. Blocks that are not in
  // the tree are ignored; Insert finds the hold of one that comes later. The pin locks the path of
  // the block's whole node.
  void PinBlock(BlockId block);
  void UnpinBlock(BlockId block);

  int32_t evictable_blocks() const { return evictable_blocks_; }
  int32_t protected_blocks() const { return protected_blocks_; }
  bool ContainsBlock(BlockId block) const { return node_of_block_[block.value()] >= 0; }
  RadixStats Stats() const;
  // Recounts every invariant. Internal names what breaks. O(nodes + blocks).
  absl::Status CheckInvariants() const;

 private:
  friend class RadixLock;
  using NodeIndex = int32_t;
  static constexpr NodeIndex kNone = -1;

  struct Node {
    NodeIndex parent = kNone;
    bool live = false;
    bool is_root = false;
    int32_t child_count = 0;
    int32_t locks = 0;          // held here or below
    int32_t own_locks = 0;      // held here
    int32_t pinned_blocks = 0;  // pins taken here; while there are any, they are one own lock
    uint64_t last_used = 0;     // tick
    size_t first_hash = 0;      // of the first block's units
    CacheNamespace cache_namespace;
    std::vector<CacheUnit> units;
    std::vector<BlockId> blocks;
    int32_t size() const { return static_cast<int32_t>(blocks.size()); }
  };
  // Children of all nodes in one table, found by parent and first block.
  struct ChildProbe {
    NodeIndex parent;
    size_t first_hash;
    std::span<const CacheUnit> first;
  };
  struct ChildHash {
    using is_transparent = void;
    const std::vector<Node>* nodes;
    size_t operator()(const ChildProbe& probe) const;
    size_t operator()(NodeIndex node) const;
  };
  struct ChildEqual {
    using is_transparent = void;
    const std::vector<Node>* nodes;
    bool operator()(NodeIndex node, const ChildProbe& probe) const;
    bool operator()(const ChildProbe& probe, NodeIndex node) const { return (*this)(node, probe); }
    bool operator()(NodeIndex a, NodeIndex b) const { return a == b; }
  };
  // Where a walk ended: `blocks` of the path, the last `in_node` of them in `node`.
  struct Position {
    NodeIndex node = kNone;
    int32_t in_node = 0;
    int32_t blocks = 0;
  };

  NodeIndex NewNode();
  NodeIndex RootOf(CacheNamespace cache_namespace);
  void RemoveNode(NodeIndex node);
  size_t HashOfBlock(std::span<const CacheUnit> units) const;
  NodeIndex FindChild(NodeIndex parent, std::span<const CacheUnit> first) const;
  NodeIndex AddChild(NodeIndex parent, std::span<const CacheUnit> units,
                     std::span<const BlockId> blocks);
  void Append(NodeIndex node, std::span<const CacheUnit> units, std::span<const BlockId> blocks);
  NodeIndex Split(NodeIndex node, int32_t blocks);
  int32_t EqualBlocks(const Node& node, std::span<const CacheUnit> units) const;
  template <typename Visit>
  Position Walk(NodeIndex start, std::span<const CacheUnit> units, int32_t max_blocks,
                Visit visit) const;
  // The node that ends exactly at the position.
  NodeIndex NodeEndingAt(const Position& position);

  void LockBetween(NodeIndex node, NodeIndex end);
  void LockPath(NodeIndex node);
  void MoveLockDown(RadixLock& lock, NodeIndex node);
  void UnlockPath(NodeIndex node);
  void QueueIfEvictable(NodeIndex node);
  void RemoveRootIfUnused(NodeIndex node);
  void PinAt(NodeIndex node, BlockId block);
  absl::Status CheckNode(NodeIndex node, int32_t child_count, int32_t child_locks) const;

  const int32_t block_size_;
  BlockAllocator* const allocator_;
  const size_t hash_mask_;
  std::vector<Node> nodes_;
  std::vector<NodeIndex> unused_nodes_;
  absl::flat_hash_map<CacheNamespace, NodeIndex> roots_;
  absl::flat_hash_set<NodeIndex, ChildHash, ChildEqual> children_;
  std::vector<NodeIndex> node_of_block_;               // by block id, kNone: not in the tree
  absl::flat_hash_map<BlockId, NodeIndex> pinned_at_;  // the node that the pin locked
  EvictionQueue eviction_queue_;
  uint64_t tick_ = 0;
  int32_t evictable_blocks_ = 0;
  int32_t protected_blocks_ = 0;
  RadixStats totals_;  // the ever-growing ones
};

}  // namespace baton
