// Integer matrix products of at most 32 tokens (NUMERICS §4). Reading the weights limits them.
//
// NUMERICS adds the groups of a row in order, so the chain of roundings cannot be divided. The sums
// of the groups can be divided, because they are integers. A thread block takes 16 rows. Eight
// warps divide the columns among themselves, 128 at a time for each warp, and write the groups'
// sums to shared memory. Four more warps run the chains, one window of 1024 columns behind. They
// have one thread for each row and token of a tile of eight tokens. A warp has all rows of two
// tokens, so for one or two tokens only one of these warps has work.
//
// Weights are the 16-row side of the integer MMA. Eight tokens are the other side.
//
// Limits, predicted on 2026-11-30 from the machine code, and never run on a GPU: bytes of the
// weights, or instructions. A multiprocessor of an H100 gets about 15 bytes a clock from memory. A
// group of 16 rows is 288 bytes of Q4_K, so each of the four schedulers has 77 clocks for one
// group, and 48 on an H200. At up to eight tokens, a piece of four groups takes 222 instructions
// of a warp, that is 55 a group. The chains add 12.5 for each warp that has a token, so a group
// takes 68 instructions at one or two tokens, and 105 at seven or eight. So instructions limit Q4_K
// to 70 % of the bandwidth of an H200 at one token. An H100 has 13 % of its clocks to spare. For a
// row length of 4096, the chain of the last window and the start of a block cost about 1 µs. With
// fewer than about 600 tiles, no other work overlaps with this time.
#pragma once

#include "kernels/cuda/device_code.cuh"
#include "kernels/cuda/kernel_order.cuh"
#include "kernels/cuda/matmul_params.h"
#include "kernels/cuda/matmul_shape.h"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/weight_fragments.cuh"

namespace baton {

// A lane's words of one piece of weights.
template <WeightFormat kFormat>
struct FewTokensWeights {
  PairWords<kFormat> words[2];
  unsigned header[3];

  __device__ __forceinline__ void Load(const uint8_t* tile, int piece, int lane) {
    constexpr WeightLayout kLayout = WeightLayoutOf(kFormat);
    const int in_block = kLayout.pieces == 1 ? 0 : piece % 2;
    const uint8_t* block = tile + int64_t{piece / kLayout.pieces} * kLayout.bytes();
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      LoadPair<kFormat>(LoadGlobal(), block + kLayout.LowAt(in_block) + kLayout.PairLow(pair),
                        block + kLayout.HighAt(in_block) + kLayout.PairHigh(pair), lane,
                        words[pair]);
    }
    // Lane row + 16 · i gets the headers of pair i.
    LoadHeader<kFormat>(LoadGlobal(), block + kLayout.HeaderAt(), 2 * in_block + lane / 16,
                        lane % 16, header);
  }
};

// A lane's activations of one piece: columns 8t…8t+7 of each group, of token lane / 4 of each tile.
template <int kTokenTiles>
struct FewTokensRows {
  uint2 x[kPieceGroups][kTokenTiles];

  __device__ __forceinline__ void Load(const MatMulParams& p, int piece, int lane) {
    const int groups = p.cols / 32;
#pragma unroll
    for (int g = 0; g < kPieceGroups; ++g) {
#pragma unroll
      for (int n = 0; n < kTokenTiles; ++n) {
        const int token = 8 * n + lane / 4;
        const int group = piece * kPieceGroups + g;
        x[g][n] = token < p.tokens && group < groups
                      ? *reinterpret_cast<const uint2*>(p.q8 + int64_t{token} * p.cols +
                                                        32 * group + 8 * (lane % 4))
                      : uint2{0, 0};
      }
    }
  }
};

