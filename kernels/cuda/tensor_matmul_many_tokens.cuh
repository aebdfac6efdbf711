// Matrix products on tensor cores for more than 8 tokens (NUMERICS_T1 §3), with or without the
// gate, by wgmma. The tensor cores limit products of hundreds of tokens. Memory limits products of
// dozens.
//
// Blocks are persistent: block i takes tiles i, i + grid, … of the result. The numbering of tiles
// runs over the tokens first, so blocks that run together share weights in the cache. One warp
// copies stages of 64 columns to a ring, and continues with the next tile before the present one
// ends. One or two warpgroups multiply 64 rows each, with one accumulator for each row and token,
// and with the columns rising. Barriers in shared memory mark stages as full or empty.
//
// Weights and rounded activations are in memory as core matrices of wgmma without a swizzle, in the
// order that a stage needs. So copies are bulk copies of whole stages, 1 KiB for 8 rows of weights,
// and need no tensor map. A core matrix is 128 adjacent bytes, so products read shared memory
// without bank conflicts.
//
// Predicted limit of 128 rows by 256 tokens (2026-11-30, never run on a GPU): a stage is 2 · 4
// products of 128 clocks. They read 2 · 4 · 10 KiB of shared memory, 640 of the 1024 clocks, and
// the copies write 48 KiB, 384 clocks. The copying warp issues 17 copies in about 115 instructions.
// The end of a tile overlaps with nothing: its stores of 128 KiB take about 2500 clocks after 65500
// for 4096 columns, and loads of old outputs, twelve at a time, another 4000 to 8000.
#pragma once

#include "kernels/cuda/kernel_order.cuh"
#include "kernels/cuda/stage_ring.cuh"
#include "kernels/cuda/tensor_rows.cuh"
#include "kernels/cuda/warpgroup_mma.cuh"

