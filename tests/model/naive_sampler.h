// Naive sampler: follows the definition in model/sampler.h step by step, to test the real sampler.
#pragma once

#include <limits>
#include <random>
#include <span>
#include <vector>

#include "model/sampler.h"
#include "tests/kernels/naive_draw.h"

namespace baton {

inline std::vector<float> NormalLogits(std::mt19937_64& random, size_t size, float spread) {
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> logits(size);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

inline TokenId NaiveSample(std::vector<float> logits, const SamplingParams& params,
                           const SamplerState& state, std::span<const TokenId> end_tokens,
                           const DrawKey& key) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
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
  return NaiveDraw(logits, DrawRuleOf(params), key);
}

}  // namespace baton
