// Integer matrix products of many tokens (NUMERICS §4). The roundings after each group limit them.
//
// A block multiplies 128 rows by 64 tokens. Each of four warps takes two tiles of 16 rows and all
// tokens. Asynchronous copies bring weights and activations to shared memory, one piece (128
// columns) ahead. There is one barrier for each piece.
//
// Predicted limit: instructions. A group of 16 rows and 8 tokens is one MMA and, per lane, four
// subtractions, products and fused operations (eight with a minimum term): 12 to 16 instructions.
// Reading operands adds about two. One scheduler issues one instruction a clock. So an H100 (528
// schedulers, 1.755 GHz) reaches at most about 470 · 10^12 operations a second, 380 with a minimum
// term. Q6_K has two MMAs and 24 instructions, so it reaches about 300.
#pragma once

#include "kernels/cuda/device_code.cuh"
#include "kernels/cuda/kernel_order.cuh"
#include "kernels/cuda/matmul_params.h"
#include "kernels/cuda/matmul_shape.h"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/weight_fragments.cuh"

namespace baton {

// Accumulators of a lane: rows lane / 4 and lane / 4 + 8 of each row tile (index i / 2), tokens
// 2 · (lane % 4) and the next of each token tile (index i % 2).
using ManyTokensSums = float[kManyRowTiles][kManyTokenTiles][4];

// Starts the copies of a piece's activations. Tokens and groups past the end become zeros.
__device__ __forceinline__ void CopyManyTokens(const MatMulParams& p, int first_token, int piece,
                                               int8_t (*x)[kPieceColumns]) {
  constexpr int kChunks = kManyTokens * kPieceColumns / 16;
#pragma unroll
  for (int i = 0; i < kChunks / kManyThreads; ++i) {
    const int chunk = static_cast<int>(threadIdx.x) + kManyThreads * i;
    const int token = chunk / 8;
    const int group = chunk % 8 / 2;
    const int column = kPieceColumns * piece + 16 * (chunk % 8);
    const bool valid = first_token + token < p.tokens && column < p.cols;
    const int8_t* from = valid ? p.q8 + int64_t{first_token + token} * p.cols + column : p.q8;
    CopyAsync16(&x[token][32 * (group ^ token % 4) + 16 * (chunk % 2)], from, valid);
  }
}

// Starts the copies of a piece of one tile. Whole warp.
template <WeightFormat kFormat>
__device__ __forceinline__ void CopyPiece(const uint8_t* tile, int piece, int lane,
                                          PieceBytes<kFormat>& to) {
  using Bytes = PieceBytes<kFormat>;
  constexpr WeightLayout kLayout = WeightLayoutOf(kFormat);
  const int in_block = kLayout.pieces == 1 ? 0 : piece % 2;
  const uint8_t* block = tile + int64_t{piece / kLayout.pieces} * kLayout.bytes();
#pragma unroll
  for (int at = 0; at < Bytes::kHighAt; at += 512) {
    CopyAsync16(&to.bytes[at + 16 * lane], block + kLayout.LowAt(in_block) + at + 16 * lane, true);
  }
  if (16 * lane < 128 * kLayout.high_words) {
    CopyAsync16(&to.bytes[Bytes::kHighAt + 16 * lane], block + kLayout.HighAt(in_block) + 16 * lane,
                true);
  }
  if (16 * lane < kLayout.header_bytes) {
    CopyAsync16(&to.bytes[Bytes::kHeaderAt + 16 * lane], block + kLayout.HeaderAt() + 16 * lane,
                true);
  }
}

// A thread's share of a piece's activation scales: two groups of one token.
template <WeightFormat kFormat>
struct ManyTokensScales {
  float scale[2];
  float scaled_sum[2];

