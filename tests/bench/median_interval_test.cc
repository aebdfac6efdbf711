#include "bench/median_interval.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>
#include <vector>

namespace baton {
namespace {

std::vector<double> OneTo(int n) {
  std::vector<double> values(static_cast<size_t>(n));
  std::iota(values.begin(), values.end(), 1);
  return values;
}

TEST(MedianInterval, TheRanksAreThoseOfThePublishedTables) {
  for (const auto& [n, rank] : std::vector<std::pair<int, int>>{
           {6, 1}, {8, 1}, {9, 2}, {11, 2}, {12, 3}, {15, 4}, {20, 6}, {30, 10}}) {
    const MedianInterval found = MedianOf(OneTo(n));
    EXPECT_EQ(found.low, rank) << n;
    EXPECT_EQ(found.high, n + 1 - rank) << n;
    EXPECT_EQ(found.median, (n + 1) / 2.0) << n;
    EXPECT_GE(found.coverage, 0.95) << n;
  }
}

TEST(MedianInterval, FewerThanSixValuesReachNo95Percent) {
  for (int n = 1; n < 6; ++n) {
    const MedianInterval found = MedianOf(OneTo(n));
    EXPECT_EQ(found.low, 1);
    EXPECT_EQ(found.high, n);
    EXPECT_LT(found.coverage, 0.95);
  }
}

TEST(MedianInterval, TheIntervalHoldsTheMedianAsOftenAsItSays) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  std::lognormal_distribution<double> draw(0, 0.5);  // median 1
  constexpr int kRuns = 4000;
  int held = 0;
  double coverage = 0;
  for (int run = 0; run < kRuns; ++run) {
    std::vector<double> values(11);
    for (double& value : values) value = draw(random);
    const MedianInterval found = MedianOf(values);
    held += found.low <= 1 && 1 <= found.high ? 1 : 0;
    coverage = found.coverage;
  }
  const double deviation = std::sqrt(coverage * (1 - coverage) / kRuns);
  EXPECT_NEAR(static_cast<double>(held) / kRuns, coverage, 6 * deviation);
}

}  // namespace
}  // namespace baton
