#include "cache/pool_resize.h"

#include <utility>

namespace baton {

std::vector<BlockRange> RetiredBlocks(const BlockAllocator& blocks) {
  std::vector<BlockRange> runs;
  for (int32_t i = blocks.limit(); i < blocks.capacity(); ++i) {
    if (!blocks.is_free(BlockId(i))) continue;
    if (runs.empty() || runs.back().end < i) runs.push_back({.begin = i, .end = i});
    runs.back().end = i + 1;
  }
  return runs;
}

void PoolResize::Resize(int32_t limit, absl::flat_hash_set<SequenceId> live) {
  blocks_->Resize(limit);
  earlier_ = std::move(live);
  forgot_popular_ = false;
  if (blocks_->retiring() > 0) tree_->EvictFrom(BlockId(limit));
  Retire();
}

// If no earlier sequence lives, later sequences use the blocks that are still cached above the
// limit. Clearing the tree prevents new matches of them. After that no block above the limit can
// become cached.
void PoolResize::RetireCached() {
  if (tree_->HasUnlockedBehind()) tree_->EvictFrom(BlockId(blocks_->limit()));
  if (!earlier_.empty() || forgot_popular_) return;
  forgot_popular_ = true;
  for (int32_t i = blocks_->limit(); i < blocks_->capacity(); ++i) {
    if (!tree_->ContainsBlock(BlockId(i))) continue;
    tree_->Clear();
    on_cleared_();
    return;
  }
}

}  // namespace baton
