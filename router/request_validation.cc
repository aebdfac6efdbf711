#include "router/request_validation.h"

#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/choices.h"
#include "common/request_bounds.h"
#include "common/status_macros.h"

namespace baton {
namespace {

constexpr int32_t kAnyCount = std::numeric_limits<int32_t>::max();

// NaN is in no range. `open` excludes the lower end.
template <typename Number>
absl::Status CheckRange(const char* field, std::optional<Number> value, Number low, Number high,
                        bool open = false) {
  if (!value) return absl::OkStatus();
  const bool above = open ? *value > low : *value >= low;
  if (above && *value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "sampling.", field, " is ", *value, "; ", open ? "(" : "[", low, ", ", high, "] is allowed"));
}

}  // namespace

absl::Status CheckCount(const char* what, int64_t count, int64_t limit) {
  if (count <= limit) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " is ", count, "; at most ", limit, " is allowed"));
}

absl::Status CheckIdentifier(std::string_view field, std::string_view value, int64_t max_bytes) {
  return CheckCount((std::string(field) + "'s length in bytes").c_str(),
                    static_cast<int64_t>(value.size()), max_bytes);
}

absl::Status CheckPromptBytes(const RequestLimits& limits, int64_t bytes) {
  RETURN_IF_ERROR(CheckCount("the prompt's length in bytes", bytes, limits.max_prompt_bytes));
  const int64_t most = int64_t{limits.context_length} * limits.longest_token_bytes;
  if (most == 0 || bytes <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the prompt's ", bytes, " bytes are more than ", limits.context_length,
      " tokens, the model's context, of up to ", limits.longest_token_bytes, " bytes"));
}

absl::Status CheckPromptTokens(const RequestLimits& limits, int64_t prompt_tokens) {
  if (prompt_tokens == 0) return absl::InvalidArgumentError("the prompt has no tokens");
  if (prompt_tokens < limits.context_length) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the prompt has ", prompt_tokens, " tokens; the model's context of ",
                   limits.context_length, " tokens leaves none to generate"));
}

absl::Status CheckTokenId(const RequestLimits& limits, int64_t position, int32_t id) {
  if (id >= 0 && id < limits.vocabulary) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("prompt_token_ids[", position, "] is ", id,
                                                 "; ids are 0–", limits.vocabulary - 1));
}

absl::Status CheckChoices(int32_t n) {
  if (n >= 1 && n <= kMaxChoices) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("n is ", n, "; [1, ", kMaxChoices, "] is allowed"));
}

absl::Status CheckPriority(int32_t priority) {
  if (priority >= kMinPriority && priority <= kMaxPriority) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("priority is ", priority, "; [", kMinPriority,
                                                 ", ", kMaxPriority, "] is allowed"));
}

absl::Status CheckSampling(const SamplingFields& fields) {
  RETURN_IF_ERROR(CheckRange("temperature", fields.temperature, 0.0f, 100.0f));
  RETURN_IF_ERROR(CheckRange("top_k", fields.top_k, 0, kAnyCount));
  RETURN_IF_ERROR(CheckRange("top_p", fields.top_p, 0.0f, 1.0f, /*open=*/true));
  RETURN_IF_ERROR(CheckRange("min_p", fields.min_p, 0.0f, 1.0f));
  RETURN_IF_ERROR(CheckRange("repetition_penalty", fields.repetition_penalty, 0.01f, 100.0f));
  RETURN_IF_ERROR(CheckRange("presence_penalty", fields.presence_penalty, -2.0f, 2.0f));
  RETURN_IF_ERROR(CheckRange("frequency_penalty", fields.frequency_penalty, -2.0f, 2.0f));
  RETURN_IF_ERROR(CheckRange("max_tokens", fields.max_tokens, 1, kAnyCount));
  RETURN_IF_ERROR(CheckRange("min_tokens", fields.min_tokens, 0, kAnyCount));
  RETURN_IF_ERROR(CheckRange("logprobs", fields.logprobs, 0, 20));
  RETURN_IF_ERROR(CheckCount("sampling.logit_bias's size", fields.logit_bias_entries, 1024));
  RETURN_IF_ERROR(CheckCount("sampling.stop's size", fields.stop_strings, 16));
  RETURN_IF_ERROR(
      CheckCount("sampling.stop's longest string in bytes", fields.longest_stop_bytes, 256));
  return CheckCount("sampling.stop_token_ids's size", fields.stop_token_ids, 64);
}

}  // namespace baton
