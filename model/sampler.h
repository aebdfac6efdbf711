// Chooses the next token from a row of logits.
//
// Order of operations: repetition penalty, frequency and presence penalty, logit bias, end tokens
// held back until min_tokens → (temperature 0: the largest logit) → temperature → top_k → top_p
// of what is left → min_p → draw by inverse distribution over token ids in rising order. Equal
// logits rank by token id, lowest first. Log-probabilities are of the model's own distribution: the
// log-softmax of the logits as they came, before any of these steps.
//
// The result is a function of the arguments alone, bit for bit the same on every machine: weights
// are integers (softmax_weight.h), the draw is a hash of (seed, sample, position) (philox.h).
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
#include "common/sampling_params.h"
#include "common/strong_int.h"
#include "model/philox.h"
#include "model/sampler_state.h"

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

class Sampler {
 public:
  // `end_tokens`: the model's own, held back by min_tokens.
  explicit Sampler(std::vector<TokenId> end_tokens = {}) : end_tokens_(std::move(end_tokens)) {}

  // REQUIRES: params are valid for a vocabulary of logits.size(). Internal when the logits hold a
  // NaN or +infinity (named by token), or allow no token; InvalidArgument when the state or the end
  // tokens hold a token that the logits do not have.
  absl::StatusOr<SampleResult> Sample(std::span<const float> logits, const SamplingParams& params,
                                      const SamplerState& state, const DrawKey& key);

 private:
  struct Candidate {
    float logit;
    TokenId token;
  };
  // Softmax of (logit - best_logit) * scale, a power of two.
  struct Distribution {
    float best_logit;
    double scale;
    uint64_t total;  // weight of the tokens that top_p counts
  };

  static bool Outranks(const Candidate& a, const Candidate& b);
  static absl::StatusOr<Candidate> FindBest(std::span<const float> logits);
  absl::StatusOr<std::span<const float>> Adjust(std::span<const float> logits,
                                                const SamplingParams& params,
                                                const SamplerState& state);
  TokenId Draw(std::span<const float> logits, const SamplingParams& params, float best_logit,
               uint64_t random);
  void FillLogprobs(std::span<const float> logits, float best_logit, int32_t count,
                    SampleResult& result);

  static double ExponentIn(const Distribution& all, float logit);
  static uint64_t WeightIn(const Distribution& all, float logit);
  static double LeastExponentOf(float top_p, std::span<const float> logits,
                                const Distribution& all);
  // Sets all.total and chunk_weights_ to sums over all tokens.
  void SumWeights(std::span<const float> logits, Distribution& all);
  // Fills candidates_ with the first `count` by rank, in no order.
  void SelectTop(std::span<const float> logits, size_t count);
  // Fills candidates_ with every token of at least this exponent, by id.
  void SelectFrom(std::span<const float> logits, const Distribution& all, double least_exponent);
  // Cuts candidates_ to the fewest by rank that hold this share of the total; by id.
  void KeepTopP(const Distribution& all, float top_p);
  TokenId DrawFromAll(std::span<const float> logits, const Distribution& all,
                      uint64_t random) const;
  TokenId DrawFromCandidates(const Distribution& all, uint64_t random) const;

  const std::vector<TokenId> end_tokens_;
  std::vector<float> adjusted_;
  std::vector<uint64_t> chunk_weights_;
  std::vector<Candidate> candidates_;
  std::vector<Candidate> ranked_;
};

}  // namespace baton
