// The blocks of a sequence that a transfer moves, as rows [block of the sequence][KV group], flat
// (kvtransfer/transport.h), and the holds that go with them.
//
// kNoBlock stands where a group does not travel with a block. For a model with one group the rows
// are its blocks.
//
// Thread safety: belongs to the engine thread.
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

// Windows of groups 1, 2, ... in tokens.
std::vector<int32_t> WindowSizes(const KvCacheManager& cache);

// Of groups 1, 2, ...: the first block of a sequence that a receiver lacks. It has the blocks
// before `first_block`, and of a window it needs what the token behind `tokens` sees.
std::vector<int32_t> WindowFirstBlocks(const KvCacheManager& cache, int32_t first_block,
                                       int32_t tokens);

// FailedPrecondition when the ticket's blocks are larger than ours and the model has windows. The
// first block of a window would land in part, and the receiver would cache it as if it were whole.
absl::Status CheckWindowsLandWhole(const KvCacheManager& cache, const TransferTicket& ticket);

// Appends the rows of a sequence's blocks, with the groups that `moved` names. REQUIRES: the
// sequence has these blocks; of a window, no block that moves has slid out of it.
void AppendRows(const KvCacheManager& cache, SequenceId id, const MovedTokens& moved,
                SequenceBlocks blocks, std::vector<BlockId>& rows);

// Appends the blocks of one group.
void AppendGroup(std::span<const BlockId> rows, int32_t groups, int32_t group,
                 std::vector<BlockId>& blocks);
BlockCounts CountBlocks(std::span<const BlockId> rows, int32_t groups);

// A transfer's hold on every block of the rows (KvCacheManager::HoldForTransfer).
void HoldRows(KvCacheManager& cache, std::span<const BlockId> rows);
void ReleaseRows(KvCacheManager& cache, std::span<const BlockId> rows);

}  // namespace baton
