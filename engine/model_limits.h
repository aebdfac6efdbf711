// What a worker's model allows a request to hold.
//
// Every refusal is InvalidArgument and names the field, its value and the limit.
//
// Thread safety: immutable.
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
  // `generated`: what was generated elsewhere, of each of the request's `n` choices or of none.
  absl::Status CheckRequest(std::span<const TokenId> prompt, int32_t n,
                            std::span<const GeneratedPart> generated,
                            const SamplingParams& sampling) const;
  absl::Status CheckPrefix(std::span<const TokenId> tokens) const;
  // Prompt and answer may not exceed this number of tokens.
  int32_t LengthLimit(const GenerateRequest& generate) const;
};

}  // namespace baton
