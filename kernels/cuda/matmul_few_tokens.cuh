// Integer matrix products of at most 32 tokens (NUMERICS §4). Reading the weights limits them.
//
// NUMERICS adds the groups of a row in order, so the chain of roundings cannot be divided. The sums
// of the groups can be divided, because they are integers. A thread block takes 16 rows. Warps
// divide the columns of a window among themselves, 256 for each, and write the groups' sums to
// shared memory. More warps run the chains, one window behind (few_tokens_chain.cuh).
//
// Weights are the 16-row side of the integer MMA. Tokens are the other side. It has room for eight
// tokens, so one token alone would leave seven eighths of the sums unused. Instead, each of eight
// groups puts its columns into its own column of the MMA, and zeros into the others. The sums of
// eight groups then fill one accumulator. Q6_K has two sums for each group, so it is four groups.
//
// Asynchronous copies bring each warp's weights to its own part of shared memory, several windows
// ahead. Only the warp itself waits for them.
//
// Limit, predicted on 2026-11-30 from the machine code, and never run on a GPU: bytes of the
// weights. A multiprocessor gets 13.0 bytes a clock of its share of the memory of an H100, and 18.6
// on an H200 (3.0 and 4.3 TB/s, 132 multiprocessors at 1.755 GHz). A group of 16 rows is 288 bytes
// of Q4_K, so each of the four schedulers has 89 clocks for one group, and 62 on an H200. At one
// token it takes 30 instructions: 196 for eight groups in the warps that sum, and 6 in the chain.
// At up to eight tokens it takes 29, and 6 for each two tokens. A multiprocessor must keep about
// 18 KB in flight on an H100, and 33 KB on an H200. A block of one token has 27 KiB of Q4_K in
// flight, and four blocks fit. The sums and the chain of the last window and the start of a block
// cost about 1 µs. With fewer than about 600 tiles, no other work overlaps with this time.
#pragma once

#include "kernels/cuda/device_code.cuh"
#include "kernels/cuda/few_tokens_chain.cuh"
#include "kernels/cuda/kernel_order.cuh"
#include "kernels/cuda/matmul_params.h"
#include "kernels/cuda/matmul_shape.h"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/stage_ring.cuh"
#include "kernels/cuda/weight_fragments.cuh"

namespace baton {

// The weights of one warp: a share of kFewWarpPieces pieces in each window.
template <WeightFormat kFormat, int kTokens>
class FewTokensWeights {
  using Shape = FewTokensShape<kTokens>;
  using Shared = FewTokensShared<kFormat, kTokens>;
  static constexpr int kBytes = Shared::kWeightBytes;

 public:
  // Starts the first copies.
  __device__ __forceinline__ FewTokensWeights(const MatMulParams& p, int tile, int warp, int lane,
                                              Shared& shared)
      : from_(p.weight + tile * p.tile_bytes + warp * kBytes + 16 * lane),
        left_(static_cast<int>(p.tile_bytes) - warp * kBytes),
        lane_(lane),
        to_(&shared.weights[warp][0][0]) {
#pragma unroll
    for (int stage = 0; stage + 1 < Shape::kStages; ++stage) StartCopy(stage);
  }

  // Waits for a share, and starts the copy of a later one. Whole warp.
  __device__ __forceinline__ void BeginShare() {
    WaitCopies<Shape::kStages - 2>();
    __syncwarp();  // the share has landed, and the warp has read the one before
    StartCopy(ring_.After(Shape::kStages - 1));
  }
  __device__ __forceinline__ void EndShare() { ring_.Next(); }

  // Loads the lane's words of a pair of groups of the share.
  __device__ __forceinline__ void Load(int pair, PairWords<kFormat>& words) const {
    constexpr WeightLayout kLayout = WeightLayoutOf(kFormat);
    const uint8_t* block = BlockOf(pair / 2);
    const int piece = pair / 2 % kLayout.pieces;
    LoadPair<kFormat>(LoadShared(), block + kLayout.LowAt(piece) + kLayout.PairLow(pair % 2),
                      block + kLayout.HighAt(piece) + kLayout.PairHigh(pair % 2), lane_, words);
  }

