// What a client has of each choice of an answer: what another worker goes on behind when the one
// that generates is lost.
//
// Workers are not trusted: what they say of a choice that is none, or has ended, is an error.
//
// Thread safety: belongs to its request.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "common/strong_int.h"

namespace baton {

class AnswerChoices {
 public:
  struct Choice {
    std::vector<TokenId> tokens;
    uint64_t logits_hash = 0;  // of the tokens, as the workers chain it
    bool finished = false;
  };

  // `most_tokens`: of a choice.
  explicit AnswerChoices(int32_t n, size_t most_tokens = std::numeric_limits<size_t>::max())
      : most_tokens_(most_tokens), choices_(static_cast<size_t>(n)) {}

  int32_t n() const { return static_cast<int32_t>(choices_.size()); }
  const std::vector<Choice>& all() const { return choices_; }
  bool all_finished() const;

  // Internal: no such choice goes on, or not for so long.
  absl::Status TakeTokens(int32_t choice, std::span<const TokenId> tokens, uint64_t logits_hash);
  absl::Status TakeFinish(int32_t choice);

  // Tokens whose KV another worker needs: the prompt's, and those of the choices that go on.
  int64_t TokensToGoOn(std::span<const TokenId> prompt) const;
  // What all choices begin with: the prompt, and of a single choice its tokens.
  std::vector<TokenId> CommonTokens(std::span<const TokenId> prompt) const;
  // The prompt and a choice as far as their KV may lie in caches: without the last token, which was
  // sampled and never fed.
  static std::vector<TokenId> Committed(std::span<const TokenId> prompt, const Choice& choice);

 private:
  absl::Status CheckGoesOn(int32_t choice) const;

  size_t most_tokens_;
  std::vector<Choice> choices_;
};

}  // namespace baton
