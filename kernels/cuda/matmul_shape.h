// Sizes that the kernels of matrix products and the code that launches them share.
#pragma once

#include <cstdint>

#include "kernels/cuda/weight_layout.h"

namespace baton {

// Floats per row and group that scale a sum: the factor; a minimum, or Q6_K's two int8 scales.
BATON_HOST_DEVICE constexpr int WeightTerms(WeightFormat format) {
  return format == WeightFormat::kQ6_K ? 3 : (HasMinimumTerm(format) ? 2 : 1);
}
// Floats of a term of a piece: four groups of 16 rows.
inline constexpr int kTermFloats = kPieceGroups * kWeightTileRows;

// ---- integer products of at most 32 tokens (matmul_few_tokens.cuh) -----------------------------

inline constexpr int kFewMaxTokens = 32;
inline constexpr int kFewWarpPieces = 2;     // of a window, for each warp that sums
inline constexpr int kFewWindowBarrier = 1;  // named barrier of all threads

// Sizes of the kernel for at most kTokens (1, 8, 16 or 32) tokens.
template <int kTokens>
struct FewTokensShape {
  static constexpr int kTiles = (kTokens + 7) / 8;  // of eight tokens
  static constexpr int kSumWarps = kTokens <= 8 ? 4 : 2;
  static constexpr int kPieces = kSumWarps * kFewWarpPieces;  // of a window
  static constexpr int kGroups = kPieces * kPieceGroups;      // of a window
  static constexpr int kColumns = kPieces * kPieceColumns;    // of a window
  static constexpr int kStages = kTokens == 1 ? 4 : 3;        // windows of weights; one is in use
  static constexpr int kTileTokens = kTokens == 1 ? 1 : 8;    // that a tile has room for
  static constexpr int kRowTokens = kWeightTileRows * kTileTokens;
  static constexpr int kChainThreads = kTokens == 1 ? 32 : kRowTokens;
  static constexpr int kThreads = 32 * kSumWarps + kChainThreads;
  static constexpr int kBlocks = kTokens == 1 ? 4 : 2;  // on one multiprocessor; bounds registers

  BATON_HOST_DEVICE static constexpr int WindowsOf(int cols) {
    return (cols + kColumns - 1) / kColumns;
  }
};

// Position of a row's sums for a token of a tile, in units of a piece's four sums. Two orders of
// lanes have no bank conflicts: the MMA's lanes write token 2 · (lane % 4) + i of row
// lane / 4 + 8 · j, and the lanes of a chain warp read all rows of two neighbouring tokens.
BATON_HOST_DEVICE constexpr int FewSumAt(int row, int token) {
  return kWeightTileRows * token + (row ^ (token / 2 * 2));
}

// One of two copies of what the chains of a window read.
template <WeightFormat kFormat, int kTokens>
struct alignas(16) FewTokensWindow {
  using Shape = FewTokensShape<kTokens>;
  static constexpr int kScaleStride = Shape::kGroups + 4;  // two tokens are on different banks
  float sums[Shape::kPieces][Shape::kTiles][Shape::kRowTokens][kPieceGroups];
  float terms[Shape::kPieces][WeightTerms(kFormat)][kTermFloats];
  float scale[Shape::kTiles * Shape::kTileTokens][kScaleStride];
  float scaled_sum[HasMinimumTerm(kFormat) ? Shape::kTiles * Shape::kTileTokens : 1][kScaleStride];
};

template <WeightFormat kFormat, int kTokens>
struct alignas(16) FewTokensShared {
  using Shape = FewTokensShape<kTokens>;
  // Of a warp in a window.
  static constexpr int kWeightBytes =
      WeightLayoutOf(kFormat).bytes() * (kFewWarpPieces / WeightLayoutOf(kFormat).pieces);
  uint8_t weights[Shape::kSumWarps][Shape::kStages][kWeightBytes];
  FewTokensWindow<kFormat, kTokens> windows[2];
};

// ---- integer products of more tokens (matmul_many_tokens.cuh) ----------------------------------

inline constexpr int kManyWarps = 4;  // each multiplies two tiles of 16 rows
inline constexpr int kManyThreads = 32 * kManyWarps;
inline constexpr int kManyBlocks = 2;   // on one multiprocessor; bounds the registers
inline constexpr int kManyTokens = 64;  // of a block
inline constexpr int kManyTokenTiles = kManyTokens / 8;
inline constexpr int kManyRowTiles = 2;                                         // of a warp
inline constexpr int kManyRows = kManyWarps * kManyRowTiles * kWeightTileRows;  // of a block
inline constexpr int kGatedColumns = kManyWarps * kWeightTileRows;  // of a block with the gate

// A piece of a tile on its way to fragments: its low words, its high words, the headers of its
// block.
template <WeightFormat kFormat>
struct alignas(16) PieceBytes {
  static constexpr WeightLayout kLayout = WeightLayoutOf(kFormat);
  static constexpr int kHighAt = 128 * kLayout.low_words;
  static constexpr int kHeaderAt = kHighAt + 128 * kLayout.high_words;
  uint8_t bytes[kHeaderAt + kLayout.header_bytes];
};

// Weights, activations and scales have two copies: one is filled while the other is read.
template <WeightFormat kFormat>
struct ManyTokensShared {
  PieceBytes<kFormat> weights[2][kManyWarps][kManyRowTiles];
  // Rows of 128 bytes. The four units of 32 bytes (a group each) of token i are permuted by i % 4,
  // so that eight rows are read without bank conflicts.
  int8_t x[2][kManyTokens][kPieceColumns];
  float scale[2][kPieceGroups][kManyTokens];
  float scaled_sum[2][HasMinimumTerm(kFormat) ? kPieceGroups : 1][kManyTokens];
  float terms[kManyWarps][kManyRowTiles][WeightTerms(kFormat)][kTermFloats];
};

// ---- float products (matmul_float.cu) ----------------------------------------------------------

inline constexpr int kFloatRows = 32;  // of a block
inline constexpr int kFloatWarps = 4;  // each multiplies all rows by its own tokens
inline constexpr int kFloatThreads = 32 * kFloatWarps;
inline constexpr int kFloatStageColumns = 64;
inline constexpr int kFloatStages = 7;  // six in flight, one in use

BATON_HOST_DEVICE constexpr int FloatStageBytes(WeightFormat format, int tokens_per_warp) {
  return kFloatRows * kFloatStageColumns * FloatWeightBytes(format) +
         kFloatWarps * tokens_per_warp * kFloatStageColumns * 4;
}

}  // namespace baton
