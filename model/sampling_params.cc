#include "model/sampling_params.h"

#include <string_view>

#include "common/status_macros.h"
#include "common/str_cat.h"

namespace baton {
namespace {

// NaN is in no range.
template <typename T>
absl::Status CheckRange(std::string_view field, T value, T least, T most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat(field, " is ", value, ", not in [", least, ", ", most, "]"));
}

absl::Status CheckAtLeast(std::string_view field, int32_t value, int32_t least) {
  if (value >= least) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat(field, " is ", value, ", below ", least));
}

absl::Status CheckToken(std::string_view field, TokenId token, int32_t vocabulary_size) {
  if (token >= 0 && token < vocabulary_size) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat(field, " has token ", token, ", outside the vocabulary of ", vocabulary_size));
}

absl::Status CheckCount(std::string_view field, size_t count, size_t most) {
  if (count <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat(field, " has ", count, " entries, at most ", most));
}

absl::Status CheckDistribution(const SamplingParams& params) {
  RETURN_IF_ERROR(CheckRange("temperature", params.temperature, 0.0f, 100.0f));
  RETURN_IF_ERROR(CheckAtLeast("top_k", params.top_k, 0));
  if (!(params.top_p > 0 && params.top_p <= 1)) {
    return absl::InvalidArgumentError(StrCat("top_p is ", params.top_p, ", not in (0, 1]"));
  }
  return CheckRange("min_p", params.min_p, 0.0f, 1.0f);
}

absl::Status CheckPenalties(const SamplingParams& params, int32_t vocabulary_size) {
  RETURN_IF_ERROR(CheckRange("repetition_penalty", params.repetition_penalty, 0.01f, 100.0f));
  RETURN_IF_ERROR(CheckRange("presence_penalty", params.presence_penalty, -2.0f, 2.0f));
  RETURN_IF_ERROR(CheckRange("frequency_penalty", params.frequency_penalty, -2.0f, 2.0f));
  for (const auto& [token, bias] : params.logit_bias) {
    RETURN_IF_ERROR(CheckToken("logit_bias", token, vocabulary_size));
    RETURN_IF_ERROR(CheckRange(StrCat("logit_bias of token ", token), bias, -100.0f, 100.0f));
  }
  return absl::OkStatus();
}

absl::Status CheckEnd(const SamplingParams& params, int32_t vocabulary_size) {
  RETURN_IF_ERROR(CheckCount("stop", params.stop.size(), kMaxStopStrings));
  for (const std::string& text : params.stop) {
    if (text.empty() || text.size() > kMaxStopStringBytes) {
      return absl::InvalidArgumentError(
          StrCat("stop has a string of ", text.size(), " bytes, not 1 to ", kMaxStopStringBytes));
    }
  }
  RETURN_IF_ERROR(CheckCount("stop_token_ids", params.stop_token_ids.size(), kMaxStopTokens));
  for (const TokenId token : params.stop_token_ids) {
    RETURN_IF_ERROR(CheckToken("stop_token_ids", token, vocabulary_size));
  }
  if (params.max_tokens) RETURN_IF_ERROR(CheckAtLeast("max_tokens", *params.max_tokens, 1));
  RETURN_IF_ERROR(CheckAtLeast("min_tokens", params.min_tokens, 0));
  if (params.max_tokens && params.min_tokens > *params.max_tokens) {
    return absl::InvalidArgumentError(
        StrCat("min_tokens is ", params.min_tokens, ", above max_tokens ", *params.max_tokens));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Validate(const SamplingParams& params, int32_t vocabulary_size) {
  RETURN_IF_ERROR(CheckDistribution(params));
  RETURN_IF_ERROR(CheckPenalties(params, vocabulary_size));
  RETURN_IF_ERROR(CheckEnd(params, vocabulary_size));
  if (params.logprobs) {
    RETURN_IF_ERROR(CheckRange("logprobs", *params.logprobs, 0, kMaxTopLogprobs));
  }
  return absl::OkStatus();
}

}  // namespace baton
