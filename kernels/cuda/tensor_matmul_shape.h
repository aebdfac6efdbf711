// Sizes that the kernels of t1's matrix products and the code that launches them share.
//
// In all of these kernels, the weights are the row side of a product. A product has 16 rows: a pair
// of the 8-row tiles of weight_layout.h. In a plain product, the two tiles are neighbours. With the
// gate, one is a tile of the gate projection, and the other is the tile of the up projection that
// the gate multiplies. So one lane holds both factors of a column.
#pragma once

#include <cstdint>

#include "kernels/cuda/weight_layout.h"

namespace baton {

inline constexpr int kTensorDepth = 16;                     // columns of one product
inline constexpr int kTileRowBytes = 8 * kFloatUnitBytes;   // a tile's bytes for 8 columns
inline constexpr int kTensorPairRows = 2 * kFloatTileRows;  // rows of a product's m16 side

// ---- activations as operands (half_rows.cu) ----------------------------------------------------
//
// Activations in 16 bits, in the order in which thread blocks copy them: for each block of 64
// columns, each tile of 8 tokens, each unit of 8 columns: 16 bytes for each of the 8 tokens. Zeros
// pad the columns to whole blocks of 64, and the tokens to whole tiles.

inline constexpr int kHalfTileBytes = kHalfColumns * 2 * 8;  // 64 columns of 8 rows or tokens
inline constexpr int kHalfRowsThreads = 256;
inline constexpr int kHalfRowsColumns =
    8 * kHalfRowsThreads / 8;  // of a block, which takes 8 tokens

BATON_HOST_DEVICE constexpr int64_t HalfColumnBlocks(int64_t cols) {
  return (cols + kHalfColumns - 1) / kHalfColumns;
}
BATON_HOST_DEVICE constexpr int64_t HalfTokenTiles(int64_t tokens) { return (tokens + 7) / 8; }

// ---- at most 8 tokens (tensor_matmul_few_tokens.cu) --------------------------------------------

inline constexpr int kTensorFewTokens = 8;
inline constexpr int kTensorFewWarps = 2;      // each multiplies one pair of tiles
inline constexpr int kTensorFewColumns = 128;  // of a stage
inline constexpr int kTensorFewThreads = 32 * (kTensorFewWarps + 1);  // the last warp copies
// Floats from a token to the next in a stage. The padding keeps lanes on different banks.
inline constexpr int kTensorFewTokenFloats = kTensorFewColumns + 8;

// Stages of copies in flight or in use. A product of 4096 rows has one block on a multiprocessor,
// which must keep about 33 KB in flight on an H200, all the time. So for one or two tokens it gets
// 96 KiB of weights, and two blocks still fit. The gate has three or four blocks on each
// multiprocessor.
BATON_HOST_DEVICE constexpr int TensorFewStages(bool gated, int tokens) {
  return !gated && tokens <= 2 ? 12 : 6;
}

template <int kStages>
struct TensorFewShared {
  uint8_t weights[kStages][2 * kTensorFewWarps][kTensorFewColumns / 8 * kTileRowBytes];
  uint64_t full[kStages];
  uint64_t empty[kStages];
  // Then float x[kStages][tokens][kTensorFewTokenFloats].
};
BATON_HOST_DEVICE constexpr int TensorFewSharedBytes(bool gated, int tokens) {
  const int stages = TensorFewStages(gated, tokens);
  return static_cast<int>(stages * (sizeof(TensorFewShared<1>) +
                                    static_cast<size_t>(tokens) * kTensorFewTokenFloats * 4));
}

// The same for compute capability 8.0 (tensor_matmul_few_tokens_sm80.cu), where every warp copies.
inline constexpr int kSm80FewStages = 4;
inline constexpr int kSm80FewThreads = 32 * kTensorFewWarps;

struct Sm80FewShared {
  uint8_t weights[kSm80FewStages][2 * kTensorFewWarps][kTensorFewColumns / 8 * kTileRowBytes];
  // Then float x[kSm80FewStages][tokens][kTensorFewTokenFloats].
};
BATON_HOST_DEVICE constexpr int Sm80FewSharedBytes(int tokens) {
  return static_cast<int>(sizeof(Sm80FewShared)) +
         kSm80FewStages * tokens * kTensorFewTokenFloats * 4;
}

// ---- more tokens (tensor_matmul_many_tokens.cuh) -----------------------------------------------

// A block multiplies 64 rows of each of its warpgroups by some tokens. A stage has 64 columns.
struct TensorTile {
  int warpgroups;
  int tokens;

  BATON_HOST_DEVICE constexpr int rows() const { return 64 * warpgroups; }
  BATON_HOST_DEVICE constexpr int pairs() const { return 4 * warpgroups; }
  BATON_HOST_DEVICE constexpr int threads() const {
    return 128 * warpgroups + 32;
  }  // the last warp copies
  BATON_HOST_DEVICE constexpr int stage_bytes() const {
    return (rows() + tokens) * kHalfColumns * 2;
  }
  // As many as let two blocks, or one block of the largest tile, fill a multiprocessor.
  BATON_HOST_DEVICE constexpr int blocks() const {
    return stage_bytes() < 32 << 10 ? 2 : 1;
  }  // of a multiprocessor
  BATON_HOST_DEVICE constexpr int stages() const {
    return (blocks() == 2 ? 96 << 10 : 192 << 10) / stage_bytes();
  }
  BATON_HOST_DEVICE constexpr int shared_bytes() const { return stages() * (stage_bytes() + 16); }
};

inline constexpr TensorTile kTile64x64 = {1, 64};
inline constexpr TensorTile kTile64x128 = {1, 128};
inline constexpr TensorTile kTile128x128 = {2, 128};
inline constexpr TensorTile kTile128x256 = {2, 256};
inline constexpr TensorTile kTensorTiles[] = {kTile64x64, kTile64x128, kTile128x128, kTile128x256};

// The same tiles on compute capability 8.0 (tensor_matmul_many_tokens_sm80.cuh), where every warp
// copies and multiplies: two warps share the rows, the others the tokens.
struct Sm80TensorTile {
  TensorTile tile;

  BATON_HOST_DEVICE constexpr int threads() const { return 128 * tile.warpgroups; }
  BATON_HOST_DEVICE constexpr int token_warps() const { return 2 * tile.warpgroups; }
  // Of a warp: pairs of 8-row tiles, and tiles of 8 tokens.
  BATON_HOST_DEVICE constexpr int warp_pairs() const { return tile.pairs() / 2; }
  BATON_HOST_DEVICE constexpr int warp_token_tiles() const {
    return tile.tokens / 8 / token_warps();
  }
  BATON_HOST_DEVICE constexpr int stages() const {
    return (tile.blocks() == 2 ? 80 << 10 : 160 << 10) / tile.stage_bytes();
  }
  BATON_HOST_DEVICE constexpr int shared_bytes() const { return stages() * tile.stage_bytes(); }
};

}  // namespace baton
