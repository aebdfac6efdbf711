// Chooses the next token from a row of logits.
//
// Order of operations:
// 1. Repetition penalty, then frequency and presence penalty.
// 2. Logit bias.
// 3. End tokens and stop tokens are forbidden until min_tokens.
// 4. At temperature 0: the largest logit. Otherwise: temperature, top_k, top_p of the remaining
//    tokens, min_p, and a draw by inverse distribution over token ids in rising order.
// Equal logits rank by token id, lowest first. Log-probabilities are those of the model's own
// distribution: the log-softmax of the logits before all of these steps.
//
// The result depends on the arguments alone and is equal on every machine, bit for bit. Weights are
// integers (kernels/softmax_weight.h), and the draw is a hash of (seed, sample, position)
// (kernels/philox.h). kernels/token_drawer.h makes the draw. The CPU's Sample op uses it too, so
// both choose the same token.
//
// Thread safety: a Sampler holds scratch memory, so one thread at a time may use it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/sampling_params.h"
#include "common/strong_int.h"
#include "common/token_logprob.h"
#include "kernels/philox.h"
#include "kernels/row_draw.h"
#include "kernels/token_drawer.h"
#include "model/sampler_state.h"
#include "model/token_draw.h"

namespace baton {

struct SampleResult {
  TokenId token = 0;
  std::optional<float> logprob;            // set if params.logprobs is set
  std::vector<TokenLogprob> top_logprobs;  // params.logprobs entries, most likely first
  bool operator==(const SampleResult&) const = default;
};

DrawRule DrawRuleOf(const SamplingParams& params);
// Returns Internal with the reason why a draw from `logits` gave `code`: kDrawNotANumber (names the
// token and its logit) or kDrawNothingAllowed.
absl::Status DrawError(TokenId code, std::span<const float> logits);

class Sampler {
 public:
  // `end_tokens` are the model's own. They are forbidden until min_tokens.
  explicit Sampler(std::vector<TokenId> end_tokens = {}) : end_tokens_(std::move(end_tokens)) {}

  // REQUIRES: params are valid for a vocabulary of logits.size(). Internal: a logit is NaN or
  // +infinity (names the token), or no token is allowed. InvalidArgument: the state or the end
  // tokens contain a token that the logits do not have.
  absl::StatusOr<SampleResult> Sample(std::span<const float> logits, const SamplingParams& params,
                                      const SamplerState& state, const DrawKey& key);
  // Returns the token that Sample gives for the same settings without penalties. Same errors.
  absl::StatusOr<TokenId> Draw(std::span<const float> logits, const TokenDraw& draw);
  // Returns the log-probabilities that Sample would return: that of `token`, and the `count` most
  // likely ones. Same errors. REQUIRES: `token` is in the vocabulary of the logits.
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
