// Matrix products with f32, f16 and bf16 weights (NUMERICS §4): one chain of fused operations for
// each row and token.
//
// A block takes 32 rows: lane i of every warp is row i. Each of four warps takes its own tokens.
// Weights and activations go to shared memory by asynchronous copies, 64 columns a stage, several
// stages ahead.
//
// Predicted limit: at few tokens the chain, four clocks a column. 4096 columns take at least 9.3 µs
// at 1.755 GHz, about what reading 32 MiB takes on an H100. One block runs on a multiprocessor
// then, so six stages are in flight: 24 KiB of 16-bit weights, above the 18 KiB that its share of
// the bandwidth needs. From 32 tokens on the limit is the FMA units: eight fused operations for
// about three other instructions, 70 % of the peak of f32.
#include "kernels/cuda/device_code.cuh"
#include "kernels/cuda/kernel_order.cuh"
#include "kernels/cuda/matmul_params.h"
#include "kernels/cuda/matmul_shape.h"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/weight_layout.h"
#include "kernels/half.h"

namespace baton {

template <WeightFormat kFormat, int kTokens>
struct FloatStage {
  static constexpr int kUnitColumns = kFloatUnitBytes / FloatWeightBytes(kFormat);
  static constexpr int kUnits = kFloatStageColumns / kUnitColumns;
  uint4 weights[kUnits][kFloatRows];
  float x[kFloatWarps * kTokens][kFloatStageColumns];
};

// Starts the copies of a stage. They end in a group of their own.
template <WeightFormat kFormat, int kTokens>
__device__ __forceinline__ void CopyFloatStage(const MatMulParams& p, int first_token, int stage,
                                               FloatStage<kFormat, kTokens>& to) {
  using Stage = FloatStage<kFormat, kTokens>;
  constexpr int kXChunks = kFloatWarps * kTokens * kFloatStageColumns / 4;
  const int thread = static_cast<int>(threadIdx.x);
  const int units = (p.cols + Stage::kUnitColumns - 1) / Stage::kUnitColumns;
#pragma unroll
  for (int i = 0; i < Stage::kUnits * kFloatRows / kFloatThreads; ++i) {
    const int chunk = thread + kFloatThreads * i;  // in tiles, then units, then rows
    const int tile = chunk / (Stage::kUnits * kFloatTileRows);
    const int unit = chunk / kFloatTileRows % Stage::kUnits;
    const int row = chunk % kFloatTileRows;
    const int first_row = static_cast<int>(blockIdx.x) * kFloatRows + kFloatTileRows * tile;
    const bool valid = stage * Stage::kUnits + unit < units && first_row < p.rows;
    const int64_t from =
        valid ? first_row / kFloatTileRows * p.tile_bytes +
                    int64_t{stage * Stage::kUnits + unit} * (kFloatTileRows * kFloatUnitBytes) +
                    kFloatUnitBytes * row
              : 0;
    CopyAsync16(&to.weights[unit][kFloatTileRows * tile + row], p.weight + from, valid);
  }
#pragma unroll
  for (int i = 0; i < (kXChunks + kFloatThreads - 1) / kFloatThreads; ++i) {
    const int chunk = thread + kFloatThreads * i;
    if (chunk >= kXChunks) break;
    const int token = first_token + chunk / (kFloatStageColumns / 4);
    const int column = chunk % (kFloatStageColumns / 4) * 4;
    const int at = stage * kFloatStageColumns + column;
    float* x = &to.x[chunk / (kFloatStageColumns / 4)][column];
    const float* row = p.f32 + int64_t{token} * p.cols;
    if (p.cols % 4 == 0) {
      const bool valid = token < p.tokens && at < p.cols;
      CopyAsync16(x, valid ? row + at : p.f32, valid);
    } else {  // rows are not aligned
      for (int k = 0; k < 4; ++k) {
        x[k] = token < p.tokens && at + k < p.cols ? row[at + k] : 0.0f;
      }
    }
  }
  CommitCopies();
}

// Returns weight k of a unit.
template <WeightFormat kFormat>
__device__ __forceinline__ float WeightOf(const unsigned (&unit)[4], int k) {
  if constexpr (kFormat == WeightFormat::kF32) {
    return __uint_as_float(unit[k]);
  } else {
    const auto bits = static_cast<uint16_t>(unit[k / 2] >> 16 * (k % 2) & 0xffffu);
    return kFormat == WeightFormat::kF16 ? WidenF16(bits) : BF16ToF32(bits);
  }
}

// Adds the first `columns` columns of a stage to the warp's accumulators, in rising order.
template <WeightFormat kFormat, int kTokens>
__device__ __forceinline__ void AddFloatStage(const FloatStage<kFormat, kTokens>& stage,
                                              int columns, int warp, int lane,
                                              float (&acc)[kTokens]) {
  constexpr int kUnit = FloatStage<kFormat, kTokens>::kUnitColumns;
  const int first = warp * kTokens;
#pragma unroll 2
  for (int u = 0; u * kUnit < columns; ++u) {
    const uint4 load = stage.weights[u][lane];
    const unsigned unit[4] = {load.x, load.y, load.z, load.w};
    if ((u + 1) * kUnit <= columns) {
#pragma unroll
      for (int k = 0; k < kUnit; k += 4) {
#pragma unroll
        for (int t = 0; t < kTokens; ++t) {
          const float4 x = *reinterpret_cast<const float4*>(&stage.x[first + t][u * kUnit + k]);
          acc[t] = __fmaf_rn(WeightOf<kFormat>(unit, k), x.x, acc[t]);
          acc[t] = __fmaf_rn(WeightOf<kFormat>(unit, k + 1), x.y, acc[t]);
          acc[t] = __fmaf_rn(WeightOf<kFormat>(unit, k + 2), x.z, acc[t]);
          acc[t] = __fmaf_rn(WeightOf<kFormat>(unit, k + 3), x.w, acc[t]);
        }
      }
    } else {
#pragma unroll
      for (int k = 0; k < kUnit; ++k) {
        if (u * kUnit + k >= columns) break;
#pragma unroll
        for (int t = 0; t < kTokens; ++t) {
          acc[t] = __fmaf_rn(WeightOf<kFormat>(unit, k), stage.x[first + t][u * kUnit + k], acc[t]);
        }
      }
    }
  }
}

// Grid: [blocks of 32 rows, blocks of 4 · kTokens tokens]. Block: kFloatThreads. Shared memory:
// kFloatStages stages.
template <WeightFormat kFormat, int kTokens>
__device__ __forceinline__ void MultiplyFloat(const MatMulParams& p) {
  BeginKernel();
  auto* stages = SharedMemory<FloatStage<kFormat, kTokens>>();
  static_assert(sizeof(FloatStage<kFormat, kTokens>) == FloatStageBytes(kFormat, kTokens),
                "the launch reserves this much");
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first_token = static_cast<int>(blockIdx.y) * kFloatWarps * kTokens;
  const int count = (p.cols + kFloatStageColumns - 1) / kFloatStageColumns;
#pragma unroll 1
  for (int stage = 0; stage < kFloatStages - 1; ++stage) {
    if (stage < count) {
      CopyFloatStage(p, first_token, stage, stages[stage]);
    } else {
      CommitCopies();
    }
  }
  float acc[kTokens] = {};
  for (int stage = 0; stage < count; ++stage) {
    WaitCopies<kFloatStages - 2>();
    // Makes the stage visible. All threads have read the previous one, so its buffer is free.
    __syncthreads();
    const int later = stage + kFloatStages - 1;
    if (later < count) {
      CopyFloatStage(p, first_token, later, stages[later % kFloatStages]);
    } else {
      CommitCopies();
    }
    const int columns = p.cols - stage * kFloatStageColumns;
    AddFloatStage<kFormat, kTokens>(stages[stage % kFloatStages],
                                    columns < kFloatStageColumns ? columns : kFloatStageColumns,
                                    warp, lane, acc);
  }
  const int row = static_cast<int>(blockIdx.x) * kFloatRows + lane;
  if (row >= p.rows) return;
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
    const int token = first_token + warp * kTokens + t;
    if (token >= p.tokens) break;
    float* out = p.out + token * p.out_stride + row;
    *out = p.accumulate != 0 ? __fadd_rn(*out, acc[t]) : acc[t];
  }
}

