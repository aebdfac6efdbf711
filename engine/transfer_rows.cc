#include "engine/transfer_rows.h"

#include <algorithm>

#include "common/check.h"
#include "common/str_cat.h"

namespace baton {

std::vector<int32_t> WindowSizes(const KvCacheManager& cache) {
  std::vector<int32_t> sizes;
  for (const WindowPoolOptions& window : cache.options().windows) sizes.push_back(window.window);
  return sizes;
}

std::vector<int32_t> WindowFirstBlocks(const KvCacheManager& cache, int32_t first_block,
                                       int32_t tokens) {
  std::vector<int32_t> first_blocks;
  for (const WindowPoolOptions& window : cache.options().windows) {
    const int32_t seen = std::max(0, tokens - window.window + 1);
    first_blocks.push_back(std::max(first_block, seen / cache.options().block_size));
  }
  return first_blocks;
}

absl::Status CheckWindowsLandWhole(const KvCacheManager& cache, const TransferTicket& ticket) {
  const int32_t block_size = cache.options().block_size;
  if (cache.groups() == 1 || ticket.block_size <= block_size) return absl::OkStatus();
  return absl::FailedPreconditionError(StrCat("the ticket's block_size ", ticket.block_size,
                                              " exceeds the sender's ", block_size,
                                              ", which models with sliding windows do not allow"));
}

void AppendRows(const KvCacheManager& cache, SequenceId id, const MovedTokens& moved,
                SequenceBlocks blocks, std::vector<BlockId>& rows) {
  const auto at = static_cast<std::ptrdiff_t>(rows.size());
  const int32_t groups = cache.groups();
  for (int32_t group = 0; group < groups; ++group) {
    const std::span<const BlockId> table =
        cache.BlockTable(id, group).subspan(blocks.first, blocks.count);
    if (groups == 1) {
      rows.insert(rows.end(), table.begin(), table.end());
      return;
    }
    rows.resize(static_cast<size_t>(at) + table.size() * groups, kNoBlock);
    for (int32_t i = 0; i < blocks.count; ++i) {
      const int32_t block = blocks.first + i;
      if (!moved.GroupsOf(block, cache.options().block_size).Has(group)) continue;
      CHECK(table[i] != kNoBlock) << "sequence " << id << ", KV group " << group << ": block "
                                  << block << " must move but does not exist";
      rows[at + i * groups + group] = table[i];
    }
  }
}

void AppendGroup(std::span<const BlockId> rows, int32_t groups, int32_t group,
                 std::vector<BlockId>& blocks) {
  for (size_t at = group; at < rows.size(); at += groups) {
    if (rows[at] != kNoBlock) blocks.push_back(rows[at]);
  }
}

BlockCounts CountBlocks(std::span<const BlockId> rows, int32_t groups) {
  BlockCounts counts;
  for (size_t at = 0; at < rows.size(); ++at) {
    if (rows[at] != kNoBlock) ++counts[static_cast<int32_t>(at % groups)];
  }
  return counts;
}

void HoldRows(KvCacheManager& cache, std::span<const BlockId> rows) {
  if (cache.groups() == 1) return cache.HoldForTransfer(rows);
  for (int32_t group = 0; group < cache.groups(); ++group) {
    std::vector<BlockId> blocks;
    AppendGroup(rows, cache.groups(), group, blocks);
    cache.HoldForTransfer(blocks, group);
  }
}

void ReleaseRows(KvCacheManager& cache, std::span<const BlockId> rows) {
  if (cache.groups() == 1) return cache.ReleaseTransferHold(rows);
  for (int32_t group = 0; group < cache.groups(); ++group) {
    std::vector<BlockId> blocks;
    AppendGroup(rows, cache.groups(), group, blocks);
    cache.ReleaseTransferHold(blocks, group);
  }
}

}  // namespace baton
