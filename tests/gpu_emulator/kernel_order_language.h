// The functions of kernels/cuda/kernel_order.cuh for kernels that are compiled as host C++.
#pragma once

#include "tests/gpu_emulator/device_language.h"
#include "tests/gpu_emulator/early_kernels.h"

namespace baton {

inline void LetNextKernelBegin() {}
inline void WaitForEarlierKernels(BATON_PLACE) { gpu_emulator::WaitForEarlier(place); }
inline void PrefetchConstant(const void* global, unsigned bytes, BATON_PLACE) {
  gpu_emulator::Prefetch(global, bytes, place);
}
inline void BeginKernel(BATON_PLACE) { gpu_emulator::WaitForEarlier(place); }

}  // namespace baton
