// The first include of every kernel file. It defines the language of kernels
// (docs/decisions/0015-cuda-backend.md).
//
// Under nvcc the language is CUDA. A host build compiles the same files as C++. The header below
// then comes from the emulator (tests/gpu_emulator), which the compiling target has in its include
// path.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/host_device.h"

#ifdef __CUDACC__

// A function that is not inlined, so its registers are separate. For code outside of hot loops.
#define BATON_NOINLINE __noinline__
#define BATON_KERNEL(kernel, Params) \
  static_assert(sizeof(Params) <= 4096, "CUDA passes at most 4 KiB of parameters")

namespace baton {

// The block's dynamic shared memory, aligned to 1024 bytes.
template <typename T>
__device__ __forceinline__ T* SharedMemory() {
  extern __shared__ __align__(1024) unsigned char baton_shared_memory[];
  return reinterpret_cast<T*>(baton_shared_memory);
}

}  // namespace baton

#else
#define BATON_NOINLINE
#include <gpu_emulator/device_language.h>
#endif
