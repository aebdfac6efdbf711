// Kernels of tensor_matmul_many_tokens.cuh, one for each weight format and tile.
#include "kernels/cuda/tensor_matmul_many_tokens.cuh"

namespace baton {

extern "C" __global__ void __launch_bounds__(kTile64x64.threads(), kTile64x64.blocks())
    baton_tensor_matmul_64x64_bf16(const __grid_constant__ TensorMatMulParams p) {
  MultiplyManyTokens<WeightFormat::kBF16, 1, 64, false>(p);
}
extern "C" __global__ void __launch_bounds__(kTile64x128.threads(), kTile64x128.blocks())
    baton_tensor_matmul_64x128_bf16(const __grid_constant__ TensorMatMulParams p) {
  MultiplyManyTokens<WeightFormat::kBF16, 1, 128, false>(p);
}
extern "C" __global__ void __launch_bounds__(kTile128x128.threads(), kTile128x128.blocks())
    baton_tensor_matmul_128x128_bf16(const __grid_constant__ TensorMatMulParams p) {
  MultiplyManyTokens<WeightFormat::kBF16, 2, 128, false>(p);
}
extern "C" __global__ void __launch_bounds__(kTile128x256.threads(), kTile128x256.blocks())
    baton_tensor_matmul_128x256_bf16(const __grid_constant__ TensorMatMulParams p) {
  MultiplyManyTokens<WeightFormat::kBF16, 2, 256, false>(p);
}
extern "C" __global__ void __launch_bounds__(kTile64x64.threads(), kTile64x64.blocks())
    baton_tensor_matmul_64x64_f16(const __grid_constant__ TensorMatMulParams p) {
  MultiplyManyTokens<WeightFormat::kF16, 1, 64, false>(p);
}
extern "C" __global__ void __launch_bounds__(kTile64x128.threads(), kTile64x128.blocks())
    baton_tensor_matmul_64x128_f16(const __grid_constant__ TensorMatMulParams p) {
  MultiplyManyTokens<WeightFormat::kF16, 1, 128, false>(p);
}
extern "C" __global__ void __launch_bounds__(kTile128x128.threads(), kTile128x128.blocks())
    baton_tensor_matmul_128x128_f16(const __grid_constant__ TensorMatMulParams p) {
  MultiplyManyTokens<WeightFormat::kF16, 2, 128, false>(p);
}
extern "C" __global__ void __launch_bounds__(kTile128x256.threads(), kTile128x256.blocks())
    baton_tensor_matmul_128x256_f16(const __grid_constant__ TensorMatMulParams p) {
  MultiplyManyTokens<WeightFormat::kF16, 2, 256, false>(p);
}

BATON_KERNEL(baton_tensor_matmul_64x64_bf16, TensorMatMulParams);
BATON_KERNEL(baton_tensor_matmul_64x128_bf16, TensorMatMulParams);
BATON_KERNEL(baton_tensor_matmul_128x128_bf16, TensorMatMulParams);
BATON_KERNEL(baton_tensor_matmul_128x256_bf16, TensorMatMulParams);
BATON_KERNEL(baton_tensor_matmul_64x64_f16, TensorMatMulParams);
BATON_KERNEL(baton_tensor_matmul_64x128_f16, TensorMatMulParams);
BATON_KERNEL(baton_tensor_matmul_128x128_f16, TensorMatMulParams);
BATON_KERNEL(baton_tensor_matmul_128x256_f16, TensorMatMulParams);

}  // namespace baton
