#include "bench/paired_differences.h"

#include <gtest/gtest.h>

#include <vector>

namespace baton {
namespace {

TEST(PairedDifferences, AConstantDifferenceIsCertain) {
  const MeanInterval found = DifferenceOf({3, 5, 9}, {1, 3, 7}, 1);
  EXPECT_EQ(found.mean, 2);
  EXPECT_EQ(found.low, 2);
  EXPECT_EQ(found.high, 2);
}

TEST(PairedDifferences, TheIntervalIsThatOfTheNormalApproximation) {
  std::vector<double> values;  // 0 and 1 alternate: mean 0.5, standard error 0.5 / sqrt(400)
  for (int i = 0; i < 400; ++i) values.push_back(i % 2);
  const MeanInterval found = MeanIntervalOf(values, 7);
  EXPECT_EQ(found.mean, 0.5);
  EXPECT_NEAR(found.low, 0.5 - 1.96 * 0.025, 0.006);
  EXPECT_NEAR(found.high, 0.5 + 1.96 * 0.025, 0.006);
}

TEST(PairedDifferences, EqualSeedsGiveEqualIntervals) {
  const std::vector<double> values = {1, 4, 2, 8};
  EXPECT_EQ(MeanIntervalOf(values, 3).low, MeanIntervalOf(values, 3).low);
  EXPECT_LT(MeanIntervalOf(values, 3).low, MeanIntervalOf(values, 3).high);
}

}  // namespace
}  // namespace baton
