// Prefix cache: a radix tree over full blocks of units. It holds the prefixes that have cached KV.
//
// A node stands for an edge, which is a run of whole blocks. The edge has the blocks' units, which
// every match compares, and their ids. Each block has one kCache hold. Each namespace has its
// own root, so no walk can leave its namespace. A unit is anything that the caller's keys count,
// for example tokens or bigrams. Alignment, insertion and locks count units.
//
// A lock protects a prefix from eviction. Match takes it, and splits the edge in which the match
// ends. So a lock always covers whole nodes. Insert moves the lock down to the inserted blocks. A
// lock counts at every node on the path to the root. A node with a count of zero is evictable, and
// so is everything below it. A split leaves locks and policy data valid. Transfers and steps lock
// the blocks that they read in the same way (PinBlock).
//
// Eviction takes blocks from the end of the leaf that the policy selects (eviction_policy.h), first
// from owners that are over their share of the pool (cache_owners.h, owner_queues.h). A parent that
// becomes a leaf is queued then. The time of a node's last use is the time of its
// latest unlock.
//
// Clear forgets everything, or one namespace, at once. Unlocked blocks are freed. Locked blocks can
// no longer be matched, and are freed with their last lock.
//
// A model with sliding windows has window blocks beside some of the tree's blocks (AddWindow). Then
// a match ends only where every window before its end is whole, although the walk goes further.
// When the tree frees a block, it frees the block's window blocks too. Nothing else changes.
//
// On request the tree publishes the runs of 16 units that it holds (PublishTo). It does not publish
// the nodes that Clear cut off, because no match finds them.
//
// The parts of the tree are:
// - radix_nodes.h: the nodes and their blocks
// - radix_locks.h: the locks
// - evictable_nodes.h: the eviction order
// - radix_events.h: the KV events
//
// RadixTree itself matches, inserts and frees.
//
// Invariants, in addition to those of the parts:
//  1. A block in the tree has one kCache hold.
//  2. A node without locks has no block with a sequence or transfer hold. So evicting a block frees
//     it.
//  3. A root without child and lock is removed, so unused namespaces cost nothing.
//  4. Every node below a root that Clear cut off is locked.
//  5. The published set is the set of full runs on the paths that a match can walk.
//  6. An owner's number of namespaces is the number of roots that have its slot. A window block has
//     the owner of its full block.
//
// Cost: match and insert O(units compared), a split O(block ids of the edge), lock and unlock
// O(nodes on the path), eviction O(log nodes) per node and O(1) per block. Nothing recurses, so
// only memory bounds the depth. After SGLang's radix cache and vLLM's prefix cache.
//
// Thread safety: used by the engine thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "cache/block_allocator.h"
#include "cache/cache_key.h"
#include "cache/cache_owners.h"
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

// A lock on a prefix of the tree. Dropping it unlocks the prefix. REQUIRES: the tree outlives it.
// Empty if default-made or moved from.
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
  RadixLock lock;  // on the matched prefix; on the root alone if nothing matched
  std::vector<BlockId> blocks;
};

struct RadixPeek {
  int32_t blocks = 0;            // matched blocks
  int32_t evictable_blocks = 0;  // matched blocks that have no lock now
};

struct RadixStats {
  int64_t nodes = 0;  // without roots
  int64_t namespaces = 0;
  int32_t evictable_blocks = 0;
  int32_t protected_blocks = 0;
  int64_t inserted_blocks = 0;   // total since the start
  int64_t duplicate_blocks = 0;  // passed to Insert, but already in the tree
  int64_t evictions = 0;         // leaves from which eviction took blocks
  int64_t evicted_blocks = 0;
  int64_t removed_blocks = 0;  // by Remove, Forget, EvictFrom and Clear
  int64_t splits = 0;
};

class RadixTree {
 public:
  // `hash_seed` must be secret if clients may be hostile (ChildTag). A narrow hash_mask makes
  // hashes collide. Tests use it to show that only speed depends on hashes. REQUIRES: block_size >=
  // 1; `allocator` outlives the tree.
  RadixTree(int32_t block_size, BlockAllocator* allocator,
            EvictionPolicy policy = EvictionPolicy::kLru, uint64_t hash_seed = 0,
            uint32_t hash_mask = UINT32_MAX);
  // Releases every block. REQUIRES: no lock is left.
  ~RadixTree();
  RadixTree(const RadixTree&) = delete;
  RadixTree& operator=(const RadixTree&) = delete;

  // Adds a sliding window, which has blocks beside those of this tree. REQUIRES: the tree is empty;
  // `window` outlives it.
  void AddWindow(WindowCache* window);

  // Locks the longest cached prefix of `units`. It is whole blocks, at most max_blocks of them, and
  // every window is whole at its end. A prefix shorter than min_blocks counts as no match. Every
  // node under the lock gets at least this priority. From now on, the namespace belongs to `owner`,
  // if given, with its present share; O(nodes of the tree) if it belonged to another one.
  RadixMatch Match(CacheNamespace cache_namespace, std::span<const CacheUnit> units,
                   int32_t max_blocks, int32_t min_blocks = 0, int32_t priority = 0,
                   std::optional<CacheOwner> owner = {});
  // Same effect on the owner as Match, if the namespace exists.
  void SetOwner(CacheNamespace cache_namespace, const CacheOwner& owner) {
    const RadixNodeIndex root = nodes_.FindRoot(cache_namespace);
    if (root != kNoNode) SetOwnerOf(root, owner);
  }
  // Finds the same prefix, but changes nothing.
  RadixPeek Peek(CacheNamespace cache_namespace, std::span<const CacheUnit> units,
                 int32_t max_blocks) const;
  // Returns true if every whole block of `units` is cached. It ignores windows.
  bool Contains(CacheNamespace cache_namespace, std::span<const CacheUnit> units) const;
  // Takes another lock on the same prefix. REQUIRES: `lock` belongs to this tree.
  RadixLock Duplicate(const RadixLock& lock);

