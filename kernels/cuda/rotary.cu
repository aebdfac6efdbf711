// Rotary positions (NUMERICS §6): sines and cosines of angles in binary64, and the rotation.
//
// Predicted limits: the table computes about 400 instructions of binary64 for a pair, which is
// little beside a step. The rotation is bound by memory: it reads and writes each value once.
#include "kernels/cuda/device_code.cuh"
#include "kernels/cuda/kernel_order.cuh"
#include "kernels/cuda/kv_params.h"
#include "kernels/cuda/rotation.cuh"
#include "kernels/exact_functions.h"
#include "kernels/numerics.h"

namespace baton::rotary {

inline constexpr int kComponents = 3;  // kPositionComponents of kernels/ops.h

}  // namespace baton::rotary

extern "C" __global__ void __launch_bounds__(128)
    baton_rotary_table(const __grid_constant__ baton::RotaryTableParams p) {
  baton::BeginKernel();
  const int64_t pair = int64_t{blockIdx.y} * blockDim.x + threadIdx.x;
  if (pair >= p.half) return;
  const int64_t token = blockIdx.x;
  const int component = p.components != nullptr ? p.components[pair] : 0;
  const double angle =
      p.positions[token * baton::rotary::kComponents + component] * p.frequencies[pair];
  p.cosines[token * p.half + pair] = static_cast<float>(p.factor * baton::exact::Cos(angle));
  p.sines[token * p.half + pair] = static_cast<float>(p.factor * baton::exact::Sin(angle));
}

extern "C" __global__ void __launch_bounds__(256)
    baton_rope(const __grid_constant__ baton::RopeParams p) {
  baton::BeginKernel();
  const int64_t i = int64_t{blockIdx.y} * blockDim.x + threadIdx.x;
  if (i >= p.heads * p.half) return;
  const int64_t token = blockIdx.x;
  const int64_t head = i / p.half;
  const int64_t pair = i - head * p.half;
  const float cosine = p.cosines[token * p.half + pair];
  const float sine = p.sines[token * p.half + pair];
  const baton::rotary::Pair both(p.x + token * p.stride + head * p.head_dim, pair, p.half,
                                 p.neighbours);
  both.Store(baton::rotary::Rotated(both.Load(), cosine, sine));
}

BATON_KERNEL(baton_rotary_table, baton::RotaryTableParams);
BATON_KERNEL(baton_rope, baton::RopeParams);
