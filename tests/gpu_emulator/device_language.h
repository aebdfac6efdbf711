// The CUDA language for kernels that are compiled as host C++. kernels/cuda/device_code.cuh
// includes it in such builds. Names and meanings are those of CUDA (CUDA C++ Programming Guide;
// CUDA Math API).
//
// Every call that waits passes its line of the source to the emulator, so that messages can name
// the line.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "tests/gpu_emulator/device_arithmetic.h"
#include "tests/gpu_emulator/kernel_registry.h"
#include "tests/gpu_emulator/source_place.h"
#include "tests/gpu_emulator/vector_types.h"
#include "tests/gpu_emulator/warp_operations.h"

#define __global__ __attribute__((noinline))  // for the stacks in reports of sanitizers
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)  // launch_bounds.py reads them
#define __grid_constant__
#define __align__(bytes) __attribute__((aligned(bytes)))

#define BATON_KERNEL(kernel, Params)                                                \
  static const ::baton::gpu_emulator::KernelRegistration kernel##_registration(     \
      {#kernel, sizeof(Params), &::baton::gpu_emulator::RunKernel<Params, &kernel>, \
       BATON_LAUNCH_BOUND_##kernel, &::baton::gpu_emulator::ClearPadding<Params>})

// Default argument that names the caller's line.
#define BATON_PLACE \
  ::baton::gpu_emulator::SourcePlace place = ::baton::gpu_emulator::SourcePlace::Current()

// A call whose accesses ThreadSanitizer must attribute to the kernel's line. It knows the line only
// if an instrumented function of its own stands between the kernel and the emulator.
#if defined(__SANITIZE_THREAD__)
#define BATON_MEMORY_CALL __attribute__((noinline)) inline
#else
#define BATON_MEMORY_CALL inline
#endif

inline constexpr int warpSize = 32;

namespace baton {

template <typename T>
T* SharedMemory() {
  return static_cast<T*>(gpu_emulator::SharedBase());
}

namespace gpu_emulator {

// Moves a value of 32 or 64 bits.
template <typename T>
T ShuffleOf(Shuffle kind, unsigned mask, T value, unsigned argument, int width, SourcePlace place) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "a shuffle moves 32 or 64 bits");
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = ShuffleValue(kind, mask, bits, argument, width, place);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

}  // namespace gpu_emulator
}  // namespace baton

// ---- waiting for other threads ---------------------------------------------------------------

inline void __syncthreads(BATON_PLACE) { baton::gpu_emulator::SyncBlock(place); }
inline void __syncwarp(unsigned mask = 0xffffffff, BATON_PLACE) {
  baton::gpu_emulator::SyncWarp(mask, place);
}
inline void __threadfence_block(BATON_PLACE) {
  baton::gpu_emulator::Fence(baton::gpu_emulator::FenceScope::kBlock, place);
}
inline void __threadfence(BATON_PLACE) {
  baton::gpu_emulator::Fence(baton::gpu_emulator::FenceScope::kDevice, place);
}
inline void __threadfence_system(BATON_PLACE) {
  baton::gpu_emulator::Fence(baton::gpu_emulator::FenceScope::kDevice, place);
}
inline void __nanosleep(unsigned, BATON_PLACE) { baton::gpu_emulator::Sleep(place); }
inline void __trap(BATON_PLACE) { baton::gpu_emulator::Trap(place); }

// ---- values between lanes --------------------------------------------------------------------

template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = warpSize, BATON_PLACE) {
  return ShuffleOf(baton::gpu_emulator::Shuffle::kFrom, mask, value, source, width, place);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = warpSize, BATON_PLACE) {
  return ShuffleOf(baton::gpu_emulator::Shuffle::kUp, mask, value, distance, width, place);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = warpSize, BATON_PLACE) {
  return ShuffleOf(baton::gpu_emulator::Shuffle::kDown, mask, value, distance, width, place);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = warpSize, BATON_PLACE) {
  return ShuffleOf(baton::gpu_emulator::Shuffle::kXor, mask, value, lane_mask, width, place);
}
inline unsigned __ballot_sync(unsigned mask, int value, BATON_PLACE) {
  return baton::gpu_emulator::Vote(mask, value != 0, place).ballot;
}
inline int __any_sync(unsigned mask, int value, BATON_PLACE) {
  return baton::gpu_emulator::Vote(mask, value != 0, place).any;
}
inline int __all_sync(unsigned mask, int value, BATON_PLACE) {
  return baton::gpu_emulator::Vote(mask, value != 0, place).all;
}
inline unsigned __reduce_add_sync(unsigned mask, unsigned value, BATON_PLACE) {
  return Reduce(baton::gpu_emulator::Reduction::kAdd, mask, value, place);
}
inline int __reduce_add_sync(unsigned mask, int value, BATON_PLACE) {
  return int(Reduce(baton::gpu_emulator::Reduction::kAdd, mask, unsigned(value), place));
}
inline unsigned __reduce_min_sync(unsigned mask, unsigned value, BATON_PLACE) {
  return Reduce(baton::gpu_emulator::Reduction::kMin, mask, value, place);
}
inline int __reduce_min_sync(unsigned mask, int value, BATON_PLACE) {
  return int(Reduce(baton::gpu_emulator::Reduction::kMinSigned, mask, unsigned(value), place));
}
inline unsigned __reduce_max_sync(unsigned mask, unsigned value, BATON_PLACE) {
  return Reduce(baton::gpu_emulator::Reduction::kMax, mask, value, place);
}
inline int __reduce_max_sync(unsigned mask, int value, BATON_PLACE) {
  return int(Reduce(baton::gpu_emulator::Reduction::kMaxSigned, mask, unsigned(value), place));
}
inline unsigned __reduce_and_sync(unsigned mask, unsigned value, BATON_PLACE) {
  return Reduce(baton::gpu_emulator::Reduction::kAnd, mask, value, place);
}
inline unsigned __reduce_or_sync(unsigned mask, unsigned value, BATON_PLACE) {
  return Reduce(baton::gpu_emulator::Reduction::kOr, mask, value, place);
}
inline unsigned __reduce_xor_sync(unsigned mask, unsigned value, BATON_PLACE) {
  return Reduce(baton::gpu_emulator::Reduction::kXor, mask, value, place);
}

#include "tests/gpu_emulator/device_atomics.h"
