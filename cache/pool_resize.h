// How the full-attention pool grows and shrinks while its blocks are in use.
//
// Shrinking gives up free and cached blocks behind the new end at once. Blocks in use there retire
// when their users are done. Sequences that begin later may match a prefix behind the end as long
// as a sequence from before the resize (an earlier one) lives. With the last of these the whole
// cache is forgotten if it still reaches behind the end. So no prefix can keep blocks from retiring
// by being popular.
//
// Thread safety: belongs to the engine thread.
#pragma once

#include <cstdint>
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

// Blocks [begin, end) behind the limit that have no holder, in runs. O(blocks behind the limit).
std::vector<BlockRange> RetiredBlocks(const BlockAllocator& blocks);

class PoolResize {
 public:
  // REQUIRES: both outlive this.
  PoolResize(BlockAllocator* blocks, RadixTree* tree) : blocks_(blocks), tree_(tree) {}

  // Moves the pool's limit; `live` are the sequences with blocks. REQUIRES: 1 <= limit <= capacity.
  void Resize(int32_t limit, absl::flat_hash_set<SequenceId> live);
  // A fork has blocks of its parent's time.
  void Forked(SequenceId parent, SequenceId child) {
    if (earlier_.contains(parent)) earlier_.insert(child);
  }
  void Ended(SequenceId id) {
    earlier_.erase(id);
    Retire();
  }
  // Frees the cached, unlocked blocks behind the end. Called when a holder let go.
  void Retire() {
    if (blocks_->retiring() > 0) RetireCached();
  }

 private:
  void RetireCached();

  BlockAllocator* const blocks_;
  RadixTree* const tree_;
  absl::flat_hash_set<SequenceId> earlier_;  // live ones from before the last Resize
  bool forgot_popular_ = false;              // since then
};

}  // namespace baton
