#include "model/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/status_macros.h"
#include "common/str_cat.h"
#include "kernels/exact_math.h"
#include "model/softmax_weight.h"

namespace baton {
namespace {

constexpr size_t kChunk =
    1024;                      // logits whose weights are summed, or whose maximum is taken, as one
constexpr size_t kLanes = 16;  // compared side by side
constexpr double kLog2E = 0x1.71547652b82fep0;
constexpr double kLn2 = 0x1.62e42fefa39efp-1;

// floor(random / 2^64 * total): uniform over [0, total) but for less than 2^-64 * total.
uint64_t ScaleRandom(uint64_t random, uint64_t total) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>(static_cast<Wide>(random) * total >> 64);
}

// The largest value, and whether all are below +infinity and numbers.
struct ChunkMaximum {
  float value;
  bool valid;
};

ChunkMaximum MaximumOf(std::span<const float> values) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  constexpr float kHighest = std::numeric_limits<float>::max();
  float best[kLanes];
  uint32_t bad[kLanes] = {};
  std::fill_n(best, kLanes, kLowest);
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const float value = values[i + lane];
      best[lane] = value > best[lane] ? value : best[lane];
      bad[lane] |= !(value <= kHighest) ? ~0u : 0u;
    }
  }
  for (; i < values.size(); ++i) {
    best[0] = values[i] > best[0] ? values[i] : best[0];
    bad[0] |= !(values[i] <= kHighest) ? ~0u : 0u;
  }
  return {*std::max_element(best, best + kLanes),
          std::all_of(bad, bad + kLanes, [](uint32_t lane) { return lane == 0; })};
}

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
      StrCat("vocabulary of ", vocabulary, ", not 1 to ", kMaxSoftmaxVocabulary));
}

}  // namespace

absl::StatusOr<SampleResult> Sampler::Sample(std::span<const float> logits,
                                             const SamplingParams& params,
                                             const SamplerState& state, const DrawKey& key) {
  RETURN_IF_ERROR(CheckVocabulary(logits.size()));
  ASSIGN_OR_RETURN(const Candidate best, FindBest(logits));
  ASSIGN_OR_RETURN(const std::span<const float> adjusted, Adjust(logits, params, state));
  Candidate adjusted_best = best;
  if (adjusted.data() != logits.data()) {
    ASSIGN_OR_RETURN(adjusted_best, FindBest(adjusted));
  }
  SampleResult result;
  result.token = DrawFrom(adjusted, DrawAs(params, key), adjusted_best);
  if (params.logprobs) FillLogprobs(logits, best.logit, *params.logprobs, result);
  return result;
}

absl::StatusOr<TokenId> Sampler::Draw(std::span<const float> logits, const TokenDraw& draw) {
  RETURN_IF_ERROR(CheckVocabulary(logits.size()));
  ASSIGN_OR_RETURN(Candidate best, FindBest(logits));
  if (draw.additions.empty()) return DrawFrom(logits, draw, best);
  ASSIGN_OR_RETURN(const std::span<const float> adjusted, Add(logits, draw.additions));
  ASSIGN_OR_RETURN(best, FindBest(adjusted));
  return DrawFrom(adjusted, draw, best);
}

absl::StatusOr<SampleResult> Sampler::Logprobs(std::span<const float> logits, TokenId token,
                                               int32_t count) {
  ASSIGN_OR_RETURN(const Candidate best, FindBest(logits));
  SampleResult result{.token = token, .logprob = {}, .top_logprobs = {}};
  FillLogprobs(logits, best.logit, count, result);
  return result;
}

