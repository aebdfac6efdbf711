#include "model/sampler.h"

#include <algorithm>
#include <limits>

#include "common/status_macros.h"
#include "common/str_cat.h"
#include "kernels/exact_math.h"
#include "kernels/softmax_weight.h"

namespace baton {
namespace {

constexpr double kLn2 = 0x1.62e42fefa39efp-1;

// Returns an error that names the first bad token.
absl::Status NotANumber(std::span<const float> logits) {
  for (size_t token = 0; token < logits.size(); ++token) {
    if (!(logits[token] <= std::numeric_limits<float>::max())) {
      return absl::InternalError(StrCat("logit of token ", token, " is ", logits[token]));
    }
  }
  return absl::InternalError("the logits changed while they were read");
}

absl::Status CheckToken(TokenId token, size_t vocabulary) {
  if (token >= 0 && static_cast<size_t>(token) < vocabulary) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat("token ", token, " is outside the vocabulary of ", vocabulary));
}

absl::Status CheckVocabulary(size_t vocabulary) {
  if (vocabulary > 0 && vocabulary <= kMaxSoftmaxVocabulary) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat("vocabulary size is ", vocabulary, "; must be 1 to ", kMaxSoftmaxVocabulary));
}

}  // namespace

DrawRule DrawRuleOf(const SamplingParams& params) {
  return {.temperature = params.temperature,
          .top_k = params.top_k,
          .top_p = params.top_p,
          .min_p = params.min_p};
}

absl::Status DrawError(TokenId code, std::span<const float> logits) {
  if (code == kDrawNotANumber && logits.empty()) {
    return absl::InternalError("a logit is NaN or +infinity");
  }
  if (code == kDrawNotANumber) return NotANumber(logits);
  return absl::InternalError("every logit is -infinity: no token can be chosen");
}

absl::StatusOr<SampleResult> Sampler::Sample(std::span<const float> logits,
                                             const SamplingParams& params,
                                             const SamplerState& state, const DrawKey& key) {
  RETURN_IF_ERROR(CheckVocabulary(logits.size()));
  ASSIGN_OR_RETURN(const RankedToken best, FindBest(logits));
  ASSIGN_OR_RETURN(const std::span<const float> adjusted, Adjust(logits, params, state));
  RankedToken adjusted_best = best;
  if (adjusted.data() != logits.data()) {
    ASSIGN_OR_RETURN(adjusted_best, FindBest(adjusted));
  }
  SampleResult result;
  result.token = drawer_.Draw(adjusted, DrawRuleOf(params), key, adjusted_best);
  if (params.logprobs) FillLogprobs(logits, best.logit, *params.logprobs, result);
  return result;
}

absl::StatusOr<TokenId> Sampler::Draw(std::span<const float> logits, const TokenDraw& draw) {
  RETURN_IF_ERROR(CheckVocabulary(logits.size()));
  ASSIGN_OR_RETURN(RankedToken best, FindBest(logits));
  if (draw.additions.empty()) return drawer_.Draw(logits, draw.rule(), draw.key, best);
  ASSIGN_OR_RETURN(const std::span<const float> adjusted, Add(logits, draw.additions));
  ASSIGN_OR_RETURN(best, FindBest(adjusted));
  return drawer_.Draw(adjusted, draw.rule(), draw.key, best);
}

absl::StatusOr<SampleResult> Sampler::Logprobs(std::span<const float> logits, TokenId token,
                                               int32_t count) {
  ASSIGN_OR_RETURN(const RankedToken best, FindBest(logits));
  SampleResult result{.token = token, .logprob = {}, .top_logprobs = {}};
  FillLogprobs(logits, best.logit, count, result);
  return result;
}

absl::StatusOr<RankedToken> Sampler::FindBest(std::span<const float> logits) {
  const RankedToken best = drawer_.FindBest(logits);
  if (best.token < 0) return DrawError(best.token, logits);
  return best;
}

// Returns `logits` itself if no setting changes it.
absl::StatusOr<std::span<const float>> Sampler::Adjust(std::span<const float> logits,
                                                       const SamplingParams& params,
                                                       const SamplerState& state) {
  const bool penalties = params.has_penalties();
  const bool held_back = state.generated() < params.min_tokens;
  if (!penalties && !held_back && params.logit_bias.empty()) return logits;
  adjusted_.assign(logits.begin(), logits.end());
  if (penalties) {
    for (const auto& [token, count] : state.counts()) {
      RETURN_IF_ERROR(CheckToken(token, logits.size()));
      float& logit = adjusted_[token];
      logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
      if (count.generated > 0) {
        logit -= static_cast<float>(count.generated) * params.frequency_penalty;
        logit -= params.presence_penalty;
      }
    }
  }
  for (const auto& [token, bias] : params.logit_bias) {
    RETURN_IF_ERROR(CheckToken(token, logits.size()));
    adjusted_[token] += bias;
  }
  if (held_back) {
    for (const auto* tokens : {&end_tokens_, &params.stop_token_ids}) {
      for (const TokenId token : *tokens) {
        RETURN_IF_ERROR(CheckToken(token, logits.size()));
        adjusted_[token] = -std::numeric_limits<float>::infinity();
      }
    }
  }
  return std::span<const float>(adjusted_);
}

absl::StatusOr<std::span<const float>> Sampler::Add(std::span<const float> logits,
                                                    std::span<const LogitAddition> additions) {
  adjusted_.assign(logits.begin(), logits.end());
  for (const LogitAddition& addition : additions) {
    RETURN_IF_ERROR(CheckToken(addition.token, logits.size()));
    adjusted_[addition.token] += addition.value;
  }
  return std::span<const float>(adjusted_);
}

void Sampler::FillLogprobs(std::span<const float> logits, float best_logit, int32_t count,
                           SampleResult& result) {
  TokenDistribution all{best_logit, kLog2E, 0};
  drawer_.SumWeights(logits, all);
  const double log_total = ExactLog(static_cast<double>(all.total)) - kSoftmaxWeightBits * kLn2;
  const auto logprob = [&](float logit) {
    return static_cast<float>(static_cast<double>(logit) - static_cast<double>(best_logit) -
                              log_total);
  };
  result.logprob = logprob(logits[result.token]);
  SelectTop(logits, std::min<size_t>(count, logits.size()), top_);
  std::sort(top_.begin(), top_.end(), Outranks);
  for (const RankedToken& candidate : top_) {
    result.top_logprobs.push_back({candidate.token, logprob(candidate.logit)});
  }
}

}  // namespace baton
