// Kernels for a synthetic model: weights that are made on the device, and times of its steps.
#include "bench/device_clocks.cuh"
#include "bench/synthetic_weights_params.h"
#include "kernels/cuda/kernel_order.cuh"

namespace baton {

// Repeats a pattern with other random bits in each place (splitmix64 of the place). Grid: any
// number of blocks, block: [kVaryThreads].
extern "C" __global__ void __launch_bounds__(kVaryThreads)
    baton_vary_bits(const __grid_constant__ VaryBitsParams p) {
  BeginKernel();
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < p.count;
       i += stride) {
    uint64_t bits = p.seed + static_cast<uint64_t>(i) * 0x9e3779b97f4a7c15u;
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
    const int64_t place = i % p.pattern_count;
    p.words[i] = p.pattern[place] ^ (static_cast<uint32_t>(bits >> 32) & p.mask[place]);
  }
}
BATON_KERNEL(baton_vary_bits, VaryBitsParams);

// One thread notes the time. Stream order separates the stamps.
extern "C" __global__ void __launch_bounds__(1)
    baton_stamp_time(const __grid_constant__ StampTimeParams p) {
  BeginKernel();
  const uint64_t number = *p.count;
  p.times[number % static_cast<uint64_t>(p.capacity)] = Nanoseconds();
  *p.count = number + 1;
}
BATON_KERNEL(baton_stamp_time, StampTimeParams);

}  // namespace baton
