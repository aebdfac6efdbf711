// The pool of one sliding-window group, and which of its blocks stay cached beside a prefix tree.
//
// The tree's nodes hold blocks of the full-attention group. A window block belongs to the same
// tokens as one of those full blocks, so this class keeps it in arrays by block id: nodes have no
// field for it, and a split of a node changes nothing here. A full block without its window block
// is a tombstone: the window block was freed as a sequence slid on, or evicted.
//
// A token at a block boundary sees the `window - 1` slots before it. So a match may end at a
// boundary only where the last whole_blocks() blocks before it, or all if there are fewer, still
// have their window block (LongestWhole). A sequence that computes a tombstone's tokens anew puts
// its window block back (Put).
//
// A window block needs no lock of its own. A sequence holds the blocks inside its window, and a
// transfer or a step holds the blocks that it uses. A block without any hold is evictable. It goes
// alone, also from the middle of a prefix, in the policy's order; or with its full block, when the
// tree frees that.
//
// Invariants:
//  1. window_of and full_of are inverse. A block that they name has one kRadixNode hold; no other
//     block of the pool has one.
//  2. The eviction queue has exactly the cached blocks that no sequence, transfer or step holds, so
//     free + evictable blocks can be allocated at any time.
//  3. A cached block's id is below the pool's limit, so a pool that shrinks waits for holders
//     alone.
//  4. pinned_only counts the blocks with a hold of a transfer or step, and none of a sequence.
//
// Cost: O(log blocks) for a hold or an eviction, O(1) otherwise; LongestWhole reads at most the
// path. After SGLang's SWA radix cache and vLLM's sliding-window manager.
//
// Thread safety: belongs to the engine thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "cache/block_allocator.h"
#include "cache/eviction_policy.h"
#include "cache/eviction_queue.h"
#include "common/strong_int.h"

namespace baton {

struct WindowPoolOptions {
  int32_t window = 0;  // slots: a token at position p sees (p - window, p]
  // As in KvCacheOptions: without the scratch block.
  int32_t num_blocks = 0;
  int32_t max_blocks = 0;  // 0: num_blocks
};

class WindowCache {
 public:
  // `full_blocks`: capacity of the full-attention group. REQUIRES: window >= 1, block_size >= 1,
  // num_blocks >= 1, max_blocks 0 or at least num_blocks (CHECK).
  WindowCache(const WindowPoolOptions& options, int32_t block_size, int32_t full_blocks,
              EvictionPolicy policy);
  // Gives every cached block back. REQUIRES: no sequence, transfer or step holds a block.
  ~WindowCache();
  WindowCache(const WindowCache&) = delete;
  WindowCache& operator=(const WindowCache&) = delete;

  int32_t window() const { return window_; }
  // Leading blocks of a sequence of `tokens` tokens that its next token does not see.
  int32_t DeadBlocks(int32_t tokens) const {
    return tokens < window_ ? 0 : (tokens - window_ + 1) / block_size_;
  }
  // Blocks before a boundary that a match there needs.
  int32_t whole_blocks() const { return whole_blocks_; }
  // How many leading blocks of `path` (blocks of the full group) a match may cover.
  int32_t LongestWhole(std::span<const BlockId> path) const;

  // The window block beside a full block, or kNoBlock.
  BlockId At(BlockId full) const { return window_of_[full.value()]; }
  // The full block beside a window block, or kNoBlock: not cached.
  BlockId FullOf(BlockId block) const { return full_of_[block.value()]; }
  // Caches `block` beside `full`, with at least this priority. Without effect if the id lies behind
  // the pool's limit. REQUIRES: there is none beside `full`; `block` is held and not cached
  // (CHECK).
  void Put(BlockId full, BlockId block, int32_t priority);
  // The tree frees these full blocks: their window blocks are no longer cached.
  void Drop(std::span<const BlockId> full);

  // Appends `count` blocks with one sequence hold each, evicting as needed. REQUIRES: count <=
  // free_count() + evictable() (CHECK).
  void Allocate(int32_t count, std::vector<BlockId>& out);
  // The same, `count` blocks with consecutive ids; false when no run is free. Evicts nothing.
  bool AllocateRun(int32_t count, std::vector<BlockId>& out);
  // As of BlockAllocator. A sequence's hold of a cached block is a use with this priority.
  void AddHold(BlockId block, BlockHolder holder, int32_t priority = INT32_MIN);
  void ReleaseHold(BlockId block, BlockHolder holder);

  // Evicts up to `count` blocks in the policy's order. Returns how many.
  int32_t Evict(int32_t count);
  // Moves the pool's limit. Blocks behind it are no longer cached: the unheld ones are free at
  // once, the others with their last holder. REQUIRES: 1 <= limit <= capacity.
  void Resize(int32_t limit);

  const BlockAllocator& blocks() const { return allocator_; }
  int32_t evictable() const { return static_cast<int32_t>(eviction_queue_.size()); }
  int32_t pinned_only() const { return pinned_only_; }
  int64_t evicted_blocks() const { return evicted_blocks_; }  // ever
  // Recounts every invariant. Internal names what breaks. O(blocks).
  absl::Status CheckInvariants() const;

 private:
  bool IsCached(BlockId block) const { return FullOf(block) != kNoBlock; }
  bool IsUnheld(BlockId block) const { return !allocator_.is_in_use(block); }
  bool IsPinnedOnly(BlockId block) const {
    return allocator_.is_in_use(block) && allocator_.holds(block, BlockHolder::kSequence) == 0;
  }
  EvictionKey KeyOfBlock(BlockId block) const { return KeyOf(policy_, use_[block.value()]); }
  void DropOne(BlockId full);

  const int32_t window_;
  const int32_t block_size_;
  const int32_t whole_blocks_;
  const EvictionPolicy policy_;
  BlockAllocator allocator_;
  std::vector<BlockId> window_of_;  // by id of the full block
  std::vector<BlockId> full_of_;    // by id of the window block
  std::vector<NodeUse> use_;        // by id of the window block, while it is cached
  EvictionQueue eviction_queue_;    // of window blocks
  uint64_t tick_ = 0;
  int32_t pinned_only_ = 0;
  int64_t evicted_blocks_ = 0;
};

}  // namespace baton
