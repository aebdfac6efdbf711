#include "kvtransfer/pool/block_checksums.h"

namespace baton {

std::vector<uint32_t> BlockChecksums::Of(BlockId block, int32_t valid_tokens, LayerRange layers,
                                         const PieceBytes& bytes) {
  if (!layers.all()) return bytes.Checksums();
  const auto full = full_.find(block);
  if (full == full_.end() || valid_tokens != layout_.block_size()) return bytes.Checksums();
  if (full->second.empty()) full->second = bytes.Checksums();
  return full->second;
}

void BlockChecksums::OnWritten(std::span<const BlockId> full, std::span<const BlockId> part) {
  Forget(part);
  for (const BlockId block : full) {
    if (block.value() >= 0 && block.value() < layout_.num_blocks()) full_[block].clear();
  }
}

void BlockChecksums::Forget(std::span<const BlockId> blocks) {
  for (const BlockId block : blocks) full_.erase(block);
}

}  // namespace baton
