#include "text/jinja_string_operations.h"

#include <string>

#include "gtest/gtest.h"

namespace baton {
namespace {

TEST(JinjaStringOperations, RefusesTheCaseOfTextPastAscii) {
  EXPECT_EQ(ChangeJinjaCase(JinjaString("ß", true), JinjaCase::kUpper).status().code(),
            absl::StatusCode::kUnimplemented);
}

TEST(JinjaStringOperations, ASplitPutTogetherIsTheText) {
  JinjaMeter meter({});
  JinjaString text("a--b", true);
  text.Append("-----c", false);
  const JinjaString separator("--", true);
  for (const int64_t cuts : {-1, 0, 1, 2, 9}) {
    for (const bool from_right : {false, true}) {
      const auto pieces = from_right ? SplitJinjaFromRight(text, separator, cuts, meter)
                                     : SplitJinja(text, separator, cuts, meter);
      ASSERT_TRUE(pieces.ok());
      std::string joined;
      for (const JinjaString& piece : *pieces) {
        joined += (&piece == &pieces->front() ? "" : "--") + piece.bytes();
      }
      EXPECT_EQ(joined, text.bytes());
    }
  }
}

TEST(JinjaStringOperations, AHostileReplaceStopsAtTheLimit) {
  JinjaMeter meter({});
  EXPECT_EQ(ReplaceJinja(JinjaString(std::string(1 << 20, 'a'), false), JinjaString("a", true),
                         JinjaString(std::string(4096, 'b'), true), -1, meter)
                .status()
                .code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace baton
