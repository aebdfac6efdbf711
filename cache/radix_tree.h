// The prefixes whose KV is cached: a radix tree over full blocks of units.
//
// An edge (a node and the run of blocks that leads to it) carries whole blocks: their units, which
// are compared on every match, and their block ids, each with one kRadixNode hold. The namespace is
// the first step of every path: each namespace has a root of its own, so no walk can leave it. A
// unit is whatever the caller's keys count (tokens, bigrams): alignment, insertion and locks count
// units.
//
// A lock protects a prefix from eviction. It is taken by a match, which splits the edge it ends in
// (so that a lock always covers whole nodes), moves when its holder inserts behind it, and counts
// along the path to the root: a node whose count is zero is evictable, and so is all below it.
// Splits leave locks valid, and no policy sees a new node. A transfer or a step locks in the same
// way what it reads (PinBlock).
//
// Eviction takes blocks from the end of the leaf that the policy names (eviction_policy.h); a
// parent that becomes a leaf follows in its turn. "Used" means: the last lock that covered it was
// dropped.
//
// Clear forgets everything, or a namespace, at once: unlocked blocks are freed, and what is locked
// can no longer be matched and is freed with its last lock.
//
// A model with sliding windows has window blocks beside some of the blocks here (AddWindow). Then a
// match ends where every window before its end is whole, though the walk goes further; and a block
// that the tree frees takes its window blocks along. All else is as without windows.
//
// On request the tree tells of the runs of 16 units that it holds (PublishTo). No match finds what
// Clear cut off, so the tree tells of that no more.
//
// The machines inside: radix_nodes.h (where nodes and blocks are), radix_locks.h, evictable_nodes.h
// (what may go next) and radix_events.h. The tree itself matches, inserts and frees.
//
// Invariants, beside theirs:
//  1. A block in the tree has one kRadixNode hold.
//  2. A node without locks has no block with a sequence or transfer hold, hence evicting a block
//     frees it.
//  3. A root without child and lock is removed: namespaces cost nothing once they are gone.
//  4. Below a root that Clear cut off every node is locked.
//  5. What was published is the set of full runs on the paths that a match can walk.
//
// Cost: match and insert O(units compared), a split O(block ids of the edge), lock and unlock
// O(nodes on the path), eviction O(log nodes) per node and O(1) per block. Nothing recurses, so
// depth is bounded by memory alone. After SGLang's radix cache and vLLM's prefix cache.
//
// Thread safety: belongs to the engine thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "cache/block_allocator.h"
#include "cache/cache_key.h"
#include "cache/evictable_nodes.h"
#include "cache/eviction_policy.h"
#include "cache/index/kv_event_batcher.h"
#include "cache/radix_events.h"
#include "cache/radix_locks.h"
#include "cache/radix_nodes.h"
#include "cache/window_caches.h"
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
  RadixLock(RadixTree* tree, RadixNodeIndex node, int32_t priority)
      : tree_(tree), node_(node), priority_(priority) {}

  RadixTree* tree_ = nullptr;
  RadixNodeIndex node_ = kNoNode;
  int32_t priority_ = 0;
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
  int64_t evictions = 0;         // leaves that eviction took blocks of
  int64_t evicted_blocks = 0;
  int64_t removed_blocks = 0;  // by Remove, EvictFrom and Clear
  int64_t splits = 0;
};

class RadixTree {
 public:
  // REQUIRES: block_size >= 1; allocator outlives the tree. `hash_seed` is nobody's to guess where
  // clients may be hostile (ChildTag). A narrow hash_mask makes hashes collide: for tests that
  // nothing depends on them but speed.
  RadixTree(int32_t block_size, BlockAllocator* allocator,
            EvictionPolicy policy = EvictionPolicy::kLru, uint64_t hash_seed = 0,
            uint32_t hash_mask = UINT32_MAX);
  // Gives every block back. REQUIRES: no lock is left.
  ~RadixTree();
  RadixTree(const RadixTree&) = delete;
  RadixTree& operator=(const RadixTree&) = delete;

  // From now on `window`, which must outlive this, has blocks beside this tree's. REQUIRES: the
  // tree is empty.
  void AddWindow(WindowCache* window);

  // Locks the longest cached prefix of `units`, of whole blocks and at most max_blocks of them, at
  // whose end every window is whole. A prefix shorter than min_blocks counts as none. Everything
  // that the lock comes to cover gets at least this priority.
  RadixMatch Match(CacheNamespace cache_namespace, std::span<const CacheUnit> units,
                   int32_t max_blocks, int32_t min_blocks = 0, int32_t priority = 0);
  // The same walk without an effect.
  RadixPeek Peek(CacheNamespace cache_namespace, std::span<const CacheUnit> units,
                 int32_t max_blocks) const;
  // Whether every whole block of `units` is cached, windows aside.
  bool Contains(CacheNamespace cache_namespace, std::span<const CacheUnit> units) const;
  // Another lock of what `lock` covers. REQUIRES: lock is of this tree.
  RadixLock Duplicate(const RadixLock& lock);

