// Integer matrix product with the gate in one kernel (NUMERICS §4, §5), for many tokens.
//
// A warp's two row tiles are a tile of the gate projection and the tile of the up projection that
// multiplies it. So a lane holds both factors of its columns. Saves writing and reading 8 bytes for
// each row and token; the limit stays that of matmul_many_tokens.cuh.
#include "kernels/cuda/activation_rows.cuh"
#include "kernels/cuda/device_code.cuh"
#include "kernels/cuda/kernel_order.cuh"
#include "kernels/cuda/matmul_many_tokens.cuh"
#include "kernels/cuda/silu.cuh"

namespace baton {

// Gated values of a block on their way to rows. The padding keeps lanes on different banks.
struct GatedShared {
  float y[kManyTokens][kGatedColumns + 4];
};

// Grid: [blocks of 64 tokens, blocks of 64 columns]. Block: kManyThreads. REQUIRES: the number of
// columns is a multiple of 32.
template <WeightFormat kFormat>
__device__ __forceinline__ void MultiplyAndGate(const GatedMatMulParams& p) {
  BeginKernel();
  static_assert(sizeof(GatedShared) <= sizeof(ManyTokensShared<kFormat>), "it takes its place");
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first_token = static_cast<int>(blockIdx.x) * kManyTokens;
  const int first_column = static_cast<int>(blockIdx.y) * kGatedColumns;
  const int cols = p.product.rows / 2;
  const int gates = cols / kWeightTileRows;
  const int wanted = first_column / kWeightTileRows + warp;
  const int tile = wanted < gates ? wanted : gates - 1;
  const int tiles[kManyRowTiles] = {tile, gates + tile};
  ManyTokensSums acc = {};
  MultiplyManyTokens<kFormat>(p.product, tiles, first_token,
                              *SharedMemory<ManyTokensShared<kFormat>>(), acc);

  GatedShared& shared = *SharedMemory<GatedShared>();
#pragma unroll
  for (int n = 0; n < kManyTokenTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      shared.y[8 * n + 2 * (lane % 4) + i % 2][kWeightTileRows * warp + lane / 4 + 8 * (i / 2)] =
          __fmul_rn(SiluWithoutBranches(acc[0][n][i]), acc[1][n][i]);
    }
  }
  __syncthreads();
  // Sixteen lanes write the columns of one token.
  const int in_block = lane % 16 * 4;
#pragma unroll 1
  for (int pass = 0; pass < kManyTokens / (2 * kManyWarps); ++pass) {
    const int in_tokens = 2 * kManyWarps * pass + 2 * warp + lane / 16;
    const int token = first_token + in_tokens;
    const int column = token < p.product.tokens ? first_column + in_block : cols;
    const float4 four = *reinterpret_cast<const float4*>(&shared.y[in_tokens][in_block]);
    const float y[4] = {four.x, four.y, four.z, four.w};
    StoreFour(p.out, token, column, cols, y);
  }
}

extern "C" __global__ void __launch_bounds__(kManyThreads, kManyBlocks)
    baton_gated_matmul_q8_0(const __grid_constant__ GatedMatMulParams p) {
  MultiplyAndGate<WeightFormat::kQ8_0>(p);
}
extern "C" __global__ void __launch_bounds__(kManyThreads, kManyBlocks)
    baton_gated_matmul_q4_0(const __grid_constant__ GatedMatMulParams p) {
  MultiplyAndGate<WeightFormat::kQ4_0>(p);
}
extern "C" __global__ void __launch_bounds__(kManyThreads, kManyBlocks)
    baton_gated_matmul_q4_1(const __grid_constant__ GatedMatMulParams p) {
  MultiplyAndGate<WeightFormat::kQ4_1>(p);
}
extern "C" __global__ void __launch_bounds__(kManyThreads, kManyBlocks)
    baton_gated_matmul_q5_0(const __grid_constant__ GatedMatMulParams p) {
  MultiplyAndGate<WeightFormat::kQ5_0>(p);
}
extern "C" __global__ void __launch_bounds__(kManyThreads, kManyBlocks)
    baton_gated_matmul_q5_1(const __grid_constant__ GatedMatMulParams p) {
  MultiplyAndGate<WeightFormat::kQ5_1>(p);
}
extern "C" __global__ void __launch_bounds__(kManyThreads, kManyBlocks)
    baton_gated_matmul_q4_k(const __grid_constant__ GatedMatMulParams p) {
  MultiplyAndGate<WeightFormat::kQ4_K>(p);
}
extern "C" __global__ void __launch_bounds__(kManyThreads, kManyBlocks)
    baton_gated_matmul_q5_k(const __grid_constant__ GatedMatMulParams p) {
  MultiplyAndGate<WeightFormat::kQ5_K>(p);
}
extern "C" __global__ void __launch_bounds__(kManyThreads, kManyBlocks)
    baton_gated_matmul_q6_k(const __grid_constant__ GatedMatMulParams p) {
  MultiplyAndGate<WeightFormat::kQ6_K>(p);
}

BATON_KERNEL(baton_gated_matmul_q8_0, GatedMatMulParams);
BATON_KERNEL(baton_gated_matmul_q4_0, GatedMatMulParams);
BATON_KERNEL(baton_gated_matmul_q4_1, GatedMatMulParams);
BATON_KERNEL(baton_gated_matmul_q5_0, GatedMatMulParams);
BATON_KERNEL(baton_gated_matmul_q5_1, GatedMatMulParams);
BATON_KERNEL(baton_gated_matmul_q4_k, GatedMatMulParams);
BATON_KERNEL(baton_gated_matmul_q5_k, GatedMatMulParams);
BATON_KERNEL(baton_gated_matmul_q6_k, GatedMatMulParams);

}  // namespace baton
