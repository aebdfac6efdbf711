#include "engine/model_limits.h"

#include <algorithm>

#include "common/request_check.h"
#include "common/status_macros.h"
#include "common/str_cat.h"

namespace baton {

absl::Status ModelLimits::CheckTokens(std::string_view field,
                                      std::span<const TokenId> tokens) const {
  return CheckTokenIds(field, tokens, vocabulary);
}

absl::Status ModelLimits::CheckRequest(std::span<const TokenId> prompt, int32_t n,
                                       std::span<const GeneratedPart> generated,
                                       const SamplingParams& sampling) const {
  RETURN_IF_ERROR(CheckChoices(n));
  RETURN_IF_ERROR(CheckPromptTokens(static_cast<int64_t>(prompt.size()), context_length));
  RETURN_IF_ERROR(CheckTokens("prompt_token_ids", prompt));
  for (const GeneratedPart& part : generated) {
    if (prompt.size() + part.tokens.size() > static_cast<size_t>(context_length)) {
      return absl::InvalidArgumentError(
          StrCat("a prompt of ", prompt.size(), " tokens and ", part.tokens.size(),
                 " generated tokens exceed the context of ", context_length));
    }
    RETURN_IF_ERROR(CheckTokens("generated_token_ids", part.tokens));
  }
  return CheckSampling(sampling, vocabulary);
}

absl::Status ModelLimits::CheckChunkedRequest(const ChunkedPrompt& prompt, int32_t n,
                                              std::span<const GeneratedPart> generated,
                                              const SamplingParams& sampling) const {
  RETURN_IF_ERROR(CheckChoices(n));
  RETURN_IF_ERROR(CheckChunkedPrompt(prompt, context_length, vocabulary));
  const int64_t answer = PositionsOf(prompt).answer;
  for (const GeneratedPart& part : generated) {
    if (answer + static_cast<int64_t>(part.tokens.size()) > context_length) {
      return absl::InvalidArgumentError(
          StrCat("an answer from position ", answer, " on and ", part.tokens.size(),
                 " generated tokens exceed the context of ", context_length));
    }
    RETURN_IF_ERROR(CheckTokens("generated_token_ids", part.tokens));
  }
  return CheckSampling(sampling, vocabulary);
}

absl::Status ModelLimits::CheckPrefix(std::span<const TokenId> tokens) const {
  if (static_cast<int64_t>(tokens.size()) <= context_length) {
    return CheckTokens("token_ids", tokens);
  }
  return absl::InvalidArgumentError(
      StrCat("a prefix of ", tokens.size(), " tokens exceeds the context of ", context_length));
}

// Every prompt with these chunks has a question of at least one token. Its positions are lowest
// where the chunks overlap.
absl::Status ModelLimits::CheckChunksToPull(const ChunkedPrompt& prompt) const {
  ChunkedPrompt least = prompt;
  least.options.positions = ChunkPositions::kOverlap;
  least.question = {0};
  return CheckChunkedPrompt(least, context_length, vocabulary);
}

int32_t ModelLimits::LengthLimit(const GenerateRequest& generate) const {
  if (generate.chunked.has_value()) {
    const int64_t room = context_length - PositionsOf(*generate.chunked).answer;
    return static_cast<int32_t>(
        TokensOf(*generate.chunked) +
        std::min<int64_t>(generate.sampling.max_tokens.value_or(room), room));
  }
  const int64_t wanted = static_cast<int64_t>(generate.prompt.size()) +
                         generate.sampling.max_tokens.value_or(context_length);
  return static_cast<int32_t>(std::min<int64_t>(wanted, context_length));
}

}  // namespace baton
