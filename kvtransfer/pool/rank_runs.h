// Copies between staging memory, which has the rows of the whole model, and a pool whose KV heads
// are divided among the ranks of a tensor-parallel group.
//
// A token's row has the values of head after head, then for types with scales the scales of head
// after head, then padding. A rank's row has the same for its heads, which are consecutive. So the
// copy of a piece has rows at equal distances: one list for the values, and one for the scales.
//
// No rank's row has the padding of the whole row. It is zero in a pool that is not divided, so
// ClearPadding makes it zero in staging memory.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "cache/kv_pool_layout.h"
#include "common/strong_int.h"
#include "kernels/byte_run.h"
#include "kvtransfer/pool/piece_bytes.h"
#include "kvtransfer/pool/pool_copies.h"

namespace baton {

// Returns the number of ranks among which `rank` layouts divide the heads of `whole`.
int32_t RanksOf(const KvPoolLayout& whole, const KvPoolLayout& rank);

// Appends the copies of all pieces of `staged` for every rank. `parts`: where the tokens lie in the
// pools. REQUIRES: `rank` is the layout of each rank's pool; `staged` has as many tokens in each
// part.
void AppendRankRuns(const KvPoolLayout& rank, const LandingParts& parts, const PieceBytes& staged,
                    std::vector<PoolCopies::Run>& runs);

// Appends the copies of one piece for every rank: `tokens` tokens from slot `first_token` of a
// block on. `rows` are those of the whole model, side by side.
void AppendRankRuns(const KvPoolLayout& whole, const KvPoolLayout& rank, const Piece& piece,
                    BlockId block, int32_t first_token, int32_t tokens, std::byte* rows,
                    std::vector<PoolCopies::Run>& runs);

// Returns where the padding of `tokens` rows of a piece is that begin at `at`; nothing if they have
// none. The source is one row of zeros at offset 0.
std::optional<ByteRows> PaddingOf(const KvPoolLayout& whole, const Piece& piece, int64_t at,
                                  int32_t tokens);

// Sets the padding of all rows of `staged` to zero.
void ClearPadding(const PieceBytes& staged);

}  // namespace baton
