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

#include <cstdint>
#include <span>
#include <vector>

#include "cache/kv_pool_layout.h"
#include "kvtransfer/pool/piece_bytes.h"
#include "kvtransfer/pool/staged_pool.h"

namespace baton {

// Returns the number of ranks among which `rank` layouts divide the heads of `whole`.
int32_t RanksOf(const KvPoolLayout& whole, const KvPoolLayout& rank);

// Appends the copies of all pieces of `staged` for every rank. `parts`: where the tokens lie in the
// pools. REQUIRES: `rank` is the layout of each rank's pool; `staged` has as many tokens in each
// part.
void AppendRankRuns(const KvPoolLayout& rank, const LandingParts& parts, const PieceBytes& staged,
                    std::vector<PoolCopies::Run>& runs);

// Sets the padding of all rows of `staged` to zero.
void ClearPadding(const PieceBytes& staged);

}  // namespace baton
