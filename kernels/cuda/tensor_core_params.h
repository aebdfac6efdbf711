// Parameters of the paged attention kernels of t1, and the shapes that host and kernel agree on.
// attention_params.h defines the terms.
//
// Matrices in shared memory have 16-bit elements and consist of panels. A panel holds 64 columns of
// all rows, 128 bytes for each row. The 16-byte chunks of a row are permuted as by
// SharedSwizzle::k128Bytes. So both ldmatrix and wgmma read panels without bank conflicts.
//
// Thread safety: plain data and pure functions.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention_params.h"
#include "kernels/cuda/tensor_map.h"
#include "kernels/host_device.h"
#include "kernels/numerics.h"

namespace baton {

struct TensorCoreAttentionParams {
  PagedAttentionParams paged;
  float factor;          // softmax_scale · log2(e)
  float inverse_factor;  // 1 / factor
  uint32_t* pieces;      // for each thread block, the states that it wrote of the unit it continued
  // Warpgroups: the pool as a tensor [blocks][2: K, V][kv heads][tokens of a block][head_dim], with
  // boxes of 2^box_tokens_log2 tokens and 64 columns. −1: there are no tile copies.
  int32_t box_tokens_log2;
  TensorMap pool;
};

namespace t1 {

// Head dimensions are rounded up to one of these. The padding is zeros, which changes no bit.
inline constexpr int kDims[] = {64, 96, 128, 256};
inline constexpr int kMmaRows = 16;  // of a matrix instruction: a chunk of rows
inline constexpr int kPanelCols = 64;
inline constexpr int kPanelRowBytes = 2 * kPanelCols;
inline constexpr int kSwizzledRows = 8;  // after as many rows, the swizzle repeats
// Decode: four warps share a chunk. Each takes a quarter of a tile's slots for the scores, and a
// quarter of the outputs.
inline constexpr int kDecodeSplit = 4;
// For chunks of a prompt, each warp has 16 rows. Larger heads leave room for fewer.
BATON_HOST_DEVICE constexpr int WarpsOfChunks(int dim) { return dim <= 128 ? 8 : 4; }
// On sm_90, chunks of 16-bit pools run on two warpgroups, of 64 rows each. Heads of 256 leave no
// room for that, and bytes of other pools must become operands in shared memory first.
BATON_HOST_DEVICE constexpr bool UsesWarpgroups(int element_bytes, int dim) {
  return element_bytes == 2 && dim <= 128;
}
inline constexpr int kWarpgroupsThreads = 256;  // of a thread block
inline constexpr int kWarpgroupsRows = 128;
// Head dimensions of warpgroups.
inline constexpr int kWarpgroupsDims[] = {64, 128};
// Boxes of a tile copy have at least this many tokens.
inline constexpr int kLeastBoxTokens = kSwizzledRows;
// Thread blocks whose registers fit in a multiprocessor: the second number of __launch_bounds__.
constexpr int BlocksByRegisters(bool decode) { return decode ? 2 : 1; }

BATON_HOST_DEVICE constexpr int Panels(int dim) { return (dim + kPanelCols - 1) / kPanelCols; }
// Bytes of a matrix of `rows` rows.
BATON_HOST_DEVICE constexpr int MatrixBytes(int dim, int rows) {
  return Panels(dim) * rows * kPanelRowBytes;
}

// Offsets into shared memory, in bytes.
struct SharedLayout {
  int stages;
  int tiles;    // [stages][2: K, V] matrices of 64 slots; with scales: one of them
  int raw;      // pools with scales: [stages][2: K, V][slots][dim] bytes
  int queries;  // matrix [rows]
  int weights;  // decode: matrix [rows] with a column for each slot; with scales: and a scaled one
  int group;    // f32 [rows * dim], outputs of the merged segments; −1: in the workspace
  int maxima;   // decode: f32 [warps][rows]
  int scales;   // pools with scales: f32 [2][2: K, V][slots]
  int offsets;  // int64 [stages][slots], of the rows of K in the pool; -1: no row sees the slot
  int scratch;  // int64 [attention::kScratch]
  int work;     // BlockWork of tensor_core_plan.cuh
  int bounds;   // int32 [2: begin, end][rows]; then two slots, and for chunks four more values
  int before;   // chunks: int32 [rows], the items in front of those of each token of the tile
  int bytes;
};

inline constexpr int kWorkBytes = 128;

// Shared memory of a thread block on compute capability 8.0: the least that these kernels meet.
inline constexpr int kMostLayoutBytes = 163 << 10;

BATON_HOST_DEVICE constexpr SharedLayout LayoutOf(bool is_scaled, int dim, bool decode,
                                                  bool shares_group = true) {
  SharedLayout layout{};
  const int rows = decode ? kMmaRows : kMmaRows * WarpsOfChunks(dim);
  const int tile = 2 * MatrixBytes(dim, kAttentionTile);
  // This number keeps 64 to 96 KiB in flight for each multiprocessor.
  layout.stages = !decode || dim > 128 ? 2 : dim > 64 ? 3 : 4;
  int at = 0;
  layout.tiles = at;
  at += (is_scaled ? 1 : layout.stages) * tile;
  layout.raw = at;
  at += is_scaled ? layout.stages * 2 * kAttentionTile * dim : 0;
  layout.queries = at;
  at += MatrixBytes(dim, rows);
  layout.weights = at;
  at += decode ? (is_scaled ? 2 : 1) * MatrixBytes(kAttentionTile, rows) : 0;
  layout.group = shares_group ? at : -1;
  at += shares_group ? rows * dim * 4 : 0;
  layout.maxima = at;
  at += decode ? kDecodeSplit * rows * 4 : 0;
  layout.scales = at;
  at += is_scaled ? 2 * 2 * kAttentionTile * 4 : 0;
  layout.offsets = at;
  at += layout.stages * kAttentionTile * 8;
  layout.scratch = at;
  at += attention::kScratch * 8;
  layout.work = at;
  at += kWorkBytes;
  layout.bounds = at;
  at += 2 * (rows + (decode ? 1 : 3)) * 4;
  // The plan needs the first part of `scratch` only before it fills `before`.
  const bool in_scratch = rows * 4 <= attention::kScratchOfShare * 8;
  layout.before = in_scratch ? layout.scratch : at;
  at += decode || in_scratch ? 0 : rows * 4;
  layout.bytes = at;
  // A group is touched once in 256 slots, so it is what can best leave the shared memory.
  if (shares_group && at > kMostLayoutBytes) return LayoutOf(is_scaled, dim, decode, false);
  return layout;
}

// The same for warpgroups. A stage has Panels(dim) panels of K and of V, each of 64 slots. Two
// panels of V and the panel of ones lie at equal distances, so that one product gives the outputs
// and the sum of the weights.
struct WarpgroupsLayout {
  int stages;
  int ones;      // a panel of ones; before it: panels of all stages
  int group;     // f32 [rows * dim], outputs of the merged segments
  int offsets;   // int64 [slots], as in SharedLayout
  int barriers;  // [stages]
  int scratch;   // as in SharedLayout, like the following
  int work;
  int bounds;
  int before;
  int bytes;
};
inline constexpr int kPanelBytes = kAttentionTile * kPanelRowBytes;

BATON_HOST_DEVICE constexpr WarpgroupsLayout WarpgroupsLayoutOf(int dim) {
  WarpgroupsLayout layout{};
  layout.stages = dim <= 64 ? 6 : 4;
  int at = 2 * Panels(dim) * layout.stages * kPanelBytes;
  layout.ones = at;
  at += kPanelBytes;
  layout.group = at;
  at += kWarpgroupsRows * dim * 4;
  layout.offsets = at;
  at += kAttentionTile * 8;
  layout.barriers = at;
  at += layout.stages * 8;
  layout.scratch = at;
  at += attention::kScratch * 8;
  layout.work = at;
  at += kWorkBytes;
  layout.bounds = at;
  at += 2 * (kWarpgroupsRows + 3) * 4;
  layout.before = at;
  at += kWarpgroupsRows * 4;
  layout.bytes = at;
  return layout;
}

// Every kernel fits into the shared memory of a block: of sm_80, or of sm_90 for warpgroups.
inline constexpr int kMostWarpgroupsBytes = 227 << 10;
static_assert(LayoutOf(true, 256, false).bytes <= kMostLayoutBytes);
static_assert(LayoutOf(false, 256, false).bytes <= kMostLayoutBytes);
static_assert(LayoutOf(true, 256, true).bytes <= kMostLayoutBytes);
static_assert(LayoutOf(false, 256, true).bytes <= kMostLayoutBytes);
static_assert(WarpgroupsLayoutOf(64).bytes <= kMostWarpgroupsBytes);
static_assert(WarpgroupsLayoutOf(128).bytes <= kMostWarpgroupsBytes);

// Floats of a stored state of all rows: outputs, references, sums, and the number of its group of
// segments. It ends at a multiple of 128 bytes, so that no cache line has two states.
BATON_HOST_DEVICE constexpr int64_t StateFloats(int dim, int rows) {
  return (int64_t{rows} * (dim + 2) + 1 + 31) / 32 * 32;
}

}  // namespace t1
}  // namespace baton
