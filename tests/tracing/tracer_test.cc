#include "tracing/tracer.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/tracing/recorded_spans.h"

namespace baton {
namespace {

TEST(Tracer, ASpanOfAClientsTraceBelongsToItAndIsSampledAsItIs) {
  RecordedSpans recorded;
  const Tracer tracer = recorded.TracerOf(/*share=*/0);
  for (const bool sampled : {false, true}) {
    const TraceContext client = {
        .trace = {.high = 5, .low = 6}, .span = 7, .sampled = sampled};
    const TraceContext span = tracer.NewSpan(client);
    EXPECT_EQ(span.trace, client.trace);
    EXPECT_NE(span.span, client.span);
    EXPECT_EQ(span.sampled, sampled);
    tracer.Record({.context = span, .name = sampled ? "kept" : "lost"});
  }
  ASSERT_EQ(recorded.spans.size(), 1u);
  EXPECT_EQ(recorded.spans[0].name, "kept");
}

TEST(Tracer, SamplesAShareOfTheNewTracesByTheirIds) {
  constexpr int kTraces = 20'000;
  std::mt19937_64 random(7);
  RecordedSpans recorded;
  const auto draw = [&] { return random(); };
  for (const double share : {0.0, 0.1, 0.5, 1.0}) {
    const Tracer tracer(share, draw, &recorded);
    int sampled = 0;
    for (int i = 0; i < kTraces; ++i) sampled += tracer.NewSpan(std::nullopt).sampled ? 1 : 0;
    EXPECT_NEAR(sampled, share * kTraces, 0.02 * kTraces) << share;
  }
  // The same id gives the same decision in every program.
  std::mt19937_64 left(3);
  std::mt19937_64 right(3);
  const Tracer one(0.3, [&] { return left(); }, &recorded);
  const Tracer other(0.3, [&] { return right(); }, &recorded);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(one.NewSpan(std::nullopt), other.NewSpan(std::nullopt));
  }
}

TEST(Tracer, NoIdIsZero) {
  RecordedSpans recorded;
  int calls = 0;
  const Tracer tracer(
      1, [&] { return ++calls % 2 == 0 ? uint64_t{42} : uint64_t{0}; }, &recorded);
  const TraceContext span = tracer.NewSpan(std::nullopt);
  EXPECT_EQ(span.trace.high, 42u);
  EXPECT_EQ(span.trace.low, 42u);
  EXPECT_EQ(span.span, 42u);
}

}  // namespace
}  // namespace baton