namespace baton {

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

template <int kWarpgroups, int kTokens>
struct TensorManyShared {
  static constexpr TensorTile kTile = {kWarpgroups, kTokens};
  static constexpr int kStages = kTile.stages();
  uint8_t weights[kStages][8 * kWarpgroups][kHalfTileBytes];
  uint8_t rows[kStages][kTokens / 8][kHalfTileBytes];
  uint64_t full[kStages];
  uint64_t empty[kStages];
};

// Calls fn(first pair, first token) for each tile of the block.
template <int kWarpgroups, int kTokens, bool kGated, typename Function>
__device__ __forceinline__ void ForTiles(const TensorMatMulParams& p, const Function& fn) {
  constexpr int kPairs = 4 * kWarpgroups;
  const int row_blocks = (TilePairs<kGated>(p.rows).count() + kPairs - 1) / kPairs;
  const int token_blocks = (p.tokens + kTokens - 1) / kTokens;
#pragma unroll 1
  for (int tile = static_cast<int>(blockIdx.x); tile < row_blocks * token_blocks;
       tile += static_cast<int>(gridDim.x)) {
    fn(tile / token_blocks * kPairs, tile % token_blocks * kTokens);
  }
}

// The warp that copies. One lane issues all copies, and the other lanes end. Weights are constant,
// so those of the first stages do not wait for the kernels ahead.
template <int kWarpgroups, int kTokens, bool kGated>
__device__ __forceinline__ void CopyManyTokens(const TensorMatMulParams& p,
                                               TensorManyShared<kWarpgroups, kTokens>& shared) {
  constexpr int kPairs = 4 * kWarpgroups;
  constexpr int kStages = TensorManyShared<kWarpgroups, kTokens>::kStages;
  const bool copies = ElectOne();
  const TilePairs<kGated> pairs(p.rows);
  const int blocks = static_cast<int>(HalfColumnBlocks(p.cols));
  const int64_t token_tiles = HalfTokenTiles(p.tokens);
  const auto row_bytes_of = [&](int first_token) {
    const int64_t left = token_tiles - first_token / 8;
    return static_cast<unsigned>(left < kTokens / 8 ? left : kTokens / 8) * kHalfTileBytes;
  };
  const auto begin_stage = [&](int slot, int first_pair, int first_token, int block) {
    const int tiles = pairs.Present(first_pair, kPairs);
    const uint8_t* const from =
        p.weight + pairs.TileOf(first_pair, 0) * p.tile_bytes + int64_t{block} * kHalfTileBytes;
    uint64_t* const full = &shared.full[slot];
    ArriveAndExpect(full,
                    static_cast<unsigned>(tiles) * kHalfTileBytes + row_bytes_of(first_token));
    CopyTiles<2 * kPairs>(tiles, [&](int i) {
      LoadConstantBulk(shared.weights[slot][i], from + pairs.Behind(i) * p.tile_bytes,
                       kHalfTileBytes, full);
    });
  };
  int filled = 0;  // stages whose weights come before the wait
  if (copies) {
    ForTiles<kWarpgroups, kTokens, kGated>(p, [&](int first_pair, int first_token) {
#pragma unroll 1
      for (int block = 0; block < blocks && filled < kStages; ++block, ++filled) {
        begin_stage(filled, first_pair, first_token, block);
      }
    });
  }
  WaitForEarlierKernels();
  if (!copies) return;
  StageRing<kStages> ring;
  ForTiles<kWarpgroups, kTokens, kGated>(p, [&](int first_pair, int first_token) {
    const unsigned row_bytes = row_bytes_of(first_token);
    const uint8_t* rows = p.halves + int64_t{first_token / 8} * kHalfTileBytes;
#pragma unroll 1
    for (int block = 0; block < blocks; ++block) {
      if (filled > 0) {
        --filled;
      } else {
        WaitBarrier(&shared.empty[ring.slot], ring.phase ^ 1);
        begin_stage(ring.slot, first_pair, first_token, block);
      }
      LoadBulk(shared.rows[ring.slot], rows, row_bytes, &shared.full[ring.slot]);
      rows += token_tiles * kHalfTileBytes;
      ring.Next();
    }
  });
}

template <WeightFormat kFormat, int kTokens>
__device__ __forceinline__ void MultiplyStage(const uint8_t* weights, const uint8_t* rows,
                                              bool accumulate, float (&sums)[kTokens / 2]) {
#pragma unroll
  for (int k = 0; k < kHalfColumns / kTensorDepth; ++k) {
    const int at = k * (kTensorDepth / 8 * kTileRowBytes);
    const uint64_t a =
        MatrixDescriptor(weights + at, kTileRowBytes, kHalfTileBytes, SharedSwizzle::kNone);
    const uint64_t b =
        MatrixDescriptor(rows + at, kTileRowBytes, kHalfTileBytes, SharedSwizzle::kNone);
    if constexpr (kFormat == WeightFormat::kBF16) {
      WarpgroupMmaBf16<kTokens, false>(sums, a, b, accumulate || k > 0);
    } else {
      WarpgroupMmaF16<kTokens, false>(sums, a, b, accumulate || k > 0);
    }
  }
}

// Grid: any number of blocks. Block: TensorTile::threads. Shared memory: TensorTile::shared_bytes.
// REQUIRES: with the gate, rows is a multiple of 16.
template <WeightFormat kFormat, int kWarpgroups, int kTokens, bool kGated>
__device__ __forceinline__ void MultiplyManyTokens(const TensorMatMulParams& p) {
  using Shared = TensorManyShared<kWarpgroups, kTokens>;
  static_assert(sizeof(Shared) == Shared::kTile.shared_bytes(), "the launch reserves this much");
  Shared& shared = *SharedMemory<Shared>();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  LetNextKernelBegin();
  if (threadIdx.x == 0) {
    for (int i = 0; i < Shared::kStages; ++i) {
      InitBarrier(&shared.full[i], 1);
      InitBarrier(&shared.empty[i], 4 * kWarpgroups);
    }
    FenceBarrierInit();
  }
  __syncthreads();
  if (warp == 4 * kWarpgroups) return CopyManyTokens<kWarpgroups, kTokens, kGated>(p, shared);

  WaitForEarlierKernels();

  const int blocks = static_cast<int>(HalfColumnBlocks(p.cols));
  StageRing<Shared::kStages> ring;
  ForTiles<kWarpgroups, kTokens, kGated>(p, [&](int first_pair, int first_token) {
    float sums[kTokens / 2];
    int earlier = 0;  // slot of the stage before
#pragma unroll 1
    for (int block = 0; block < blocks; ++block) {
      WaitBarrier(&shared.full[ring.slot], ring.phase);
      FenceMatrixRegisters(sums);
      MultiplyStage<kFormat, kTokens>(shared.weights[ring.slot][warp / 4 * 8],
                                      shared.rows[ring.slot][0], block > 0, sums);
      CommitMatrixProducts();
      WaitMatrixProducts<1>();
      if (block > 0 && lane == 0) ArriveBarrier(&shared.empty[earlier]);
      earlier = ring.slot;
      ring.Next();
    }
    WaitMatrixProducts<0>(sums);
    if (lane == 0) ArriveBarrier(&shared.empty[earlier]);

    const PairOutputs<kGated> first(p, first_pair + warp, first_token + 2 * (lane % 4), lane);
    if (!kGated && p.accumulate != 0) {
      constexpr int kBatch = 2;  // of token tiles; with 4, the largest tile spills registers
      PairOutputs<kGated> outputs = first;
#pragma unroll
      for (int n = 0; n < kTokens / 8; n += kBatch) outputs.template AddTo<kBatch>(sums + 4 * n);
    }
    PairOutputs<kGated> outputs = first;
#pragma unroll
    for (int n = 0; n < kTokens / 8; ++n, outputs.Advance()) outputs.Store(sums + 4 * n);
  });
}

#else

template <WeightFormat kFormat, int kWarpgroups, int kTokens, bool kGated>
__device__ __forceinline__ void MultiplyManyTokens(const TensorMatMulParams&) {}

#endif

}  // namespace baton
