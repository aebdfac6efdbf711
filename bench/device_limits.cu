// Kernels that do one thing each, for the limits of other kernels: matrix products from registers
// or shared memory, reads from the second-level cache, empty launches, and the begin of a block.
#include "bench/device_clocks.cuh"
#include "bench/device_limits_params.h"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/kernel_order.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/warpgroup_mma.cuh"

namespace baton {

// Calls product(sum, a, b) for kWarpSums independent sums in turn. Grid: any, block:
// [kLimitThreads].
template <typename Sum, typename Product>
__device__ __forceinline__ void RunWarpProducts(const PeakParams& p, const Product& product) {
  const uint32_t* words = p.operands + threadIdx.x * 8;
  unsigned a[4], b[2];
  for (int i = 0; i < 4; ++i) a[i] = words[i];
  for (int i = 0; i < 2; ++i) b[i] = words[4 + i];
  Sum sums[kWarpSums][4] = {};
  for (int64_t turn = 0; turn < p.turns; ++turn) {
#pragma unroll
    for (int i = 0; i < kWarpSums; ++i) product(sums[i], a, b);
  }
  bool any = false;
#pragma unroll
  for (int i = 0; i < kWarpSums; ++i) {
    for (const Sum sum : sums[i]) any = any || sum != 0;
  }
  if (!any) *p.sink = 1;  // keeps the products
}

extern "C" __global__ void __launch_bounds__(kLimitThreads)
    baton_peak_mma_s8(const __grid_constant__ PeakParams p) {
  BeginKernel();
  RunWarpProducts<int>(
      p, [](int(&d)[4], const unsigned(&a)[4], const unsigned(&b)[2]) { MmaM16N8K32S8(d, a, b); });
}
BATON_KERNEL(baton_peak_mma_s8, PeakParams);

extern "C" __global__ void __launch_bounds__(kLimitThreads)
    baton_peak_mma_bf16(const __grid_constant__ PeakParams p) {
  BeginKernel();
  RunWarpProducts<float>(p, [](float(&d)[4], const unsigned(&a)[4], const unsigned(&b)[2]) {
    MmaM16N8K16Bf16(d, a, b);
  });
}
BATON_KERNEL(baton_peak_mma_bf16, PeakParams);

// Two warpgroups of a block multiply the same operands in shared memory. Shared memory:
// kWgmmaPeakBytes.
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
__device__ __forceinline__ void RunWarpgroupProducts(const PeakParams& p) {
  auto* shared = SharedMemory<uint32_t>();
  for (size_t i = threadIdx.x; i < kWgmmaPeakBytes / 4; i += kLimitThreads) {
    shared[i] = p.operands[i];
  }
  FenceProxyAsync();
  __syncthreads();
  const uint64_t a = MatrixDescriptor(shared, 128, 256, SharedSwizzle::kNone);
  const uint64_t b = MatrixDescriptor(shared + 64 * 16 * 2 / 4, 128, 256, SharedSwizzle::kNone);
  float d[kWgmmaPeakCols / 2];
#pragma unroll
  for (float& sum : d) sum = 0;
  for (int64_t turn = 0; turn < p.turns; ++turn) {
    FenceMatrixRegisters(d);
#pragma unroll
    for (int i = 0; i < kWgmmaPeakSteps; ++i) {
      WarpgroupMmaBf16<kWgmmaPeakCols, false>(d, a, b, true);
    }
    CommitMatrixProducts();
    WaitMatrixProducts<0>(d);
  }
  bool any = false;
#pragma unroll
  for (const float sum : d) any = any || sum != 0;
  if (!any) *p.sink = 1;  // keeps the products
}
#else
__device__ __forceinline__ void RunWarpgroupProducts(const PeakParams&) {}
#endif

extern "C" __global__ void __launch_bounds__(kLimitThreads)
    baton_peak_wgmma_bf16(const __grid_constant__ PeakParams p) {
  BeginKernel();
  RunWarpgroupProducts(p);
}
BATON_KERNEL(baton_peak_wgmma_bf16, PeakParams);

// Each block reads all words in each turn. The first turn only fills the cache. Grid: any, block:
// [kL2Threads].
extern "C" __global__ void __launch_bounds__(kL2Threads)
    baton_read_l2(const __grid_constant__ L2ReadParams p) {
  BeginKernel();
  const auto* words = static_cast<const uint4*>(p.bytes);
  uint32_t any = 0;
  uint64_t begin = 0;
  for (int64_t turn = 0; turn < p.turns; ++turn) {
    if (turn == 1) {
      __syncthreads();
      begin = Clocks();
    }
    for (int64_t i = threadIdx.x; i < p.count; i += 4 * kL2Threads) {
      uint4 loaded[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) loaded[k] = LoadFromL2(words + i + k * kL2Threads);
#pragma unroll
      for (int k = 0; k < 4; ++k) any |= loaded[k].x | loaded[k].y | loaded[k].z | loaded[k].w;
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) p.clocks[blockIdx.x] = Clocks() - begin;
  if (any == 0) *p.sink = 1;  // keeps the loads
}
BATON_KERNEL(baton_read_l2, L2ReadParams);

extern "C" __global__ void __launch_bounds__(kLimitThreads)
    baton_empty(const __grid_constant__ EmptyParams) {
  BeginKernel();
}
BATON_KERNEL(baton_empty, EmptyParams);

// What a block does before its work. Grid: any, block: [kLimitThreads]. Shared memory:
// kPrologueBytes and 16 bytes.
extern "C" __global__ void __launch_bounds__(kLimitThreads)
    baton_prologue(const __grid_constant__ PrologueParams p) {
  BeginKernel();
  const uint64_t began_ns = Nanoseconds();
  const uint64_t begin = Clocks();
  const auto* const bytes = static_cast<const uint8_t*>(p.bytes) + blockIdx.x * kPrologueBytes;
  const bool some = bytes != nullptr;  // a use of the parameter, before the clock is read
  const uint64_t params = Clocks() - (some ? begin : 0);
  auto* const shared = SharedMemory<uint8_t>();
  [[maybe_unused]] auto* const barrier = reinterpret_cast<uint64_t*>(shared + kPrologueBytes);
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  if (threadIdx.x == 0) {
    InitBarrier(barrier, 1);
    FenceBarrierInit();
  }
#endif
  __syncthreads();
  const uint64_t initialised = Clocks() - begin;
  const uint4 loaded = LoadFromL2(reinterpret_cast<const uint4*>(bytes));
  if ((loaded.x | loaded.y | loaded.z | loaded.w) == 0) *p.sink = 1;  // waits for the load
  const uint64_t load = Clocks() - begin;
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  if (threadIdx.x == 0) {
    ArriveAndExpect(barrier, kPrologueBytes);
    LoadBulk(shared, bytes, kPrologueBytes, barrier);
  }
  WaitBarrier(barrier, 0);
#endif
  const uint64_t copy = Clocks() - begin;
  if (threadIdx.x == 0) {
    p.times[blockIdx.x] = {began_ns, Nanoseconds(), params, initialised, load, copy};
  }
}
BATON_KERNEL(baton_prologue, PrologueParams);

}  // namespace baton