  // Writes the terms of the share's pieces to `to` [kFewWarpPieces, WeightTerms, kTermFloats].
  __device__ __forceinline__ void StoreTerms(float* to) const {
    constexpr WeightLayout kLayout = WeightLayoutOf(kFormat);
    unsigned header[kFewWarpPieces][3];
#pragma unroll
    for (int i = 0; i < kFewWarpPieces; ++i) {
      LoadHeader<kFormat>(LoadShared(), BlockOf(i) + kLayout.HeaderAt(),
                          2 * (i % kLayout.pieces) + TermPair(lane_), TermRow(lane_), header[i]);
    }
#pragma unroll
    for (int i = 0; i < kFewWarpPieces; ++i) {
      WriteTerms<kFormat>(header[i], lane_, to + i * WeightTerms(kFormat) * kTermFloats);
    }
  }

 private:
  __device__ __forceinline__ const uint8_t* BlockOf(int piece) const {
    constexpr WeightLayout kLayout = WeightLayoutOf(kFormat);
    return to_ + ring_.slot * kBytes + piece / kLayout.pieces * kLayout.bytes();
  }

  // The last share of a tile may have one block of two, and a warp may have no share of the last
  // window.
  __device__ __forceinline__ void StartCopy(int slot) {
    uint8_t* to = to_ + slot * kBytes + 16 * lane_;
    if (left_ >= kBytes) {
#pragma unroll
      for (int at = 0; at < kBytes; at += 512) {
        if (at + 512 <= kBytes || at + 16 * lane_ < kBytes) CopyAsync16(to + at, from_ + at);
      }
    } else {
#pragma unroll 1
      for (int at = 0; at + 16 * lane_ < left_; at += 512) CopyAsync16(to + at, from_ + at);
    }
    CommitCopies();
    from_ += Shape::kSumWarps * kBytes;
    left_ -= Shape::kSumWarps * kBytes;
  }

  const uint8_t* from_;  // the lane's first bytes of the next share to copy
  int left_;             // bytes of the tile from that share on
  const int lane_;
  uint8_t* const to_;
  StageRing<Shape::kStages> ring_;
};

// Loads a lane's activations of a group.
__device__ __forceinline__ void LoadGroup(const int8_t* from, unsigned (&to)[2]) {
  const uint2 x = *reinterpret_cast<const uint2*>(from);
  to[0] = x.x;
  to[1] = x.y;
}

// Activations of several tokens for one piece: columns 8t…8t+7 of each group, of token lane / 4 of
// each tile. Tokens that do not exist are zeros.
template <WeightFormat kFormat, int kTokens>
struct FewTokensRows {
  static constexpr int kTiles = FewTokensShape<kTokens>::kTiles;

  unsigned b[kTiles][kPieceGroups][2] = {};

  // `from` is the lane's part of the piece's first group, of the first tile. `columns` are left
  // from the piece on. Groups past the end keep older values, because their sums are not used.
  __device__ __forceinline__ void Load(const MatMulParams& p, const int8_t* from, int columns,
                                       int lane) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      const bool exists = 8 * n + lane / 4 < p.tokens;
      const int8_t* row = from + int64_t{8 * n} * p.cols;
#pragma unroll
      for (int g = 0; g < kPieceGroups; ++g) {
        if (exists && 32 * g < columns) LoadGroup(row + 32 * g, b[n][g]);
      }
    }
  }
};

// Activations of one token for a share: columns 8t…8t+7 of the groups that own the lane's column of
// the MMA, and zeros for the other groups.
template <WeightFormat kFormat>
struct FewTokensRows<kFormat, 1> {
  static constexpr bool kHalves = kFormat == WeightFormat::kQ6_K;
  static constexpr int kGroups = kFewWarpPieces * kPieceGroups;
  static constexpr int kSumGroups = kHalves ? 4 : 8;  // of one accumulator

  unsigned b[kGroups][2] = {};

