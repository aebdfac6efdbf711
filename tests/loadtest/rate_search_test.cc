#include "loadtest/rate_search.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "loadtest/load_summary.h"
#include "tests/loadtest/fake_service.h"

namespace baton {
namespace {

// Runs a search in which `good_share` says what share of 1,000 requests is good at a rate.
RateSearch Searched(double start, double lowest, double highest,
                    const std::function<double(double, bool)>& good_share) {
  RateSearch search(start, lowest, highest);
  int steps = 0;
  while (const std::optional<double> rate = search.NextRate()) {
    const double share = good_share(*rate, search.confirms());
    search.OnStep({.requests = 1000, .good = std::llround(1000 * share)});
    if (++steps > 200) {
      ADD_FAILURE() << "the search does not end";
      break;
    }
  }
  return search;
}

TEST(RateSearch, FindsTheEdgeFromBelowAndFromAbove) {
  for (const double edge : {0.02, 0.7, 3.0, 64.0, 900.0}) {
    for (const double start : {0.01, 1.0, 1000.0}) {
      const RateSearch search =
          Searched(start, 0.001, 1000, [&](double rate, bool) { return rate <= edge ? 1.0 : 0.5; });
      ASSERT_TRUE(search.result().has_value()) << edge << " from " << start;
      EXPECT_LE(search.result()->rate_per_s, edge);
      EXPECT_GE(search.result()->rate_per_s, edge / kRateResolution);
      EXPECT_TRUE(search.result()->is_confirmation);
      EXPECT_LE(search.steps().size(), 30u);
    }
  }
}

TEST(RateSearch, ARateIsConfirmedWithOtherRequestsOrLowered) {
  // In the search, 10 seems to hold. Run again, only 8 does.
  const RateSearch search = Searched(1, 0.01, 1000, [](double rate, bool confirms) {
    return rate <= (confirms ? 8.0 : 10.0) ? 1.0 : 0.9;
  });
  ASSERT_TRUE(search.result().has_value());
  EXPECT_LE(search.result()->rate_per_s, 8);
  EXPECT_GE(search.result()->rate_per_s, 8 / kRateResolution);
}

TEST(RateSearch, EndsIfNothingHoldsOrEverythingDoes) {
  const RateSearch none = Searched(1, 0.1, 1000, [](double, bool) { return 0.0; });
  EXPECT_FALSE(none.result().has_value());
  EXPECT_FALSE(none.reached_highest());
  const RateSearch all = Searched(1, 0.1, 50, [](double, bool) { return 1.0; });
  ASSERT_TRUE(all.result().has_value());
  EXPECT_EQ(all.result()->rate_per_s, 50);
  EXPECT_TRUE(all.reached_highest());
}

TEST(RateSearch, AStepThatIsNotValidDoesNotHold) {
  EXPECT_FALSE((RateStep{.requests = 100, .good = 100, .is_valid = false}).holds());
  EXPECT_FALSE((RateStep{.requests = 0, .good = 0}).holds());
  EXPECT_TRUE((RateStep{.requests = 100, .good = 99}).holds());
  EXPECT_FALSE((RateStep{.requests = 100, .good = 98}).holds());
}

TEST(RateSearch, ALateRunIsRepeatedAndNotTakenForAFailure) {
  RateSearch search(1, 0.01, 100);
  for (int i = 0; i < kMostLateRuns - 1; ++i) {
    search.OnStep({.requests = 10, .good = 10, .is_valid = false});
    EXPECT_EQ(search.NextRate(), 1) << "the same rate again";
  }
  search.OnStep({.requests = 10, .good = 10});
  EXPECT_EQ(search.NextRate(), 2);
  EXPECT_EQ(search.lost_to_lateness(), 0);
  for (int i = 0; i < kMostLateRuns; ++i) {
    search.OnStep({.requests = 10, .good = 10, .is_valid = false});
  }
  EXPECT_LT(*search.NextRate(), 2);
  EXPECT_EQ(search.lost_to_lateness(), 2);
}

TEST(RateSearch, TheConfidenceIsThatOfTheBinomialTest) {
  EXPECT_EQ(ShareConfidence(0, 0, 0.99), 0);
  EXPECT_NEAR(ShareConfidence(300, 300, 0.99), 1 - std::pow(0.99, 300), 1e-9);
  EXPECT_GT(ShareConfidence(300, 300, 0.99), 0.95);
  EXPECT_NEAR(ShareConfidence(100, 99, 0.99),
              1 - std::pow(0.99, 100) - 100 * 0.01 * std::pow(0.99, 99), 1e-9);
  EXPECT_LT(ShareConfidence(1000, 980, 0.99), 0.01);
}

// A queue with one server of 20 ms has a capacity of 50 requests a second. With equal gaps, every
// request meets an objective just above 20 ms up to that rate, and none for long above it.
TEST(RateSearch, FindsTheCapacityOfAKnownService) {
  const FakeServiceOptions service = {.prefill_us = 20'000, .gap_us = 0};
  RateSearch search(1, 0.01, 10'000);
  while (const std::optional<double> rate = search.NextRate()) {
    auto workload = MakeWorkload({.output_tokens = 1}, {});
    ASSERT_TRUE(workload.ok());
    LoadRunOptions options;
    options.arrivals = {.kind = ArrivalKind::kConstant, .rate_per_s = *rate, .seed = 1};
    options.max_requests = 300;
    LoadRun run(options, **workload);
    LoadResult result;
    result.objectives.ttft_ms = 25;
    result.records = FakeService(service).Play(run);
    const LoadSummary summary = SummaryOf(result);
    search.OnStep({.requests = summary.requests(), .good = summary.good});
  }
  ASSERT_TRUE(search.result().has_value());
  EXPECT_NEAR(search.result()->rate_per_s, 50, 50 * (kRateResolution - 1));
}

}  // namespace
}  // namespace baton
