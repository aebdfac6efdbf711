// Chunks of t1-sm90's attention over pools of bf16, on warpgroups. See tensor_core_warpgroups.cuh.
#include "kernels/cuda/device_code.cuh"
#include "kernels/cuda/tensor_core_warpgroups.cuh"

using baton::TensorCoreAttentionParams;
using baton::t1::BF16Pool;
using baton::t1::RunWarpgroups;

extern "C" __global__ void __launch_bounds__(256, 1)
    baton_t1_warpgroups_bf16_64(const __grid_constant__ TensorCoreAttentionParams p) {
  RunWarpgroups<BF16Pool, 64>(p);
}

extern "C" __global__ void __launch_bounds__(256, 1)
    baton_t1_warpgroups_bf16_128(const __grid_constant__ TensorCoreAttentionParams p) {
  RunWarpgroups<BF16Pool, 128>(p);
}

BATON_KERNEL(baton_t1_warpgroups_bf16_64, TensorCoreAttentionParams);
BATON_KERNEL(baton_t1_warpgroups_bf16_128, TensorCoreAttentionParams);
