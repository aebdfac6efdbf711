// Integer softmax: the unnormalised probability of a token, in units of 2^-44 of the most likely
// token's.
//
// Integer sums are exact in any order. So a scan by token id, by rank or in parts finds the same
// cut-offs and the same token on every machine.
//
// The cost is precision. Tokens below 2^-45 of the most likely one get weight 0. They lose together
// less than 2^-45 of its weight per vocabulary token (below 2e-9 in all for 49,152 tokens).
//
// Thread safety: pure functions.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace baton {

inline constexpr int kSoftmaxWeightBits = 44;
inline constexpr uint64_t kMaxSoftmaxWeight = uint64_t{1} << kSoftmaxWeightBits;
// Keeps sums over a vocabulary within 63 bits.
inline constexpr uint64_t kMaxSoftmaxVocabulary = uint64_t{1} << 19;

namespace internal {

// Computes one weight (double, uint64_t) or several in parallel (vectors of them). Both do the same
// operations and give the same bits.
template <typename Real, typename Bits>
inline Bits SoftmaxWeightOf(Real exponent) {
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
  const Bits scaled = std::bit_cast<Bits>(sum) + (std::bit_cast<Bits>(rounded) << 52);
  const Real units = std::bit_cast<Real>(scaled) * static_cast<double>(kMaxSoftmaxWeight);
  return std::bit_cast<Bits>(units + 0x1p52) - std::bit_cast<uint64_t>(0x1p52);
}

using RealPair = double __attribute__((vector_size(16)));
using BitsPair = uint64_t __attribute__((vector_size(16)));

}  // namespace internal

// 2^exponent in units of 2^-44, rounded to nearest. REQUIRES: `exponent` <= 0 or NaN; -infinity and
// NaN give 0. Uses binary64 without libm: 2^n times the Taylor series of e^(f ln 2) for |f| <= 1/2.
// The first omitted term, of power 12, is below 2^-47.
inline uint64_t SoftmaxWeight(double exponent) {
  return internal::SoftmaxWeightOf<double, uint64_t>(exponent);
}

// Logarithm to base 2 of a token's probability relative to the best one's, for `scale` from
// ScaleOf.
inline double SoftmaxExponent(float logit, float best_logit, double scale) {
  return (static_cast<double>(logit) - static_cast<double>(best_logit)) * scale;
}

// Returns the sum of the weights of `logits`.
inline uint64_t SumSoftmaxWeights(std::span<const float> logits, float best_logit, double scale) {
  constexpr size_t kPairs = 4;  // independent dependency chains hide latency
  internal::BitsPair sums[kPairs] = {};
  size_t i = 0;
  for (; i + 2 * kPairs <= logits.size(); i += 2 * kPairs) {
    for (size_t pair = 0; pair < kPairs; ++pair) {
      const float* from = &logits[i + 2 * pair];
      const internal::RealPair exponents = {SoftmaxExponent(from[0], best_logit, scale),
                                            SoftmaxExponent(from[1], best_logit, scale)};
      sums[pair] += internal::SoftmaxWeightOf<internal::RealPair, internal::BitsPair>(exponents);
    }
  }
  uint64_t total = 0;
  for (const internal::BitsPair& sum : sums) total += sum[0] + sum[1];
  for (; i < logits.size(); ++i) {
    total += SoftmaxWeight(SoftmaxExponent(logits[i], best_logit, scale));
  }
  return total;
}

}  // namespace baton
