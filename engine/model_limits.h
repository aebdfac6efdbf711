// Checks requests against the limits of a worker's model.
//
// Every refusal is InvalidArgument and names the field, its value and the limit.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "engine/request.h"

namespace baton {

struct ModelLimits {
  int32_t vocabulary = 0;
  int32_t context_length = 0;  // tokens, prompt and answer

  absl::Status CheckTokens(std::string_view field, std::span<const TokenId> tokens) const;
  // `generated`: the tokens that another worker generated for each of the `n` choices, or empty.
  absl::Status CheckRequest(std::span<const TokenId> prompt, int32_t n,
                            std::span<const GeneratedPart> generated,
                            const SamplingParams& sampling) const;
  // Same for a chunked prompt. The context bounds its positions, not its tokens.
  absl::Status CheckChunkedRequest(const ChunkedPrompt& prompt, int32_t n,
                                   std::span<const GeneratedPart> generated,
                                   const SamplingParams& sampling) const;
  absl::Status CheckPrefix(std::span<const TokenId> tokens) const;
  // The prompt's chunks are to be pulled; its question may be empty (PullRequest::chunked).
  absl::Status CheckChunksToPull(const ChunkedPrompt& prompt) const;
  // Returns the largest total of prompt and answer tokens for this request. A chunked prompt may
  // have more tokens than the context, but the answer's positions end with it.
  int32_t LengthLimit(const GenerateRequest& generate) const;
};

}  // namespace baton
