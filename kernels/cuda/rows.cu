// Norm, gate, int8 activations and the gathering of rows (NUMERICS §3, §5).
//
// All are bound by the bytes they read and write: 16 bytes a lane, neighbouring lanes neighbouring
// bytes. The norm of a single row is bound by latency: sixteen chains of cols / 16 fused operations
// of four clocks each, 0.6 µs for 4096 columns, besides two passes over the row.
#include "kernels/cuda/activation_rows.cuh"
#include "kernels/cuda/device_code.cuh"
#include "kernels/cuda/rows_params.h"

namespace baton {

// SumSquares16 of a row (NUMERICS §1). Whole block. Thread 0 returns the sum.
__device__ __forceinline__ float SumSquares(const float* row, int cols, float* stage) {
  const int thread = static_cast<int>(threadIdx.x);
  float sum = 0;
  for (int begin = 0; begin < cols; begin += kNormStageFloats) {
    const int count = cols - begin < kNormStageFloats ? cols - begin : kNormStageFloats;
    for (int i = 4 * thread; i < count; i += 4 * kNormThreads) {
      float x[4];
      LoadFour(row, begin + i, cols, x);
      *reinterpret_cast<float4*>(stage + i) = float4{x[0], x[1], x[2], x[3]};
    }
    __syncthreads();
    if (thread < 16) {
#pragma unroll 8
      for (int i = thread; i < count; i += 16) sum = __fmaf_rn(stage[i], stage[i], sum);
    }
    __syncthreads();
  }
  if (thread < 32) {
#pragma unroll
    for (int apart = 8; apart > 0; apart /= 2) {
      sum = __fadd_rn(sum, __shfl_down_sync(0xffffffffu, sum, apart));
    }
  }
  return sum;
}

// Grid: [tokens]. Block: kNormThreads. Shared memory: kNormStageFloats floats.
extern "C" __global__ void __launch_bounds__(kNormThreads)
    baton_rms_norm(const __grid_constant__ RmsNormParams p) {
  float* stage = SharedMemory<float>();
  const int64_t token = blockIdx.x;
  const float* row = p.x + token * p.cols;
  const float sum = SumSquares(row, p.cols, stage);
  if (threadIdx.x == 0) {
    const float mean = __fdiv_rn(sum, static_cast<float>(p.cols));
    stage[0] = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(mean, p.epsilon)));
  }
  __syncthreads();
  const float inverse = stage[0];
  for (int begin = 0; begin < p.cols; begin += 4 * kNormThreads) {
    const int column = begin + 4 * static_cast<int>(threadIdx.x);
    float x[4], weight[4], y[4];
    LoadFour(row, column, p.cols, x);
    LoadFour(p.weight, column, p.cols, weight);
#pragma unroll
    for (int i = 0; i < 4; ++i) y[i] = __fmul_rn(__fmul_rn(x[i], inverse), weight[i]);
    StoreFour(p.out, token, column, p.cols, y);
  }
}

// Grid: [tokens, slices]. Block: kRowThreads.
extern "C" __global__ void __launch_bounds__(kRowThreads)
    baton_silu_mul(const __grid_constant__ SiluMulParams p) {
  const int64_t token = blockIdx.x;
  const int column = 4 * static_cast<int>(blockIdx.y * kRowThreads + threadIdx.x);
  const float* row = p.gate_up + token * 2 * p.cols;
  float gate[4], up[4], y[4];
  LoadFour(row, column, p.cols, gate);
  LoadFour(row + p.cols, column, p.cols, up);
#pragma unroll
  for (int i = 0; i < 4; ++i) y[i] = __fmul_rn(r1::Silu(gate[i]), up[i]);
  StoreFour(p.out, token, column, p.cols, y);
}

// Grid: [tokens, slices]. Block: kRowThreads.
extern "C" __global__ void __launch_bounds__(kRowThreads)
    baton_quantize(const __grid_constant__ QuantizeParams p) {
  const int64_t token = blockIdx.x;
  const int column = 4 * static_cast<int>(blockIdx.y * kRowThreads + threadIdx.x);
  float x[4];
  LoadFour(p.x + token * p.cols, column, p.cols, x);
  StoreFour(p.out, token, column, p.cols, x);
}

// Grid: [rows, slices]. Block: kRowThreads.
extern "C" __global__ void __launch_bounds__(kRowThreads)
    baton_gather_rows(const __grid_constant__ GatherRowsParams p) {
  const int64_t row = blockIdx.x;
  const int column = 4 * static_cast<int>(blockIdx.y * kRowThreads + threadIdx.x);
  const float* from = p.x + p.indices[row] * p.stride + column;
  float* to = p.out + row * p.stride + column;
  if (column + 4 <= p.cols && p.stride % 4 == 0) {
    *reinterpret_cast<float4*>(to) = *reinterpret_cast<const float4*>(from);
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (column + i < p.cols) to[i] = from[i];
  }
}

BATON_KERNEL(baton_rms_norm, RmsNormParams);
BATON_KERNEL(baton_silu_mul, SiluMulParams);
BATON_KERNEL(baton_quantize, QuantizeParams);
BATON_KERNEL(baton_gather_rows, GatherRowsParams);

}  // namespace baton
