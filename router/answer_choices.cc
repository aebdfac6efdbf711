#include "router/answer_choices.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace baton {

bool AnswerChoices::all_finished() const {
  return std::all_of(choices_.begin(), choices_.end(),
                     [](const Choice& choice) { return choice.finished; });
}

absl::Status AnswerChoices::CheckGoesOn(int32_t choice) const {
  if (choice < 0 || choice >= n()) {
    return absl::InternalError(absl::StrCat("the decode worker sent an event of choice ", choice,
                                            "; the number of choices is ", n()));
  }
  if (!choices_[static_cast<size_t>(choice)].finished) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("the decode worker sent an event of choice ", choice, ", which has ended"));
}

absl::Status AnswerChoices::TakeTokens(int32_t choice, std::span<const TokenId> tokens,
                                       uint64_t logits_hash) {
  RETURN_IF_ERROR(CheckGoesOn(choice));
  Choice& taker = choices_[static_cast<size_t>(choice)];
  if (tokens.size() > most_tokens_ - taker.tokens.size()) {
    return absl::InternalError(
        absl::StrCat("the decode worker sent ", taker.tokens.size() + tokens.size(),
                     " tokens of choice ", choice, "; at most ", most_tokens_, " are allowed"));
  }
  taker.tokens.insert(taker.tokens.end(), tokens.begin(), tokens.end());
  taker.logits_hash = logits_hash;
  return absl::OkStatus();
}

absl::Status AnswerChoices::TakeFinish(int32_t choice) {
  RETURN_IF_ERROR(CheckGoesOn(choice));
  choices_[static_cast<size_t>(choice)].finished = true;
  return absl::OkStatus();
}

int64_t AnswerChoices::TokensToGoOn(std::span<const TokenId> prompt) const {
  auto tokens = static_cast<int64_t>(prompt.size());
  for (const Choice& choice : choices_) {
    if (!choice.finished) tokens += static_cast<int64_t>(choice.tokens.size());
  }
  return tokens;
}

std::vector<TokenId> AnswerChoices::CommonTokens(std::span<const TokenId> prompt) const {
  std::vector<TokenId> tokens(prompt.begin(), prompt.end());
  if (n() == 1) tokens.insert(tokens.end(), choices_[0].tokens.begin(), choices_[0].tokens.end());
  return tokens;
}

std::vector<TokenId> AnswerChoices::Committed(std::span<const TokenId> prompt,
                                              const Choice& choice) {
  std::vector<TokenId> committed(prompt.begin(), prompt.end());
  if (!choice.tokens.empty()) {
    committed.insert(committed.end(), choice.tokens.begin(), choice.tokens.end() - 1);
  }
  return committed;
}

}  // namespace baton
