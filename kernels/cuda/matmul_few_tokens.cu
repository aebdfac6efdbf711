// The kernels of matmul_few_tokens.cuh, one for each format and number of tokens. A kernel
// `baton_matmul_few_<tokens>_<format>` takes at most that many tokens.
#include "kernels/cuda/matmul_few_tokens.cuh"

namespace baton {

extern "C" __global__ void __launch_bounds__(FewTokensShape<1>::kThreads,
                                             FewTokensShape<1>::kBlocks)
    baton_matmul_few_1_q8_0(const __grid_constant__ MatMulParams p) {
  MultiplyFewTokens<WeightFormat::kQ8_0, 1>(p);
}
extern "C" __global__ void __launch_bounds__(FewTokensShape<8>::kThreads,
                                             FewTokensShape<8>::kBlocks)
    baton_matmul_few_8_q8_0(const __grid_constant__ MatMulParams p) {
  MultiplyFewTokens<WeightFormat::kQ8_0, 8>(p);
}
extern "C" __global__ void __launch_bounds__(FewTokensShape<16>::kThreads,
                                             FewTokensShape<16>::kBlocks)
    baton_matmul_few_16_q8_0(const __grid_constant__ MatMulParams p) {
  MultiplyFewTokens<WeightFormat::kQ8_0, 16>(p);
}
extern "C" __global__ void __launch_bounds__(FewTokensShape<32>::kThreads,
                                             FewTokensShape<32>::kBlocks)
    baton_matmul_few_32_q8_0(const __grid_constant__ MatMulParams p) {
  MultiplyFewTokens<WeightFormat::kQ8_0, 32>(p);
}
extern "C" __global__ void __launch_bounds__(FewTokensShape<1>::kThreads,
                                             FewTokensShape<1>::kBlocks)
    baton_matmul_few_1_q4_0(const __grid_constant__ MatMulParams p) {
  MultiplyFewTokens<WeightFormat::kQ4_0, 1>(p);
}
extern "C" __global__ void __launch_bounds__(FewTokensShape<8>::kThreads,
                                             FewTokensShape<8>::kBlocks)
    baton_matmul_few_8_q4_0(const __grid_constant__ MatMulParams p) {
  MultiplyFewTokens<WeightFormat::kQ4_0, 8>(p);
}
extern "C" __global__ void __launch_bounds__(FewTokensShape<16>::kThreads,
                                             FewTokensShape<16>::kBlocks)
    baton_matmul_few_16_q4_0(const __grid_constant__ MatMulParams p) {
  MultiplyFewTokens<WeightFormat::kQ4_0, 16>(p);
}
extern "C" __global__ void __launch_bounds__(FewTokensShape<32>::kThreads,
                                             FewTokensShape<32>::kBlocks)
    baton_matmul_few_32_q4_0(const __grid_constant__ MatMulParams p) {
  MultiplyFewTokens<WeightFormat::kQ4_0, 32>(p);
}
extern "C" __global__ void __launch_bounds__(FewTokensShape<1>::kThreads,
                                             FewTokensShape<1>::kBlocks)
    baton_matmul_few_1_q4_1(const __grid_constant__ MatMulParams p) {
  MultiplyFewTokens<WeightFormat::kQ4_1, 1>(p);
}
extern "C" __global__ void __launch_bounds__(FewTokensShape<8>::kThreads,
                                             FewTokensShape<8>::kBlocks)
    baton_matmul_few_8_q4_1(const __grid_constant__ MatMulParams p) {
  MultiplyFewTokens<WeightFormat::kQ4_1, 8>(p);
}
extern "C" __global__ void __launch_bounds__(FewTokensShape<16>::kThreads,
                                             FewTokensShape<16>::kBlocks)
    baton_matmul_few_16_q4_1(const __grid_constant__ MatMulParams p) {
  MultiplyFewTokens<WeightFormat::kQ4_1, 16>(p);
}
extern "C" __global__ void __launch_bounds__(FewTokensShape<32>::kThreads,
                                             FewTokensShape<32>::kBlocks)
    baton_matmul_few_32_q4_1(const __grid_constant__ MatMulParams p) {
  MultiplyFewTokens<WeightFormat::kQ4_1, 32>(p);
}
extern "C" __global__ void __launch_bounds__(FewTokensShape<1>::kThreads,
                                             FewTokensShape<1>::kBlocks)
    baton_matmul_few_1_q5_0(const __grid_constant__ MatMulParams p) {
  MultiplyFewTokens<WeightFormat::kQ5_0, 1>(p);
}
extern "C" __global__ void __launch_bounds__(FewTokensShape<8>::kThreads,
                                             FewTokensShape<8>::kBlocks)
    baton_matmul_few_8_q5_0(const __grid_constant__ MatMulParams p) {
  MultiplyFewTokens<WeightFormat::kQ5_0, 8>(p);
}
extern "C" __global__ void __launch_bounds__(FewTokensShape<16>::kThreads,
                                             FewTokensShape<16>::kBlocks)
    baton_matmul_few_16_q5_0(const __grid_constant__ MatMulParams p) {
  MultiplyFewTokens<WeightFormat::kQ5_0, 16>(p);
}
extern "C" __global__ void __launch_bounds__(FewTokensShape<32>::kThreads,
                                             FewTokensShape<32>::kBlocks)
    baton_matmul_few_32_q5_0(const __grid_constant__ MatMulParams p) {
  MultiplyFewTokens<WeightFormat::kQ5_0, 32>(p);
}
extern "C" __global__ void __launch_bounds__(FewTokensShape<1>::kThreads,
                                             FewTokensShape<1>::kBlocks)
    baton_matmul_few_1_q5_1(const __grid_constant__ MatMulParams p) {
  MultiplyFewTokens<WeightFormat::kQ5_1, 1>(p);
}
extern "C" __global__ void __launch_bounds__(FewTokensShape<8>::kThreads,
                                             FewTokensShape<8>::kBlocks)
    baton_matmul_few_8_q5_1(const __grid_constant__ MatMulParams p) {
  MultiplyFewTokens<WeightFormat::kQ5_1, 8>(p);
}
extern "C" __global__ void __launch_bounds__(FewTokensShape<16>::kThreads,
                                             FewTokensShape<16>::kBlocks)
    baton_matmul_few_16_q5_1(const __grid_constant__ MatMulParams p) {
  MultiplyFewTokens<WeightFormat::kQ5_1, 16>(p);
}
extern "C" __global__ void __launch_bounds__(FewTokensShape<32>::kThreads,
                                             FewTokensShape<32>::kBlocks)
    baton_matmul_few_32_q5_1(const __grid_constant__ MatMulParams p) {
  MultiplyFewTokens<WeightFormat::kQ5_1, 32>(p);
}
extern "C" __global__ void __launch_bounds__(FewTokensShape<1>::kThreads,
                                             FewTokensShape<1>::kBlocks)
    baton_matmul_few_1_q4_k(const __grid_constant__ MatMulParams p) {
  MultiplyFewTokens<WeightFormat::kQ4_K, 1>(p);
}
extern "C" __global__ void __launch_bounds__(FewTokensShape<8>::kThreads,
                                             FewTokensShape<8>::kBlocks)
    baton_matmul_few_8_q4_k(const __grid_constant__ MatMulParams p) {
  MultiplyFewTokens<WeightFormat::kQ4_K, 8>(p);
}
extern "C" __global__ void __launch_bounds__(FewTokensShape<16>::kThreads,
                                             FewTokensShape<16>::kBlocks)
    baton_matmul_few_16_q4_k(const __grid_constant__ MatMulParams p) {
  MultiplyFewTokens<WeightFormat::kQ4_K, 16>(p);
}
extern "C" __global__ void __launch_bounds__(FewTokensShape<32>::kThreads,
                                             FewTokensShape<32>::kBlocks)
    baton_matmul_few_32_q4_k(const __grid_constant__ MatMulParams p) {
  MultiplyFewTokens<WeightFormat::kQ4_K, 32>(p);
}
extern "C" __global__ void __launch_bounds__(FewTokensShape<1>::kThreads,
                                             FewTokensShape<1>::kBlocks)
    baton_matmul_few_1_q5_k(const __grid_constant__ MatMulParams p) {
  MultiplyFewTokens<WeightFormat::kQ5_K, 1>(p);
}
extern "C" __global__ void __launch_bounds__(FewTokensShape<8>::kThreads,
                                             FewTokensShape<8>::kBlocks)
    baton_matmul_few_8_q5_k(const __grid_constant__ MatMulParams p) {
  MultiplyFewTokens<WeightFormat::kQ5_K, 8>(p);
}
extern "C" __global__ void __launch_bounds__(FewTokensShape<16>::kThreads,
                                             FewTokensShape<16>::kBlocks)
    baton_matmul_few_16_q5_k(const __grid_constant__ MatMulParams p) {
  MultiplyFewTokens<WeightFormat::kQ5_K, 16>(p);
}
extern "C" __global__ void __launch_bounds__(FewTokensShape<32>::kThreads,
                                             FewTokensShape<32>::kBlocks)
    baton_matmul_few_32_q5_k(const __grid_constant__ MatMulParams p) {
  MultiplyFewTokens<WeightFormat::kQ5_K, 32>(p);
}
extern "C" __global__ void __launch_bounds__(FewTokensShape<1>::kThreads,
                                             FewTokensShape<1>::kBlocks)
    baton_matmul_few_1_q6_k(const __grid_constant__ MatMulParams p) {
  MultiplyFewTokens<WeightFormat::kQ6_K, 1>(p);
}
extern "C" __global__ void __launch_bounds__(FewTokensShape<8>::kThreads,
                                             FewTokensShape<8>::kBlocks)
    baton_matmul_few_8_q6_k(const __grid_constant__ MatMulParams p) {
  MultiplyFewTokens<WeightFormat::kQ6_K, 8>(p);
}
extern "C" __global__ void __launch_bounds__(FewTokensShape<16>::kThreads,
                                             FewTokensShape<16>::kBlocks)
    baton_matmul_few_16_q6_k(const __grid_constant__ MatMulParams p) {
  MultiplyFewTokens<WeightFormat::kQ6_K, 16>(p);
}
// With the registers of two blocks it would spill.
extern "C" __global__ void __launch_bounds__(FewTokensShape<32>::kThreads, 1)
    baton_matmul_few_32_q6_k(const __grid_constant__ MatMulParams p) {
  MultiplyFewTokens<WeightFormat::kQ6_K, 32>(p);
}

BATON_KERNEL(baton_matmul_few_1_q8_0, MatMulParams);
BATON_KERNEL(baton_matmul_few_8_q8_0, MatMulParams);
BATON_KERNEL(baton_matmul_few_16_q8_0, MatMulParams);
BATON_KERNEL(baton_matmul_few_32_q8_0, MatMulParams);
BATON_KERNEL(baton_matmul_few_1_q4_0, MatMulParams);
BATON_KERNEL(baton_matmul_few_8_q4_0, MatMulParams);
BATON_KERNEL(baton_matmul_few_16_q4_0, MatMulParams);
BATON_KERNEL(baton_matmul_few_32_q4_0, MatMulParams);
BATON_KERNEL(baton_matmul_few_1_q4_1, MatMulParams);
BATON_KERNEL(baton_matmul_few_8_q4_1, MatMulParams);
BATON_KERNEL(baton_matmul_few_16_q4_1, MatMulParams);
BATON_KERNEL(baton_matmul_few_32_q4_1, MatMulParams);
BATON_KERNEL(baton_matmul_few_1_q5_0, MatMulParams);
BATON_KERNEL(baton_matmul_few_8_q5_0, MatMulParams);
BATON_KERNEL(baton_matmul_few_16_q5_0, MatMulParams);
BATON_KERNEL(baton_matmul_few_32_q5_0, MatMulParams);
BATON_KERNEL(baton_matmul_few_1_q5_1, MatMulParams);
BATON_KERNEL(baton_matmul_few_8_q5_1, MatMulParams);
BATON_KERNEL(baton_matmul_few_16_q5_1, MatMulParams);
BATON_KERNEL(baton_matmul_few_32_q5_1, MatMulParams);
BATON_KERNEL(baton_matmul_few_1_q4_k, MatMulParams);
BATON_KERNEL(baton_matmul_few_8_q4_k, MatMulParams);
BATON_KERNEL(baton_matmul_few_16_q4_k, MatMulParams);
BATON_KERNEL(baton_matmul_few_32_q4_k, MatMulParams);
BATON_KERNEL(baton_matmul_few_1_q5_k, MatMulParams);
BATON_KERNEL(baton_matmul_few_8_q5_k, MatMulParams);
BATON_KERNEL(baton_matmul_few_16_q5_k, MatMulParams);
BATON_KERNEL(baton_matmul_few_32_q5_k, MatMulParams);
BATON_KERNEL(baton_matmul_few_1_q6_k, MatMulParams);
BATON_KERNEL(baton_matmul_few_8_q6_k, MatMulParams);
BATON_KERNEL(baton_matmul_few_16_q6_k, MatMulParams);
BATON_KERNEL(baton_matmul_few_32_q6_k, MatMulParams);

}  // namespace baton
