#include "kvtransfer/pool/block_checksums.h"

namespace baton {

std::vector<uint32_t> BlockChecksums::Of(BlockId block, int32_t valid_tokens, LayerRange layers) {
  if (!layers.all()) return PieceChecksums(pool_, block, valid_tokens, layers);
  const auto full = full_.find(block);
  if (full == full_.end() || valid_tokens != pool_.layout.block_size()) {
    return PieceChecksums(pool_, block, valid_tokens);
  }
  if (full->second.empty()) full->second = PieceChecksums(pool_, block, valid_tokens);
  return full->second;
}

void BlockChecksums::OnWritten(std::span<const BlockId> full, std::span<const BlockId> part) {
  Forget(part);
  for (const BlockId block : full) {
    if (block.value() >= 0 && block.value() < pool_.layout.num_blocks()) full_[block].clear();
  }
}

void BlockChecksums::Forget(std::span<const BlockId> blocks) {
  for (const BlockId block : blocks) full_.erase(block);
}

}  // namespace baton