// Writes the sums of a piece to `sums` [kPieceGroups, kTokenTiles, FewSumAt] and the terms of the
// weights to `terms`. Q6_K's two sums are already joined.
template <WeightFormat kFormat, int kTokenTiles>
__device__ __forceinline__ void SumPiece(const FewTokensWeights<kFormat>& weights,
                                         const FewTokensRows<kTokenTiles>& rows, int lane,
                                         float* terms, float* sums) {
  constexpr bool kHalves = kFormat == WeightFormat::kQ6_K;
  const int row = lane / 4;
  int at[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) at[i] = FewSumAt(row + i / 2 * 8, 2 * (lane % 4) + i % 2);
  WriteTerms<kFormat>(weights.header, lane, terms);
  if constexpr (kHalves) __syncwarp();
#pragma unroll
  for (int g = 0; g < kPieceGroups; ++g) {
    unsigned a[4];
    UnpackFragment<kFormat>(weights.words[g / 2], g % 2, a);
#pragma unroll
    for (int n = 0; n < kTokenTiles; ++n) {
      unsigned b[2] = {rows.x[g][n].x, rows.x[g][n].y};
      constexpr int kStart = kSumBits<kFormat>;
      int d[4] = {kStart, kStart, kStart, kStart};
      float sum[4];
      if constexpr (kHalves) {
        // Lanes with lane % 4 < 2 hold the first sixteen columns.
        const bool first = lane % 4 < 2;
        const unsigned b0[2] = {first ? b[0] : 0, first ? b[1] : 0};
        const unsigned b1[2] = {first ? 0 : b[0], first ? 0 : b[1]};
        int later[4] = {kStart, kStart, kStart, kStart};
        MmaM16N8K32S8(d, a, b0);
        MmaM16N8K32S8(later, a, b1);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float* scales = terms + TermAt(g, row + i / 2 * 8);
          sum[i] = __fmaf_rn(scales[2 * kTermFloats], SumAsFloat<kFormat>(later[i]),
                             __fmul_rn(scales[kTermFloats], SumAsFloat<kFormat>(d[i])));
        }
      } else {
        MmaM16N8K32S8(d, a, b);
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[i] = SumAsFloat<kFormat>(d[i]);
      }
      float* const to = sums + (g * kTokenTiles + n) * kFewChainThreads;
#pragma unroll
      for (int i = 0; i < 4; ++i) to[at[i]] = sum[i];
    }
  }
}

// A chain thread's share of the activations' scales of a window: loaded before the chain of the
// previous window, stored after it.
template <WeightFormat kFormat, int kTokenTiles>
struct FewTokensScales {
  static constexpr int kCount = kFewWindowGroups * 8 * kTokenTiles / kFewChainThreads;
  float scale[kCount];
  float scaled_sum[kCount];

  __device__ __forceinline__ void Load(const MatMulParams& p, int window, int thread) {
    const int groups = p.cols / 32;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int at = thread + kFewChainThreads * i;
      const int token = at / kFewWindowGroups;
      const int group = window * kFewWindowGroups + at % kFewWindowGroups;
      const bool valid = token < p.tokens && group < groups;
      const int64_t from = int64_t{token} * groups + group;
      scale[i] = valid ? p.scale[from] : 0.0f;
      if constexpr (HasMinimumTerm(kFormat)) {
        scaled_sum[i] = valid ? p.scaled_sum[from] : 0.0f;
      }
    }
  }
  __device__ __forceinline__ void Store(FewTokensWindow<kFormat, kTokenTiles>& window,
                                        int thread) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int at = thread + kFewChainThreads * i;
      const int token = at / kFewWindowGroups;
      const int group = at % kFewWindowGroups;
      window.scale[group][token] = scale[i];
      if constexpr (HasMinimumTerm(kFormat)) window.scaled_sum[group][token] = scaled_sum[i];
    }
  }
};

// Adds the first `groups` groups of a window to the accumulators of row thread % 16 and token
// thread / 16 of each token tile. So a warp has two tokens of a tile.
template <WeightFormat kFormat, int kTokenTiles>
__device__ __forceinline__ void AddWindow(const FewTokensWindow<kFormat, kTokenTiles>& window,
                                          int groups, int thread, float (&acc)[kTokenTiles]) {
  const int row = thread % kWeightTileRows;
  const int in_tile = thread / kWeightTileRows;
  const int at = FewSumAt(row, in_tile);
#pragma unroll 4
  for (int g = 0; g < groups; ++g) {
    const int warp = g / kPieceGroups;
    const int in_piece = g % kPieceGroups;
    const int term = TermAt(in_piece, row);
    const float factor = window.terms[warp][0][term];
#pragma unroll
    for (int n = 0; n < kTokenTiles; ++n) {
      const int token = 8 * n + in_tile;
      const float product = __fmul_rn(factor, window.scale[g][token]);
      acc[n] = __fmaf_rn(product, window.sums[warp][in_piece][n][at], acc[n]);
      if constexpr (HasMinimumTerm(kFormat)) {
        acc[n] = __fmaf_rn(window.terms[warp][1][term], window.scaled_sum[g][token], acc[n]);
      }
    }
  }
}

