#include "model/sampler_state.h"

#include <gtest/gtest.h>

#include <vector>

namespace baton {
namespace {

TEST(SamplerState, CountsPromptAndGeneratedTokensApart) {
  SamplerState state(std::vector<TokenId>{1, 2, 2});
  EXPECT_EQ(state.generated(), 0);
  for (const TokenId token : {5, 2, 5}) state.Accept(token);
  EXPECT_EQ(state.generated(), 3);
  ASSERT_EQ(state.counts().size(), 3u);
  EXPECT_TRUE(state.counts().at(1).in_prompt);
  EXPECT_EQ(state.counts().at(1).generated, 0);
  EXPECT_TRUE(state.counts().at(2).in_prompt);
  EXPECT_EQ(state.counts().at(2).generated, 1);
  EXPECT_FALSE(state.counts().at(5).in_prompt);
  EXPECT_EQ(state.counts().at(5).generated, 2);
}

}  // namespace
}  // namespace baton
