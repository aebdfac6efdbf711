// Tracks which nodes of a prefix tree can be evicted, and in which order.
//
// A node without locks is evictable, and so is everything below it. The next node to evict is
// always a leaf. This class counts the blocks of evictable and of locked nodes. It queues the
// evictable leaves in the policy's order. It frees nothing itself.
//
// Invariants:
//  1. evictable + protected = blocks in the tree.
//  2. A node is queued exactly when it is not a root, has no child and has no lock. Its key in the
//     queue is computed from its use. So a node must leave the queue before its use changes.
//
// Thread safety: used by the engine thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "cache/eviction_policy.h"
#include "cache/eviction_queue.h"
#include "cache/radix_nodes.h"
#include "common/strong_int.h"

namespace baton {

class EvictableNodes {
 public:
  // REQUIRES: `nodes` outlives this.
  EvictableNodes(EvictionPolicy policy, RadixNodes* nodes) : policy_(policy), nodes_(*nodes) {}

  int32_t evictable_blocks() const { return evictable_blocks_; }
  int32_t protected_blocks() const { return protected_blocks_; }

  static bool IsEvictableLeaf(const RadixNode& node) {
    return !node.is_root && node.child_count == 0 && node.locks == 0;
  }
  bool empty() const { return queue_.empty(); }
  // The next leaf to evict. REQUIRES: not empty.
  RadixNodeIndex First() const { return queue_.First(); }
  // Writes the next leaves to evict, in order, until `out` is full. Returns how many it wrote.
  size_t First(std::span<RadixNodeIndex> out) const { return queue_.First(out); }

  // `node` gained `blocks` blocks. It is queued by Unlocked or QueueIfLeaf.
  void Added(const RadixNode& node, int32_t blocks) {
    (node.locks > 0 ? protected_blocks_ : evictable_blocks_) += blocks;
  }
  // A queued leaf lost `blocks` blocks.
  void Dropped(int32_t blocks) { evictable_blocks_ -= blocks; }
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
  EvictionQueue queue_;
  int32_t evictable_blocks_ = 0;
  int32_t protected_blocks_ = 0;
  std::optional<BlockId> watched_from_;
  bool has_unlocked_behind_ = false;
};

}  // namespace baton
