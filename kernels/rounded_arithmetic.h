// Binary32 operations that round to nearest even, for code that host and CUDA kernels share
// (kernels/NUMERICS.md).
//
// On a device each call is the instruction with that rounding. Of the compiler's options, only -ftz
// would change it; the build sets -ftz=false. On the host it is the plain operator. The build
// forbids contraction there.
//
// Subnormals are kept on both. A NaN result is quiet. A device gives 0x7fffffff for it, a CPU keeps
// the payload of its operand.
//
// Thread safety: pure functions.
#pragma once

#include <cmath>
#include <cstring>

#include "kernels/host_device.h"

namespace baton {

// std::bit_cast for the C++17 of the device compiler.
template <typename To, typename From>
BATON_HOST_DEVICE inline To BitCast(const From& from) {
  static_assert(sizeof(To) == sizeof(From), "a bit cast keeps the size");
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

namespace r1 {

BATON_HOST_DEVICE inline float Add(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fadd_rn(a, b);
#else
  return a + b;
#endif
}

BATON_HOST_DEVICE inline float Subtract(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fsub_rn(a, b);
#else
  return a - b;
#endif
}

BATON_HOST_DEVICE inline float Multiply(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

BATON_HOST_DEVICE inline float Divide(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fdiv_rn(a, b);
#else
  return a / b;
#endif
}

BATON_HOST_DEVICE inline float SquareRoot(float x) {
#ifdef __CUDA_ARCH__
  return __fsqrt_rn(x);
#else
  return std::sqrt(x);
#endif
}

// a·b + c, rounded once.
BATON_HOST_DEVICE inline float Fma(float a, float b, float c) {
#ifdef __CUDA_ARCH__
  return __fmaf_rn(a, b, c);
#else
  return std::fma(a, b, c);
#endif
}

}  // namespace r1
}  // namespace baton
