// Clocks of a GPU, for the kernels of benchmarks. On the emulator both are the host's clock.
#pragma once

#include "kernels/cuda/device_code.cuh"

#ifndef __CUDACC__
#include <chrono>
#endif

namespace baton {

#ifdef __CUDACC__
// Clock cycles of the calling multiprocessor.
__device__ __forceinline__ uint64_t Clocks() {
  uint64_t clocks;
  asm volatile("mov.u64 %0,%%clock64;" : "=l"(clocks)::"memory");
  return clocks;
}
// Nanoseconds, the same on all multiprocessors. Many GPUs advance it in larger steps.
__device__ __forceinline__ uint64_t Nanoseconds() {
  uint64_t time;
  asm volatile("mov.u64 %0,%%globaltimer;" : "=l"(time)::"memory");
  return time;
}
// Loads past the first-level cache.
__device__ __forceinline__ uint4 LoadFromL2(const uint4* address) {
  uint4 loaded;
  asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3},[%4];"
               : "=r"(loaded.x), "=r"(loaded.y), "=r"(loaded.z), "=r"(loaded.w)
               : "l"(address)
               : "memory");
  return loaded;
}
#else
inline uint64_t Nanoseconds() {
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}
inline uint64_t Clocks() { return Nanoseconds(); }
inline uint4 LoadFromL2(const uint4* address) { return *address; }
#endif

}  // namespace baton
