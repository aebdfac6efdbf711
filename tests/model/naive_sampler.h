// The definition of model/sampler.h, step by step, with whole sorts and no shortcut: what the
// sampler is tested against.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "kernels/exact_math.h"
#include "model/sampler.h"
#include "model/softmax_weight.h"

namespace baton {

inline TokenId NaiveSample(std::vector<float> logits, const SamplingParams& params,
                           const SamplerState& state, std::span<const TokenId> end_tokens,
                           const DrawKey& key) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr double kLog2E = 0x1.71547652b82fep0;
  for (const auto& [token, count] : state.counts()) {
    float& logit = logits[token];
    if (params.repetition_penalty != 1) {
      logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    }
    logit -= static_cast<float>(count.generated) * params.frequency_penalty;
    if (count.generated > 0) logit -= params.presence_penalty;
  }
  for (const auto& [token, bias] : params.logit_bias) logits[token] += bias;
  if (state.generated() < params.min_tokens) {
    for (const TokenId token : end_tokens) logits[token] = -kInfinity;
    for (const TokenId token : params.stop_token_ids) logits[token] = -kInfinity;
  }
  std::vector<TokenId> ranked(logits.size());
  std::iota(ranked.begin(), ranked.end(), 0);
  std::stable_sort(ranked.begin(), ranked.end(),
                   [&](TokenId a, TokenId b) { return logits[a] > logits[b]; });
  if (params.temperature == 0) return ranked[0];
  const float best = logits[ranked[0]];
  const auto exponent = [&](TokenId token) {
    return SoftmaxExponent(logits[token], best, kLog2E / static_cast<double>(params.temperature));
  };
  if (params.top_k > 0 && params.top_k < static_cast<int32_t>(ranked.size())) {
    ranked.resize(params.top_k);
  }
  uint64_t total = 0;
  for (const TokenId token : ranked) total += SoftmaxWeight(exponent(token));
  if (params.top_p < 1) {
    const double needed = static_cast<double>(params.top_p) * static_cast<double>(total);
    uint64_t sum = 0;
    size_t kept = 0;
    while (kept < ranked.size() && static_cast<double>(sum) < needed) {
      sum += SoftmaxWeight(exponent(ranked[kept++]));
    }
    ranked.resize(kept);
  }
  if (params.min_p > 0) {
    std::erase_if(ranked,
                  [&](TokenId token) { return exponent(token) < ExactLog(params.min_p) * kLog2E; });
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
  return -1;
}

}  // namespace baton
