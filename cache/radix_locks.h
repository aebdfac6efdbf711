// The locks on the nodes of a prefix tree.
//
// A lock protects a path, from its node up to the root. It counts once at each node of the path, so
// a node's count says whether anything there or below is in use. A lock that moves down, because
// its holder inserted behind it, counts only the nodes that it newly covers.
//
// A transfer or a step pins blocks. The pins of a node's blocks are together one lock of that node,
// and remember the node: a split may leave the block in another one.
//
// Invariants:
//  1. locks(node) = own_locks(node) + sum of locks(children).
//  2. A node with pinned blocks has one own lock for them.
//
// Cost: O(nodes on the path).
//
// Thread safety: belongs to the engine thread.
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
  // REQUIRES: both outlive this.
  RadixLocks(RadixNodes* nodes, EvictableNodes* evictable)
      : nodes_(*nodes), evictable_(*evictable) {}

  // A sequence locks the path of `node`: a use, and it gets at least this priority.
  void Lock(RadixNodeIndex node, int32_t priority);
  // The lock of `from` is of `to` from now on. REQUIRES: `to` is `from` or below it.
  void MoveDown(RadixNodeIndex from, RadixNodeIndex to, int32_t priority);
  // Drops a lock of `node`. Returns the path's root, which may have no lock and no child now.
  RadixNodeIndex Unlock(RadixNodeIndex node);

  // `block` of `node` got its first pin. REQUIRES: it has none.
  void Pin(RadixNodeIndex node, BlockId block);
  // It lost its last one. Returns the node to unlock, or kNoNode. Blocks without a pin are ignored.
  RadixNodeIndex Unpin(BlockId block);

  // Recounts the invariants. Internal names what breaks. O(nodes).
  absl::Status CheckInvariants() const;

 private:
  // What a lock counts for: a pin is no use of a prefix by a sequence.
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