extern "C" __global__ void __launch_bounds__(kFloatThreads)
    baton_matmul_float_4_f32(const __grid_constant__ MatMulParams p) {
  MultiplyFloat<WeightFormat::kF32, 1>(p);
}
extern "C" __global__ void __launch_bounds__(kFloatThreads)
    baton_matmul_float_8_f32(const __grid_constant__ MatMulParams p) {
  MultiplyFloat<WeightFormat::kF32, 2>(p);
}
extern "C" __global__ void __launch_bounds__(kFloatThreads)
    baton_matmul_float_32_f32(const __grid_constant__ MatMulParams p) {
  MultiplyFloat<WeightFormat::kF32, 8>(p);
}
extern "C" __global__ void __launch_bounds__(kFloatThreads)
    baton_matmul_float_4_f16(const __grid_constant__ MatMulParams p) {
  MultiplyFloat<WeightFormat::kF16, 1>(p);
}
extern "C" __global__ void __launch_bounds__(kFloatThreads)
    baton_matmul_float_8_f16(const __grid_constant__ MatMulParams p) {
  MultiplyFloat<WeightFormat::kF16, 2>(p);
}
extern "C" __global__ void __launch_bounds__(kFloatThreads)
    baton_matmul_float_32_f16(const __grid_constant__ MatMulParams p) {
  MultiplyFloat<WeightFormat::kF16, 8>(p);
}
extern "C" __global__ void __launch_bounds__(kFloatThreads)
    baton_matmul_float_4_bf16(const __grid_constant__ MatMulParams p) {
  MultiplyFloat<WeightFormat::kBF16, 1>(p);
}
extern "C" __global__ void __launch_bounds__(kFloatThreads)
    baton_matmul_float_8_bf16(const __grid_constant__ MatMulParams p) {
  MultiplyFloat<WeightFormat::kBF16, 2>(p);
}
extern "C" __global__ void __launch_bounds__(kFloatThreads)
    baton_matmul_float_32_bf16(const __grid_constant__ MatMulParams p) {
  MultiplyFloat<WeightFormat::kBF16, 8>(p);
}

BATON_KERNEL(baton_matmul_float_4_f32, MatMulParams);
BATON_KERNEL(baton_matmul_float_8_f32, MatMulParams);
BATON_KERNEL(baton_matmul_float_32_f32, MatMulParams);
BATON_KERNEL(baton_matmul_float_4_f16, MatMulParams);
BATON_KERNEL(baton_matmul_float_8_f16, MatMulParams);
BATON_KERNEL(baton_matmul_float_32_f16, MatMulParams);
BATON_KERNEL(baton_matmul_float_4_bf16, MatMulParams);
BATON_KERNEL(baton_matmul_float_8_bf16, MatMulParams);
BATON_KERNEL(baton_matmul_float_32_bf16, MatMulParams);

}  // namespace baton
