// Small kernels that use what the real ones use: shuffles, shared memory, barriers, atomic
// operations with fences, ldmatrix, mma and pipelines of asynchronous copies. They test the
// emulator, and the emulator's faults are planted in them.
#include "kernels/cuda/device_code.cuh"
#include "kernels/cuda/kernel_order.cuh"
#include "kernels/cuda/ptx.cuh"
#include "tests/cuda/sample_kernels_params.h"

namespace baton {
namespace {

constexpr int kSumThreads = 96;
constexpr int kTile = 32;
constexpr int kTileRows = 8;  // of threads
constexpr int kMatMulRows = 16;
constexpr int kMatMulCols = 8;
constexpr int kStep = 32;  // columns of A in a stage
constexpr int kStages = 3;
constexpr int kStageBytes = (kMatMulRows + kMatMulCols) * kStep;

__device__ __forceinline__ int SumOfWarp(int value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, distance);
  }
  return value;
}

}  // namespace

// Each block sums a part. The last block to arrive sums the parts.
extern "C" __global__ void __launch_bounds__(kSumThreads)
    baton_sample_sum(const __grid_constant__ SampleSumParams p) {
  BeginKernel();
  int* of_warps = SharedMemory<int>();  // [kSumThreads / 32], then a flag
  int* is_last = of_warps + kSumThreads / 32;
  const int stride = static_cast<int>(gridDim.x * blockDim.x);
  int sum = 0;
  for (int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); i < p.count; i += stride) {
    sum += p.values[i];
  }
  sum = SumOfWarp(sum);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    unsigned total = 0;
    for (int i = 0; i < kSumThreads / 32; ++i) total += static_cast<unsigned>(of_warps[i]);
    p.partials[blockIdx.x] = static_cast<int>(total);
    __threadfence();
    *is_last = atomicAdd(p.arrivals, 1u) == gridDim.x - 1 ? 1 : 0;
    __threadfence();
  }
  __syncthreads();
  if (*is_last == 0) return;
  if (threadIdx.x == 0) {
    unsigned total = 0;
    for (unsigned i = 0; i < gridDim.x; ++i) total += static_cast<unsigned>(p.partials[i]);
    *p.sum = static_cast<int>(total);
  }
}
BATON_KERNEL(baton_sample_sum, SampleSumParams);

// Grid: [ceil(cols / 32), ceil(rows / 32)], block: [32, 8].
extern "C" __global__ void __launch_bounds__(kTile* kTileRows)
    baton_sample_transpose(const __grid_constant__ SampleTransposeParams p) {
  BeginKernel();
  float* tile = SharedMemory<float>();  // [32, 33]: a column lies in 32 banks
  const int first_col = static_cast<int>(blockIdx.x) * kTile;
  const int first_row = static_cast<int>(blockIdx.y) * kTile;
  const int x = static_cast<int>(threadIdx.x);
  for (int y = static_cast<int>(threadIdx.y); y < kTile; y += kTileRows) {
    if (first_row + y < p.rows && first_col + x < p.cols) {
      tile[y * (kTile + 1) + x] = p.from[(first_row + y) * p.cols + first_col + x];
    }
  }
  __syncthreads();
  for (int y = static_cast<int>(threadIdx.y); y < kTile; y += kTileRows) {
    if (first_col + y < p.cols && first_row + x < p.rows) {
      p.to[(first_col + y) * p.rows + first_row + x] = tile[x * (kTile + 1) + y];
    }
  }
}
BATON_KERNEL(baton_sample_transpose, SampleTransposeParams);

// Integer matrix product: a warp computes 16 rows and 8 columns. Grid: [cols / 8, ceil(rows / 16)],
// block: [32]. Stages of 32 columns are copied asynchronously, two ahead.
extern "C" __global__ void __launch_bounds__(32)
    baton_sample_matmul(const __grid_constant__ SampleMatMulParams p) {
  BeginKernel();
  int8_t* stages = SharedMemory<int8_t>();  // [kStages][16 + 8, 32]
  const int lane = static_cast<int>(threadIdx.x);
  const int row0 = static_cast<int>(blockIdx.y) * kMatMulRows;
  const int col0 = static_cast<int>(blockIdx.x) * kMatMulCols;
  const int steps = p.depth / kStep;

  const auto start_step = [&](int step) {
    if (step < steps) {
      int8_t* stage = stages + step % kStages * kStageBytes;
      const int row = lane / 2;
      const int half = lane % 2 * 16;
      const bool valid = row0 + row < p.rows;
      const int8_t* a = p.a + (valid ? row0 + row : 0) * p.depth + step * kStep + half;
      CopyAsync16(stage + row * kStep + half, a, valid);
      if (lane < 2 * kMatMulCols) {
        const int8_t* b = p.b + (col0 + row) * p.depth + step * kStep + half;
        CopyAsync16(stage + (kMatMulRows + row) * kStep + half, b, true);
      }
    }
    CommitCopies();
  };

  int sums[4] = {};
  for (int step = 0; step < kStages - 1; ++step) start_step(step);
  for (int step = 0; step < steps; ++step) {
    WaitCopies<kStages - 2>();
    __syncwarp();  // every lane's copies have landed, and all have read the stage that is next
    start_step(step + kStages - 1);
    const int8_t* stage = stages + step % kStages * kStageBytes;
    unsigned a[4], b[2];
    LdMatrixX4(a, stage + (lane % 16) * kStep + lane / 16 * 16);
    LdMatrixX2(b, stage + (kMatMulRows + lane % 8) * kStep + lane / 8 % 2 * 16);
    MmaM16N8K32S8(sums, a, b);
  }
  const int col = col0 + lane % 4 * 2;
  for (int half = 0; half < 2; ++half) {
    const int row = row0 + lane / 4 + half * 8;
    if (row >= p.rows) continue;
    p.c[row * p.cols + col] = sums[2 * half];
    p.c[row * p.cols + col + 1] = sums[2 * half + 1];
  }
}
BATON_KERNEL(baton_sample_matmul, SampleMatMulParams);

}  // namespace baton
