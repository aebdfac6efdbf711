// The integer softmax weight of one token (NUMERICS §9), for code that the host and CUDA kernels
// share. kernels/softmax_weight.h explains it.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>

#include "kernels/host_device.h"
#include "kernels/rounded_arithmetic.h"

namespace baton {

inline constexpr int kSoftmaxWeightBits = 44;
inline constexpr uint64_t kMaxSoftmaxWeight = uint64_t{1} << kSoftmaxWeightBits;
// Keeps sums over a vocabulary within 63 bits.
inline constexpr uint64_t kMaxSoftmaxVocabulary = uint64_t{1} << 19;

namespace internal {

// Computes one weight (double, uint64_t) or several in parallel (vectors of them). Both do the same
// operations and give the same bits.
template <typename Real, typename Bits>
BATON_HOST_DEVICE inline Bits SoftmaxWeightOf(Real exponent) {
  constexpr double kRounder = 0x1.8p52;  // adding it leaves the nearest integer in the low bits
  constexpr double kLn2 = 0x1.62e42fefa39efp-1;
  constexpr double kSmallest = -60;  // far below the smallest exponent with a weight above 0
  const Real smallest = Real{} + kSmallest;
  const Real clamped = exponent > smallest ? exponent : smallest;
  const Real rounded = clamped + kRounder;
  const Real r = (clamped - (rounded - kRounder)) * kLn2;
  Real sum = r * (1.0 / 39916800) + 1.0 / 3628800;
  sum = sum * r + 1.0 / 362880;
  sum = sum * r + 1.0 / 40320;
  sum = sum * r + 1.0 / 5040;
  sum = sum * r + 1.0 / 720;
  sum = sum * r + 1.0 / 120;
  sum = sum * r + 1.0 / 24;
  sum = sum * r + 1.0 / 6;
  sum = sum * r + 0.5;
  sum = sum * r + 1.0;
  sum = sum * r + 1.0;
  // The low bits of `rounded` hold the integer part. Add it to the exponent field.
  const Bits scaled = BitCast<Bits>(sum) + (BitCast<Bits>(rounded) << 52);
  const Real units = BitCast<Real>(scaled) * static_cast<double>(kMaxSoftmaxWeight);
  return BitCast<Bits>(units + 0x1p52) - BitCast<uint64_t>(0x1p52);
}

}  // namespace internal

// 2^exponent in units of 2^-44, rounded to nearest. REQUIRES: `exponent` <= 0 or NaN; -infinity and
// NaN give 0. Uses binary64 without libm: 2^n times the Taylor series of e^(f ln 2) for |f| <= 1/2.
// The first omitted term, of power 12, is below 2^-47.
BATON_HOST_DEVICE inline uint64_t SoftmaxWeight(double exponent) {
  return internal::SoftmaxWeightOf<double, uint64_t>(exponent);
}

// Logarithm to base 2 of a token's probability relative to the best one's, for `scale` from
// ScaleOf.
BATON_HOST_DEVICE inline double SoftmaxExponent(float logit, float best_logit, double scale) {
  return (static_cast<double>(logit) - static_cast<double>(best_logit)) * scale;
}

}  // namespace baton
