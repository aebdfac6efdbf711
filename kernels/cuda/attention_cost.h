// Estimates which kernel of t1 is faster for a batch of decode rows: the one for decode, which
// reads the KV of each row, or the one for chunks, which reads shared segments once for a tile.
//
// The numbers are predictions from bytes and counts of instructions. No device has confirmed them.
// A wrong estimate costs time, and changes no result.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/numerics.h"
#include "kernels/ops.h"

namespace baton {

// Returns true if the kernel for chunks plans a batch of `rows` tokens fast: a thread block has a
// warp for each tile.
bool PlansRowsFast(const PagedAttentionArgs& shape, Numerics numerics, int64_t rows);

// Returns the clocks of a multiprocessor, for one kv head, that the kernel for chunks is estimated
// to save. Negative: it is slower. Row i sees slots[i] slots, and shares `shared_segments[i]`
// (PagedAttentionArgs). REQUIRES: spans of equal length.
int64_t ClocksSavedBySharing(const PagedAttentionArgs& shape, Numerics numerics,
                             std::span<const int32_t> slots,
                             std::span<const int32_t> shared_segments);

}  // namespace baton