bool Sampler::Outranks(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

absl::StatusOr<Sampler::Candidate> Sampler::FindBest(std::span<const float> logits) {
  float best = -std::numeric_limits<float>::infinity();
  size_t best_chunk = 0;
  for (size_t begin = 0; begin < logits.size(); begin += kChunk) {
    const ChunkMaximum maximum =
        MaximumOf(logits.subspan(begin, std::min(kChunk, logits.size() - begin)));
    if (!maximum.valid) return NotANumber(logits);
    if (maximum.value > best) {
      best = maximum.value;
      best_chunk = begin;
    }
  }
  if (best == -std::numeric_limits<float>::infinity()) {
    return absl::InternalError("every logit is -infinity: no token can be chosen");
  }
  const auto found = std::find(logits.begin() + best_chunk, logits.end(), best);
  return Candidate{best, static_cast<TokenId>(found - logits.begin())};
}

// Returns the logits themselves where nothing changes them.
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

TokenId Sampler::DrawFrom(std::span<const float> logits, const TokenDraw& draw,
                          const Candidate& best) {
  if (draw.temperature == 0) return best.token;
  const uint64_t random = RandomBits(draw.key);
  Distribution all{best.logit, kLog2E / static_cast<double>(draw.temperature), 0};
  const double least_exponent =
      draw.min_p > 0 ? ExactLog(draw.min_p) * kLog2E : -std::numeric_limits<double>::infinity();
  if (draw.top_k > 0 && static_cast<size_t>(draw.top_k) < logits.size()) {
    SelectTop(logits, draw.top_k);
    std::sort(candidates_.begin(), candidates_.end(),
              [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
    for (const Candidate& candidate : candidates_) all.total += WeightIn(all, candidate.logit);
    std::erase_if(candidates_, [&](const Candidate& candidate) {
      return ExponentIn(all, candidate.logit) < least_exponent;
    });
  } else if (draw.top_p < 1) {
    SumWeights(logits, all);
    SelectFrom(logits, all, std::max(least_exponent, LeastExponentOf(draw.top_p, logits, all)));
  } else if (draw.min_p > 0) {
    SelectFrom(logits, all, least_exponent);
  } else {
    SumWeights(logits, all);
    return DrawFromAll(logits, all, random);
  }
  // min_p and top_p both cut from the low end, and top_p's share counts what min_p cut: their order
  // does not show.
  if (draw.top_p < 1) KeepTopP(all, draw.top_p);
  return DrawFromCandidates(all, random);
}

double Sampler::ExponentIn(const Distribution& all, float logit) {
  return SoftmaxExponent(logit, all.best_logit, all.scale);
}

uint64_t Sampler::WeightIn(const Distribution& all, float logit) {
  return SoftmaxWeight(ExponentIn(all, logit));
}

void Sampler::SumWeights(std::span<const float> logits, Distribution& all) {
  chunk_weights_.clear();
  all.total = 0;
  for (size_t begin = 0; begin < logits.size(); begin += kChunk) {
    chunk_weights_.push_back(SumSoftmaxWeights(
        logits.subspan(begin, std::min(kChunk, logits.size() - begin)), all.best_logit, all.scale));
    all.total += chunk_weights_.back();
  }
}

// Tokens below it hold less than the share 1 - top_p together, so that top_p needs none of them.
double Sampler::LeastExponentOf(float top_p, std::span<const float> logits,
                                const Distribution& all) {
  constexpr double kSlack = 1e-6;  // above every rounding here
  const double share = 1.0 - static_cast<double>(top_p);
  const double weight = static_cast<double>(all.total) * share / static_cast<double>(logits.size());
  return ExactLog(weight) * kLog2E - kSoftmaxWeightBits - kSlack;
}

void Sampler::SelectTop(std::span<const float> logits, size_t count) {
  candidates_.clear();
  if (count == 0) return;
  for (size_t token = 0; token < count; ++token) {
    candidates_.push_back({logits[token], static_cast<TokenId>(token)});
  }
  // A heap whose front is the lowest rank kept. Ids rise, so an equal logit never displaces it.
  std::make_heap(candidates_.begin(), candidates_.end(), Outranks);
  for (size_t token = count; token < logits.size(); ++token) {
    if (!(logits[token] > candidates_.front().logit)) continue;
    std::pop_heap(candidates_.begin(), candidates_.end(), Outranks);
    candidates_.back() = {logits[token], static_cast<TokenId>(token)};
    std::push_heap(candidates_.begin(), candidates_.end(), Outranks);
  }
}

void Sampler::SelectFrom(std::span<const float> logits, const Distribution& all,
                         double least_exponent) {
  candidates_.clear();
  for (size_t token = 0; token < logits.size(); ++token) {
    if (ExponentIn(all, logits[token]) < least_exponent) continue;
    candidates_.push_back({logits[token], static_cast<TokenId>(token)});
  }
}

// Quickselect by weight: halves a copy until the candidate that reaches the share is found.
void Sampler::KeepTopP(const Distribution& all, float top_p) {
  const auto needed =
      static_cast<uint64_t>(std::ceil(static_cast<double>(top_p) * static_cast<double>(all.total)));
  ranked_ = candidates_;
  uint64_t before = 0;  // weight of [0, begin), which outranks the rest
  size_t begin = 0;
  size_t end = ranked_.size();
  while (end - begin > 1) {
    const size_t middle = begin + (end - begin) / 2;
    std::nth_element(ranked_.begin() + begin, ranked_.begin() + middle, ranked_.begin() + end,
                     Outranks);
    uint64_t half = 0;
    for (size_t i = begin; i < middle; ++i) half += WeightIn(all, ranked_[i].logit);
    if (before + half >= needed) {
      end = middle;
    } else {
      before += half;
      begin = middle;
    }
  }
  const Candidate last = ranked_[begin];
  std::erase_if(candidates_, [&](const Candidate& candidate) { return Outranks(last, candidate); });
}

TokenId Sampler::DrawFromAll(std::span<const float> logits, const Distribution& all,
                             uint64_t random) const {
  uint64_t rest = ScaleRandom(random, all.total);
  size_t chunk = 0;
  while (rest >= chunk_weights_[chunk]) rest -= chunk_weights_[chunk++];
  for (size_t token = chunk * kChunk;; ++token) {
    const uint64_t weight = WeightIn(all, logits[token]);
    if (rest < weight) return static_cast<TokenId>(token);
    rest -= weight;
  }
}

TokenId Sampler::DrawFromCandidates(const Distribution& all, uint64_t random) const {
  uint64_t total = 0;
  for (const Candidate& candidate : candidates_) total += WeightIn(all, candidate.logit);
  uint64_t rest = ScaleRandom(random, total);
  for (auto candidate = candidates_.begin();; ++candidate) {
    const uint64_t weight = WeightIn(all, candidate->logit);
    if (rest < weight) return candidate->token;
    rest -= weight;
  }
}

void Sampler::FillLogprobs(std::span<const float> logits, float best_logit, int32_t count,
                           SampleResult& result) {
  Distribution all{best_logit, kLog2E, 0};
  SumWeights(logits, all);
  const double log_total = ExactLog(static_cast<double>(all.total)) - kSoftmaxWeightBits * kLn2;
  const auto logprob = [&](float logit) {
    return static_cast<float>(static_cast<double>(logit) - static_cast<double>(best_logit) -
                              log_total);
  };
  result.logprob = logprob(logits[result.token]);
  SelectTop(logits, std::min<size_t>(count, logits.size()));
  std::sort(candidates_.begin(), candidates_.end(), Outranks);
  for (const Candidate& candidate : candidates_) {
    result.top_logprobs.push_back({candidate.token, logprob(candidate.logit)});
  }
}

}  // namespace baton
