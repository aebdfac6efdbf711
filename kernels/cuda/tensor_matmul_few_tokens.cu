// Matrix products on tensor cores for at most 8 tokens (NUMERICS_T1 §3), with or without the gate:
// bound by reading weights.
//
// The numerics allow one accumulator for each row and token, so a warp walks all columns of its 16
// rows. A block has two such warps and a third one, which copies: every stage of 128 columns is
// four bulk copies of 2 KiB of weights, and one copy of f32 activations for each token. The warps
// round activations to 16 bits as they read them, so no other kernel has to.
//
// Weights are the 16-row side of m16n8k16, tokens the other. The 8-row tiles of weight_layout.h are
// matrices of ldmatrix, so a fragment is one load of 16 bytes a lane, without bank conflicts.
//
// Predicted limit (2026-11-30, never run on a GPU): bytes of the weights. A multiprocessor must
// keep about 18 KB in flight on an H100, and 33 KB on an H200. Six stages are 48 KiB in each block.
// For one or two tokens, blocks of plain products have twelve, because there may be only one on a
// multiprocessor. A warp's chain takes about 33 clocks for 16 columns, that is 15.5 bytes a clock.
// A multiprocessor gets 13 bytes a clock of its share of the memory of an H100, and has at least
// two such warps from 4224 rows on.
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/kernel_order.cuh"
#include "kernels/cuda/stage_ring.cuh"
#include "kernels/cuda/tensor_rows.cuh"

namespace baton {

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

template <int kStages>
__device__ __forceinline__ float* FewTokensRows(TensorFewShared<kStages>& shared, int slot,
                                                int tokens) {
  return reinterpret_cast<float*>(&shared + 1) + slot * tokens * kTensorFewTokenFloats;
}

__device__ __forceinline__ int FewTokensColumns(const TensorMatMulParams& p, int column) {
  return p.cols - column < kTensorFewColumns ? p.cols - column : kTensorFewColumns;
}

// The warp that copies. One lane issues all copies, and the other lanes end. Weights are constant,
// so those of the first stages do not wait for the kernels ahead.
template <bool kGated, int kStages>
__device__ __forceinline__ void CopyFewTokens(const TensorMatMulParams& p, int first_pair,
                                              TensorFewShared<kStages>& shared) {
  const bool copies = ElectOne();
  const TilePairs<kGated> pairs(p.rows);
  const int tiles = pairs.Present(first_pair, kTensorFewWarps);
  const uint8_t* const weights = p.weight + pairs.TileOf(first_pair, 0) * p.tile_bytes;
  const auto begin_stage = [&](int slot, int column) {
    const int columns = FewTokensColumns(p, column);
    const unsigned weight_bytes = static_cast<unsigned>(HalfColumnBlocks(columns)) * kHalfTileBytes;
    const uint8_t* const from = weights + int64_t{column} * kFloatUnitBytes;
    uint64_t* const full = &shared.full[slot];
    ArriveAndExpect(full, static_cast<unsigned>(tiles) * weight_bytes +
                              static_cast<unsigned>(p.tokens * columns) * 4);
    CopyTiles<2 * kTensorFewWarps>(tiles, [&](int i) {
      LoadConstantBulk(shared.weights[slot][i], from + pairs.Behind(i) * p.tile_bytes, weight_bytes,
                       full);
    });
  };
  const auto copy_rows = [&](int slot, int column) {
    const unsigned row_bytes = static_cast<unsigned>(FewTokensColumns(p, column)) * 4;
    const float* const rows = p.f32 + column;
    float* const to = FewTokensRows(shared, slot, p.tokens);
#pragma unroll
    for (int i = 0; i < kTensorFewTokens; ++i) {
      if (i < p.tokens) {
        LoadBulk(to + i * kTensorFewTokenFloats, rows + int64_t{i} * p.cols, row_bytes,
                 &shared.full[slot]);
      }
    }
  };

  constexpr int kEarlyColumns = kStages * kTensorFewColumns;
  const int early = p.cols < kEarlyColumns ? p.cols : kEarlyColumns;
  if (copies) {
#pragma unroll 1
    for (int column = 0; column < early; column += kTensorFewColumns) {
      begin_stage(column / kTensorFewColumns, column);
    }
  }
  WaitForEarlierKernels();
  if (!copies) return;
#pragma unroll 1
  for (int column = 0; column < early; column += kTensorFewColumns) {
    copy_rows(column / kTensorFewColumns, column);
  }
  StageRing<kStages> ring;
  ring.phase = 1;  // of the second use of each slot
#pragma unroll 1
  for (int column = kEarlyColumns; column < p.cols; column += kTensorFewColumns) {
    WaitBarrier(&shared.empty[ring.slot], ring.phase ^ 1);
    begin_stage(ring.slot, column);
    copy_rows(ring.slot, column);
    ring.Next();
  }
}

template <WeightFormat kFormat, bool kGated, int kStages>
__device__ __forceinline__ void MultiplyInStages(const TensorMatMulParams& p) {
  static_assert(sizeof(TensorFewShared<kStages>) == kStages * sizeof(TensorFewShared<1>),
                "the launch reserves this much");
  auto& shared = *SharedMemory<TensorFewShared<kStages>>();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first_pair = static_cast<int>(blockIdx.x) * kTensorFewWarps;
  LetNextKernelBegin();
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      InitBarrier(&shared.full[i], 1);
      InitBarrier(&shared.empty[i], kTensorFewWarps);
    }
    FenceBarrierInit();
  }
  __syncthreads();
  if (warp == kTensorFewWarps) return CopyFewTokens<kGated>(p, first_pair, shared);

  WaitForEarlierKernels();
  const FewTokensLane of_lane(lane, p.tokens);
  const PairOutputs<kGated> outputs(p, first_pair + warp, 2 * (lane % 4), lane);
  const bool adds = !kGated && p.accumulate != 0;
  float old[4] = {};  // loaded now, because the loads would take a microsecond after the products
  if (adds) PairOutputs<kGated>(outputs).template Load<1>(old);
  float sums[4] = {};
  StageRing<kStages> ring;
