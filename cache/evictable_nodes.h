// Which nodes of a prefix tree may go, and in which order.
//
// A node without locks is evictable, and so is all below it; what goes next is a leaf among them.
// This class counts the blocks of evictable and of locked nodes as they change, and queues the
// leaves in the policy's order. It frees nothing itself.
//
// Invariants:
//  1. evictable + protected = blocks in the tree.
//  2. A node is in the queue exactly when it is no root and has no child and no lock. Its key is
//     that of its use, so it leaves the queue before its use changes.
//
// Thread safety: belongs to the engine thread.
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
  // The leaf that goes next. REQUIRES: not empty.
  RadixNodeIndex First() const { return queue_.First(); }
  // The leaves that would go first, in order, as many as `out` has room for. Returns how many.
  size_t First(std::span<RadixNodeIndex> out) const { return queue_.First(out); }

  // `node` got `blocks` more. It is queued when its lock goes, or by QueueIfLeaf.
  void Added(const RadixNode& node, int32_t blocks) {
    (node.locks > 0 ? protected_blocks_ : evictable_blocks_) += blocks;
  }
  // A queued leaf lost `blocks`.
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
  // Queues a node that has become a leaf, if it is evictable. REQUIRES: not queued.
  void QueueIfLeaf(RadixNodeIndex node) {
    if (IsEvictableLeaf(nodes_[node])) Queue(node);
  }
  // REQUIRES: queued.
  void Unqueue(RadixNodeIndex node);

  // Notes from now on whether blocks with an id of at least `first` are unlocked.
  void WatchFrom(BlockId first);
  // Whether some were since then. False before the first WatchFrom.
  bool has_unlocked_behind() const { return has_unlocked_behind_; }

  // Recounts the invariants. Internal names what breaks. O(nodes + blocks).
  absl::Status CheckInvariants() const;

 private:
  EvictionKey KeyOfNode(const RadixNode& node) const { return KeyOf(policy_, node.use); }
  // Whether the node has a watched block. REQUIRES: WatchFrom was called.
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
