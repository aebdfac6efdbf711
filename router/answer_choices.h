// Records the part of each choice's answer that the client has. If the decode worker is lost,
// another worker resumes the answer from this record.
//
// Workers are not trusted: an event for a choice that does not exist, or that has ended, is an
// error.
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
    uint64_t logits_hash = 0;  // over the tokens, chained as the workers do
    bool finished = false;
  };

  // `most_tokens` is the limit for one choice.
  explicit AnswerChoices(int32_t n, size_t most_tokens = std::numeric_limits<size_t>::max())
      : most_tokens_(most_tokens), choices_(static_cast<size_t>(n)) {}

  int32_t n() const { return static_cast<int32_t>(choices_.size()); }
  const std::vector<Choice>& all() const { return choices_; }
  bool all_finished() const;

  // Internal: the choice does not exist, has ended, or has too many tokens.
  absl::Status TakeTokens(int32_t choice, std::span<const TokenId> tokens, uint64_t logits_hash);
  absl::Status TakeFinish(int32_t choice);

  // Returns the number of tokens whose KV a resuming worker needs: the prompt's, and those of the
  // unfinished choices.
  int64_t TokensToGoOn(std::span<const TokenId> prompt) const;
  // Returns the tokens that all choices begin with: the prompt, and for a single choice also its
  // tokens.
  std::vector<TokenId> CommonTokens(std::span<const TokenId> prompt) const;
  // Returns the prompt and those tokens of a choice whose KV a cache may hold. The last token is
  // not among them: it was sampled but never fed to the model.
  static std::vector<TokenId> Committed(std::span<const TokenId> prompt, const Choice& choice);

 private:
  absl::Status CheckGoesOn(int32_t choice) const;

  size_t most_tokens_;
  std::vector<Choice> choices_;
};

}  // namespace baton
