// Grows and shrinks the full-attention pool while its blocks are in use.
//
// Shrinking frees the free and cached blocks above the new limit at once. Blocks in use there
// retire when their last hold is released. An earlier sequence is one from before the resize. While
// one lives, new sequences may still match a prefix above the limit. When the last one ends and the
// cache still has blocks above the limit, the whole cache is cleared. So a popular prefix cannot
// keep blocks from retiring forever.
//
// Thread safety: used by the engine thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "cache/block_allocator.h"
#include "cache/radix_tree.h"
#include "common/strong_int.h"

namespace baton {

struct BlockRange {
  int32_t begin = 0;
  int32_t end = 0;  // exclusive
  bool operator==(const BlockRange&) const = default;
};

// Blocks [begin, end) above the limit that have no hold, as runs. O(blocks above the limit).
std::vector<BlockRange> RetiredBlocks(const BlockAllocator& blocks);

class PoolResize {
 public:
  // `on_cleared` is called when the whole tree was cleared. REQUIRES: all outlive this object.
  PoolResize(BlockAllocator* blocks, RadixTree* tree, std::function<void()> on_cleared)
      : blocks_(blocks), tree_(tree), on_cleared_(std::move(on_cleared)) {}

  // Moves the pool's limit. `live` are the sequences that have blocks. REQUIRES: 1 <= limit <=
  // capacity.
  void Resize(int32_t limit, absl::flat_hash_set<SequenceId> live);
  // A fork of an earlier sequence is an earlier sequence, because it shares the parent's blocks.
  void Forked(SequenceId parent, SequenceId child) {
    if (earlier_.contains(parent)) earlier_.insert(child);
  }
  void Ended(SequenceId id) {
    earlier_.erase(id);
    Retire();
  }
  // Frees the cached, unlocked blocks above the limit. Call it after a hold was released.
  void Retire() {
    if (blocks_->retiring() > 0) RetireCached();
  }

 private:
  void RetireCached();

  BlockAllocator* const blocks_;
  RadixTree* const tree_;
  const std::function<void()> on_cleared_;
  absl::flat_hash_set<SequenceId> earlier_;  // sequences alive since before the last Resize
  bool forgot_popular_ = false;              // whether the tree was cleared since the last Resize
};

}  // namespace baton
