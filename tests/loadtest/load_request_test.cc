#include "loadtest/load_request.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(LoadRequest, AllTokensAreThoseOfThePiecesInOrder) {
  LoadRequest request;
  request.pieces = {{.role = PieceRole::kSystem, .tokens = {1, 2}, .answer = {}},
                    {.role = PieceRole::kQuestion, .tokens = {3}, .answer = {}}};
  EXPECT_EQ(AllTokens(request), (std::vector<TokenId>{1, 2, 3}));
}

TEST(LoadRequest, EqualTokensAreEqualText) {
  const PromptPiece longer = {.role = PieceRole::kPrompt, .tokens = {5, 900, 77}, .answer = {}};
  const PromptPiece prefix = {.role = PieceRole::kPrompt, .tokens = {5, 900}, .answer = {}};
  EXPECT_TRUE(PieceText(longer).starts_with(PieceText(prefix) + " "));
  EXPECT_NE(PieceText(longer), PieceText(prefix));
}

TEST(LoadRequest, TheTextOfAnAnswerIsKept) {
  const PromptPiece answer = {.role = PieceRole::kAssistant, .tokens = {1}, .answer = "Yes."};
  EXPECT_EQ(PieceText(answer), "Yes.");
}

}  // namespace
}  // namespace baton
