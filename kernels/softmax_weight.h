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

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/softmax_weight_formula.h"

namespace baton {

namespace internal {

using RealPair = double __attribute__((vector_size(16)));
using BitsPair = uint64_t __attribute__((vector_size(16)));

}  // namespace internal

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
