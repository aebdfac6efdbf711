// Converts f16 and bf16 bit patterns to f32 and back, in software. Widening is exact; narrowing
// rounds to nearest even.
//
// Results equal those of VCVTPH2PS and VCVTPS2PH: subnormals are kept, and NaN becomes quiet with
// its upper payload bits kept.
//
// Host code and CUDA kernels share them.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>

#include "kernels/host_device.h"
#include "kernels/rounded_arithmetic.h"

namespace baton {

BATON_HOST_DEVICE inline float F16ToF32(uint16_t h) {
  const uint32_t sign = uint32_t{h & 0x8000u} << 16;
  const uint32_t exponent = (h >> 10) & 0x1f;
  const uint32_t mantissa = h & 0x3ff;
  if (exponent == 0x1f) {
    return BitCast<float>(sign | 0x7f800000u | (mantissa << 13) | (mantissa != 0 ? 0x400000u : 0u));
  }
  if (exponent != 0) return BitCast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;  // exact
  return BitCast<float>(sign | BitCast<uint32_t>(magnitude));
}

BATON_HOST_DEVICE inline uint16_t F32ToF16(float value) {
  const uint32_t bits = BitCast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  }
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // rounds to infinity
  if (magnitude < 0x38800000u) {  // subnormal in f16: the addition rounds at 2^-24
    const float shifted = BitCast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (BitCast<uint32_t>(shifted) - 0x3f000000u));
  }
  const uint32_t odd = (magnitude >> 13) & 1;
  return static_cast<uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13));
}

BATON_HOST_DEVICE inline float BF16ToF32(uint16_t b) { return BitCast<float>(uint32_t{b} << 16); }

BATON_HOST_DEVICE inline uint16_t F32ToBF16(float value) {
  const uint32_t bits = BitCast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

}  // namespace baton
