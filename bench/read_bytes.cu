// Reads memory and does nothing else: the ceiling of kernels that read weights or KV. Each thread
// has four independent loads of 16 bytes in flight. Predicted limit: the memory's bandwidth.
#include "bench/read_bytes_params.h"
#include "kernels/cuda/device_code.cuh"
#include "kernels/cuda/kernel_order.cuh"

namespace baton {

// Grid: any number of blocks, block: [kReadThreads].
extern "C" __global__ void __launch_bounds__(kReadThreads)
    baton_read_bytes(const __grid_constant__ ReadBytesParams p) {
  BeginKernel();
  const auto* words = static_cast<const uint4*>(p.bytes);
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  uint32_t any = 0;
  int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; i + 3 * stride < p.count; i += 4 * stride) {
    uint4 loaded[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) loaded[k] = words[i + k * stride];
#pragma unroll
    for (int k = 0; k < 4; ++k) any |= loaded[k].x | loaded[k].y | loaded[k].z | loaded[k].w;
  }
  for (; i < p.count; i += stride) {
    const uint4 word = words[i];
    any |= word.x | word.y | word.z | word.w;
  }
  if (any == 0) *p.sink = 1;  // keeps the loads
}
BATON_KERNEL(baton_read_bytes, ReadBytesParams);

}  // namespace baton
