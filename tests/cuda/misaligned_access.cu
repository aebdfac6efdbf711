// A kernel that copies a vector. With an offset that is no multiple of 4 elements it is wrong.
#include "kernels/cuda/device_code.cuh"
#include "kernels/cuda/kernel_order.cuh"
#include "tests/cuda/misaligned_access_params.h"

namespace baton {

// Grid: [1], block: [1].
extern "C" __global__ void __launch_bounds__(1)
    baton_misaligned_access(const __grid_constant__ MisalignedAccessParams p) {
  BeginKernel();
  *reinterpret_cast<float4*>(p.to + p.offset) = *reinterpret_cast<const float4*>(p.from + p.offset);
}
BATON_KERNEL(baton_misaligned_access, MisalignedAccessParams);

}  // namespace baton
