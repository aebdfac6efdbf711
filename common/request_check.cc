#include "common/request_check.h"

#include <string>

#include "common/choices.h"
#include "common/prompt_chunks.h"
#include "common/request_bounds.h"
#include "common/status_macros.h"
#include "common/str_cat.h"

namespace baton {
namespace {

// NaN is outside every range.
template <typename Number>
absl::Status CheckRange(std::string_view field, Number value, Number least, Number most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat(field, " is ", value, "; [", least, ", ", most, "] is allowed"));
}

absl::Status CheckAtLeast(std::string_view field, int32_t value, int32_t least) {
  if (value >= least) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat(field, " is ", value, "; at least ", least, " is allowed"));
}

absl::Status CheckTokenId(std::string_view field, TokenId id, int32_t vocabulary) {
  if (vocabulary == 0) return absl::OkStatus();
  return CheckRange(field, id, 0, vocabulary - 1);
}

absl::Status CheckDistribution(const SamplingParams& params) {
  RETURN_IF_ERROR(CheckRange("temperature", params.temperature, 0.0f, kMaxTemperature));
  RETURN_IF_ERROR(CheckAtLeast("top_k", params.top_k, 0));
  if (!(params.top_p > 0 && params.top_p <= 1)) {
    return absl::InvalidArgumentError(StrCat("top_p is ", params.top_p, "; (0, 1] is allowed"));
  }
  return CheckRange("min_p", params.min_p, 0.0f, 1.0f);
}

absl::Status CheckPenalties(const SamplingParams& params, int32_t vocabulary) {
  RETURN_IF_ERROR(CheckRange("repetition_penalty", params.repetition_penalty, kMinRepetitionPenalty,
                             kMaxRepetitionPenalty));
  RETURN_IF_ERROR(
      CheckRange("presence_penalty", params.presence_penalty, -kMaxPenalty, kMaxPenalty));
  RETURN_IF_ERROR(
      CheckRange("frequency_penalty", params.frequency_penalty, -kMaxPenalty, kMaxPenalty));
  RETURN_IF_ERROR(
      CheckCount("logit_bias", static_cast<int64_t>(params.logit_bias.size()), kMaxLogitBiases));
  for (const auto& [token, bias] : params.logit_bias) {
    RETURN_IF_ERROR(CheckTokenId("logit_bias's token", token, vocabulary));
    RETURN_IF_ERROR(
        CheckRange(StrCat("logit_bias of token ", token), bias, -kMaxLogitBias, kMaxLogitBias));
  }
  return absl::OkStatus();
}

absl::Status CheckEnd(const SamplingParams& params, int32_t vocabulary) {
  RETURN_IF_ERROR(CheckCount("stop", static_cast<int64_t>(params.stop.size()), kMaxStopStrings));
  for (size_t i = 0; i < params.stop.size(); ++i) {
    const size_t bytes = params.stop[i].size();
    if (bytes >= 1 && bytes <= kMaxStopStringBytes) continue;
    return absl::InvalidArgumentError(
        StrCat("stop[", i, "] has ", bytes, " bytes; [1, ", kMaxStopStringBytes, "] are allowed"));
  }
  RETURN_IF_ERROR(CheckCount("stop_token_ids", static_cast<int64_t>(params.stop_token_ids.size()),
                             kMaxStopTokens));
  RETURN_IF_ERROR(CheckTokenIds("stop_token_ids", params.stop_token_ids, vocabulary));
  if (params.max_tokens) RETURN_IF_ERROR(CheckAtLeast("max_tokens", *params.max_tokens, 1));
  RETURN_IF_ERROR(CheckAtLeast("min_tokens", params.min_tokens, 0));
  if (params.max_tokens && params.min_tokens > *params.max_tokens) {
    return absl::InvalidArgumentError(StrCat("min_tokens is ", params.min_tokens,
                                             "; at most max_tokens, ", *params.max_tokens,
                                             ", is allowed"));
  }
  return absl::OkStatus();
}

absl::Status CheckBytes(std::string_view field, std::string_view value, int64_t most) {
  return CheckCount(field, static_cast<int64_t>(value.size()), most, "bytes");
}

}  // namespace

absl::Status CheckCount(std::string_view field, int64_t count, int64_t most,
                        std::string_view unit) {
  if (count <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat(field, " has ", count, " ", unit, "; at most ", most, " are allowed"));
}

