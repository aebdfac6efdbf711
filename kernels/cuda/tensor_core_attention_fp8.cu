// Paged attention of t1 over pools of fp8. See tensor_core_attention.cuh.
#include "kernels/cuda/device_code.cuh"
#include "kernels/cuda/tensor_core_attention.cuh"

using baton::TensorCoreAttentionParams;
using baton::t1::Fp8Pool;
using baton::t1::RunChunks;
using baton::t1::RunDecode;

extern "C" __global__ void __launch_bounds__(128, 2)
    baton_t1_decode_fp8_64(const __grid_constant__ TensorCoreAttentionParams p) {
  RunDecode<Fp8Pool, 64>(p);
}

extern "C" __global__ void __launch_bounds__(128, 2)
    baton_t1_decode_fp8_96(const __grid_constant__ TensorCoreAttentionParams p) {
  RunDecode<Fp8Pool, 96>(p);
}

extern "C" __global__ void __launch_bounds__(128, 2)
    baton_t1_decode_fp8_128(const __grid_constant__ TensorCoreAttentionParams p) {
  RunDecode<Fp8Pool, 128>(p);
}

extern "C" __global__ void __launch_bounds__(128, 2)
    baton_t1_decode_fp8_256(const __grid_constant__ TensorCoreAttentionParams p) {
  RunDecode<Fp8Pool, 256>(p);
}

extern "C" __global__ void __launch_bounds__(256, 1)
    baton_t1_chunks_fp8_64(const __grid_constant__ TensorCoreAttentionParams p) {
  RunChunks<Fp8Pool, 64>(p);
}

extern "C" __global__ void __launch_bounds__(256, 1)
    baton_t1_chunks_fp8_96(const __grid_constant__ TensorCoreAttentionParams p) {
  RunChunks<Fp8Pool, 96>(p);
}

extern "C" __global__ void __launch_bounds__(256, 1)
    baton_t1_chunks_fp8_128(const __grid_constant__ TensorCoreAttentionParams p) {
  RunChunks<Fp8Pool, 128>(p);
}

extern "C" __global__ void __launch_bounds__(128, 1)
    baton_t1_chunks_fp8_256(const __grid_constant__ TensorCoreAttentionParams p) {
  RunChunks<Fp8Pool, 256>(p);
}

BATON_KERNEL(baton_t1_decode_fp8_64, TensorCoreAttentionParams);
BATON_KERNEL(baton_t1_decode_fp8_96, TensorCoreAttentionParams);
BATON_KERNEL(baton_t1_decode_fp8_128, TensorCoreAttentionParams);
BATON_KERNEL(baton_t1_decode_fp8_256, TensorCoreAttentionParams);
BATON_KERNEL(baton_t1_chunks_fp8_64, TensorCoreAttentionParams);
BATON_KERNEL(baton_t1_chunks_fp8_96, TensorCoreAttentionParams);
BATON_KERNEL(baton_t1_chunks_fp8_128, TensorCoreAttentionParams);
BATON_KERNEL(baton_t1_chunks_fp8_256, TensorCoreAttentionParams);
