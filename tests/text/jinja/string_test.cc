#include "text/jinja/string.h"

#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

using ::testing::ElementsAre;

TEST(JinjaString, MergesNeighboursOfEqualTrust) {
  JinjaString text("a", true);
  text.Append("b", true);
  text.Append("", false);
  text.Append("c", false);
  EXPECT_THAT(text.Segments(), ElementsAre(TextSegment{"ab", true}, TextSegment{"c", false}));
  EXPECT_FALSE(text.AllTrusted());
  EXPECT_TRUE(JinjaString().AllTrusted());
}

TEST(JinjaString, KeepsOriginsThroughSubstringsLikeAByteWiseModel) {
  const uint32_t seed = 7;
  std::mt19937 random(seed);
  SCOPED_TRACE(seed);
  for (int round = 0; round < 500; ++round) {
    JinjaString text;
    std::string origins;  // 't' or 'u' for each byte
    for (int i = 0; i < 8; ++i) {
      const bool trusted = random() % 2 == 0;
      const std::string bytes(random() % 4, static_cast<char>('a' + i));
      text.Append(bytes, trusted);
      origins += std::string(bytes.size(), trusted ? 't' : 'u');
    }
    const size_t begin = random() % (text.size() + 1);
    const size_t end = begin + random() % (text.size() - begin + 1);
    std::string seen;
    std::string bytes;
    bool previous = false;
    for (const TextSegment& segment : text.Substring(begin, end).Segments()) {
      ASSERT_FALSE(segment.text.empty());
      ASSERT_TRUE(seen.empty() || segment.trusted != previous);
      previous = segment.trusted;
      bytes += segment.text;
      seen += std::string(segment.text.size(), segment.trusted ? 't' : 'u');
    }
    EXPECT_EQ(bytes, text.bytes().substr(begin, end - begin));
    EXPECT_EQ(seen, origins.substr(begin, end - begin));
  }
}

TEST(JinjaString, MarksBytesFromAnOffsetOn) {
  JinjaString text("a", true);
  text.Append(JinjaString::MarkedFrom("bcd", 1));
  text.Append("e", false);
  EXPECT_THAT(text.Segments(),
              ElementsAre(TextSegment{"a", true}, TextSegment{"b", false},
                          TextSegment{"cd", false, true}, TextSegment{"e", false}));
  EXPECT_THAT(text.Substring(3, 5).Segments(),
              ElementsAre(TextSegment{"d", false, true}, TextSegment{"e", false}));
  EXPECT_THAT(JinjaString::MarkedFrom("b", 1).Segments(), ElementsAre(TextSegment{"b", false}));
  EXPECT_THAT(JinjaString::MarkedFrom("b", 0).Segments(),
              ElementsAre(TextSegment{"b", false, true}));
}

TEST(JinjaString, TakesOtherBytesOverTheSameOrigins) {
  JinjaString text("ab", true);
  text.Append("c", false);
  EXPECT_THAT(text.WithBytes("XYZ").Segments(),
              ElementsAre(TextSegment{"XY", true}, TextSegment{"Z", false}));
}

}  // namespace
}  // namespace baton
