// A matrix product as kernels for Hopper write it: one warp copies tiles (TMA) into a ring of
// stages, and a warpgroup multiplies them (wgmma). Barriers in shared memory say which stages are
// full and which are empty.
#include "kernels/cuda/device_code.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/kernel_order.cuh"
#include "kernels/cuda/warpgroup_mma.cuh"
#include "tests/cuda/sample_hopper_params.h"

namespace baton {
// Grid: [ceil(cols / 64), ceil(rows / 64)], block: [160], shared memory: kStages · 16 KiB + 64.
extern "C" __global__ void __launch_bounds__(160)
    baton_sample_tile_matmul(const __grid_constant__ SampleTileMatMulParams p) {
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr int kTile = 64;  // rows, columns and depth of a stage
  constexpr int kStages = 2;
  constexpr int kTileBytes = kTile * kTile * 2;
  constexpr int kConsumers = 128;
  unsigned char* tiles = SharedMemory<unsigned char>();  // [kStages][A, B]
  uint64_t* full = reinterpret_cast<uint64_t*>(tiles + kStages * 2 * kTileBytes);
  uint64_t* empty = full + kStages;
  const int row0 = static_cast<int>(blockIdx.y) * kTile;
  const int col0 = static_cast<int>(blockIdx.x) * kTile;
  const int steps = (p.depth + kTile - 1) / kTile;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      InitBarrier(full + i, 1);
      InitBarrier(empty + i, kConsumers / 32);
    }
    FenceBarrierInit();
  }
  __syncthreads();
  BeginKernel();

  if (threadIdx.x >= kConsumers) {
    if (threadIdx.x > kConsumers) return;
    for (int step = 0; step < steps; ++step) {
      const int stage = step % kStages;
      unsigned char* a = tiles + stage * 2 * kTileBytes;
      WaitBarrier(empty + stage, static_cast<unsigned>(step / kStages + 1) & 1);
      ArriveAndExpect(full + stage, 2 * kTileBytes);
      LoadTile(a, &p.a, full + stage, step * kTile, row0);
      LoadTile(a + kTileBytes, &p.b, full + stage, step * kTile, col0);
    }
    return;
  }
  float sums[kTile / 2];
  for (int step = 0; step < steps; ++step) {
    const int stage = step % kStages;
    const unsigned char* a = tiles + stage * 2 * kTileBytes;
    WaitBarrier(full + stage, static_cast<unsigned>(step / kStages) & 1);
    FenceMatrixRegisters(sums);
#pragma unroll
    for (int k = 0; k < kTile; k += 16) {
      WarpgroupMmaBf16<kTile, false>(
          sums, MatrixDescriptor(a + 2 * k, 16, 1024, SharedSwizzle::k128Bytes),
          MatrixDescriptor(a + kTileBytes + 2 * k, 16, 1024, SharedSwizzle::k128Bytes),
          step + k != 0);
    }
    CommitMatrixProducts();
    WaitMatrixProducts<0>(sums);
    if (threadIdx.x % 32 == 0) ArriveBarrier(empty + stage);
  }
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int i = 0; i < kTile / 2; ++i) {
    const int row = row0 + 16 * warp + lane / 4 + i / 2 % 2 * 8;
    const int col = col0 + i / 4 * 8 + lane % 4 * 2 + i % 2;
    if (row < p.rows && col < p.cols) p.c[row * p.cols + col] = sums[i];
  }
#endif
}
BATON_KERNEL(baton_sample_tile_matmul, SampleTileMatMulParams);

}  // namespace baton