// Bytes of its weights that a block brings into the second-level cache while kernels ahead still
// run: what it reads of Q4_K in its first two windows is 18 KiB.
inline constexpr int64_t kFewEarlyBytes = 18 << 10;

// Grid: [tiles of 16 rows]. Block: kFewThreads. Shared memory: two windows. REQUIRES: at most
// 8 · kTokenTiles tokens.
template <WeightFormat kFormat, int kTokenTiles>
__device__ __forceinline__ void MultiplyFewTokens(const MatMulParams& p) {
  auto* windows = SharedMemory<FewTokensWindow<kFormat, kTokenTiles>>();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int tile = static_cast<int>(blockIdx.x);
  const int groups = p.cols / 32;
  const int pieces = (groups + kPieceGroups - 1) / kPieceGroups;
  const int window_count = (pieces + kFewWarps - 1) / kFewWarps;

  LetNextKernelBegin();
  if (threadIdx.x == 0) {
    PrefetchConstant(
        p.weight + tile * p.tile_bytes,
        static_cast<unsigned>(p.tile_bytes < kFewEarlyBytes ? p.tile_bytes : kFewEarlyBytes));
  }
  WaitForEarlierKernels();

  // Each role has its own loop, so that neither holds the other's registers. They meet at a named
  // barrier once a window.
  constexpr int kWindowBarrier = 1;
  if (warp < kFewWarps) {
    // Activations come from a cache. More than eight tokens of them do not fit the registers early.
    constexpr bool kRowsEarly = kTokenTiles == 1;
    const uint8_t* weight_tile = p.weight + tile * p.tile_bytes;
    FewTokensWeights<kFormat> next;
    FewTokensRows<kTokenTiles> next_rows;
    if (warp < pieces) {
      next.Load(weight_tile, warp, lane);
      if constexpr (kRowsEarly) next_rows.Load(p, warp, lane);
    }
    for (int window = 0; window < window_count; ++window) {
      const int piece = window * kFewWarps + warp;
      if (piece < pieces) {
        if constexpr (!kRowsEarly) next_rows.Load(p, piece, lane);
        const FewTokensWeights<kFormat> now = next;
        const FewTokensRows<kTokenTiles> rows = next_rows;
        const int later = piece + kFewWarps;
        if (later < pieces) {
          next.Load(weight_tile, later, lane);
          if constexpr (kRowsEarly) next_rows.Load(p, later, lane);
        }
        auto& to = windows[window % 2];
        SumPiece<kFormat, kTokenTiles>(now, rows, lane, &to.terms[warp][0][0],
                                       &to.sums[warp][0][0][0]);
      }
      SyncNamedBarrier(kWindowBarrier, kFewThreads);
    }
    return;
  }

  const int thread = static_cast<int>(threadIdx.x) - 32 * kFewWarps;
  const int row = tile * kWeightTileRows + thread % kWeightTileRows;
  const int in_tile = thread / kWeightTileRows;  // token in its tile
  float acc[kTokenTiles] = {};
  float old[kTokenTiles] = {};  // loaded now, because the loads would take a microsecond at the end
#pragma unroll
  for (int n = 0; n < kTokenTiles; ++n) {
    const int token = 8 * n + in_tile;
    if (p.accumulate != 0 && row < p.rows && token < p.tokens) {
      old[n] = p.out[token * p.out_stride + row];
    }
  }
  FewTokensScales<kFormat, kTokenTiles> scales;
  scales.Load(p, 0, thread);
  for (int window = 0; window < window_count; ++window) {
    auto& filled = windows[window % 2];
    scales.Store(filled, thread);
    SyncNamedBarrier(kWindowBarrier, kFewThreads);
    if (window + 1 < window_count) scales.Load(p, window + 1, thread);
    if (in_tile >= p.tokens) continue;  // so for one or two tokens, three of four warps add nothing
    const int left = groups - window * kFewWindowGroups;
    AddWindow<kFormat, kTokenTiles>(filled, left < kFewWindowGroups ? left : kFewWindowGroups,
                                    thread, acc);
  }

  if (row >= p.rows) return;
#pragma unroll
  for (int n = 0; n < kTokenTiles; ++n) {
    const int token = 8 * n + in_tile;
    if (token >= p.tokens) continue;
    p.out[token * p.out_stride + row] = p.accumulate != 0 ? __fadd_rn(old[n], acc[n]) : acc[n];
  }
}

}  // namespace baton
