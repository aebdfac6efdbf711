// Chooses the next token from a row of logits.
//
// Order of operations: repetition penalty, frequency and presence penalty, logit bias, end tokens
// held back until min_tokens → (temperature 0: the largest logit) → temperature → top_k → top_p
// of what is left → min_p → draw by inverse distribution over token ids in rising order. Equal
// logits rank by token id, lowest first. Log-probabilities are of the model's own distribution: the
// log-softmax of the logits as they came, before any of these steps.
//
// The result is a function of the arguments alone, bit for bit the same on every machine: weights
// are integers (kernels/softmax_weight.h), the draw is a hash of (seed, sample, position)
// (kernels/philox.h). The draw itself is kernels/token_drawer.h, which the Sample op of the CPU
// uses too: so both choose the same token.
//
// Thread safety: a Sampler holds scratch memory; one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/strong_int.h"
#include "kernels/philox.h"
#include "kernels/row_draw.h"
#include "kernels/token_drawer.h"
#include "model/sampler_state.h"
#include "model/sampling_params.h"
#include "model/token_draw.h"

namespace baton {

struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0;  // natural logarithm
  bool operator==(const TokenLogprob&) const = default;
};

struct SampleResult {
  TokenId token = 0;
  std::optional<float> logprob;            // when params.logprobs is set
  std::vector<TokenLogprob> top_logprobs;  // params.logprobs of them, most likely first
  bool operator==(const SampleResult&) const = default;
};

DrawRule DrawRuleOf(const SamplingParams& params);
// Internal: why a draw from `logits` yielded the code kDrawNotANumber, with the token and its
// logit, or kDrawNothingAllowed.
absl::Status DrawError(TokenId code, std::span<const float> logits);

class Sampler {
 public:
  // `end_tokens`: the model's own, held back by min_tokens.
  explicit Sampler(std::vector<TokenId> end_tokens = {}) : end_tokens_(std::move(end_tokens)) {}

  // REQUIRES: params are valid for a vocabulary of logits.size(). Internal when the logits hold a
  // NaN or +infinity (named by token), or allow no token; InvalidArgument when the state or the end
  // tokens hold a token that the logits do not have.
  absl::StatusOr<SampleResult> Sample(std::span<const float> logits, const SamplingParams& params,
                                      const SamplerState& state, const DrawKey& key);
  // The token that Sample gives for the same settings where no penalty is set; errors as there.
  absl::StatusOr<TokenId> Draw(std::span<const float> logits, const TokenDraw& draw);
  // What Sample tells beside the token when log-probabilities are asked for: that of `token`, and
  // the `count` most likely ones. Errors as there. REQUIRES: the logits have `token`.
  absl::StatusOr<SampleResult> Logprobs(std::span<const float> logits, TokenId token,
                                        int32_t count);

 private:
  absl::StatusOr<RankedToken> FindBest(std::span<const float> logits);
  absl::StatusOr<std::span<const float>> Adjust(std::span<const float> logits,
                                                const SamplingParams& params,
                                                const SamplerState& state);
  absl::StatusOr<std::span<const float>> Add(std::span<const float> logits,
                                             std::span<const LogitAddition> additions);
  void FillLogprobs(std::span<const float> logits, float best_logit, int32_t count,
                    SampleResult& result);

  const std::vector<TokenId> end_tokens_;
  TokenDrawer drawer_;
  std::vector<float> adjusted_;
  std::vector<RankedToken> top_;
};

}  // namespace baton
