// Kernels of tensor_matmul_many_tokens_sm80.cuh with the gate (NUMERICS §5): silu(gate) · up in one
// kernel.
#include "kernels/cuda/tensor_matmul_many_tokens_sm80.cuh"

namespace baton {

extern "C" __global__ void __launch_bounds__(128, 2)
    baton_gated_tensor_matmul_sm80_64x64_bf16(const __grid_constant__ TensorMatMulParams p) {
  MultiplySm80ManyTokens<WeightFormat::kBF16, 1, 64, true>(p);
}
extern "C" __global__ void __launch_bounds__(128, 2)
    baton_gated_tensor_matmul_sm80_64x128_bf16(const __grid_constant__ TensorMatMulParams p) {
  MultiplySm80ManyTokens<WeightFormat::kBF16, 1, 128, true>(p);
}
extern "C" __global__ void __launch_bounds__(256, 1)
    baton_gated_tensor_matmul_sm80_128x128_bf16(const __grid_constant__ TensorMatMulParams p) {
  MultiplySm80ManyTokens<WeightFormat::kBF16, 2, 128, true>(p);
}
extern "C" __global__ void __launch_bounds__(256, 1)
    baton_gated_tensor_matmul_sm80_128x256_bf16(const __grid_constant__ TensorMatMulParams p) {
  MultiplySm80ManyTokens<WeightFormat::kBF16, 2, 256, true>(p);
}
extern "C" __global__ void __launch_bounds__(128, 2)
    baton_gated_tensor_matmul_sm80_64x64_f16(const __grid_constant__ TensorMatMulParams p) {
  MultiplySm80ManyTokens<WeightFormat::kF16, 1, 64, true>(p);
}
extern "C" __global__ void __launch_bounds__(128, 2)
    baton_gated_tensor_matmul_sm80_64x128_f16(const __grid_constant__ TensorMatMulParams p) {
  MultiplySm80ManyTokens<WeightFormat::kF16, 1, 128, true>(p);
}
extern "C" __global__ void __launch_bounds__(256, 1)
    baton_gated_tensor_matmul_sm80_128x128_f16(const __grid_constant__ TensorMatMulParams p) {
  MultiplySm80ManyTokens<WeightFormat::kF16, 2, 128, true>(p);
}
extern "C" __global__ void __launch_bounds__(256, 1)
    baton_gated_tensor_matmul_sm80_128x256_f16(const __grid_constant__ TensorMatMulParams p) {
  MultiplySm80ManyTokens<WeightFormat::kF16, 2, 256, true>(p);
}

BATON_KERNEL(baton_gated_tensor_matmul_sm80_64x64_bf16, TensorMatMulParams);
BATON_KERNEL(baton_gated_tensor_matmul_sm80_64x128_bf16, TensorMatMulParams);
BATON_KERNEL(baton_gated_tensor_matmul_sm80_128x128_bf16, TensorMatMulParams);
BATON_KERNEL(baton_gated_tensor_matmul_sm80_128x256_bf16, TensorMatMulParams);
BATON_KERNEL(baton_gated_tensor_matmul_sm80_64x64_f16, TensorMatMulParams);
BATON_KERNEL(baton_gated_tensor_matmul_sm80_64x128_f16, TensorMatMulParams);
BATON_KERNEL(baton_gated_tensor_matmul_sm80_128x128_f16, TensorMatMulParams);
BATON_KERNEL(baton_gated_tensor_matmul_sm80_128x256_f16, TensorMatMulParams);

}  // namespace baton
