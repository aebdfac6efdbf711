// Converts e4m3 bytes, the numbers of fp8 pools, to f32 and back, in software (NUMERICS §7).
//
// A byte has a sign, four exponent bits with a bias of 7, and three mantissa bits. It stands for
// ±2^(e−7) · 1.m, or ±2^-6 · 0.m if e is 0. There are no infinities. 0x7f and 0xff, which are NaN
// in the OCP's format, are ±480 here. No write makes them.
//
// Host code and CUDA kernels share them. The exponent field moves to its place in f32, and a
// product with a power of two corrects the bias, for subnormals too. So the same code serves GPUs
// without instructions for fp8.
//
// Thread safety: pure functions.
#pragma once

#include <cfloat>
#include <cstdint>

#include "kernels/host_device.h"
#include "kernels/rounded_arithmetic.h"

namespace baton {

inline constexpr float kFp8Largest = 448.0f;           // that a write makes
inline constexpr uint32_t kFp8NanScale = 0x7fc00000u;  // scale of a row that is not finite

BATON_HOST_DEVICE inline float Fp8ToF32(uint8_t byte) {
  const uint32_t bits = uint32_t{byte & 0x80u} << 24 | uint32_t{byte & 0x7fu} << 20;
  return r1::Multiply(BitCast<float>(bits), 0x1p120f);  // exact
}

// Rounds to nearest, ties to even. Numbers out of range become ±448. REQUIRES: `value` is finite.
BATON_HOST_DEVICE inline uint8_t F32ToFp8(float value) {
  const uint32_t bits = BitCast<uint32_t>(value);
  const uint32_t sign = bits >> 24 & 0x80u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t byte;
  if (magnitude < 0x3c800000u) {  // below 2^-6, so subnormal: the addition rounds at 2^-9
    byte = BitCast<uint32_t>(r1::Add(BitCast<float>(magnitude), 16384.0f)) - 0x46800000u;
  } else {
    const uint32_t odd = magnitude >> 20 & 1;
    byte = ((magnitude + 0x7ffffu + odd) >> 20) - (120u << 3);
    byte = byte < 0x7eu ? byte : 0x7eu;
  }
  return static_cast<uint8_t>(sign | byte);
}

// Returns the factor that maps numbers of magnitude up to `amax` to e4m3. It is finite, so that
// zeros stay zeros. REQUIRES: `amax` is finite and not negative.
BATON_HOST_DEVICE inline float Fp8Inverse(float amax) {
  if (!(amax > 0)) return 0;
  const float inverse = r1::Divide(kFp8Largest, amax);
  return inverse < FLT_MAX ? inverse : FLT_MAX;
}

}  // namespace baton
