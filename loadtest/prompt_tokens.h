// Makes the token ids of prompts from keys. Equal keys give equal tokens.
//
// Thread safety: immutable after construction.
#pragma once

#include <cstdint>
#include <vector>

#include "common/token_id.h"

namespace baton {

// What the tokens stand for. Keys of different kinds never give equal sequences by plan.
enum class TokenKey : uint64_t { kRequest = 1, kPrefix, kTurn, kTraceBlock, kSystem, kChunk };

class PromptTokens {
 public:
  // Tokens come from the middle three quarters of a vocabulary of this size, because special tokens
  // are at its ends. REQUIRES: vocabulary >= 16.
  PromptTokens(uint64_t seed, int32_t vocabulary);

  // Appends the tokens `begin` to `end` of the sequence that the keys name.
  void Append(TokenKey kind, uint64_t key, int64_t begin, int64_t end,
              std::vector<TokenId>& out) const;
  std::vector<TokenId> Of(TokenKey kind, uint64_t key, int64_t count) const;

 private:
  const uint64_t seed_;
  const int32_t first_;
  const uint64_t count_;
};

}  // namespace baton
