// The kernels of matmul_many_tokens.cuh, one for each format.
#include "kernels/cuda/matmul_many_tokens.cuh"

namespace baton {

extern "C" __global__ void __launch_bounds__(kManyThreads, kManyBlocks)
    baton_matmul_many_q8_0(const __grid_constant__ MatMulParams p) {
  MatMulManyTokens<WeightFormat::kQ8_0>(p);
}
extern "C" __global__ void __launch_bounds__(kManyThreads, kManyBlocks)
    baton_matmul_many_q4_0(const __grid_constant__ MatMulParams p) {
  MatMulManyTokens<WeightFormat::kQ4_0>(p);
}
extern "C" __global__ void __launch_bounds__(kManyThreads, kManyBlocks)
    baton_matmul_many_q4_1(const __grid_constant__ MatMulParams p) {
  MatMulManyTokens<WeightFormat::kQ4_1>(p);
}
extern "C" __global__ void __launch_bounds__(kManyThreads, kManyBlocks)
    baton_matmul_many_q5_0(const __grid_constant__ MatMulParams p) {
  MatMulManyTokens<WeightFormat::kQ5_0>(p);
}
extern "C" __global__ void __launch_bounds__(kManyThreads, kManyBlocks)
    baton_matmul_many_q5_1(const __grid_constant__ MatMulParams p) {
  MatMulManyTokens<WeightFormat::kQ5_1>(p);
}
extern "C" __global__ void __launch_bounds__(kManyThreads, kManyBlocks)
    baton_matmul_many_q4_k(const __grid_constant__ MatMulParams p) {
  MatMulManyTokens<WeightFormat::kQ4_K>(p);
}
extern "C" __global__ void __launch_bounds__(kManyThreads, kManyBlocks)
    baton_matmul_many_q5_k(const __grid_constant__ MatMulParams p) {
  MatMulManyTokens<WeightFormat::kQ5_K>(p);
}
extern "C" __global__ void __launch_bounds__(kManyThreads, kManyBlocks)
    baton_matmul_many_q6_k(const __grid_constant__ MatMulParams p) {
  MatMulManyTokens<WeightFormat::kQ6_K>(p);
}

BATON_KERNEL(baton_matmul_many_q8_0, MatMulParams);
BATON_KERNEL(baton_matmul_many_q4_0, MatMulParams);
BATON_KERNEL(baton_matmul_many_q4_1, MatMulParams);
BATON_KERNEL(baton_matmul_many_q5_0, MatMulParams);
BATON_KERNEL(baton_matmul_many_q5_1, MatMulParams);
BATON_KERNEL(baton_matmul_many_q4_k, MatMulParams);
BATON_KERNEL(baton_matmul_many_q5_k, MatMulParams);
BATON_KERNEL(baton_matmul_many_q6_k, MatMulParams);

}  // namespace baton
