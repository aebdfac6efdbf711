// Rounds f32 numbers to operands of a tensor core (NUMERICS_T1 §1 and §4).
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>

#include "kernels/half.h"
#include "kernels/tensor_core/fused_dot.h"

namespace baton {

inline uint16_t HalfOne(HalfType type) { return type == HalfType::kBF16 ? 0x3f80 : 0x3c00; }
// The bits of infinity. All numbers from here on, without their sign, are infinite or NaN.
inline uint16_t HalfInfinity(HalfType type) { return type == HalfType::kBF16 ? 0x7f80 : 0x7c00; }

// Rounds to nearest even. Numbers out of range become the largest finite number of their sign. NaN
// stays NaN. The same as cvt.rn.satfinite.
inline uint16_t RoundToHalf(HalfType type, float x) {
  const uint16_t bits = type == HalfType::kBF16 ? F32ToBF16(x) : F32ToF16(x);
  return (bits & 0x7fff) == HalfInfinity(type) ? static_cast<uint16_t>(bits - 1) : bits;
}

// Returns the stored V for V rounded as in r1: infinities become the largest finite number of their
// sign, NaN becomes +0.
inline uint16_t FiniteHalf(HalfType type, uint16_t bits) {
  const uint16_t magnitude = bits & 0x7fff;
  if (magnitude < HalfInfinity(type)) return bits;
  return magnitude == HalfInfinity(type) ? static_cast<uint16_t>(bits - 1) : 0;
}

}  // namespace baton
