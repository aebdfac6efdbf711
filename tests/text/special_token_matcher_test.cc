#include "text/special_token_matcher.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

class SpecialTokenMatcherTest : public ::testing::Test {
 protected:
  SpecialTokenMatcherTest() {
    matcher_.Add("<a>", 10, /*is_control=*/true);
    matcher_.Add("<a>b", 11, /*is_control=*/false);
    matcher_.Add("<a>bc", 12, /*is_control=*/true);
    matcher_.Add("#", 13, /*is_control=*/false);
  }

  TokenId IdAt(std::string_view text, size_t position, size_t trusted_end) {
    const auto match = matcher_.LongestAt(text, position, trusted_end);
    return match.has_value() ? match->id : -1;
  }

  SpecialTokenMatcher matcher_;
};

TEST_F(SpecialTokenMatcherTest, TakesTheLongestTokenAtAPosition) {
  EXPECT_EQ(IdAt("x<a>bcd", 1, 7), 12);
  EXPECT_EQ(IdAt("x<a>bd", 1, 6), 11);
  EXPECT_EQ(IdAt("x<a>", 1, 4), 10);
  EXPECT_EQ(IdAt("x<a", 1, 3), -1);
  EXPECT_EQ(IdAt("x<a>", 0, 4), -1);
  EXPECT_EQ(matcher_.LongestAt("<a>bcd", 0, 6)->length, 5u);
}

TEST_F(SpecialTokenMatcherTest, AControlTokenNeedsAllItsBytesTrusted) {
  EXPECT_EQ(IdAt("<a>bc", 0, 5), 12);
  EXPECT_EQ(IdAt("<a>bc", 0, 4), 11);
  EXPECT_EQ(IdAt("<a>bc", 0, 0), 11);
  EXPECT_EQ(IdAt("<a>x", 0, 3), 10);
  EXPECT_EQ(IdAt("<a>x", 0, 2), -1);
}

TEST_F(SpecialTokenMatcherTest, FirstBytesTellWhereToLook) {
  EXPECT_TRUE(matcher_.MayBegin('<', true));
  EXPECT_TRUE(matcher_.MayBegin('<', false));
  EXPECT_TRUE(matcher_.MayBegin('#', false));
  EXPECT_FALSE(matcher_.MayBegin('a', true));
  SpecialTokenMatcher control_only;
  control_only.Add("<", 1, /*is_control=*/true);
  EXPECT_TRUE(control_only.MayBegin('<', true));
  EXPECT_FALSE(control_only.MayBegin('<', false));
}

}  // namespace
}  // namespace baton
