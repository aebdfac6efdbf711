#include "loadtest/prompt_tokens.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace baton {
namespace {

TEST(PromptTokens, EqualKeysGiveEqualTokens) {
  const PromptTokens tokens(5, 32'000);
  const PromptTokens same(5, 32'000);
  EXPECT_EQ(tokens.Of(TokenKey::kPrefix, 3, 100), same.Of(TokenKey::kPrefix, 3, 100));
  EXPECT_NE(tokens.Of(TokenKey::kPrefix, 3, 100), tokens.Of(TokenKey::kPrefix, 4, 100));
  EXPECT_NE(tokens.Of(TokenKey::kPrefix, 3, 100), tokens.Of(TokenKey::kChunk, 3, 100));
  EXPECT_NE(tokens.Of(TokenKey::kPrefix, 3, 100),
            PromptTokens(6, 32'000).Of(TokenKey::kPrefix, 3, 100));
}

TEST(PromptTokens, APartOfASequenceIsThatPart) {
  const PromptTokens tokens(5, 32'000);
  const std::vector<TokenId> whole = tokens.Of(TokenKey::kTurn, 1, 50);
  std::vector<TokenId> parts = tokens.Of(TokenKey::kTurn, 1, 20);
  tokens.Append(TokenKey::kTurn, 1, 20, 50, parts);
  EXPECT_EQ(parts, whole);
}

TEST(PromptTokens, TokensStayInTheMiddleOfTheVocabulary) {
  for (const int32_t vocabulary : {16, 100, 49'152}) {
    const PromptTokens tokens(1, vocabulary);
    const std::vector<TokenId> drawn = tokens.Of(TokenKey::kRequest, 0, 5000);
    const auto [low, high] = std::minmax_element(drawn.begin(), drawn.end());
    EXPECT_GE(*low, vocabulary / 8);
    EXPECT_LT(*high, vocabulary - vocabulary / 8);
    EXPECT_GT(std::set<TokenId>(drawn.begin(), drawn.end()).size(),
              static_cast<size_t>(std::min(2000, vocabulary / 2)));
  }
}

}  // namespace
}  // namespace baton
