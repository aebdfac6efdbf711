// The locks on the nodes of a prefix tree.
//
// A lock protects a path from its node up to the root. It counts once at each node of the path. So
// a node's count is zero exactly when nothing there or below is in use. A holder that inserts
// blocks moves its lock down. The move counts only the newly covered nodes.
//
// A transfer or a step pins blocks. All pins of a node's blocks together are one lock of that node.
// Each pin remembers its node, because a split may move the block to another node.
//
// Invariants:
//  1. locks(node) = own_locks(node) + sum of locks(children).
//  2. A node with pinned blocks has one own lock for them.
//
// Cost: O(nodes on the path).
//
// Thread safety: used by the engine thread only.
#pragma once

#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "cache/evictable_nodes.h"
#include "cache/radix_nodes.h"
#include "common/strong_int.h"

namespace baton {

class RadixLocks {
 public:
  // REQUIRES: both outlive this object.
  RadixLocks(RadixNodes* nodes, EvictableNodes* evictable)
      : nodes_(*nodes), evictable_(*evictable) {}

  // A sequence locks the path of `node`. This counts as a use, and raises priorities on the path to
  // at least `priority`.
  void Lock(RadixNodeIndex node, int32_t priority);
  // Moves a lock from `from` to `to`. REQUIRES: `to` is `from` or below it.
  void MoveDown(RadixNodeIndex from, RadixNodeIndex to, int32_t priority);
  // Releases a lock of `node`. Returns the path's root, which may now have no lock and no child.
  RadixNodeIndex Unlock(RadixNodeIndex node);

  // `block` of `node` got its first pin. REQUIRES: the block has no pin here yet.
  void Pin(RadixNodeIndex node, BlockId block);
  // `block` lost its last pin. Returns the node to unlock, or kNoNode. Ignores blocks that are not
  // pinned here.
  RadixNodeIndex Unpin(BlockId block);

  // Recounts the invariants. Internal names the first violation. O(nodes).
  absl::Status CheckInvariants() const;

 private:
  // The use that a lock counts as. A pin counts as none, because no sequence uses the prefix.
  struct NewUse {
    uint64_t uses;
    int32_t priority;
  };
  void LockBetween(RadixNodeIndex node, RadixNodeIndex end, NewUse use);

  RadixNodes& nodes_;
  EvictableNodes& evictable_;
  absl::flat_hash_map<BlockId, RadixNodeIndex> pinned_at_;  // the node that the pin locked
};

}  // namespace baton
