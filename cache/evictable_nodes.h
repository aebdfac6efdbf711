// Tracks which nodes of a prefix tree can be evicted, and in which order.
//
// A node without locks is evictable, and so is everything below it. The next node to evict is
// always a leaf. This class counts the blocks of evictable and of locked nodes, and those of each
// owner. It queues the evictable leaves of each owner in the policy's order; the owners' shares
// decide whose leaf is next (owner_queues.h). It frees nothing itself.
//
// Invariants:
//  1. evictable + protected = blocks in the tree.
//  2. A node is queued exactly when it is not a root, has no child and has no lock. Its key in the
//     queue is computed from its use. So a node must leave the queue before its use changes.
//  3. An owner's cached blocks are the blocks of the nodes that have its slot.
//
// Thread safety: used by the engine thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "cache/cache_owners.h"
#include "cache/eviction_policy.h"
#include "cache/owner_queues.h"
#include "cache/radix_nodes.h"
#include "common/strong_int.h"

namespace baton {

class EvictableNodes {
 public:
  // REQUIRES: `nodes` and `owners` outlive this.
  EvictableNodes(EvictionPolicy policy, RadixNodes* nodes, const CacheOwners* owners)
      : policy_(policy), nodes_(*nodes), queues_(owners) {}

  int32_t evictable_blocks() const { return evictable_blocks_; }
  int32_t protected_blocks() const { return protected_blocks_; }

  static bool IsEvictableLeaf(const RadixNode& node) {
    return !node.is_root && node.child_count == 0 && node.locks == 0;
  }
  bool empty() const { return queues_.empty(); }
  // The next leaf to evict in a pool of so many blocks. REQUIRES: not empty.
  OwnerQueues::Victim First(int32_t pool_blocks) const { return queues_.First(pool_blocks); }
  // Writes the next leaves of one owner, in order, until `out` is full. Returns how many it wrote.
  size_t First(OwnerSlot owner, std::span<RadixNodeIndex> out) const {
    return queues_.First(owner, out);
  }
  int32_t cached_blocks(OwnerSlot owner) const { return queues_.cached(owner); }

  // `node` gained `blocks` blocks. It is queued by Unlocked or QueueIfLeaf.
  void Added(const RadixNode& node, int32_t blocks) {
    (node.locks > 0 ? protected_blocks_ : evictable_blocks_) += blocks;
    queues_.Count(node.owner, blocks);
  }
  // A queued leaf lost `blocks` blocks.
  void Dropped(const RadixNode& node, int32_t blocks) {
    evictable_blocks_ -= blocks;
    queues_.Count(node.owner, -blocks);
  }
  // Gives the node and its blocks to another owner.
  void Reown(RadixNodeIndex node, OwnerSlot owner);
  // `node` got its first lock. REQUIRES: not queued.
  void Locked(const RadixNode& node) {
    evictable_blocks_ -= node.size();
    protected_blocks_ += node.size();
  }
  // `node` lost its last lock.
  void Unlocked(RadixNodeIndex index) {
    const RadixNode& node = nodes_[index];
    evictable_blocks_ += node.size();
    protected_blocks_ -= node.size();
    if (watched_from_ && !has_unlocked_behind_) has_unlocked_behind_ = HasBehind(node);
    if (IsEvictableLeaf(node)) Queue(index);
  }
  // Queues a node that became a leaf, if it is evictable. REQUIRES: not queued.
  void QueueIfLeaf(RadixNodeIndex node) {
    if (IsEvictableLeaf(nodes_[node])) Queue(node);
  }
  // REQUIRES: queued.
  void Unqueue(RadixNodeIndex node);

  // Resets has_unlocked_behind and watches blocks with an id of at least `first`.
  void WatchFrom(BlockId first);
  // Returns true if a node with a watched block lost its last lock. False before the first
  // WatchFrom.
  bool has_unlocked_behind() const { return has_unlocked_behind_; }

  // Recounts the invariants. Internal names the first violation. O(nodes + blocks).
  absl::Status CheckInvariants() const;

 private:
  EvictionKey KeyOfNode(const RadixNode& node) const { return KeyOf(policy_, node.use); }
  // Returns true if the node has a watched block. REQUIRES: WatchFrom was called.
  bool HasBehind(const RadixNode& node) const;
  void Queue(RadixNodeIndex node);
  absl::Status CheckNode(RadixNodeIndex node) const;

  const EvictionPolicy policy_;
  RadixNodes& nodes_;
  OwnerQueues queues_;
  int32_t evictable_blocks_ = 0;
  int32_t protected_blocks_ = 0;
  std::optional<BlockId> watched_from_;
  bool has_unlocked_behind_ = false;
};

}  // namespace baton
