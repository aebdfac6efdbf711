#include "engine/generation.h"

#include <xxhash.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "common/status_macros.h"
#include "common/str_cat.h"

namespace baton {

const char* FinishReasonName(FinishReason reason) {
  return reason == FinishReason::kStop ? "stop" : "length";
}

TokenSource::TokenSource(const SamplingParams& params, std::span<const TokenId> prompt,
                         std::span<const TokenId> end_tokens, bool hash_logits, int32_t choice)
    : params_(params), state_(prompt), hash_logits_(hash_logits) {
  params_.seed = SeedOfChoice(params.seed.value_or(0), choice);
  for (const auto& [token, bias] : params_.logit_bias) additions_.push_back({token, bias});
  if (params_.min_tokens == 0) return;
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  for (const TokenId token : end_tokens) additions_.push_back({token, kNever});
  for (const TokenId token : params_.stop_token_ids) additions_.push_back({token, kNever});
}

TokenDraw TokenSource::NextDraw(int32_t position, int32_t pending) const {
  TokenDraw draw =
      DrawAs(params_, {.seed = *params_.seed, .position = static_cast<uint64_t>(position)});
  const bool held_back = state_.generated() + pending < params_.min_tokens;
  draw.additions =
      std::span(additions_).first(held_back ? additions_.size() : params_.logit_bias.size());
  return draw;
}

uint64_t TokenSource::HashBehind(std::span<const float> logits) const {
  if (!hash_logits_) return 0;
  return XXH3_64bits_withSeed(logits.data(), logits.size_bytes(), logits_hash_);
}

absl::StatusOr<DrawnToken> TokenSource::Describe(TokenId token, std::span<const float> logits,
                                                 Sampler& sampler) const {
  DrawnToken drawn{.token = token, .detail = {}, .logits_hash = HashBehind(logits)};
  if (params_.logprobs.has_value()) {
    ASSIGN_OR_RETURN(SampleResult result, sampler.Logprobs(logits, token, *params_.logprobs));
    drawn.detail.logprob = *result.logprob;
    drawn.detail.top = std::move(result.top_logprobs);
  }
  return drawn;
}

absl::StatusOr<DrawnToken> TokenSource::Draw(std::span<const float> logits, int32_t position,
                                             Sampler& sampler) const {
  ASSIGN_OR_RETURN(SampleResult result,
                   sampler.Sample(logits, params_, state_,
                                  DrawKey{.seed = *params_.seed,
                                          .sample = 0,
                                          .position = static_cast<uint64_t>(position)}));
  DrawnToken drawn{.token = result.token, .detail = {}, .logits_hash = HashBehind(logits)};
  drawn.detail.logprob = result.logprob.value_or(0.0f);
  drawn.detail.top = std::move(result.top_logprobs);
  return drawn;
}

void TokenSource::Accept(const DrawnToken& drawn) {
  state_.Accept(drawn.token);
  if (hash_logits_) logits_hash_ = drawn.logits_hash;
}

void TokenSource::Resume(const GeneratedPart& generated) {
  for (const TokenId token : generated.tokens) state_.Accept(token);
  if (hash_logits_) logits_hash_ = generated.logits_hash;
}

Generation::Generation(const GenerateRequest& request, int32_t length_limit,
                       const Tokenizer& tokenizer, bool hash_logits, int64_t arrival_us,
                       int32_t choice)
    : tokenizer_(tokenizer),
      params_(request.sampling),
      source_(request.sampling, request.prompt, tokenizer.end_of_generation(), hash_logits, choice),
      detokenizer_(tokenizer),
      stop_matcher_(request.sampling.stop),
      choice_(choice),
      prompt_tokens_(static_cast<int32_t>(request.prompt.size())),
      length_limit_(length_limit),
      arrival_us_(arrival_us) {}

bool Generation::EndsAt(TokenId token) const {
  if (!params_.ignore_eos && tokenizer_.EndsGeneration(token)) return true;
  return std::find(params_.stop_token_ids.begin(), params_.stop_token_ids.end(), token) !=
         params_.stop_token_ids.end();
}

std::optional<FinishReason> Generation::Count(TokenId token, int64_t now_us, std::string& text) {
  ++completion_tokens_;
  last_token_us_ = now_us;
  if (completion_tokens_ == 1) first_token_us_ = now_us;
  if (completion_tokens_ <= params_.min_tokens) {
    text = detokenizer_.Append(token);  // min_tokens: stop strings are not matched yet
  } else {
    if (EndsAt(token)) return FinishReason::kStop;  // the answer leaves out its text
    StopMatcher::Result matched = stop_matcher_.Append(detokenizer_.Append(token));
    text = std::move(matched.emit);
    if (matched.stopped) return FinishReason::kStop;
  }
  if (prompt_tokens_ + completion_tokens_ >= length_limit_) return FinishReason::kLength;
  return std::nullopt;
}

Generation::Emission Generation::Accept(const DrawnToken& drawn, int64_t now_us) {
  source_.Accept(drawn);
  Emission emission;
  emission.output.choice = choice_;
  emission.finished = Count(drawn.token, now_us, emission.output.text);
  emission.output.token_ids.push_back(drawn.token);
  emission.output.logits_hash = source_.logits_hash();
  if (params_.logprobs.has_value()) emission.output.logprobs.push_back(drawn.detail);
  return emission;
}

absl::StatusOr<std::optional<FinishReason>> Generation::Resume(const GeneratedPart& generated,
                                                               int64_t now_us) {
  source_.Resume(generated);
  std::optional<FinishReason> finished;
  for (size_t i = 0; i < generated.tokens.size(); ++i) {
    if (finished.has_value()) {
      return absl::InvalidArgumentError(StrCat("generated_token_ids[", i,
                                               "] comes after the end of the answer, among ",
                                               generated.tokens.size(), " tokens"));
    }
    std::string text_sent_before;
    finished = Count(generated.tokens[i], now_us, text_sent_before);
  }
  return finished;
}

FinishInfo Generation::Finish(FinishReason reason, int64_t now_us) {
  FinishInfo info;
  info.choice = choice_;
  info.reason = reason;
  const StopMatcher::Result rest = stop_matcher_.Append(detokenizer_.Finish());
  info.text = rest.emit + stop_matcher_.Flush();
  info.prompt_tokens = prompt_tokens_;
  info.completion_tokens = completion_tokens_;
  info.logits_hash = source_.logits_hash();
  ledger_.total_us = now_us - arrival_us_;
  if (completion_tokens_ > 0) ledger_.first_token_us = first_token_us_ - arrival_us_;
  if (completion_tokens_ > 1) {
    ledger_.inter_token_us = (last_token_us_ - first_token_us_) / (completion_tokens_ - 1);
  }
  info.ledger = ledger_;
  return info;
}

}  // namespace baton