  // Inserts blocks behind the locked prefix; `units` are theirs alone. Where the tree already has
  // an equal block, its id replaces the caller's in `blocks`; other blocks gain a kRadixNode hold.
  // The lock then covers all of it. Returns how many blocks were there already: they lead.
  // REQUIRES: lock is of this tree; units.size() == blocks.size() * block_size; the caller holds
  // each block, none of which is in the tree unless at its very place.
  int32_t Insert(RadixLock& lock, std::span<const CacheUnit> units, std::span<BlockId> blocks);

  // Frees up to `count` blocks in the policy's order. Returns how many.
  int32_t Evict(int32_t count);
  // Forgets the sequence `units`: those of its blocks that nothing else continues and no lock
  // covers, from its end. Returns how many; none unless Contains.
  int32_t Remove(CacheNamespace cache_namespace, std::span<const CacheUnit> units);
  // Drops the lock and, of the prefix that it covered, what nothing continues and no other lock
  // covers. REQUIRES: lock is of this tree.
  void Forget(RadixLock lock);
  // Frees the unlocked blocks with an id of at least `first`, and what continues them: a pool that
  // shrinks. Returns how many. O(nodes + blocks).
  int32_t EvictFrom(BlockId first);
  // Whether blocks with an id of at least the last EvictFrom's `first` were unlocked since: else
  // another call with it finds none of them. False before the first call.
  bool HasUnlockedBehind() const { return evictable_.has_unlocked_behind(); }
  // Frees every unlocked block, and puts the locked ones out of reach of any match to come: they
  // are freed with their last lock. Returns how many were freed at once.
  int32_t Clear();
  // The same for one namespace alone. O(nodes of the tree).
  int32_t Clear(CacheNamespace cache_namespace);

  // `block` got its first pin / lost its last one (BlockAllocator::pins). Blocks that are not in
  // the tree are ignored; Insert finds the hold of one that comes later. The pin locks the path of
  // the block's whole node.
  void PinBlock(BlockId block);
  void UnpinBlock(BlockId block);

  // Tells `events`, which must outlive this, of every run of 16 units that comes or goes from now
  // on. REQUIRES: the tree is empty.
  void PublishTo(KvEventBatcher* events);
  // Tells `events` of all that is there, runs that follow each other together. O(nodes + runs).
  // REQUIRES: PublishTo was called.
  void PublishAll(KvEventBatcher& events) const;

  int32_t evictable_blocks() const { return evictable_.evictable_blocks(); }
  int32_t protected_blocks() const { return evictable_.protected_blocks(); }
  bool ContainsBlock(BlockId block) const { return nodes_.node_of(block) != kNoNode; }
  const RadixNodes& nodes() const { return nodes_; }
  RadixStats Stats() const;
  // Recounts every invariant. Internal names what breaks. O(nodes + blocks).
  absl::Status CheckInvariants() const;

 private:
  friend class RadixLock;
  using Position = RadixNodes::Position;

  // Where all whole blocks of `units` end, or node kNoNode when they are not all cached.
  Position Find(CacheNamespace cache_namespace, std::span<const CacheUnit> units) const;
  // Where every window before it is whole: at `end`, whose path has `blocks`, or nearer the root.
  Position WholeBefore(Position end, std::span<const BlockId> blocks) const;
  RadixPeek PeekWhole(RadixNodeIndex root, std::span<const CacheUnit> units,
                      int32_t max_blocks) const;
  // The node that ends exactly at the position.
  RadixNodeIndex NodeEndingAt(const Position& position);
  void Append(RadixNodeIndex node, std::span<const CacheUnit> units,
              std::span<const BlockId> blocks);
  void Unlock(RadixNodeIndex node);

  // radix_tree_eviction.cc
  bool IsPublished(const RadixNode& node) const {
    return events_.has_value() && nodes_.IsReachable(node);
  }
  void PrefetchVictims() const;
  int32_t DropTail(RadixNodeIndex leaf, int32_t kept);
  int32_t DropUpwards(RadixNodeIndex leaf);
  void RemoveNode(RadixNodeIndex node);
  void RemoveRootIfUnused(RadixNodeIndex root) {
    if (nodes_[root].child_count == 0 && nodes_[root].locks == 0) RemoveNode(root);
  }
  absl::Status CheckNode(const RadixNode& node) const;

  const int32_t block_size_;
  BlockAllocator* const allocator_;
  RadixNodes nodes_;
  EvictableNodes evictable_;
  RadixLocks locks_;
  std::optional<RadixEvents> events_;
  WindowCaches windows_;
  RadixStats totals_;  // the ever-growing ones
};

}  // namespace baton
