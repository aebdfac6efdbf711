// One wgmma for each block, with the shared memory of its operands prepared by the host. Not for
// speed: the test compares the results with the emulator's bit model.
#include "kernels/cuda/device_code.cuh"
#include "kernels/cuda/kernel_order.cuh"
#include "kernels/cuda/warpgroup_mma.cuh"
#include "tests/cuda/wgmma_conformance_params.h"

namespace baton {

constexpr int kWgmmaThreads = 128;

// a in shared memory; a in registers; a in registers, and the columns of the product next to each
// other in the shared memory of b.
enum class Form { kShared, kRegisters, kColumns };

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Grid: [tiles]. Block: kWgmmaThreads. Shared memory: 2 · kWgmmaMatrixBytes.
template <bool kF16, Form kForm>
__device__ __forceinline__ void RunWgmmaTile(const WgmmaTilesParams& p) {
  BeginKernel();
  auto* shared = SharedMemory<uint8_t>();
  const int64_t tile = blockIdx.x;
  const uint8_t* image = p.images + tile * 2 * kWgmmaMatrixBytes;
  for (int i = static_cast<int>(threadIdx.x) * 16; i < 2 * kWgmmaMatrixBytes;
       i += kWgmmaThreads * 16) {
    *reinterpret_cast<uint4*>(shared + i) = *reinterpret_cast<const uint4*>(image + i);
  }
  FenceProxyAsync();
  __syncthreads();
  const int row = static_cast<int>(threadIdx.x) / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4;
  const int pair = static_cast<int>(threadIdx.x) % 4 * 2;
  const uint16_t* of_row = p.a + (tile * kWgmmaTileRows + row) * 16 + pair;
  unsigned a[4] = {*reinterpret_cast<const unsigned*>(of_row),
                   *reinterpret_cast<const unsigned*>(of_row + 8 * 16),
                   *reinterpret_cast<const unsigned*>(of_row + 8),
                   *reinterpret_cast<const unsigned*>(of_row + 8 * 16 + 8)};
  const int64_t first = (tile * kWgmmaTileRows + row) * kWgmmaTileCols + pair;
  float d[kWgmmaTileCols / 2];
#pragma unroll
  for (int i = 0; i < kWgmmaTileCols / 2; ++i) {
    d[i] = p.c[first + i / 2 % 2 * 8 * kWgmmaTileCols + i / 4 * 8 + i % 2];
  }
  [[maybe_unused]] const uint64_t of_a =
      MatrixDescriptor(shared, p.a_leading, p.a_stride, p.a_swizzle);
  const uint64_t of_b =
      MatrixDescriptor(shared + kWgmmaMatrixBytes, p.b_leading, p.b_stride, p.b_swizzle);
  FenceMatrixRegisters(d, a);
  constexpr bool kColumns = kForm == Form::kColumns;
  if constexpr (kForm == Form::kShared) {
    if constexpr (kF16) {
      WarpgroupMmaF16<kWgmmaTileCols, kColumns>(d, of_a, of_b, true);
    } else {
      WarpgroupMmaBf16<kWgmmaTileCols, kColumns>(d, of_a, of_b, true);
    }
  } else if constexpr (kF16) {
    WarpgroupMmaF16<kWgmmaTileCols, kColumns>(d, a, of_b, true);
  } else {
    WarpgroupMmaBf16<kWgmmaTileCols, kColumns>(d, a, of_b, true);
  }
  CommitMatrixProducts();
  WaitMatrixProducts<0>(d, a);
#pragma unroll
  for (int i = 0; i < kWgmmaTileCols / 2; ++i) {
    p.d[first + i / 2 % 2 * 8 * kWgmmaTileCols + i / 4 * 8 + i % 2] = d[i];
  }
}

#else

template <bool kF16, Form kForm>
__device__ __forceinline__ void RunWgmmaTile(const WgmmaTilesParams&) {}

#endif

extern "C" __global__ void __launch_bounds__(kWgmmaThreads)
    baton_wgmma_shared_bf16(const __grid_constant__ WgmmaTilesParams p) {
  RunWgmmaTile<false, Form::kShared>(p);
}
extern "C" __global__ void __launch_bounds__(kWgmmaThreads)
    baton_wgmma_shared_f16(const __grid_constant__ WgmmaTilesParams p) {
  RunWgmmaTile<true, Form::kShared>(p);
}
extern "C" __global__ void __launch_bounds__(kWgmmaThreads)
    baton_wgmma_registers_bf16(const __grid_constant__ WgmmaTilesParams p) {
  RunWgmmaTile<false, Form::kRegisters>(p);
}
extern "C" __global__ void __launch_bounds__(kWgmmaThreads)
    baton_wgmma_registers_f16(const __grid_constant__ WgmmaTilesParams p) {
  RunWgmmaTile<true, Form::kRegisters>(p);
}
extern "C" __global__ void __launch_bounds__(kWgmmaThreads)
    baton_wgmma_columns_bf16(const __grid_constant__ WgmmaTilesParams p) {
  RunWgmmaTile<false, Form::kColumns>(p);
}
extern "C" __global__ void __launch_bounds__(kWgmmaThreads)
    baton_wgmma_columns_f16(const __grid_constant__ WgmmaTilesParams p) {
  RunWgmmaTile<true, Form::kColumns>(p);
}

BATON_KERNEL(baton_wgmma_shared_bf16, WgmmaTilesParams);
BATON_KERNEL(baton_wgmma_shared_f16, WgmmaTilesParams);
BATON_KERNEL(baton_wgmma_registers_bf16, WgmmaTilesParams);
BATON_KERNEL(baton_wgmma_registers_f16, WgmmaTilesParams);
BATON_KERNEL(baton_wgmma_columns_bf16, WgmmaTilesParams);
BATON_KERNEL(baton_wgmma_columns_f16, WgmmaTilesParams);

}  // namespace baton
