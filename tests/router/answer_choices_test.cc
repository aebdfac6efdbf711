#include "router/answer_choices.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

using Tokens = std::vector<TokenId>;

TEST(AnswerChoices, EachHasItsOwnTokensHashAndEnd) {
  AnswerChoices choices(2);
  EXPECT_TRUE(choices.TakeTokens(1, Tokens{7, 8}, 70).ok());
  EXPECT_TRUE(choices.TakeTokens(0, Tokens{5}, 50).ok());
  EXPECT_TRUE(choices.TakeTokens(1, Tokens{9}, 90).ok());
  EXPECT_EQ(choices.all()[0].tokens, (Tokens{5}));
  EXPECT_EQ(choices.all()[1].tokens, (Tokens{7, 8, 9}));
  EXPECT_EQ(choices.all()[0].logits_hash, 50u);
  EXPECT_EQ(choices.all()[1].logits_hash, 90u);
  EXPECT_EQ(choices.TokensToGoOn(Tokens{1, 2}), 6);
  EXPECT_TRUE(choices.TakeFinish(1).ok());
  EXPECT_FALSE(choices.all_finished());
  EXPECT_EQ(choices.TokensToGoOn(Tokens{1, 2}), 3);
  EXPECT_TRUE(choices.TakeFinish(0).ok());
  EXPECT_TRUE(choices.all_finished());
}

TEST(AnswerChoices, RefusesEventsOfUnknownOrEndedChoices) {
  AnswerChoices choices(2);
  for (const int32_t none : {-1, 2, INT32_MAX, INT32_MIN}) {
    EXPECT_EQ(choices.TakeTokens(none, Tokens{1}, 0).code(), absl::StatusCode::kInternal);
    EXPECT_EQ(choices.TakeFinish(none).code(), absl::StatusCode::kInternal);
  }
  EXPECT_TRUE(choices.TakeFinish(1).ok());
  EXPECT_EQ(choices.TakeTokens(1, Tokens{1}, 0).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(choices.TakeFinish(1).message(),
            "the decode worker sent an event of choice 1, which has ended");
  EXPECT_TRUE(choices.all()[1].tokens.empty());
}

TEST(AnswerChoices, RefusesMoreTokensThanTheLimit) {
  AnswerChoices choices(2, 5);
  EXPECT_TRUE(choices.TakeTokens(0, Tokens{1, 2, 3}, 0).ok());
  EXPECT_EQ(choices.TakeTokens(0, Tokens{4, 5, 6}, 0).message(),
            "the decode worker sent 6 tokens of choice 0; at most 5 are allowed");
  EXPECT_TRUE(choices.TakeTokens(0, Tokens{4, 5}, 0).ok());
  EXPECT_TRUE(choices.TakeTokens(1, Tokens{1, 2, 3, 4, 5}, 0).ok());
}

TEST(AnswerChoices, TheLastTokenOfAChoiceWasNeverFed) {
  EXPECT_EQ(AnswerChoices::Committed(Tokens{1, 2}, {}), (Tokens{1, 2}));
  EXPECT_EQ(AnswerChoices::Committed(Tokens{1, 2}, {.tokens = {3, 4}}), (Tokens{1, 2, 3}));
}

TEST(AnswerChoices, SeveralChoicesShareOnlyThePromptAndOneChoiceAlsoItsTokens) {
  AnswerChoices one(1);
  EXPECT_TRUE(one.TakeTokens(0, Tokens{5, 6}, 0).ok());
  EXPECT_EQ(one.CommonTokens(Tokens{1, 2}), (Tokens{1, 2, 5, 6}));
  AnswerChoices two(2);
  EXPECT_TRUE(two.TakeTokens(0, Tokens{5, 6}, 0).ok());
  EXPECT_EQ(two.CommonTokens(Tokens{1, 2}), (Tokens{1, 2}));
}

}  // namespace
}  // namespace baton
