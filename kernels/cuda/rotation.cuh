// Rotates the pairs of a head's row (NUMERICS §6).
//
// Thread safety: a pair belongs to one thread.
#pragma once

#include "kernels/cuda/device_code.cuh"
#include "kernels/rounded_arithmetic.h"

namespace baton::rotary {

// One pair of a row in memory. Neighbours at an even address are one access.
class Pair {
 public:
  __device__ __forceinline__ Pair(float* row, int64_t pair, int64_t half, bool neighbours)
      : first_(row + (neighbours ? 2 * pair : pair)),
        second_(first_ + (neighbours ? 1 : half)),
        joined_(neighbours && reinterpret_cast<uintptr_t>(first_) % sizeof(float2) == 0) {}

  __device__ __forceinline__ float2 Load() const {
    if (joined_) return *reinterpret_cast<const float2*>(first_);
    return make_float2(*first_, *second_);
  }
  __device__ __forceinline__ void Store(float2 both) const {
    if (joined_) {
      *reinterpret_cast<float2*>(first_) = both;
    } else {
      *first_ = both.x;
      *second_ = both.y;
    }
  }

 private:
  float* const first_;
  float* const second_;
  const bool joined_;
};

__device__ __forceinline__ float2 Rotated(float2 both, float cosine, float sine) {
  return make_float2(r1::Fma(both.x, cosine, -r1::Multiply(both.y, sine)),
                     r1::Fma(both.x, sine, r1::Multiply(both.y, cosine)));
}

}  // namespace baton::rotary
