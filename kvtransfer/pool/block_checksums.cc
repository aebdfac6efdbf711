#include "kvtransfer/pool/block_checksums.h"

namespace baton {

std::optional<BlockChecksums::Kept> BlockChecksums::Find(const GroupBlocks& blocks,
                                                         int32_t valid_tokens, LayerRange layers) {
  if (!layers.all() || valid_tokens != layout_.block_size()) return std::nullopt;
  Kept kept = {};
  bool any = false;
  for (int32_t group = 0; group < layout_.groups(); ++group) {
    if (blocks[group] == kNoBlock) continue;
    const auto full = full_.find(NumberOf(blocks[group], group));
    if (full == full_.end()) continue;
    kept[static_cast<size_t>(group)] = &full->second;
    any = true;
  }
  if (!any) return std::nullopt;
  return kept;
}

template <typename ChecksumOf>
std::vector<uint32_t> BlockChecksums::Merge(const Kept& kept, GroupSet groups,
                                            const ChecksumOf& checksum_of) {
  std::array<bool, kMaxKvGroups> taken = {};
  for (size_t group = 0; group < kept.size(); ++group) {
    taken[group] = kept[group] != nullptr && !kept[group]->empty();
  }
  std::array<size_t, kMaxKvGroups> next = {};
  std::vector<uint32_t> checksums;
  for (const Piece piece : Pieces(layout_, groups, {})) {
    const auto group = static_cast<size_t>(layout_.place(piece.layer).group);
    if (taken[group]) {
      checksums.push_back((*kept[group])[next[group]++]);
      continue;
    }
    checksums.push_back(checksum_of(piece, checksums.size()));
    if (kept[group] != nullptr) kept[group]->push_back(checksums.back());
  }
  return checksums;
}

std::vector<uint32_t> BlockChecksums::Of(const GroupBlocks& blocks, int32_t valid_tokens,
                                         LayerRange layers, const PieceBytes& bytes) {
  const std::optional<Kept> kept = Find(blocks, valid_tokens, layers);
  if (!kept) return bytes.Checksums();
  return Merge(*kept, bytes.groups(),
               [&](const Piece& piece, size_t) { return bytes.Checksum(piece); });
}

std::vector<uint32_t> BlockChecksums::Of(const GroupBlocks& blocks, int32_t valid_tokens,
                                         LayerRange layers, std::span<const uint32_t> computed) {
  const std::optional<Kept> kept = Find(blocks, valid_tokens, layers);
  if (!kept) return {computed.begin(), computed.end()};
  return Merge(*kept, blocks.groups(), [&](const Piece&, size_t i) { return computed[i]; });
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
