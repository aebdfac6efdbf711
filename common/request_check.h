// Checks the limits of a request. The router's edges, the command line and the workers all use
// these functions, so a bad value gets the same message everywhere. Every error is InvalidArgument
// and names the field, its value and the allowed values.
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

// Limits from the model and the program. 0 means unknown; such a limit is not checked.
struct RequestLimits {
  int64_t max_prompt_bytes = std::numeric_limits<int64_t>::max();
  int32_t context_length = 0;  // tokens
  int32_t vocabulary = 0;
  int32_t longest_token_bytes = 0;
};

// Sizes of prompt parts that a client gives.
struct PartSizes {
  int64_t chunks = 0;
  int64_t bytes = 0;      // of all parts that are text
  int64_t token_ids = 0;  // of all other parts
};

// What a client asks for, without a copy of its input. An absent field keeps its default.
struct RequestFields {
  std::string_view request_id;
  std::string_view session_id;
  std::string_view tenant;
  std::string_view cache_salt;
  int32_t priority = 0;
  int32_t n = 1;
  SamplingParams sampling;
  // The input: exactly one of these. Messages may have parts too.
  std::string_view prompt;
  int64_t messages = 0;       // number of messages
  int64_t message_bytes = 0;  // of all messages together
  std::optional<std::span<const TokenId>> prompt_token_ids;
  PartSizes parts = {};  // of a prompt in parts, or of the chunks of all messages
  // If not empty, the prompt may become parts. Its bytes may then exceed the context.
  std::string_view chunk_separator = {};
};

// Checks everything that can be checked before the prompt is tokenised. CheckChunkedPrompt checks
// the parts afterwards.
absl::Status CheckRequest(const RequestFields& fields, const RequestLimits& limits);

// Parts of CheckRequest. `vocabulary` 0: unknown.
absl::Status CheckSampling(const SamplingParams& sampling, int32_t vocabulary = 0);
absl::Status CheckChoices(int32_t n);
// The prompt must not be empty, and the context must have room for at least one more token.
// max_tokens may exceed the context; the answer then ends at the context's end.
absl::Status CheckPromptTokens(int64_t prompt_tokens, int32_t context_length);
absl::Status CheckTokenIds(std::string_view field, std::span<const TokenId> ids,
                           int32_t vocabulary);
absl::Status CheckMessages(int64_t messages, int64_t bytes, const RequestLimits& limits);
// Also refuses text that could not fit the context even if all its tokens were the longest ones.
// That needs a known model.
absl::Status CheckPromptBytes(int64_t bytes, const RequestLimits& limits);
// `bytes`: all other text of the prompt.
absl::Status CheckParts(const PartSizes& parts, int64_t bytes, const RequestLimits& limits);
// The message is "FIELD has COUNT UNIT; at most MOST are allowed".
absl::Status CheckCount(std::string_view field, int64_t count, int64_t most,
                        std::string_view unit = "entries");

}  // namespace baton
