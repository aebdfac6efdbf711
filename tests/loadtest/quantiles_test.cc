#include "loadtest/quantiles.h"

#include <gtest/gtest.h>

#include <vector>

#include "loadtest/seeded_random.h"

namespace baton {
namespace {

// The definition, counted: the least value with at least the share q of all values at or below it.
double NaiveQuantile(const std::vector<double>& values, int percent) {
  double best = 0;
  bool found = false;
  for (const double candidate : values) {
    size_t at_or_below = 0;
    for (const double value : values) at_or_below += value <= candidate;
    if (at_or_below * 100 < values.size() * static_cast<size_t>(percent)) continue;
    if (!found || candidate < best) best = candidate;
    found = true;
  }
  return best;
}

TEST(Quantiles, EqualTheNaiveModel) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    SeededRandom random(seed);
    std::vector<double> values(1 + random.Below(230));
    for (double& value : values) value = static_cast<double>(random.Below(50));
    for (const int percent : {1, 7, 50, 90, 95, 99, 100}) {
      std::vector<double> copy = values;
      EXPECT_EQ(QuantileOf(copy, percent / 100.0), NaiveQuantile(values, percent)) << percent;
    }
    std::vector<double> copy = values;
    const Distribution distribution = DistributionOf(copy);
    EXPECT_EQ(distribution.p50, NaiveQuantile(values, 50));
    EXPECT_EQ(distribution.p90, NaiveQuantile(values, 90));
    EXPECT_EQ(distribution.p95, NaiveQuantile(values, 95));
    EXPECT_EQ(distribution.p99, NaiveQuantile(values, 99));
    EXPECT_EQ(distribution.max, NaiveQuantile(values, 100));
    EXPECT_EQ(distribution.count, static_cast<int64_t>(values.size()));
  }
}

TEST(Quantiles, OfOneValueAreThatValue) {
  std::vector<double> one = {4};
  EXPECT_EQ(QuantileOf(one, 0.01), 4);
  EXPECT_EQ(QuantileOf(one, 1), 4);
  std::vector<double> none;
  EXPECT_EQ(DistributionOf(none).count, 0);
}

TEST(Quantiles, TheRankIsExactWhereTheProductIsNot) {
  // 0.07 * 100 is 7.000000000000001 in binary.
  EXPECT_EQ(QuantileIndex(100, 0.07), 6u);
  EXPECT_EQ(QuantileIndex(100, 0.99), 98u);
  EXPECT_EQ(QuantileIndex(101, 0.99), 99u);
}

}  // namespace
}  // namespace baton