absl::Status CheckTokenIds(std::string_view field, std::span<const TokenId> ids,
                           int32_t vocabulary) {
  if (vocabulary == 0) return absl::OkStatus();
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < vocabulary) continue;  // avoids making a name for each token
    RETURN_IF_ERROR(CheckTokenId(StrCat(field, "[", i, "]"), ids[i], vocabulary));
  }
  return absl::OkStatus();
}

absl::Status CheckChoices(int32_t n) { return CheckRange("n", n, 1, kMaxChoices); }

absl::Status CheckPromptTokens(int64_t prompt_tokens, int32_t context_length) {
  if (prompt_tokens == 0) return absl::InvalidArgumentError("the prompt has no tokens");
  if (prompt_tokens < context_length) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat("the prompt has ", prompt_tokens,
                                           " tokens; the context of ", context_length,
                                           " tokens leaves none to generate"));
}

absl::Status CheckPromptBytes(int64_t bytes, const RequestLimits& limits) {
  RETURN_IF_ERROR(CheckCount("the prompt", bytes, limits.max_prompt_bytes, "bytes"));
  const int64_t most = int64_t{limits.context_length} * limits.longest_token_bytes;
  if (most == 0 || bytes <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat("the prompt has ", bytes, " bytes; the context of ",
                                           limits.context_length, " tokens, each of at most ",
                                           limits.longest_token_bytes, " bytes, cannot hold it"));
}

// Checks the number first. A message without content takes two bytes on the wire and a hundred in
// memory.
absl::Status CheckMessages(int64_t messages, int64_t bytes, const RequestLimits& limits) {
  RETURN_IF_ERROR(CheckCount("messages", messages, kMaxMessages));
  return CheckCount("the prompt", bytes, limits.max_prompt_bytes, "bytes");
}

absl::Status CheckParts(const PartSizes& parts, int64_t bytes, const RequestLimits& limits) {
  RETURN_IF_ERROR(CheckChunkCount(parts.chunks));
  RETURN_IF_ERROR(CheckCount("the prompt", bytes + parts.bytes, limits.max_prompt_bytes, "bytes"));
  return CheckCount("the prompt", parts.token_ids, kMaxPromptTokenIds, "token ids");
}

absl::Status CheckSampling(const SamplingParams& sampling, int32_t vocabulary) {
  RETURN_IF_ERROR(CheckDistribution(sampling));
  RETURN_IF_ERROR(CheckPenalties(sampling, vocabulary));
  RETURN_IF_ERROR(CheckEnd(sampling, vocabulary));
  if (!sampling.logprobs) return absl::OkStatus();
  return CheckRange("logprobs", *sampling.logprobs, 0, kMaxTopLogprobs);
}

absl::Status CheckRequest(const RequestFields& fields, const RequestLimits& limits) {
  RETURN_IF_ERROR(CheckBytes("request_id", fields.request_id, kMaxRequestIdBytes));
  RETURN_IF_ERROR(CheckBytes("session_id", fields.session_id, kMaxRequestIdBytes));
  RETURN_IF_ERROR(CheckBytes("tenant", fields.tenant, kMaxTenantBytes));
  RETURN_IF_ERROR(CheckBytes("cache_salt", fields.cache_salt, kMaxTenantBytes));
  RETURN_IF_ERROR(CheckRange("priority", fields.priority, kMinPriority, kMaxPriority));
  RETURN_IF_ERROR(CheckChoices(fields.n));
  RETURN_IF_ERROR(CheckSampling(fields.sampling, limits.vocabulary));
  RETURN_IF_ERROR(CheckChunkSeparator(fields.chunk_separator));
  RETURN_IF_ERROR(CheckMessages(fields.messages, fields.message_bytes, limits));
  RETURN_IF_ERROR(CheckParts(fields.parts, fields.message_bytes, limits));
  if (fields.prompt_token_ids) {
    const auto ids = static_cast<int64_t>(fields.prompt_token_ids->size());
    RETURN_IF_ERROR(CheckCount("prompt_token_ids", ids, kMaxPromptTokenIds));
    if (limits.context_length > 0) RETURN_IF_ERROR(CheckPromptTokens(ids, limits.context_length));
    RETURN_IF_ERROR(CheckTokenIds("prompt_token_ids", *fields.prompt_token_ids, limits.vocabulary));
  }
  const auto bytes = static_cast<int64_t>(fields.prompt.size());
  const bool splits = !fields.chunk_separator.empty() &&
                      fields.prompt.find(fields.chunk_separator) != std::string_view::npos;
  if (!splits) return CheckPromptBytes(bytes, limits);
  return CheckCount("the prompt", bytes, limits.max_prompt_bytes, "bytes");
}

}  // namespace baton
