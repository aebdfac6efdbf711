// Builds the list of a sequence's blocks that a transfer moves, and takes holds on them. The list
// has one row per block, [block of the sequence][KV group], stored flat (kvtransfer/transport.h).
//
// An entry is kNoBlock if the group's block is not sent. For a model with one group the rows are
// simply the blocks.
//
// Thread safety: engine thread only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "cache/block_counts.h"
#include "cache/kv_cache_manager.h"
#include "kvtransfer/protocol/transfer_plan.h"
#include "kvtransfer/transport.h"

namespace baton {

// Window sizes of groups 1, 2, ... in tokens.
std::vector<int32_t> WindowSizes(const KvCacheManager& cache);

// Returns, for each of groups 1, 2, ..., the first block of a sequence that a receiver lacks. The
// receiver has the blocks before `first_block`. From a window it needs only the blocks that the
// token after `tokens` tokens sees.
std::vector<int32_t> WindowFirstBlocks(const KvCacheManager& cache, int32_t first_block,
                                       int32_t tokens);

// FailedPrecondition if the ticket's blocks are larger than this worker's and the model has
// windows. The first block of a window would then land in part, and the receiver would cache it as
// whole.
absl::Status CheckWindowsLandWhole(const KvCacheManager& cache, const TransferTicket& ticket);

// Appends the rows of a sequence's blocks, with the groups that `moved` names. REQUIRES: the
// sequence has these blocks, and no block that moves has slid out of its window.
void AppendRows(const KvCacheManager& cache, SequenceId id, const MovedTokens& moved,
                SequenceBlocks blocks, std::vector<BlockId>& rows);

// Appends the blocks of one group that are in the rows.
void AppendGroup(std::span<const BlockId> rows, int32_t groups, int32_t group,
                 std::vector<BlockId>& blocks);
BlockCounts CountBlocks(std::span<const BlockId> rows, int32_t groups);

// Takes or releases a transfer hold on every block of the rows (KvCacheManager::HoldForTransfer).
void HoldRows(KvCacheManager& cache, std::span<const BlockId> rows);
void ReleaseRows(KvCacheManager& cache, std::span<const BlockId> rows);

}  // namespace baton
