// What the router refuses by itself, before a worker is asked. Everything is InvalidArgument and
// names the field, its value and the limit. The engine checks again, and checks the rest.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/status.h"

namespace baton {

struct RequestLimits {
  int64_t max_prompt_bytes = 4 << 20;
  int32_t context_length = 0;  // tokens, of the model
  int32_t vocabulary = 0;
  int32_t longest_token_bytes = 0;
};

// The sampling fields that are cheap to check; absent ones are fine.
struct SamplingFields {
  std::optional<float> temperature;
  std::optional<int32_t> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
  std::optional<float> presence_penalty;
  std::optional<float> frequency_penalty;
  std::optional<int32_t> max_tokens;
  std::optional<int32_t> min_tokens;
  std::optional<int32_t> logprobs;
  int64_t logit_bias_entries = 0;
  int64_t stop_strings = 0;
  int64_t longest_stop_bytes = 0;
  int64_t stop_token_ids = 0;
};

// `what` as in "sampling.stop's size".
absl::Status CheckCount(const char* what, int64_t count, int64_t limit);
// Identifiers and salts: printable or not, but bounded.
absl::Status CheckIdentifier(std::string_view field, std::string_view value, int64_t max_bytes);
// Nor longer than the context's tokens could be, where the model is known.
absl::Status CheckPromptBytes(const RequestLimits& limits, int64_t bytes);
// Not empty, and with at least one token of the context left. (max_tokens may reach past the
// context: the answer then ends there.)
absl::Status CheckPromptTokens(const RequestLimits& limits, int64_t prompt_tokens);
absl::Status CheckTokenId(const RequestLimits& limits, int64_t position, int32_t id);
absl::Status CheckChoices(int32_t n);
absl::Status CheckPriority(int32_t priority);
absl::Status CheckSampling(const SamplingFields& fields);

}  // namespace baton
