#include "text/stop_matcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "text/utf8.h"

namespace baton {
namespace {

TEST(StopMatcher, FindsAStopAcrossParts) {
  StopMatcher matcher({"STOP"});
  auto result = matcher.Append("go ST");
  EXPECT_EQ(result.emit, "go ");
  EXPECT_FALSE(result.stopped);
  result = matcher.Append("OP and more");
  EXPECT_EQ(result.emit, "");
  EXPECT_TRUE(result.stopped);
  result = matcher.Append("later");
  EXPECT_EQ(result.emit, "");
  EXPECT_TRUE(result.stopped);
  EXPECT_EQ(matcher.Flush(), "");
}

TEST(StopMatcher, EmitsHeldTextWhenItCannotBecomeAStop) {
  StopMatcher matcher({"aab"});
  EXPECT_EQ(matcher.Append("aa").emit, "");
  EXPECT_EQ(matcher.Append("a").emit, "a");
  EXPECT_EQ(matcher.Append("c").emit, "aac");
  EXPECT_EQ(matcher.Append("xa").emit, "x");
  EXPECT_EQ(matcher.Flush(), "a");
}

TEST(StopMatcher, TheFirstStopToBeCompleteWinsAndOfSeveralTheLongest) {
  const auto first = StopMatcher({"abcd", "bc"}).Append("xabcd");
  EXPECT_TRUE(first.stopped);
  EXPECT_EQ(first.emit, "xa");
  const auto longest = StopMatcher({"c", "bc", "abc"}).Append("xabc");
  EXPECT_TRUE(longest.stopped);
  EXPECT_EQ(longest.emit, "x");
}

TEST(StopMatcher, EmitsEverythingAtOnceWithoutStops) {
  StopMatcher matcher({"", ""});
  const auto result = matcher.Append("text");
  EXPECT_EQ(result.emit, "text");
  EXPECT_FALSE(result.stopped);
  EXPECT_EQ(matcher.Flush(), "");
}

TEST(StopMatcher, EmitsWholeCharacters) {
  StopMatcher matcher({"éa", "€"});
  for (const char* part : {"è", "é", "b", "₭", "éé", "x"}) {
    const std::string emit = matcher.Append(part).emit;
    EXPECT_EQ(ValidUtf8Prefix(emit), emit.size()) << part;
  }
}

// Naive model: finds the shortest prefix of the text that ends with a stop string.
struct Naive {
  size_t emitted;
  bool stopped;
};

Naive NaiveMatch(const std::vector<std::string>& stops, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : stops) {
      if (stop.size() <= end && text.compare(end - stop.size(), stop.size(), stop) == 0) {
        longest = std::max(longest, stop.size());
      }
    }
    if (longest > 0) return {end - longest, true};
  }
  size_t held = 0;
  for (const std::string& stop : stops) {
    for (size_t n = held + 1; n <= std::min(stop.size(), text.size()); ++n) {
      if (text.compare(text.size() - n, n, stop, 0, n) == 0) held = n;
    }
  }
  return {text.size() - held, false};
}

TEST(StopMatcher, EqualsTheDefinitionAfterEveryPart) {
  const unsigned seed = 17;
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto random_text = [&](size_t length) {
    std::string text(length, 'a');
    for (char& c : text) c = static_cast<char>('a' + random() % 3);
    return text;
  };
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> stops(1 + random() % 4);
    for (std::string& stop : stops) stop = random_text(1 + random() % 6);
    StopMatcher matcher(stops);
    std::string text, emitted;
    for (int part = 0; part < 8; ++part) {
      const std::string added = random_text(random() % 5);
      text += added;
      const auto result = matcher.Append(added);
      emitted += result.emit;
      const Naive naive = NaiveMatch(stops, text);
      ASSERT_EQ(result.stopped, naive.stopped) << text;
      ASSERT_EQ(emitted, text.substr(0, naive.emitted)) << text;
      if (naive.stopped) break;
    }
    const bool stopped = NaiveMatch(stops, text).stopped;
    emitted += matcher.Flush();
    if (!stopped) {
      ASSERT_EQ(emitted, text);
    }
  }
}

}  // namespace
}  // namespace baton