  __device__ __forceinline__ void Load(const MatMulParams& p, int first_token, int piece) {
    const int groups = p.cols / 32;
    const int token = first_token + static_cast<int>(threadIdx.x) / 2;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int group = kPieceGroups * piece + static_cast<int>(threadIdx.x) % 2 * 2 + i;
      const bool valid = token < p.tokens && group < groups;
      const int64_t from = int64_t{token} * groups + group;
      scale[i] = valid ? p.scale[from] : 0.0f;
      if constexpr (HasMinimumTerm(kFormat)) {
        scaled_sum[i] = valid ? p.scaled_sum[from] : 0.0f;
      }
    }
  }
  __device__ __forceinline__ void Store(ManyTokensShared<kFormat>& shared, int buffer) const {
    const int token = static_cast<int>(threadIdx.x) / 2;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int group = static_cast<int>(threadIdx.x) % 2 * 2 + i;
      shared.scale[buffer][group][token] = scale[i];
      if constexpr (HasMinimumTerm(kFormat)) {
        shared.scaled_sum[buffer][group][token] = scaled_sum[i];
      }
    }
  }
};
static_assert(kManyThreads == 2 * kManyTokens, "a thread takes half a token's scales");

// Adds one group of a pair, `which`, to the accumulators. `group` counts in the piece.
template <WeightFormat kFormat>
__device__ __forceinline__ void AddGroup(const ManyTokensShared<kFormat>& shared, int buffer,
                                         int group, int which, int warp, int lane,
                                         const PairWords<kFormat> (&words)[kManyRowTiles],
                                         ManyTokensSums& acc) {
  constexpr bool kHalves = kFormat == WeightFormat::kQ6_K;
  constexpr int kTerms = WeightTerms(kFormat);
  unsigned a[kManyRowTiles][4];
  float terms[kManyRowTiles][kTerms][2];  // of rows lane / 4 and lane / 4 + 8
#pragma unroll
  for (int m = 0; m < kManyRowTiles; ++m) {
    UnpackFragment<kFormat>(words[m], which, a[m]);
#pragma unroll
    for (int k = 0; k < kTerms; ++k) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        terms[m][k][i] = shared.terms[warp][m][k][TermAt(group, lane / 4 + 8 * i)];
      }
    }
  }
#pragma unroll
  for (int n = 0; n < kManyTokenTiles; ++n) {
    const int token = 8 * n + lane / 4;
    const uint2 x = *reinterpret_cast<const uint2*>(
        &shared.x[buffer][token][32 * (group ^ token % 4) + 8 * (lane % 4)]);
    const unsigned b[2] = {x.x, x.y};
    const int pair = 8 * n + 2 * (lane % 4);
    const float2 scale = *reinterpret_cast<const float2*>(&shared.scale[buffer][group][pair]);
    float2 scaled_sum = {0, 0};
    if constexpr (HasMinimumTerm(kFormat)) {
      scaled_sum = *reinterpret_cast<const float2*>(&shared.scaled_sum[buffer][group][pair]);
    }
#pragma unroll
    for (int m = 0; m < kManyRowTiles; ++m) {
      constexpr int kStart = kSumBits<kFormat>;
      int d[4] = {kStart, kStart, kStart, kStart};
      int later[4] = {kStart, kStart, kStart, kStart};
      if constexpr (kHalves) {
        // Lanes with lane % 4 < 2 hold the first sixteen columns of the weights.
        const bool first = lane % 4 < 2;
        const unsigned a0[4] = {first ? a[m][0] : 0, first ? a[m][1] : 0, first ? a[m][2] : 0,
                                first ? a[m][3] : 0};
        const unsigned a1[4] = {first ? 0 : a[m][0], first ? 0 : a[m][1], first ? 0 : a[m][2],
                                first ? 0 : a[m][3]};
        MmaM16N8K32S8(d, a0, b);
        MmaM16N8K32S8(later, a1, b);
      } else {
        MmaM16N8K32S8(d, a[m], b);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float sum = SumAsFloat<kFormat>(d[i]);
        if constexpr (kHalves) {
          sum = __fmaf_rn(terms[m][2][i / 2], SumAsFloat<kFormat>(later[i]),
                          __fmul_rn(terms[m][1][i / 2], sum));
        }
        const float product = __fmul_rn(terms[m][0][i / 2], i % 2 == 0 ? scale.x : scale.y);
        acc[m][n][i] = __fmaf_rn(product, sum, acc[m][n][i]);
        if constexpr (HasMinimumTerm(kFormat)) {
          acc[m][n][i] =
              __fmaf_rn(terms[m][1][i / 2], i % 2 == 0 ? scaled_sum.x : scaled_sum.y, acc[m][n][i]);
        }
      }
    }
  }
}

