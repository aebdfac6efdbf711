#include "text/jinja/string_operations.h"

#include <algorithm>
#include <limits>
#include <random>
#include <string>
#include <vector>

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

std::string RandomText(std::mt19937& random, size_t max_size) {
  std::string text(random() % (max_size + 1), 'a');
  for (char& c : text) c = static_cast<char>('a' + random() % 2);
  return text;
}

TEST(JinjaStringOperations, AgreesWithAPlainSearch) {
  const unsigned seed = 53;
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 20'000; ++round) {
    JinjaMeter meter({});
    const std::string text = RandomText(random, 200);
    const std::string needle = RandomText(random, 12);
    const size_t from = random() % (text.size() + 2);
    ASSERT_EQ(FindJinja(text, needle, from, meter).value(), text.find(needle, from))
        << "\"" << needle << "\" in \"" << text << "\" from " << from;
    if (needle.empty()) continue;
    const auto pieces =
        SplitJinjaFromRight(JinjaString(text, true), JinjaString(needle, true), 1, meter);
    const size_t last = text.rfind(needle);
    ASSERT_EQ(pieces->size(), last == std::string::npos ? 1u : 2u);
    ASSERT_EQ(pieces->front().bytes(), text.substr(0, last));
  }
}

// A needle that a naive search compares again at every position of the text. The limit allows work
// that is linear in needle and text, but not their product. A match is decided by the last byte.
class SelfSimilarNeedle : public ::testing::TestWithParam<bool> {
 protected:
  static constexpr size_t kNeedleBytes = size_t{1} << 20;
  static constexpr size_t kTextBytes = 4 * kNeedleBytes;

  SelfSimilarNeedle() {
    std::string needle(kNeedleBytes, 'a');
    (GetParam() ? needle.back() : needle.front()) = 'b';
    needle_ = JinjaString(needle, true);
  }
  absl::Status Everything(size_t max_work_bytes) const {
    JinjaMeter meter({.max_work_bytes = max_work_bytes});
    std::vector<absl::Status> results = {
        FindJinja(text_.bytes(), needle_.bytes(), 0, meter).status(),
        ReplaceJinja(text_, needle_, JinjaString(), -1, meter).status(),
        SplitJinja(text_, needle_, -1, meter).status(),
        SplitJinjaFromRight(text_, needle_, -1, meter).status()};
    const auto failed = std::find_if(results.begin(), results.end(),
                                     [](const absl::Status& status) { return !status.ok(); });
    return failed == results.end() ? absl::OkStatus() : *failed;
  }

  JinjaString text_{std::string(kTextBytes, 'a'), false};
  JinjaString needle_;
};

TEST_P(SelfSimilarNeedle, TakesLinearWork) {
  EXPECT_TRUE(Everything(16 * (kTextBytes + kNeedleBytes)).ok());
}

TEST_P(SelfSimilarNeedle, StopsInsideTheSearchAtTheLimit) {
  for (const size_t limit : {size_t{0}, kNeedleBytes, kTextBytes, 10 * kNeedleBytes}) {
    EXPECT_EQ(Everything(limit).code(), absl::StatusCode::kResourceExhausted) << limit;
  }
}

INSTANTIATE_TEST_SUITE_P(JinjaStringOperations, SelfSimilarNeedle, ::testing::Bool());

TEST(JinjaStringOperations, ManyFindsInARowAreChargedByTheirDistance) {
  JinjaMeter meter({.max_work_bytes = size_t{8} << 20});
  const JinjaString text(std::string(1 << 14, 'a'), false);
  EXPECT_TRUE(ReplaceJinja(text, JinjaString("a", true), JinjaString("b", true), -1, meter).ok());
}

TEST(JinjaStringOperations, StripsAnyCodePointOfTheGivenOnes) {
  const JinjaString text("éaèxéèé", true);
  const JinjaString characters("aèé", true);
  EXPECT_EQ(StripJinja(text, JinjaSide::kBoth, characters).bytes(), "x");
  EXPECT_EQ(StripJinja(text, JinjaSide::kLeft, characters).bytes(), "xéèé");
  EXPECT_EQ(StripJinja(text, JinjaSide::kRight, JinjaString("é", true)).bytes(), "éaèxéè");
  EXPECT_EQ(StripJinja(text, JinjaSide::kBoth, JinjaString()).bytes(), text.bytes());
}

TEST(JinjaStringOperations, AHostileReplaceStopsAtTheLimit) {
  JinjaMeter meter({});
  EXPECT_EQ(ReplaceJinja(JinjaString(std::string(1 << 20, 'a'), false), JinjaString("a", true),
                         JinjaString(std::string(4096, 'b'), true), -1, meter)
                .status()
                .code(),
            absl::StatusCode::kResourceExhausted);
}

// Every negative count means any number of splits. The lowest int64 must not be decremented, which
// UBSan checks.
TEST(JinjaStringOperations, SplitsAnyNumberOfTimesAtTheLowestCount) {
  constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
  JinjaMeter meter({});
  const JinjaString text("a b c", true);
  const JinjaString space(" ", true);
  EXPECT_EQ(SplitJinja(text, space, kLowest, meter)->size(), 3u);
  EXPECT_EQ(SplitJinja(text, std::nullopt, kLowest, meter)->size(), 3u);
  EXPECT_EQ(SplitJinjaFromRight(text, space, kLowest, meter)->size(), 3u);
  EXPECT_EQ(SplitJinja(text, space, 1, meter)->size(), 2u);
}

}  // namespace
}  // namespace baton
