// Arrival processes against their laws. The seeds are fixed, and the bounds are several standard
// errors wide, so a correct process never fails.
#include "loadtest/arrivals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "loadtest/seeded_random.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

constexpr size_t kGaps = 40'000;

struct GapStatistics {
  double mean = 0;
  double variation = 0;    // standard deviation / mean
  double share_above = 0;  // share of gaps above the mean
};

GapStatistics StatisticsOf(const ArrivalOptions& options) {
  ArrivalTimes times(options);
  int64_t last = times.NextUs();
  EXPECT_EQ(last, 0) << "the first request is sent at once";
  std::vector<double> gaps;
  for (size_t i = 0; i < kGaps; ++i) {
    const int64_t next = times.NextUs();
    EXPECT_GE(next, last);
    gaps.push_back(static_cast<double>(next - last) / 1e6);
    last = next;
  }
  GapStatistics out;
  for (const double gap : gaps) out.mean += gap / kGaps;
  double variance = 0;
  for (const double gap : gaps) variance += (gap - out.mean) * (gap - out.mean) / kGaps;
  out.variation = std::sqrt(variance) / out.mean;
  out.share_above = static_cast<double>(std::count_if(gaps.begin(), gaps.end(),
                                                      [&](double gap) { return gap > out.mean; })) /
                    kGaps;
  return out;
}

TEST(Arrivals, PoissonGapsAreExponential) {
  for (const uint64_t seed : {1, 2, 3}) {
    SCOPED_TRACE(seed);
    const GapStatistics gaps =
        StatisticsOf({.kind = ArrivalKind::kPoisson, .rate_per_s = 20, .seed = seed});
    EXPECT_NEAR(gaps.mean, 0.05, 0.05 * 0.03);
    EXPECT_NEAR(gaps.variation, 1, 0.04);
    EXPECT_NEAR(gaps.share_above, std::exp(-1), 0.015);
  }
}

TEST(Arrivals, BurstinessIsTheShapeOfGammaGaps) {
  for (const double shape : {0.25, 0.5, 1.0, 4.0, 25.0}) {
    SCOPED_TRACE(shape);
    const GapStatistics gaps = StatisticsOf(
        {.kind = ArrivalKind::kGamma, .rate_per_s = 5, .burstiness = shape, .seed = 7});
    EXPECT_NEAR(gaps.mean, 0.2, 0.2 * 0.05);
    EXPECT_NEAR(gaps.variation, 1 / std::sqrt(shape), 0.06 / std::sqrt(shape));
  }
}

TEST(Arrivals, ConstantGapsAreEqualAndDoNotDrift) {
  ArrivalTimes times({.kind = ArrivalKind::kConstant, .rate_per_s = 3, .seed = 1});
  for (int i = 0; i <= 3000; ++i) {
    const int64_t at = times.NextUs();
    EXPECT_NEAR(static_cast<double>(at), i * 1e6 / 3, 2);
  }
}

TEST(Arrivals, TheSeedDecides) {
  const auto first = [](uint64_t seed) {
    ArrivalTimes times({.kind = ArrivalKind::kPoisson, .rate_per_s = 1, .seed = seed});
    std::vector<int64_t> out;
    for (int i = 0; i < 5; ++i) out.push_back(times.NextUs());
    return out;
  };
  EXPECT_EQ(first(9), first(9));
  EXPECT_NE(first(9), first(10));
}

TEST(Arrivals, NamesAreParsed) {
  EXPECT_EQ(*ParseArrivalKind("gamma"), ArrivalKind::kGamma);
  EXPECT_EQ(*ParseArrivalKind("closed"), ArrivalKind::kClosed);
  EXPECT_THAT(std::string(ParseArrivalKind("uniform").status().message()),
              HasSubstr("is \"uniform\"; must be one of poisson, gamma, constant, trace, closed"));
}

}  // namespace
}  // namespace baton
