// The warps that run the chains of roundings in integer products of few tokens
// (matmul_few_tokens.cuh). They have one thread for each row and token of a tile of eight tokens. A
// warp has all rows of two tokens, so for one or two tokens only one of these warps has work.
#pragma once

#include "kernels/cuda/device_code.cuh"
#include "kernels/cuda/matmul_params.h"
#include "kernels/cuda/matmul_shape.h"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/weight_fragments.cuh"

namespace baton {

// A thread's share of the activations' scales of a window: loaded before the chain of the previous
// window, stored after it.
template <WeightFormat kFormat, int kTokens>
struct FewTokensScales {
  using Shape = FewTokensShape<kTokens>;
  static constexpr int kCount =
      Shape::kGroups * Shape::kTiles * Shape::kTileTokens / Shape::kChainThreads;
  float scale[kCount];
  float scaled_sum[kCount];

  __device__ __forceinline__ void Load(const MatMulParams& p, int window, int thread) {
    const int groups = p.cols / 32;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int at = thread + Shape::kChainThreads * i;
      const int token = at / Shape::kGroups;
      const int group = window * Shape::kGroups + at % Shape::kGroups;
      const bool valid = token < p.tokens && group < groups;
      const int64_t from = int64_t{token} * groups + group;
      scale[i] = valid ? p.scale[from] : 0.0f;
      if constexpr (HasMinimumTerm(kFormat)) {
        scaled_sum[i] = valid ? p.scaled_sum[from] : 0.0f;
      }
    }
  }
  __device__ __forceinline__ void Store(FewTokensWindow<kFormat, kTokens>& window,
                                        int thread) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int at = thread + Shape::kChainThreads * i;
      const int token = at / Shape::kGroups;
      const int group = at % Shape::kGroups;
      window.scale[token][group] = scale[i];
      if constexpr (HasMinimumTerm(kFormat)) window.scaled_sum[token][group] = scaled_sum[i];
    }
  }
};

// Loads the values of a piece's groups.
__device__ __forceinline__ void LoadGroups(const float* from, float (&to)[kPieceGroups]) {
  const float4 four = *reinterpret_cast<const float4*>(from);
  to[0] = four.x;
  to[1] = four.y;
  to[2] = four.z;
  to[3] = four.w;
}

// Adds the first `groups` groups of a piece to the accumulators of a row and token `in_tile` of
// each token tile.
template <WeightFormat kFormat, int kTokens>
__device__ __forceinline__ void AddPiece(const FewTokensWindow<kFormat, kTokens>& window, int piece,
                                         int groups, int row, int in_tile,
                                         float (&acc)[FewTokensShape<kTokens>::kTiles]) {
  constexpr bool kMinimum = HasMinimumTerm(kFormat);
  float factor[kPieceGroups], minimum[kPieceGroups];
  LoadGroups(&window.terms[piece][0][TermAt(0, row)], factor);
  if constexpr (kMinimum) LoadGroups(&window.terms[piece][1][TermAt(0, row)], minimum);
#pragma unroll
  for (int n = 0; n < FewTokensShape<kTokens>::kTiles; ++n) {
    const int token = 8 * n + in_tile;
    float sum[kPieceGroups], scale[kPieceGroups], scaled_sum[kPieceGroups];
    LoadGroups(window.sums[piece][n][FewSumAt(row, in_tile)], sum);
    LoadGroups(&window.scale[token][kPieceGroups * piece], scale);
    if constexpr (kMinimum) LoadGroups(&window.scaled_sum[token][kPieceGroups * piece], scaled_sum);
#pragma unroll
    for (int g = 0; g < kPieceGroups; ++g) {
      if (g >= groups) break;
      acc[n] = __fmaf_rn(__fmul_rn(factor[g], scale[g]), sum[g], acc[n]);
      if constexpr (kMinimum) acc[n] = __fmaf_rn(minimum[g], scaled_sum[g], acc[n]);
    }
  }
}

// Runs the chains of all windows, and writes the results.
template <WeightFormat kFormat, int kTokens>
__device__ __forceinline__ void AddWindows(const MatMulParams& p, int tile, int thread,
                                           FewTokensWindow<kFormat, kTokens> (&windows)[2]) {
  using Shape = FewTokensShape<kTokens>;
  const int in_rows = thread % kWeightTileRows;
  const int row = tile * kWeightTileRows + in_rows;
  const int in_tile = thread / kWeightTileRows;  // token in its tile
  float acc[Shape::kTiles] = {};
  float old[Shape::kTiles] = {};  // loaded now: at the end, the loads would take a microsecond
#pragma unroll
  for (int n = 0; n < Shape::kTiles; ++n) {
    const int token = 8 * n + in_tile;
    if (p.accumulate != 0 && row < p.rows && token < p.tokens) {
      old[n] = p.out[token * p.out_stride + row];
    }
  }
  FewTokensScales<kFormat, kTokens> scales;
  scales.Load(p, 0, thread);
  const int window_count = Shape::WindowsOf(p.cols);
  int left = p.cols / 32;  // groups
#pragma unroll 1
  for (int window = 0; window < window_count; ++window, left -= Shape::kGroups) {
    auto& filled = windows[window % 2];
    scales.Store(filled, thread);
    __syncwarp();  // the lanes of the token before may have skipped the chain
    SyncNamedBarrier(kFewWindowBarrier, Shape::kThreads);
    if (window + 1 < window_count) scales.Load(p, window + 1, thread);
    if (in_tile >= p.tokens) continue;  // so for one or two tokens, three of four warps add nothing
    if (left >= Shape::kGroups) {
#pragma unroll
      for (int piece = 0; piece < Shape::kPieces; ++piece) {
        AddPiece<kFormat, kTokens>(filled, piece, kPieceGroups, in_rows, in_tile, acc);
      }
    } else {
#pragma unroll 1
      for (int piece = 0; kPieceGroups * piece < left; ++piece) {
        AddPiece<kFormat, kTokens>(filled, piece, left - kPieceGroups * piece, in_rows, in_tile,
                                   acc);
      }
    }
  }

  if (row >= p.rows) return;
#pragma unroll
  for (int n = 0; n < Shape::kTiles; ++n) {
    const int token = 8 * n + in_tile;
    if (token >= p.tokens) continue;
    p.out[token * p.out_stride + row] = p.accumulate != 0 ? __fadd_rn(old[n], acc[n]) : acc[n];
  }
}

}  // namespace baton
