// The pool of the full-attention group, and the prefixes that are cached in it.
//
// The twin of a sliding window's WindowCache: blocks, which of them stay cached (the prefix tree),
// and how the pool grows and shrinks. A cached block that no sequence, transfer or step uses is
// evictable.
//
// Transfers and steps pin blocks: a pin outlives the sequence, and locks the block's node in the
// tree if it has one.
//
// Invariant: a block is pinned in the tree exactly while it is there and has a pin.
//
// Thread safety: belongs to the engine thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "cache/block_allocator.h"
#include "cache/index/kv_event_batcher.h"
#include "cache/pool_resize.h"
#include "cache/radix_tree.h"
#include "common/strong_int.h"

namespace baton {

class PrefixCache {
 public:
  // `num_blocks` are in use, `capacity` is how far it may grow. REQUIRES: block_size >= 1,
  // 1 <= num_blocks <= capacity.
  PrefixCache(int32_t num_blocks, int32_t capacity, int32_t block_size, EvictionPolicy policy,
              uint64_t hash_seed)
      : allocator_(num_blocks, capacity),
        tree_(block_size, &allocator_, policy, hash_seed),
        resize_(&allocator_, &tree_) {}
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  BlockAllocator& blocks() { return allocator_; }
  const BlockAllocator& blocks() const { return allocator_; }
  RadixTree& tree() { return tree_; }
  const RadixTree& tree() const { return tree_; }

  // Blocks that a sequence could get: free + evictable, less what retires.
  int32_t available() const {
    return std::max(0, allocator_.free_count() + tree_.evictable_blocks() - allocator_.retiring());
  }
  // Evicts until `count` blocks are free. Returns how many were evicted. REQUIRES: `count` <= free
  // + evictable (CHECK).
  int32_t MakeFree(int32_t count);

  // One more hold of a transfer or a step on each block. A step's block may be free again, a
  // transfer's may not (BlockAllocator::Claim).
  void Pin(std::span<const BlockId> blocks, BlockHolder holder);
  // REQUIRES: the holds exist (CHECK).
  void Unpin(std::span<const BlockId> blocks, BlockHolder holder);

  // Moves the pool's limit; `live` are the sequences with blocks. REQUIRES: 1 <= limit <= capacity.
  void Resize(int32_t limit, absl::flat_hash_set<SequenceId> live) {
    resize_.Resize(limit, std::move(live));
  }
  // A sequence was forked / has ended and let go of its blocks.
  void Forked(SequenceId parent, SequenceId child) { resize_.Forked(parent, child); }
  void Ended(SequenceId id) { resize_.Ended(id); }

  // Collects KV events from now on. REQUIRES: nothing is cached.
  void Publish() { tree_.PublishTo(&events_); }
  // What changed since the last call, as encoded batches, oldest first.
  std::vector<std::string> TakeEvents() { return events_.Take(); }
  // All that is cached, as encoded batches of stored events, at least one. REQUIRES: Publish was
  // called.
  std::vector<std::string> SnapshotEvents() const;

  // Recounts allocator and tree, and the holds of one against the other. O(blocks + nodes).
  absl::Status CheckConservation() const;

 private:
  BlockAllocator allocator_;
  KvEventBatcher events_;
  RadixTree tree_;
  PoolResize resize_;
};

}  // namespace baton
