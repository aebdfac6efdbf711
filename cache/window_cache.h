// The pool of one sliding-window group, and the window blocks that are cached beside a prefix tree.
//
// The tree's nodes hold blocks of the full-attention group. Each window block belongs to the same
// tokens as one full block. So this class maps block ids with arrays. Nodes need no field for it,
// and a split of a node changes nothing here. A full block without a window block is a tombstone.
// Its window block was evicted, or freed when a sequence slid on.
//
// A token at a block boundary sees the `window - 1` slots before it. So a match may end at a
// boundary only if the blocks before it still have their window blocks (LongestWhole). These are
// the last whole_blocks() blocks, or all if there are fewer. A sequence that recomputes the tokens
// of a tombstone puts a window block back (Put).
//
// A window block needs no lock of its own. A sequence holds the blocks inside its window. A
// transfer or a step holds the blocks that it uses. A block without holds is evictable. It is
// evicted alone in the policy's order, possibly from the middle of a prefix. It also goes when the
// tree frees its full block.
//
// Invariants:
//  1. window_of and full_of are inverse. A block that they name has one kCache hold; no other
//     block of the pool has one.
//  2. The eviction queue has exactly the cached blocks that no sequence, transfer or step holds. So
//     free + evictable blocks can be allocated at any time.
//  3. A cached block's id is below the pool's limit. So a shrinking pool waits only for holds.
//  4. An owner's cached blocks are those cached blocks that have its slot.
//  5. pinned_only counts the blocks that have a hold of a transfer or step but none of a sequence.
//
// Cost: O(log blocks) for a hold or an eviction, O(1) otherwise. LongestWhole reads at most the
// whole path. After SGLang's SWA radix cache and vLLM's sliding-window manager.
//
// Thread safety: used by the engine thread only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "cache/block_allocator.h"
#include "cache/cache_owners.h"
#include "cache/eviction_policy.h"
#include "cache/owner_queues.h"
#include "common/strong_int.h"

namespace baton {

struct WindowPoolOptions {
  int32_t window = 0;  // in slots; a token at position p sees (p - window, p]
  // As in KvCacheOptions, without the scratch block.
  int32_t num_blocks = 0;
  int32_t max_blocks = 0;  // 0 means num_blocks
};

class WindowCache {
 public:
  // `full_blocks` is the capacity of the full-attention group. `owners` are those of the tree; with
  // nullptr, nothing is protected. REQUIRES: window >= 1, block_size >= 1, num_blocks >= 1,
  // max_blocks is 0 or at least num_blocks (CHECK); `owners` outlives this.
  WindowCache(const WindowPoolOptions& options, int32_t block_size, int32_t full_blocks,
              EvictionPolicy policy, const CacheOwners* owners = nullptr);
  // Releases every cached block. REQUIRES: no sequence, transfer or step holds a block.
  ~WindowCache();
  WindowCache(const WindowCache&) = delete;
  WindowCache& operator=(const WindowCache&) = delete;

  int32_t window() const { return window_; }
  // Number of leading blocks that the next token of a sequence with `tokens` tokens does not see.
  int32_t DeadBlocks(int32_t tokens) const {
    return tokens < window_ ? 0 : (tokens - window_ + 1) / block_size_;
  }
  // Number of window blocks that a match needs before its boundary.
  int32_t whole_blocks() const { return whole_blocks_; }
  // Number of leading blocks of `path` (blocks of the full group) that a match may cover.
  int32_t LongestWhole(std::span<const BlockId> path) const;

  // The window block beside a full block, or kNoBlock.
  BlockId At(BlockId full) const { return window_of_[full.value()]; }
  // The full block beside a window block. kNoBlock if the window block is not cached.
  BlockId FullOf(BlockId block) const { return full_of_[block.value()]; }
  // Caches `block` beside `full`, with at least this priority and with the owner of `full`. Does
  // nothing if the id is above the pool's limit. REQUIRES: `full` has no window block; `block` is
  // held and not cached (CHECK).
  void Put(BlockId full, BlockId block, int32_t priority, OwnerSlot owner = kCommonSlot);
  // The tree gives these full blocks to another owner.
  void Reown(std::span<const BlockId> full, OwnerSlot owner);
  OwnerSlot OwnerOf(BlockId block) const { return owner_[block.value()]; }
  // The tree frees these full blocks, so their window blocks are no longer cached.
  void Drop(std::span<const BlockId> full);

  // Appends `count` blocks with one sequence hold each, and evicts as needed. REQUIRES: count <=
  // free_count() + evictable() (CHECK).
  void Allocate(int32_t count, std::vector<BlockId>& out);
  // Same, but the blocks have consecutive ids. Returns false if there is no such free run. Evicts
  // nothing.
  bool AllocateRun(int32_t count, std::vector<BlockId>& out);
  // As in BlockAllocator. A sequence's hold on a cached block counts as a use with this priority.
  void AddHold(BlockId block, BlockHolder holder, int32_t priority = INT32_MIN);
  void ReleaseHold(BlockId block, BlockHolder holder);

  // Evicts up to `count` blocks in the policy's order, first of owners that are over their share of
  // this pool (owner_queues.h). Returns how many it evicted.
  int32_t Evict(int32_t count) { return Evict(count, /*keeps_shares=*/false); }
  // Frees blocks in advance, before a sequence needs them. So it takes only from owners that are
  // over their share.
  int32_t EvictOverShares(int32_t count) { return Evict(count, /*keeps_shares=*/true); }
  // Moves the pool's limit. Blocks above it are no longer cached. Blocks without holds become free
  // at once, others when their last hold is released. REQUIRES: 1 <= limit <= capacity.
  void Resize(int32_t limit);

  const BlockAllocator& blocks() const { return allocator_; }
  int32_t evictable() const { return static_cast<int32_t>(eviction_queue_.size()); }
  int32_t pinned_only() const { return pinned_only_; }
  int64_t evicted_blocks() const { return evicted_blocks_; }  // since the start
  // Recounts every invariant. Internal names the first violation. O(blocks).
  absl::Status CheckInvariants() const;

 private:
  bool IsCached(BlockId block) const { return FullOf(block) != kNoBlock; }
  bool IsUnheld(BlockId block) const { return !allocator_.is_in_use(block); }
  bool IsPinnedOnly(BlockId block) const {
    return allocator_.is_in_use(block) && allocator_.holds(block, BlockHolder::kSequence) == 0;
  }
  EvictionKey KeyOfBlock(BlockId block) const { return KeyOf(policy_, use_[block.value()]); }
  void DropOne(BlockId full);
  int32_t Evict(int32_t count, bool keeps_shares);

  const int32_t window_;
  const int32_t block_size_;
  const int32_t whole_blocks_;
  const EvictionPolicy policy_;
  BlockAllocator allocator_;
  std::vector<BlockId> window_of_;  // by id of the full block
  std::vector<BlockId> full_of_;    // by id of the window block
  std::vector<NodeUse> use_;        // by id of the window block, while it is cached
  std::vector<OwnerSlot> owner_;    // the same
  OwnerQueues eviction_queue_;      // of window blocks
  uint64_t tick_ = 0;
  int32_t pinned_only_ = 0;
  int64_t evicted_blocks_ = 0;
};

}  // namespace baton