#pragma unroll 1
  for (int column = 0; column < p.cols; column += kTensorFewColumns) {
    const int columns = FewTokensColumns(p, column);
    WaitBarrier(&shared.full[ring.slot], ring.phase);
    of_lane.AddStage<kFormat, false>(shared.weights[ring.slot][2 * warp + lane / 8 % 2],
                                     FewTokensRows(shared, ring.slot, p.tokens), columns, sums);
    __syncwarp();
    if (lane == 0) ArriveBarrier(&shared.empty[ring.slot]);
    ring.Next();
  }
  if (adds) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[i] = __fadd_rn(old[i], sums[i]);
  }
  outputs.Store(sums);
}

// Grid: [blocks of kTensorFewWarps pairs]. Block: kTensorFewThreads. Shared memory:
// TensorFewSharedBytes. REQUIRES: at most 8 tokens; cols is a multiple of 4; with the gate, rows is
// a multiple of 16.
template <WeightFormat kFormat, bool kGated>
__device__ __forceinline__ void MultiplyFewTokens(const TensorMatMulParams& p) {
  constexpr int kFew = TensorFewStages(kGated, 1);
  constexpr int kMore = TensorFewStages(kGated, kTensorFewTokens);
  if (TensorFewStages(kGated, p.tokens) == kFew) {
    MultiplyInStages<kFormat, kGated, kFew>(p);
  } else {
    MultiplyInStages<kFormat, kGated, kMore>(p);
  }
}

#else

template <WeightFormat kFormat, bool kGated>
__device__ __forceinline__ void MultiplyFewTokens(const TensorMatMulParams&) {}

#endif

extern "C" __global__ void __launch_bounds__(kTensorFewThreads)
    baton_tensor_matmul_few_bf16(const __grid_constant__ TensorMatMulParams p) {
  MultiplyFewTokens<WeightFormat::kBF16, false>(p);
}
extern "C" __global__ void __launch_bounds__(kTensorFewThreads)
    baton_tensor_matmul_few_f16(const __grid_constant__ TensorMatMulParams p) {
  MultiplyFewTokens<WeightFormat::kF16, false>(p);
}
extern "C" __global__ void __launch_bounds__(kTensorFewThreads)
    baton_gated_tensor_matmul_few_bf16(const __grid_constant__ TensorMatMulParams p) {
  MultiplyFewTokens<WeightFormat::kBF16, true>(p);
}
extern "C" __global__ void __launch_bounds__(kTensorFewThreads)
    baton_gated_tensor_matmul_few_f16(const __grid_constant__ TensorMatMulParams p) {
  MultiplyFewTokens<WeightFormat::kF16, true>(p);
}

BATON_KERNEL(baton_tensor_matmul_few_bf16, TensorMatMulParams);
BATON_KERNEL(baton_tensor_matmul_few_f16, TensorMatMulParams);
BATON_KERNEL(baton_gated_tensor_matmul_few_bf16, TensorMatMulParams);
BATON_KERNEL(baton_gated_tensor_matmul_few_f16, TensorMatMulParams);

}  // namespace baton
