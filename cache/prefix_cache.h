// The pool of the full-attention group and the prefixes cached in it.
//
// WindowCache does the same for a sliding window. It has the blocks, the prefix tree that keeps
// some of them cached, and the logic that resizes the pool. A cached block that no sequence,
// transfer or step uses is evictable.
//
// Transfers and steps pin blocks. A pin can outlive the sequence. It also locks the block's node,
// if the block is in the tree.
//
// The chunk cache (chunk_cache.h) keeps blocks of this pool too. Its hold is of the kind
// kCache like the tree's, and a block never has both. Such blocks are not evictable.
//
// Invariant: a block is pinned in the tree exactly while it is in the tree and has a pin.
//
// Thread safety: used by the engine thread only.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "cache/block_allocator.h"
#include "cache/cache_key.h"
#include "cache/index/indexed_worker.h"
#include "cache/index/kv_event_batcher.h"
#include "cache/pool_resize.h"
#include "cache/radix_tree.h"
#include "common/strong_int.h"

namespace baton {

class PrefixCache {
 public:
  // The pool starts with `num_blocks` blocks and may grow to `capacity`. REQUIRES: block_size >= 1,
  // 1 <= num_blocks <= capacity.
  PrefixCache(int32_t num_blocks, int32_t capacity, int32_t block_size, EvictionPolicy policy,
              uint64_t hash_seed)
      : allocator_(num_blocks, capacity),
        tree_(block_size, &allocator_, policy, hash_seed),
        resize_(&allocator_, &tree_, [this] { PublishChunks(events_); }) {}
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  BlockAllocator& blocks() { return allocator_; }
  const BlockAllocator& blocks() const { return allocator_; }
  RadixTree& tree() { return tree_; }
  const RadixTree& tree() const { return tree_; }

  // Blocks that sequences can get: free + evictable - retiring.
  int32_t available() const {
    return std::max(0, allocator_.free_count() + tree_.evictable_blocks() - allocator_.retiring());
  }
  // Evicts until `count` blocks are free. Returns how many it evicted. REQUIRES: `count` <= free +
  // evictable (CHECK).
  int32_t MakeFree(int32_t count);

  // Adds one hold of a transfer or a step to each block. A step may pin a block that is free again;
  // a transfer may not (BlockAllocator::Claim).
  void Pin(std::span<const BlockId> blocks, BlockHolder holder);
  // REQUIRES: the holds exist (CHECK).
  void Unpin(std::span<const BlockId> blocks, BlockHolder holder);

  // Adds or releases the chunk cache's only hold on each block. REQUIRES (CHECK): as in
  // KvCacheManager::HoldForChunk and ReleaseChunkHold.
  void HoldForChunk(std::span<const BlockId> blocks);
  void ReleaseChunkHold(std::span<const BlockId> blocks);
  bool HasChunkHold(BlockId block) const;
  int32_t chunk_blocks() const { return chunk_blocks_; }

  // Moves the pool's limit. `live` are the sequences that have blocks. REQUIRES: 1 <= limit <=
  // capacity.
  void Resize(int32_t limit, absl::flat_hash_set<SequenceId> live) {
    resize_.Resize(limit, std::move(live));
  }
  // A sequence was forked, or has ended and released its blocks.
  void Forked(SequenceId parent, SequenceId child) { resize_.Forked(parent, child); }
  void Ended(SequenceId id) { resize_.Ended(id); }

  // As KvCacheManager.
  void ChunkStored(const Hash128& key, CacheTier tier);
  void ChunkRemoved(const Hash128& key, CacheTier tier);
  int32_t ClearTree(std::optional<CacheNamespace> only);

  // Starts to collect KV events. REQUIRES: nothing is cached.
  void Publish() {
    publishes_ = true;
    tree_.PublishTo(&events_);
  }
  // The changes since the last call, as encoded batches, oldest first.
  std::vector<std::string> TakeEvents() { return events_.Take(); }
  // Everything that is cached, as at least one encoded batch of stored events. REQUIRES: Publish
  // was called.
  std::vector<std::string> SnapshotEvents() const;

  // Recounts the allocator and the tree, and compares their holds. O(blocks + nodes).
  absl::Status CheckConservation() const;

 private:
  // Publishes all chunks as stored. After the event of a cleared tree, readers have forgotten them.
  void PublishChunks(KvEventBatcher& events) const;

  BlockAllocator allocator_;
  KvEventBatcher events_;
  RadixTree tree_;
  PoolResize resize_;
  bool publishes_ = false;
  // Keys that were published as stored, by tier.
  std::array<absl::btree_set<Hash128>, kCacheTiers> chunks_;
  std::vector<bool> in_chunk_;  // by block: has a chunk hold; empty before the first one
  int32_t chunk_blocks_ = 0;
};

}  // namespace baton
