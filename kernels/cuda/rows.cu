// Norm, gate, int8 activations and the gathering of rows (NUMERICS §3, §5).
//
// All are bound by the bytes they read and write: 16 bytes a lane, neighbouring lanes neighbouring
// bytes. The norm of a single row is bound by latency: sixteen chains of cols / 16 fused operations
// of four clocks each, 1024 clocks or 0.6 µs for 4096 columns. So the chains read shared memory one
// batch ahead, and everything else that the norm reads is in registers before the chains begin.
#include "kernels/cuda/activation_rows.cuh"
#include "kernels/cuda/device_code.cuh"
#include "kernels/cuda/kernel_order.cuh"
#include "kernels/cuda/rows_params.h"

namespace baton {

// The columns of a part that a thread has: four of each pass.
struct NormColumns {
  float x[kNormPasses][4];

  // Columns past the end become 0. Passes that begin past the end are left out.
  __device__ __forceinline__ void Load(const float* row, int begin, int cols) {
#pragma unroll
    for (int pass = 0; pass < kNormPasses; ++pass) {
      const int first = begin + pass * kNormPassColumns;
      if (first < cols) LoadFour(row, first + 4 * static_cast<int>(threadIdx.x), cols, x[pass]);
    }
  }

  // Writes column i of the part to chains[i % 16][i / 16], with zeros up to `padded` columns. They
  // change no sum.
  __device__ __forceinline__ void StoreTo(float* chains, int stride, int padded) const {
#pragma unroll
    for (int pass = 0; pass < kNormPasses; ++pass) {
      const int column = pass * kNormPassColumns + 4 * static_cast<int>(threadIdx.x);
      if (column >= padded) break;
      float* const to = chains + column % 16 * stride + column / 16;
#pragma unroll
      for (int i = 0; i < 4; ++i) to[i * stride] = x[pass][i];
    }
  }
};

// A batch of a chain's columns.
struct NormBatch {
  float4 fours[kNormBatch / 4];

  __device__ __forceinline__ void Load(const float* chain, int batch) {
    const auto* const from = reinterpret_cast<const float4*>(chain + batch * kNormBatch);
#pragma unroll
    for (int i = 0; i < kNormBatch / 4; ++i) fours[i] = from[i];
  }
  __device__ __forceinline__ float AddSquares(float sum) const {
#pragma unroll
    for (const float4& four : fours) {
      sum = __fmaf_rn(four.x, four.x, sum);
      sum = __fmaf_rn(four.y, four.y, sum);
      sum = __fmaf_rn(four.z, four.z, sum);
      sum = __fmaf_rn(four.w, four.w, sum);
    }
    return sum;
  }
};

// Adds the squares of a chain to its sum. Each batch is loaded while the batch before it is added.
// REQUIRES: `batches` is even.
__device__ __forceinline__ float AddChain(const float* chain, int batches, float sum) {
  NormBatch even, odd;
  even.Load(chain, 0);
#pragma unroll 1
  for (int batch = 0; batch < batches; batch += 2) {
    odd.Load(chain, batch + 1);
    sum = even.AddSquares(sum);
    even.Load(chain, batch + 2 < batches ? batch + 2 : 0);  // behind the last batch: not used
    sum = odd.AddSquares(sum);
  }
  return sum;
}

// Grid: [tokens]. Block: kNormThreads. Shared memory: NormSharedFloats floats.
extern "C" __global__ void __launch_bounds__(kNormThreads, kNormBlocks)
    baton_rms_norm(const __grid_constant__ RmsNormParams p) {
  BeginKernel();
  float* const chains = SharedMemory<float>();
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t token = blockIdx.x;
  const float* const row = p.x + token * p.cols;
  const int stride = NormChainStride(p.cols);
  const int last = (p.cols - 1) / kNormPartColumns * kNormPartColumns;
  NormColumns columns, weights;
  weights.Load(p.weight, last, p.cols);

  float sum = 0;  // of chain `thread`; SumSquares16 of NUMERICS §1
  for (int begin = 0; begin <= last; begin += kNormPartColumns) {
    if (begin > 0) __syncthreads();
    const int padded = NormPaddedColumns(p.cols - begin);
    columns.Load(row, begin, p.cols);
    columns.StoreTo(chains, stride, padded);
    __syncthreads();
    if (thread < 16) sum = AddChain(chains + thread * stride, padded / (16 * kNormBatch), sum);
  }
  if (thread < 32) {
#pragma unroll
    for (int apart = 8; apart > 0; apart /= 2) {
      sum = __fadd_rn(sum, __shfl_down_sync(0xffffffffu, sum, apart));
    }
  }
  if (thread == 0) {
    const float mean = __fdiv_rn(sum, static_cast<float>(p.cols));
    chains[0] = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(mean, p.epsilon)));
  }
  __syncthreads();
  const float inverse = chains[0];
  for (int begin = last; begin >= 0; begin -= kNormPartColumns) {
    if (begin < last) {
      columns.Load(row, begin, p.cols);
      weights.Load(p.weight, begin, p.cols);
    }
#pragma unroll
    for (int pass = 0; pass < kNormPasses; ++pass) {
      const int first = begin + pass * kNormPassColumns;
      if (first >= p.cols) break;
      float y[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        y[i] = __fmul_rn(__fmul_rn(columns.x[pass][i], inverse), weights.x[pass][i]);
      }
      StoreFour(p.out, token, first + 4 * thread, p.cols, y);
    }
  }
}

// Grid: [tokens, slices]. Block: kRowThreads.
extern "C" __global__ void __launch_bounds__(kRowThreads)
    baton_silu_mul(const __grid_constant__ SiluMulParams p) {
  BeginKernel();
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
  BeginKernel();
  const int64_t token = blockIdx.x;
  const int column = 4 * static_cast<int>(blockIdx.y * kRowThreads + threadIdx.x);
  float x[4];
  LoadFour(p.x + token * p.cols, column, p.cols, x);
  StoreFour(p.out, token, column, p.cols, x);
}

// Grid: [rows, slices]. Block: kRowThreads.
extern "C" __global__ void __launch_bounds__(kRowThreads)
    baton_gather_rows(const __grid_constant__ GatherRowsParams p) {
  BeginKernel();
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
