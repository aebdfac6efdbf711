// Paged attention of t1 over pools of bf16. See tensor_core_attention.cuh.
#include "kernels/cuda/device_code.cuh"
#include "kernels/cuda/tensor_core_attention.cuh"

using baton::TensorCoreAttentionParams;
using baton::t1::BF16Pool;
using baton::t1::RunChunks;
using baton::t1::RunDecode;

extern "C" __global__ void __launch_bounds__(128, 2)
    baton_t1_decode_bf16_64(const __grid_constant__ TensorCoreAttentionParams p) {
  RunDecode<BF16Pool, 64>(p);
}

extern "C" __global__ void __launch_bounds__(128, 2)
    baton_t1_decode_bf16_96(const __grid_constant__ TensorCoreAttentionParams p) {
  RunDecode<BF16Pool, 96>(p);
}

extern "C" __global__ void __launch_bounds__(128, 2)
    baton_t1_decode_bf16_128(const __grid_constant__ TensorCoreAttentionParams p) {
  RunDecode<BF16Pool, 128>(p);
}

extern "C" __global__ void __launch_bounds__(128, 2)
    baton_t1_decode_bf16_256(const __grid_constant__ TensorCoreAttentionParams p) {
  RunDecode<BF16Pool, 256>(p);
}

extern "C" __global__ void __launch_bounds__(256, 1)
    baton_t1_chunks_bf16_64(const __grid_constant__ TensorCoreAttentionParams p) {
  RunChunks<BF16Pool, 64>(p);
}

extern "C" __global__ void __launch_bounds__(256, 1)
    baton_t1_chunks_bf16_96(const __grid_constant__ TensorCoreAttentionParams p) {
  RunChunks<BF16Pool, 96>(p);
}

extern "C" __global__ void __launch_bounds__(256, 1)
    baton_t1_chunks_bf16_128(const __grid_constant__ TensorCoreAttentionParams p) {
  RunChunks<BF16Pool, 128>(p);
}

extern "C" __global__ void __launch_bounds__(128, 1)
    baton_t1_chunks_bf16_256(const __grid_constant__ TensorCoreAttentionParams p) {
  RunChunks<BF16Pool, 256>(p);
}

BATON_KERNEL(baton_t1_decode_bf16_64, TensorCoreAttentionParams);
BATON_KERNEL(baton_t1_decode_bf16_96, TensorCoreAttentionParams);
BATON_KERNEL(baton_t1_decode_bf16_128, TensorCoreAttentionParams);
BATON_KERNEL(baton_t1_decode_bf16_256, TensorCoreAttentionParams);
BATON_KERNEL(baton_t1_chunks_bf16_64, TensorCoreAttentionParams);
BATON_KERNEL(baton_t1_chunks_bf16_96, TensorCoreAttentionParams);
BATON_KERNEL(baton_t1_chunks_bf16_128, TensorCoreAttentionParams);
BATON_KERNEL(baton_t1_chunks_bf16_256, TensorCoreAttentionParams);
