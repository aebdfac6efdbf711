// Naive implementation of a draw as defined in kernels/NUMERICS.md §9, with full sorts and no
// shortcuts. Tests compare TokenDrawer and the Sample op with it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "kernels/exact_math.h"
#include "kernels/row_draw.h"
#include "kernels/softmax_weight.h"

namespace baton {

inline TokenId NaiveDraw(std::span<const float> logits, const DrawRule& rule, const DrawKey& key) {
  constexpr double kLog2E = 0x1.71547652b82fep0;
  if (!std::all_of(logits.begin(), logits.end(),
                   [](float logit) { return logit <= std::numeric_limits<float>::max(); })) {
    return kDrawNotANumber;
  }
  std::vector<TokenId> ranked(logits.size());
  std::iota(ranked.begin(), ranked.end(), 0);
  std::stable_sort(ranked.begin(), ranked.end(),
                   [&](TokenId a, TokenId b) { return logits[a] > logits[b]; });
  const float best = logits[ranked[0]];
  if (std::isinf(best)) return kDrawNothingAllowed;
  if (rule.temperature == 0) return ranked[0];
  const auto exponent = [&](TokenId token) {
    return SoftmaxExponent(logits[token], best, kLog2E / static_cast<double>(rule.temperature));
  };
  if (rule.top_k > 0 && rule.top_k < static_cast<int32_t>(ranked.size())) {
    ranked.resize(rule.top_k);
  }
  uint64_t total = 0;
  for (const TokenId token : ranked) total += SoftmaxWeight(exponent(token));
  if (rule.top_p < 1) {
    const double needed = static_cast<double>(rule.top_p) * static_cast<double>(total);
    uint64_t sum = 0;
    size_t kept = 0;
    while (kept < ranked.size() && static_cast<double>(sum) < needed) {
      sum += SoftmaxWeight(exponent(ranked[kept++]));
    }
    ranked.resize(kept);
  }
  if (rule.min_p > 0) {
    std::erase_if(ranked,
                  [&](TokenId token) { return exponent(token) < ExactLog(rule.min_p) * kLog2E; });
  }
  std::sort(ranked.begin(), ranked.end());
  uint64_t kept_total = 0;
  for (const TokenId token : ranked) kept_total += SoftmaxWeight(exponent(token));
  __extension__ using Wide = unsigned __int128;
  const auto target = static_cast<uint64_t>(static_cast<Wide>(RandomBits(key)) * kept_total >> 64);
  uint64_t sum = 0;
  for (const TokenId token : ranked) {
    sum += SoftmaxWeight(exponent(token));
    if (sum > target) return token;
  }
  return kDrawSkipped;  // unreachable: the best token has a weight
}

inline DrawRule RandomDrawRule(std::mt19937_64& random) {
  const auto pick = [&](std::vector<float> choices) { return choices[random() % choices.size()]; };
  return {.temperature = pick({0, 0.01f, 0.7f, 1, 1, 2, 100}),
          .top_k = static_cast<int32_t>(pick({0, 0, 0, 1, 2, 40, 300, 100000})),
          .top_p = pick({1, 1, 1, 0.95f, 0.5f, 0.999f, 1e-6f}),
          .min_p = pick({0, 0, 0, 0.05f, 0.5f, 1})};
}

// Sometimes has many ties, forbidden tokens, a NaN or an infinity.
inline std::vector<float> RandomLogits(std::mt19937_64& random, size_t vocabulary) {
  std::normal_distribution<float> normal(0, static_cast<float>(random() % 8) + 0.5f);
  std::vector<float> logits(vocabulary);
  for (float& logit : logits) logit = normal(random);
  if (random() % 3 == 0) {
    for (float& logit : logits) logit = std::round(logit);
  }
  for (uint64_t i = random() % 4; i > 0; --i) {
    logits[random() % vocabulary] = -std::numeric_limits<float>::infinity();
  }
  if (random() % 20 == 0) {
    logits[random() % vocabulary] = random() % 2 == 0 ? std::numeric_limits<float>::infinity()
                                                      : std::numeric_limits<float>::quiet_NaN();
  }
  if (random() % 50 == 0) {
    std::fill(logits.begin(), logits.end(), -std::numeric_limits<float>::infinity());
  }
  return logits;
}

}  // namespace baton
