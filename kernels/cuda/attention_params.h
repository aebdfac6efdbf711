// Parameters of the paged attention kernels, and the shapes that host and kernel agree on.
//
// Terms:
// - Row: a (token, query head).
// - Head group: at most `heads_per_group` query heads of one kv head.
// - Unit: the rows that a kernel computes together: one head group for `tile_tokens` adjacent
//   tokens.
// - Item: a unit's work on one segment of one run (NUMERICS §8).
//
// Thread safety: plain data and pure functions.
#pragma once

#include <cstdint>

#include "common/kv_type.h"
#include "kernels/host_device.h"
#include "kernels/numerics.h"
#include "kernels/paged_kv.h"

namespace baton {

struct PagedAttentionParams {
  // As in PagedAttentionArgs.
  const float* q;
  int64_t q_stride;
  float* out;
  KvLayerView kv;
  const int32_t* sequence_of_token;
  const VisibleRun* runs;
  const RowRuns* row_runs;
  const int32_t* block_tables;
  int64_t table_stride;
  const int32_t* first_block;
  const int32_t* shared_segments;  // only in t1, and for units of several tokens; else null
  int64_t tokens;
  int32_t query_heads;
  int32_t kv_heads;
  int32_t head_dim;
  float softmax_scale;
  // The division into units.
  int32_t heads_per_group;
  int32_t head_groups;  // of one kv head
  int32_t tile_tokens;
  bool copies_16_bytes;  // all rows of K and V begin at multiples of 16 bytes and fill them
  // The workspace: `states_per_block` states for each thread block, and one zero for each.
  float* states;
  int64_t states_per_block;
  uint32_t* arrivals;
};

namespace attention {

// Head dimensions are rounded up to one of these. The padding is zeros, which changes no bit.
inline constexpr int kDims[] = {64, 128, 256};
// Warps that share a chunk of rows: in the kernel for many tokens, and in the one for decode.
inline constexpr int kChunkSplit = 1;
inline constexpr int kDecodeSplit = 4;
inline constexpr int kMaxThreads = 256;
// Blocks of so many threads whose registers fit in a multiprocessor: the second number of
// __launch_bounds__ in paged_attention_*.cu.
constexpr int BlocksByRegisters(int threads) { return threads <= 128 ? 3 : 2; }
// A thread multiplies with two lanes of Dot16 for all rows of its chunk: 64 query values.
BATON_HOST_DEVICE constexpr int RowsPerChunk(int dim) { return 512 / dim; }
// Padded so that a warp stores its scores without bank conflicts.
BATON_HOST_DEVICE constexpr int ScoreStride(int dim) {
  return kAttentionTile + 32 / RowsPerChunk(dim);
}

// Offsets into shared memory, in bytes.
struct SharedLayout {
  int keys;    // [stages][slots][key_row_bytes]
  int values;  // [stages][slots][value_row_bytes]
  int key_row_bytes;
  int value_row_bytes;
  int stages;
  int scores;        // f32 [rows][ScoreStride]; exponentials after the softmax
  int queries;       // f32 [rows][dim]; int8 pools: bytes of the integers
  int running;       // f32 [rows * dim], the output of the merged segments
  int weight_bytes;  // int8 pools: u of NUMERICS §8, [2: high, low][rows][slots]
  int scales;        // pools with scales: f32 [stages][2: K, V][slots]
  int row_values;    // f32 [kRowValues][rows]
  int row_bounds;    // int32 [2: begin, end][rows]
  int offsets;       // int64 [2][slots], of the rows of K in the pool; -1: no row sees the slot
  int scratch;       // int64 [kScratch]
  int bytes;
};
inline constexpr int kRowValues = 6;
// A warp plans a tile of at most so many tokens, one in each lane.
inline constexpr int kPlannedTokens = 32;
// Values of 64 bits for the plan. The ones from kScratchOfShare on are in use longest.
inline constexpr int kScratch = 40;
inline constexpr int kScratchOfPieces = 16;
inline constexpr int kScratchOfShare = 32;

// `rows` is that of the thread block. Pools of bytes have scales. A row of K has padding:
// eight lanes read pairs of one row, so the four rows that a warp reads at once must be in
// different banks. For int8 there is no padding, because lanes read larger pieces.
BATON_HOST_DEVICE constexpr SharedLayout LayoutOf(int element_bytes, bool is_int8, int dim,
                                                  int rows) {
  SharedLayout layout{};
  layout.key_row_bytes = dim * element_bytes + (is_int8 ? 0 : kLanes * element_bytes);
  layout.value_row_bytes = dim * element_bytes;
  const int stage = kAttentionTile * (layout.key_row_bytes + layout.value_row_bytes);
  // Two stages, unless they would exceed the shared memory of sm_80 (163 KiB) with the rest.
  layout.stages = 2 * stage <= 120000 ? 2 : 1;
  int at = 0;
  layout.keys = at;
  at += layout.stages * kAttentionTile * layout.key_row_bytes;
  layout.values = at;
  at += layout.stages * kAttentionTile * layout.value_row_bytes;
  layout.scores = at;
  at += rows * ScoreStride(dim) * 4;
  layout.queries = at;
  at += rows * dim * 4;
  layout.running = at;
  at += rows * dim * 4;
  layout.weight_bytes = at;
  at += is_int8 ? 2 * rows * kAttentionTile : 0;
  layout.scales = at;
  at += element_bytes == 1 ? layout.stages * 2 * kAttentionTile * 4 : 0;
  layout.offsets = at;
  at += 2 * kAttentionTile * 8;
  layout.scratch = at;
  at += kScratch * 8;
  layout.row_values = at;
  at += kRowValues * rows * 4;
  layout.row_bounds = at;
  at += 2 * rows * 4;
  layout.bytes = at;
  return layout;
}

// Floats of a state of all rows: outputs, lane sums, maxima, and whether a slot was visible. It
// ends at a multiple of 128 bytes, so that no cache line has two states.
BATON_HOST_DEVICE constexpr int64_t StateFloats(int dim, int rows) {
  return (int64_t{rows} * (dim + kLanes + 2) + 31) / 32 * 32;
}

}  // namespace attention
}  // namespace baton
