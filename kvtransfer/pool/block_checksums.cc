#include "kvtransfer/pool/block_checksums.h"

namespace baton {

std::vector<uint32_t> BlockChecksums::Of(const GroupBlocks& blocks, int32_t valid_tokens,
                                         LayerRange layers, const PieceBytes& bytes) {
  if (!layers.all() || valid_tokens != layout_.block_size()) return bytes.Checksums();
  Kept kept = {};
  bool any = false;
  for (int32_t group = 0; group < layout_.groups(); ++group) {
    if (blocks[group] == kNoBlock) continue;
    const auto full = full_.find(NumberOf(blocks[group], group));
    if (full == full_.end()) continue;
    kept[static_cast<size_t>(group)] = &full->second;
    any = true;
  }
  if (!any) return bytes.Checksums();
  if (bytes.groups().count() > 1 || kept[0] == nullptr) return Merge(kept, bytes);
  if (kept[0]->empty()) *kept[0] = bytes.Checksums();
  return *kept[0];
}

std::vector<uint32_t> BlockChecksums::Merge(const Kept& kept, const PieceBytes& bytes) {
  std::array<bool, kMaxKvGroups> taken = {};
  for (size_t group = 0; group < kept.size(); ++group) {
    taken[group] = kept[group] != nullptr && !kept[group]->empty();
  }
  std::array<size_t, kMaxKvGroups> next = {};
  std::vector<uint32_t> checksums;
  for (const Piece piece : bytes.pieces()) {
    const auto group = static_cast<size_t>(bytes.layout().place(piece.layer).group);
    if (taken[group]) {
      checksums.push_back((*kept[group])[next[group]++]);
      continue;
    }
    checksums.push_back(bytes.Checksum(piece));
    if (kept[group] != nullptr) kept[group]->push_back(checksums.back());
  }
  return checksums;
}

void BlockChecksums::OnWritten(std::span<const BlockId> full, std::span<const BlockId> part,
                               int32_t group) {
  if (group < 0 || group >= layout_.groups()) return;
  for (const BlockId block : part) {
    if (InPool(block, group)) full_.erase(NumberOf(block, group));
  }
  for (const BlockId block : full) {
    if (InPool(block, group)) full_[NumberOf(block, group)].clear();
  }
}

void BlockChecksums::Forget(std::span<const BlockId> rows) {
  const auto groups = static_cast<size_t>(layout_.groups());
  for (size_t at = 0; at < rows.size(); ++at) {
    const auto group = static_cast<int32_t>(at % groups);
    if (rows[at] != kNoBlock) full_.erase(NumberOf(rows[at], group));
  }
}

}  // namespace baton