  __device__ __forceinline__ void Load(const MatMulParams&, const int8_t* from, int columns,
                                       int lane) {
    const int own = kHalves ? lane / 8 : lane / 4;
    const bool owns = !kHalves || lane / 4 % 2 == lane % 4 / 2;
#pragma unroll
    for (int begin = 0; begin < kGroups; begin += kSumGroups) {
      const int mine = owns && 32 * (begin + own) < columns ? begin + own : -1;
#pragma unroll
      for (int g = begin; g < begin + kSumGroups; ++g) {
        if (g == mine) LoadGroup(from + 32 * g, b[g]);
      }
    }
  }
};

// Writes the sums of a piece to `sums` [kTiles, FewSumAt, kPieceGroups]. Q6_K's two sums are
// joined.
template <WeightFormat kFormat, int kTokens>
__device__ __forceinline__ void SumPiece(const FewTokensWeights<kFormat, kTokens>& weights,
                                         int piece, const FewTokensRows<kFormat, kTokens>& rows,
                                         int lane, const float* terms, float* sums) {
  constexpr int kStart = kSumBits<kFormat>;
  unsigned a[kPieceGroups][4];
#pragma unroll
  for (int pair = 0; pair < 2; ++pair) {
    PairWords<kFormat> words;
    weights.Load(2 * piece + pair, words);
    UnpackFragment<kFormat>(words, 0, a[2 * pair]);
    UnpackFragment<kFormat>(words, 1, a[2 * pair + 1]);
  }
#pragma unroll
  for (int n = 0; n < FewTokensShape<kTokens>::kTiles; ++n) {
    float sum[4][kPieceGroups];
#pragma unroll
    for (int g = 0; g < kPieceGroups; ++g) {
      const unsigned(&b)[2] = rows.b[n][g];
      int d[4] = {kStart, kStart, kStart, kStart};
      if constexpr (kFormat == WeightFormat::kQ6_K) {
        // Lanes with lane % 4 < 2 hold the first sixteen columns.
        const bool first = lane % 4 < 2;
        const unsigned b0[2] = {first ? b[0] : 0, first ? b[1] : 0};
        const unsigned b1[2] = {first ? 0 : b[0], first ? 0 : b[1]};
        int later[4] = {kStart, kStart, kStart, kStart};
        MmaM16N8K32S8(d, a[g], b0);
        MmaM16N8K32S8(later, a[g], b1);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          sum[i][g] = JoinHalves(terms + TermAt(g, lane / 4 + i / 2 * 8), d[i], later[i]);
        }
      } else {
        MmaM16N8K32S8(d, a[g], b);
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[i][g] = SumAsFloat<kFormat>(d[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at = FewSumAt(lane / 4 + i / 2 * 8, 2 * (lane % 4) + i % 2);
      *reinterpret_cast<float4*>(sums + (n * 8 * kWeightTileRows + at) * kPieceGroups) =
          float4{sum[i][0], sum[i][1], sum[i][2], sum[i][3]};
    }
  }
}

// Writes the sums of one token and a share to `sums` [kFewWarpPieces, rows, kPieceGroups]. `terms`
// are those of the share.
template <WeightFormat kFormat>
__device__ __forceinline__ void SumShare(const FewTokensWeights<kFormat, 1>& weights,
                                         const FewTokensRows<kFormat, 1>& rows, int lane,
                                         const float* terms, float* sums) {
  using Rows = FewTokensRows<kFormat, 1>;
#pragma unroll
  for (int first = 0; first < Rows::kGroups; first += Rows::kSumGroups) {
    constexpr int kStart = kSumBits<kFormat>;
    int d[4] = {kStart, kStart, kStart, kStart};
#pragma unroll
    for (int g = first; g < first + Rows::kSumGroups; g += 2) {
      PairWords<kFormat> words;
      weights.Load(g / 2, words);
#pragma unroll
      for (int which = 0; which < 2; ++which) {
        unsigned a[4];
        UnpackFragment<kFormat>(words, which, a);
        MmaM16N8K32S8(d, a, rows.b[g + which]);
      }
    }
    // The lane has two neighbouring sums of rows lane / 4 and lane / 4 + 8.
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = lane / 4 + 8 * i;
      if constexpr (Rows::kHalves) {
        const int piece = first / kPieceGroups;
        const int at = TermAt(lane % 4, row);
        sums[piece * kTermFloats + at] = JoinHalves(
            terms + piece * WeightTerms(kFormat) * kTermFloats + at, d[2 * i], d[2 * i + 1]);
      } else {
        const int group = 2 * (lane % 4);
        float* to = sums + group / kPieceGroups * kTermFloats + TermAt(group % kPieceGroups, row);
        *reinterpret_cast<float2*>(to) =
            float2{SumAsFloat<kFormat>(d[2 * i]), SumAsFloat<kFormat>(d[2 * i + 1])};
      }
    }
  }
}

// A warp that sums: its share of every window.
template <WeightFormat kFormat, int kTokens>
__device__ __forceinline__ void SumWindows(const MatMulParams& p, int tile, int warp, int lane,
                                           FewTokensShared<kFormat, kTokens>& shared) {
  using Shape = FewTokensShape<kTokens>;
  FewTokensWeights<kFormat, kTokens> weights(p, tile, warp, lane, shared);
  const int piece = kFewWarpPieces * warp;       // the first of the share, in a window
  int columns = p.cols - kPieceColumns * piece;  // from the share on
  const int token = kTokens == 1 ? 0 : lane / 4;
  const int8_t* from = p.q8 + int64_t{token} * p.cols + kPieceColumns * piece + 8 * (lane % 4);
  FewTokensRows<kFormat, kTokens> rows;
  rows.Load(p, from, columns, lane);
  const int windows = Shape::WindowsOf(p.cols);
#pragma unroll 1
  for (int window = 0; window < windows; ++window) {
    auto& to = shared.windows[window % 2];
    float* terms = &to.terms[piece][0][0];
    weights.BeginShare();
    if (columns > 0) {
      weights.StoreTerms(terms);
      if constexpr (kFormat == WeightFormat::kQ6_K) __syncwarp();  // the joined sums need them
      if constexpr (kTokens == 1) {
        SumShare(weights, rows, lane, terms, &to.sums[piece][0][0][0]);
        rows.Load(p, from + Shape::kColumns, columns - Shape::kColumns, lane);
      } else {
#pragma unroll
        for (int i = 0; i < kFewWarpPieces; ++i) {
          SumPiece(weights, i, rows, lane, terms + i * WeightTerms(kFormat) * kTermFloats,
                   &to.sums[piece + i][0][0][0]);
          const int next = i + 1 < kFewWarpPieces ? (i + 1) * kPieceColumns : Shape::kColumns;
          rows.Load(p, from + next, columns - next, lane);
        }
      }
    }
    columns -= Shape::kColumns;
    from += Shape::kColumns;
    weights.EndShare();
    SyncNamedBarrier(kFewWindowBarrier, Shape::kThreads);
  }
}

// Bytes of its weights that a block brings into the second-level cache while kernels ahead still
// run.
inline constexpr int64_t kFewEarlyBytes = 18 << 10;

// Grid: [tiles of 16 rows]. Block: FewTokensShape::kThreads. Shared memory: FewTokensShared.
// REQUIRES: at most kTokens tokens.
template <WeightFormat kFormat, int kTokens>
__device__ __forceinline__ void MultiplyFewTokens(const MatMulParams& p) {
  using Shape = FewTokensShape<kTokens>;
  auto& shared = *SharedMemory<FewTokensShared<kFormat, kTokens>>();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int tile = static_cast<int>(blockIdx.x);

  LetNextKernelBegin();
  if (threadIdx.x == 0) {
    PrefetchConstant(
        p.weight + tile * p.tile_bytes,
        static_cast<unsigned>(p.tile_bytes < kFewEarlyBytes ? p.tile_bytes : kFewEarlyBytes));
  }
  WaitForEarlierKernels();

  // Each role has its own loop, so that neither holds the other's registers. They meet at a named
  // barrier once a window.
  if (warp < Shape::kSumWarps) {
    SumWindows<kFormat, kTokens>(p, tile, warp, static_cast<int>(threadIdx.x) % 32, shared);
  } else {
    AddWindows<kFormat, kTokens>(p, tile, static_cast<int>(threadIdx.x) - 32 * Shape::kSumWarps,
                                 shared.windows);
  }
}

}  // namespace baton
