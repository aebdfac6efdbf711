// When a kernel begins, and when it may touch device memory (decision 59).
//
// On compute capability 9.0, a kernel may begin while kernels ahead of it in the stream
// still run ("programmatic dependent launch"). Its blocks take free room on the multiprocessors as
// soon as every block of the kernel ahead has called LetNextKernelBegin or has ended.
//
// Rules for every kernel:
// - Before WaitForEarlierKernels, a thread may set up shared memory, and it may read constants:
//   parameters, and weights by LoadConstantBulk (hopper.cuh) or PrefetchConstant. It does not read
//   other device memory, and writes none: a kernel ahead may still read or write it.
// - After it, __ldg reads constants only. Other memory was written while the kernel had begun, and
//   the read-only cache need not notice.
// - Every thread calls WaitForEarlierKernels. A kernel then ends only after those ahead of it. So a
//   wait for the kernel ahead is a wait for all kernels ahead.
// - LetNextKernelBegin comes first. Blocks that wait take only room that the kernel ahead cannot
//   use any more, because all of its blocks have begun. So no block waits for room that a waiting
//   block holds.
// - Kernels without preparations call BeginKernel first.
//
// The emulator checks the first two rules (tests/gpu_emulator/early_kernels.h), and
// scripts/early_accesses.py looks for accesses before the wait in nvcc's machine code.
#pragma once

#include "kernels/cuda/device_code.cuh"

#ifdef __CUDACC__

namespace baton {

__device__ __forceinline__ void LetNextKernelBegin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Waits until all kernels ahead have ended, and makes visible what they wrote. nvcc moves no access
// to memory across it.
__device__ __forceinline__ void WaitForEarlierKernels() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Starts to bring constants into the second-level cache. The address and `bytes` are multiples of
// 16.
__device__ __forceinline__ void PrefetchConstant(const void* global, unsigned bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0],%1;" ::"l"(global), "r"(bytes));
#endif
}

__device__ __forceinline__ void BeginKernel() {
  LetNextKernelBegin();
  WaitForEarlierKernels();
}

}  // namespace baton

#else
#include <gpu_emulator/kernel_order_language.h>
#endif
