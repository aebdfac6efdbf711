// Softmax weights of t1: 2^(z·factor − reference), by a cubic (NUMERICS_T1 §5, "Weight").
//
// Thread safety: pure functions. std::fma rounds once even on a processor without fma.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/numerics.h"

namespace baton {

// Turns a score into a power of two's exponent.
struct ScoreScale {
  float factor;
  float inverse;  // 1 / factor
};

// `reference` is an integer of magnitude below 2^21. The result is positive for every z, NaN
// included, and at most about 2^(largest z·factor − reference).
inline float Exp2Weight(float z, const ScoreScale& scale, float reference) {
  const float floor = (reference - kT1Floor) * scale.inverse;
  const float score = z > floor ? z : floor;
  const float shift = 12582912.0f - reference;  // 1.5 · 2^23 − reference: t's last bit is 1
  const float t = std::fma(score, scale.factor, shift);
  const float fraction = std::fma(score, scale.factor, -(t - shift));
  float p = std::fma(0.05517166852951050f, fraction, 0.2426111251115799f);
  p = std::fma(p, fraction, 0.6932609677314758f);
  p = std::fma(p, fraction, 0.9999280571937561f);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(p) + (std::bit_cast<uint32_t>(t) << 23));
}

// 2^k for k <= 0; 0 below the normal numbers, and for NaN. REQUIRES: `k` is an integer, −inf or
// NaN.
inline float PowerOfTwo(float k) {
  if (!(k >= -126.0f)) return 0.0f;
  return std::bit_cast<float>(static_cast<uint32_t>(127 + static_cast<int>(k)) << 23);
}

}  // namespace baton
