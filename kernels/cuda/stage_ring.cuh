// A thread's position in a ring of stages in shared memory. Each stage has a barrier for "full",
// and may have one for "empty" (kernels/cuda/hopper.cuh).
#pragma once

#include "kernels/cuda/device_code.cuh"

namespace baton {

template <int kStages>
struct StageRing {
  int slot = 0;
  unsigned phase = 0;  // parity of the phase of `full` that fills the slot

  __device__ __forceinline__ void Next() {
    if (++slot < kStages) return;
    slot = 0;
    phase ^= 1;
  }
  // The slot `stages` stages after this one. REQUIRES: 0 <= stages < kStages.
  __device__ __forceinline__ int After(int stages) const {
    return slot + stages < kStages ? slot + stages : slot + stages - kStages;
  }
};

}  // namespace baton
