#include "http/http_message.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(HttpRequest, FindsAHeaderInAnyCase) {
  const HttpRequest request = {.id = "",
                               .method = "GET",
                               .path = "/",
                               .query = "",
                               .headers = {{"Accept", "a"}, {"ACCEPT", "b"}},
                               .body = ""};
  ASSERT_NE(request.Header("accept"), nullptr);
  EXPECT_EQ(*request.Header("accept"), "a");
  EXPECT_EQ(request.Header("accep"), nullptr);
}

TEST(PercentDecode, TakesHexadecimalDigitsAndNothingElse) {
  EXPECT_EQ(PercentDecode("a%2Fb%2f%20"), "a/b/ ");
  EXPECT_EQ(PercentDecode(""), "");
  EXPECT_EQ(PercentDecode("%"), std::nullopt);
  EXPECT_EQ(PercentDecode("ab%2"), std::nullopt);
  EXPECT_EQ(PercentDecode("%g0"), std::nullopt);
  EXPECT_EQ(PercentDecode("%%41"), std::nullopt);
}

TEST(HttpIdIsSane, RefusesWhatCouldBreakAHeaderOrALog) {
  EXPECT_TRUE(HttpIdIsSane("req-1_a.b:c/d+e=f@g"));
  EXPECT_TRUE(HttpIdIsSane(std::string(128, 'a')));
  EXPECT_FALSE(HttpIdIsSane(std::string(129, 'a')));
  for (const char* bad : {"", "a b", "a\nb", "a\"b", "<a>", "\xc3\xa4", "a\x01"}) {
    EXPECT_FALSE(HttpIdIsSane(bad)) << bad;
  }
}

TEST(HttpListHas, ComparesWholeElements) {
  EXPECT_TRUE(HttpListHas("keep-alive, Upgrade", "upgrade"));
  EXPECT_TRUE(HttpListHas("close", "CLOSE"));
  EXPECT_FALSE(HttpListHas("closed", "close"));
  EXPECT_FALSE(HttpListHas("", "close"));
}

TEST(HttpReason, NamesTheStatus) {
  EXPECT_EQ(HttpReason(404), "Not Found");
  EXPECT_EQ(HttpReason(799), "Unknown");
}

}  // namespace
}  // namespace baton