  // Inserts blocks after the locked prefix; `units` are the units of these blocks only. If the tree
  // already has an equal block, its id replaces the caller's in `blocks`. All other blocks gain a
  // kCache hold. The lock then covers everything inserted. Returns the number of blocks that
  // were already present; they come first. REQUIRES: `lock` belongs to this tree; units.size() ==
  // blocks.size() * block_size; the caller holds each block; a block is not in the tree, except at
  // exactly this place.
  int32_t Insert(RadixLock& lock, std::span<const CacheUnit> units, std::span<BlockId> blocks);
  // True if Insert would find the block of these units, which are those of one block. REQUIRES:
  // `lock` belongs to this tree.
  bool HasBehind(const RadixLock& lock, std::span<const CacheUnit> units) const;

  // Frees up to `count` blocks in the policy's order. Returns how many it freed.
  int32_t Evict(int32_t count) { return Evict(count, /*keeps_shares=*/false); }
  // Frees blocks in advance, before a sequence needs them. So it takes only from owners that are
  // over their share.
  int32_t EvictOverShares(int32_t count) { return Evict(count, /*keeps_shares=*/true); }
  // Removes the sequence `units` from the tree. Starting at its end, it frees the blocks that no
  // other sequence continues and no lock covers. Returns how many it freed. Frees none unless
  // Contains is true.
  int32_t Remove(CacheNamespace cache_namespace, std::span<const CacheUnit> units);
  // Releases the lock, and frees the part of its prefix that nothing continues and no other lock
  // covers. REQUIRES: `lock` belongs to this tree.
  void Forget(RadixLock lock);
  // For a shrinking pool: frees the unlocked blocks with an id of at least `first` and the unlocked
  // blocks after them. Returns how many it freed. O(nodes + blocks).
  int32_t EvictFrom(BlockId first);
  // Returns true if a block with an id of at least the last EvictFrom's `first` was unlocked since
  // then. If false, another call with the same `first` would free nothing. False before the first
  // call.
  bool HasUnlockedBehind() const { return evictable_.has_unlocked_behind(); }
  // Frees every unlocked block. Locked blocks can no longer be matched and are freed with their
  // last lock. Returns how many it freed at once.
  int32_t Clear();
  // Same for one namespace. O(nodes of the tree).
  int32_t Clear(CacheNamespace cache_namespace);

  // `block` got its first pin or lost its last one (BlockAllocator::pins). Blocks outside the tree
  // are ignored. If such a block is inserted later, Insert sees its hold. The pin locks the path of
  // the block's whole node.
  void PinBlock(BlockId block);
  void UnpinBlock(BlockId block);

  // From now on, writes an event to `events` for every run of 16 units that is stored or removed.
  // REQUIRES: the tree is empty; `events` outlives it.
  void PublishTo(KvEventBatcher* events);
  // Writes all stored runs to `events`, each path's runs in order. O(nodes + runs). REQUIRES:
  // PublishTo was called.
  void PublishAll(KvEventBatcher& events) const;

  int32_t evictable_blocks() const { return evictable_.evictable_blocks(); }
  int32_t protected_blocks() const { return evictable_.protected_blocks(); }
  bool ContainsBlock(BlockId block) const { return nodes_.node_of(block) != kNoNode; }
  const RadixNodes& nodes() const { return nodes_; }
  const CacheOwners& owners() const { return owners_; }
  // The owner of a block. REQUIRES: it is in the tree.
  OwnerSlot OwnerOf(BlockId block) const { return nodes_[nodes_.node_of(block)].owner; }
  int32_t cached_blocks(OwnerSlot owner) const { return evictable_.cached_blocks(owner); }
  RadixStats Stats() const;
  // Recounts every invariant. Internal names the first violation. O(nodes + blocks).
  absl::Status CheckInvariants() const;

 private:
  friend class RadixLock;
  using Position = RadixNodes::Position;

  // Position after all whole blocks of `units`, or node kNoNode if not all of them are cached.
  Position Find(CacheNamespace cache_namespace, std::span<const CacheUnit> units) const;
  // The last position up to `end` at which every window is whole. `blocks` are those on the path of
  // `end`.
  Position WholeBefore(Position end, std::span<const BlockId> blocks) const;
  RadixPeek PeekWhole(RadixNodeIndex root, std::span<const CacheUnit> units,
                      int32_t max_blocks) const;
  // Returns the node that ends exactly at the position. It splits a node if needed.
  RadixNodeIndex NodeEndingAt(const Position& position);
  void Append(RadixNodeIndex node, std::span<const CacheUnit> units,
              std::span<const BlockId> blocks);
  void Unlock(RadixNodeIndex node);

  // radix_tree_owners.cc
  void SetOwnerOf(RadixNodeIndex root, const CacheOwner& owner);
  void Reown(RadixNodeIndex root, OwnerSlot owner);
  absl::Status CheckOwners() const;

  // radix_tree_eviction.cc
  bool IsPublished(const RadixNode& node) const {
    return events_.has_value() && nodes_.IsReachable(node);
  }
  void PrefetchVictims(OwnerSlot owner) const;
  int32_t Evict(int32_t count, bool keeps_shares);
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
  CacheOwners owners_;
  EvictableNodes evictable_;
  RadixLocks locks_;
  std::optional<RadixEvents> events_;
  WindowCaches windows_;
  RadixStats totals_;  // totals since the start only
};

}  // namespace baton
