#include "tracing/trace_context.h"

#include <gtest/gtest.h>

#include <string>

namespace baton {
namespace {

// The example of the W3C's recommendation.
constexpr char kExample[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

TEST(TraceContext, IsReadFromATraceParent) {
  const std::optional<TraceContext> read = ParseTraceParent(kExample);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->trace.high, 0x4bf92f3577b34da6u);
  EXPECT_EQ(read->trace.low, 0xa3ce929d0e0e4736u);
  EXPECT_EQ(read->span, 0x00f067aa0ba902b7u);
  EXPECT_TRUE(read->sampled);
  EXPECT_EQ(ToTraceParent(*read), kExample);
}

TEST(TraceContext, OnlyTheLastBitOfTheFlagsSaysThatItIsSampled) {
  std::string text = kExample;
  text.back() = '0';
  EXPECT_FALSE(ParseTraceParent(text)->sampled);
  text.back() = '2';
  EXPECT_FALSE(ParseTraceParent(text)->sampled);
  text.back() = '3';
  EXPECT_TRUE(ParseTraceParent(text)->sampled);
}

TEST(TraceContext, LaterVersionsMayHaveMoreFields) {
  std::string text = kExample;
  text[1] = '1';
  EXPECT_TRUE(ParseTraceParent(text).has_value());
  EXPECT_TRUE(ParseTraceParent(text + "-more").has_value());
  EXPECT_FALSE(ParseTraceParent(text + "more").has_value());
}

TEST(TraceContext, AnythingElseIsNoTraceParent) {
  const std::string good = kExample;
  EXPECT_FALSE(ParseTraceParent("").has_value());
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(ParseTraceParent(good.substr(0, length)).has_value()) << length;
  }
  EXPECT_FALSE(ParseTraceParent(good + "-").has_value()) << "version 00 has no more fields";
  for (size_t i = 0; i < good.size(); ++i) {
    for (const char c : {'g', 'A', ' ', '\0'}) {
      std::string bad = good;
      bad[i] = c;
      EXPECT_FALSE(ParseTraceParent(bad).has_value()) << bad;
    }
  }
  EXPECT_FALSE(ParseTraceParent("ff" + good.substr(2)).has_value());
  EXPECT_FALSE(
      ParseTraceParent("00-00000000000000000000000000000000-00f067aa0ba902b7-01").has_value());
  EXPECT_FALSE(
      ParseTraceParent("00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01").has_value());
}

}  // namespace
}  // namespace baton
