// The limits of a request, stated once: a router's edges, the command line and the workers check
// with these functions, so that a bad value gets the same message on every way in. Every refusal is
// InvalidArgument and names the field, its value and what is allowed.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "common/sampling_params.h"
#include "common/strong_int.h"

namespace baton {

// What is known of the model, and what the program allows. 0: not known, and not checked.
struct RequestLimits {
  int64_t max_prompt_bytes = std::numeric_limits<int64_t>::max();
  int32_t context_length = 0;  // tokens
  int32_t vocabulary = 0;
  int32_t longest_token_bytes = 0;
};

// What a client asks for, without a copy of its input. An absent field has its default.
struct RequestFields {
  std::string_view request_id;
  std::string_view session_id;
  std::string_view tenant;
  std::string_view cache_salt;
  int32_t priority = 0;
  int32_t n = 1;
  SamplingParams sampling;
  // The input: one of these.
  std::string_view prompt;
  int64_t messages = 0;       // how many
  int64_t message_bytes = 0;  // of all of them
  std::optional<std::span<const TokenId>> prompt_token_ids;
};

// Everything that can be wrong before the prompt is tokenised.
absl::Status CheckRequest(const RequestFields& fields, const RequestLimits& limits);

// The parts of it. `vocabulary` 0: not known.
absl::Status CheckSampling(const SamplingParams& sampling, int32_t vocabulary = 0);
absl::Status CheckChoices(int32_t n);
// Not empty, and with at least one token of the context left. (max_tokens may reach past the
// context: the answer then ends there.)
absl::Status CheckPromptTokens(int64_t prompt_tokens, int32_t context_length);
absl::Status CheckTokenIds(std::string_view field, std::span<const TokenId> ids,
                           int32_t vocabulary);
absl::Status CheckMessages(int64_t messages, int64_t bytes, const RequestLimits& limits);
// Nor longer than the context's tokens could be, where the model is known.
absl::Status CheckPromptBytes(int64_t bytes, const RequestLimits& limits);
// "FIELD has COUNT UNIT; at most MOST are allowed".
absl::Status CheckCount(std::string_view field, int64_t count, int64_t most,
                        std::string_view unit = "entries");

}  // namespace baton