// Multiplies the warp's row tiles `tiles` by tokens first_token…first_token + 63. Tiles past the
// end of the matrix must be replaced by valid ones. Ends with a barrier, after which shared memory
// is free.
template <WeightFormat kFormat>
__device__ __forceinline__ void MultiplyManyTokens(const MatMulParams& p,
                                                   const int (&tiles)[kManyRowTiles],
                                                   int first_token,
                                                   ManyTokensShared<kFormat>& shared,
                                                   ManyTokensSums& acc) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int groups = p.cols / 32;
  const int pieces = (groups + kPieceGroups - 1) / kPieceGroups;

  using Bytes = PieceBytes<kFormat>;
  constexpr WeightLayout kLayout = WeightLayoutOf(kFormat);
  const auto copy = [&](int piece) {
    CopyManyTokens(p, first_token, piece, shared.x[piece % 2]);
#pragma unroll
    for (int m = 0; m < kManyRowTiles; ++m) {
      CopyPiece<kFormat>(p.weight + tiles[m] * p.tile_bytes, piece, lane,
                         shared.weights[piece % 2][warp][m]);
    }
    CommitCopies();
  };
  ManyTokensScales<kFormat> scales;
  copy(0);
  scales.Load(p, first_token, 0);

#pragma unroll 1
  for (int piece = 0; piece < pieces; ++piece) {
    const int buffer = piece % 2;
    scales.Store(shared, buffer);
    WaitCopies<0>();
    // Makes this piece visible. All threads have read the previous one, so its buffer is free.
    __syncthreads();
    if (piece + 1 < pieces) {
      copy(piece + 1);
      scales.Load(p, first_token, piece + 1);
    }
    const int first_pair = kLayout.pieces == 1 ? 0 : piece % 2 * 2;  // in the block
#pragma unroll
    for (int m = 0; m < kManyRowTiles; ++m) {
      unsigned header[3];
      LoadHeader<kFormat>(LoadShared(), &shared.weights[buffer][warp][m].bytes[Bytes::kHeaderAt],
                          first_pair + TermPair(lane), TermRow(lane), header);
      WriteTerms<kFormat>(header, lane, &shared.terms[warp][m][0][0]);
    }
    __syncwarp();
#pragma unroll 1
    for (int pair = 0; pair < 2; ++pair) {
      PairWords<kFormat> words[kManyRowTiles];
#pragma unroll
      for (int m = 0; m < kManyRowTiles; ++m) {
        const uint8_t* bytes = shared.weights[buffer][warp][m].bytes;
        LoadPair<kFormat>(LoadShared(), bytes + kLayout.PairLow(pair),
                          bytes + Bytes::kHighAt + kLayout.PairHigh(pair), lane, words[m]);
      }
#pragma unroll
      for (int which = 0; which < 2; ++which) {
        const int group = 2 * pair + which;
        if (piece * kPieceGroups + group < groups) {
          AddGroup<kFormat>(shared, buffer, group, which, warp, lane, words, acc);
        }
      }
    }
  }
  __syncthreads();
}

// Grid: [blocks of 64 tokens, blocks of 128 rows]. Block: kManyThreads.
template <WeightFormat kFormat>
__device__ __forceinline__ void MatMulManyTokens(const MatMulParams& p) {
  BeginKernel();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first_token = static_cast<int>(blockIdx.x) * kManyTokens;
  const int tile = (static_cast<int>(blockIdx.y) * kManyWarps + warp) * kManyRowTiles;
  const int last = (p.rows - 1) / kWeightTileRows;
  const int tiles[kManyRowTiles] = {tile < last ? tile : last, tile + 1 < last ? tile + 1 : last};
  ManyTokensSums acc = {};
  MultiplyManyTokens<kFormat>(p, tiles, first_token, *SharedMemory<ManyTokensShared<kFormat>>(),
                              acc);
#pragma unroll
  for (int m = 0; m < kManyRowTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kManyTokenTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = (tile + m) * kWeightTileRows + lane / 4 + i / 2 * 8;
        const int token = first_token + 8 * n + 2 * (lane % 4) + i % 2;
        if (row >= p.rows || token >= p.tokens) continue;
        float* out = p.out + token * p.out_stride + row;
        *out = p.accumulate != 0 ? __fadd_rn(*out, acc[m][n][i]) : acc[m][n][i];
      }
    }
  }
}

}  // namespace baton
