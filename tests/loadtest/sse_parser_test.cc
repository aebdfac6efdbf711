#include "loadtest/sse_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "loadtest/seeded_random.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Feeds the parts and returns the events.
std::vector<std::string> EventsOf(const std::vector<std::string>& parts) {
  std::vector<std::string> events;
  SseParser parser(1000, [&](std::string_view data) { events.emplace_back(data); });
  for (const std::string& part : parts) EXPECT_TRUE(parser.Feed(part).ok());
  return events;
}

TEST(SseParser, EventsEndWithABlankLine) {
  EXPECT_THAT(EventsOf({"data: a\n\ndata: b\n\ndata: unfinished\n"}), ElementsAre("a", "b"));
  EXPECT_THAT(EventsOf({"data: a\r\n\r\ndata: b\r\rdata: c\n\r\n"}), ElementsAre("a", "b", "c"));
}

TEST(SseParser, DataOfSeveralLinesIsJoined) {
  EXPECT_THAT(EventsOf({"data: a\ndata: b\n\n"}), ElementsAre("a\nb"));
  EXPECT_THAT(EventsOf({"data\ndata\n\n"}), ElementsAre("\n"));
  EXPECT_THAT(EventsOf({"data:\n\n"}), ElementsAre(""));
}

TEST(SseParser, OnlyOneBlankIsRemoved) {
  EXPECT_THAT(EventsOf({"data:x\n\ndata:  y\n\n"}), ElementsAre("x", " y"));
}

TEST(SseParser, CommentsAndOtherFieldsAreSkipped) {
  EXPECT_THAT(EventsOf({": ping\n\nevent: x\nid: 1\nretry: 5\ndatax: no\ndata: yes\n\n: ping\n\n"}),
              ElementsAre("yes"));
  EXPECT_THAT(EventsOf({"\n\n\n"}), IsEmpty());
}

TEST(SseParser, AByteOrderMarkBelongsToNoLine) {
  EXPECT_THAT(EventsOf({"\xEF\xBB\xBF", "data: a\n\n"}), ElementsAre("a"));
}

TEST(SseParser, AnEventBeyondTheLimitIsAnErrorForGood) {
  std::vector<std::string> events;
  SseParser parser(10, [&](std::string_view data) { events.emplace_back(data); });
  EXPECT_TRUE(parser.Feed("data: abc\n\n").ok());
  const absl::Status fed = parser.Feed("data: 123456");
  EXPECT_THAT(std::string(fed.message()), HasSubstr("more than 10 bytes"));
  EXPECT_FALSE(parser.Feed("\n\ndata: b\n\n").ok());
  EXPECT_THAT(events, ElementsAre("abc"));
  SseParser many_lines(10, [](std::string_view) {});
  absl::Status last;
  for (int i = 0; i < 10; ++i) last = many_lines.Feed("data: ab\n");
  EXPECT_FALSE(last.ok());
}

// Random text out of the parts that matter, split at random places, gives the same events as whole.
TEST(SseParser, SplitsDoNotMatter) {
  const std::vector<std::string> pieces = {"data",
                                           ":",
                                           " ",
                                           "\n",
                                           "\r",
                                           "\r\n",
                                           "x",
                                           "event",
                                           "\n\n",
                                           ": c",
                                           "é",
                                           "{\"",
                                           std::string(1, '\0')};
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE(seed);
    SeededRandom random(seed);
    std::string text;
    for (int i = 0; i < 60; ++i) text += pieces[random.Below(pieces.size())];
    std::vector<std::string> parts;
    for (size_t at = 0; at < text.size();) {
      const size_t length = 1 + random.Below(7);
      parts.push_back(text.substr(at, length));
      at += length;
    }
    EXPECT_EQ(EventsOf(parts), EventsOf({text}));
  }
}

TEST(SseParser, RandomBytesDoNotCrash) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SeededRandom random(seed);
    SseParser parser(64, [](std::string_view) {});
    for (int i = 0; i < 50; ++i) {
      std::string bytes(random.Below(20), '\0');
      for (char& byte : bytes) byte = static_cast<char>(random.Below(256));
      (void)parser.Feed(bytes);
    }
  }
}

}  // namespace
}  // namespace baton
