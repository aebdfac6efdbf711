#include "kernels/cuda/device_code.cuh"
#include "kernels/cuda/kernel_order.cuh"
#include "tests/cuda/add_value_params.h"

namespace baton {

// values[i] += value. Grid: any number of blocks.
extern "C" __global__ void __launch_bounds__(128)
    baton_test_add_value(const __grid_constant__ AddValueParams p) {
  BeginKernel();
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < p.count;
       i += int64_t{gridDim.x} * blockDim.x) {
    p.values[i] += p.value;
  }
}

// Like baton_test_add_value, with one block, through dynamic shared memory of 4 bytes for each
// value.
extern "C" __global__ void __launch_bounds__(128)
    baton_test_add_value_shared(const __grid_constant__ AddValueParams p) {
  BeginKernel();
  int32_t* const shared = SharedMemory<int32_t>();
  for (int64_t i = threadIdx.x; i < p.count; i += blockDim.x) shared[i] = p.values[i];
  __syncthreads();
  for (int64_t i = threadIdx.x; i < p.count; i += blockDim.x) {
    p.values[i] = shared[i] + p.value;
  }
}

BATON_KERNEL(baton_test_add_value, AddValueParams);
BATON_KERNEL(baton_test_add_value_shared, AddValueParams);

}  // namespace baton
