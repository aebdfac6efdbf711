#include "routing/line_fit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace baton {
namespace {

constexpr LineFitOptions kOptions{
    .intercept = 100, .slope = 0.5, .typical_x = 100, .floor = 1, .ceiling = 1e6};

TEST(LineFit, EqualsThePriorWithoutObservations) {
  const LineFit fit(kOptions);
  EXPECT_DOUBLE_EQ(fit.At(0), 100);
  EXPECT_DOUBLE_EQ(fit.At(200), 200);
  EXPECT_EQ(fit.observed(), 0);
}

TEST(LineFit, FindsALineThroughNoiseWhateverThePrior) {
  const uint32_t seed = 3;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> x(0, 1000);
  std::normal_distribution<double> noise(1, 0.1);
  LineFit fit(kOptions);
  for (int i = 0; i < 500; ++i) {
    const double at = x(random);
    fit.Observe(at, (20 + 0.05 * at) * noise(random));
  }
  EXPECT_NEAR(fit.At(0), 20, 4);
  EXPECT_NEAR(fit.At(1000), 70, 7);
}

TEST(LineFit, IdenticalObservationsScaleThePrior) {
  LineFit fit(kOptions);  // at 200 twice the value at 0
  for (int i = 0; i < 100; ++i) fit.Observe(50, 1250);
  EXPECT_NEAR(fit.At(50), 1250, 15);
  EXPECT_NEAR(fit.At(0), 1000, 15);
  EXPECT_NEAR(fit.At(200), 2000, 30);
}

TEST(LineFit, OneOutlierMovesItLittleAndALastingChangeMovesItFully) {
  LineFit fit(kOptions);
  for (int i = 0; i < 100; ++i) fit.Observe(i, 100);
  const double before = fit.At(50);
  fit.Observe(50, 1e6);
  EXPECT_LT(fit.At(50), before * 1.1);
  for (int i = 0; i < 1000; ++i) fit.Observe(i % 100, 10'000);
  EXPECT_NEAR(fit.At(50), 10'000, 500);
}

TEST(LineFit, WeightsSetTheInfluenceOfAnObservation) {
  LineFit light(kOptions);
  LineFit heavy(kOptions);
  light.Observe(100, 1500, 0.01);
  heavy.Observe(100, 1500, 1);
  EXPECT_LT(light.At(100), 200);
  EXPECT_GT(heavy.At(100), 900);
}

TEST(LineFit, IgnoresInvalidMeasurements) {
  LineFit fit(kOptions);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  for (const auto& [x, y, weight] : {std::tuple(nan, 1.0, 1.0),
                                     {1.0, nan, 1.0},
                                     {1.0, 1.0, nan},
                                     {infinity, 1.0, 1.0},
                                     {1.0, infinity, 1.0},
                                     {-1.0, 1.0, 1.0},
                                     {1.0, 0.0, 1.0},
                                     {1.0, 1.0, 0.0}}) {
    fit.Observe(x, y, weight);
  }
  EXPECT_EQ(fit.observed(), 0);
  EXPECT_DOUBLE_EQ(fit.At(200), 200);
}

TEST(LineFit, StaysWithinItsBoundsForAnyObservations) {
  for (uint32_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> exponent(-8, 12);
    LineFit fit(kOptions);
    for (int i = 0; i < 200; ++i) {
      fit.Observe(std::pow(10, exponent(random)), std::pow(10, exponent(random)),
                  std::pow(10, exponent(random)));
      ASSERT_LE(fit.At(0), fit.At(1e3));
      for (const double x : {0.0, 1.0, 1e3, 1e12}) {
        ASSERT_GE(fit.At(x), kOptions.floor);
        ASSERT_LE(fit.At(x), kOptions.ceiling);
      }
    }
  }
}

TEST(LineFit, ANewWorkerStartsFromThisLineAndOneSlowSampleMovesItLittle) {
  LineFit fit(kOptions);
  for (int i = 0; i < 100; ++i) fit.Observe(i, 10);
  LineFit newcomer(kOptions);
  newcomer.SetPrior(fit);
  EXPECT_DOUBLE_EQ(newcomer.At(70), fit.At(70));
  newcomer.Observe(50, 1000);
  EXPECT_LT(newcomer.At(50), 15);
  for (int i = 0; i < 30; ++i) newcomer.Observe(i, 1000);
  EXPECT_GT(newcomer.At(50), 500);
}

TEST(LineFit, ALaterPriorReplacesAWrongOne) {
  LineFit wrong(kOptions);
  for (int i = 0; i < 100; ++i) wrong.Observe(i, 1000);
  LineFit right(kOptions);
  for (int i = 0; i < 100; ++i) right.Observe(i, 10);
  LineFit fit(kOptions);
  fit.SetPrior(wrong);
  fit.Observe(50, 11);
  EXPECT_GT(fit.At(50), 100);
  fit.SetPrior(right);
  EXPECT_LT(fit.At(50), 50);
}

TEST(LineFit, ALaterPriorDoesNotOutweighWhatWasObserved) {
  LineFit fleet(kOptions);
  LineFit slow(kOptions);
  slow.Observe(50, 1000);
  for (int i = 0; i < 100; ++i) fleet.Observe(i, 100);
  slow.SetPrior(fleet);
  EXPECT_GT(slow.At(50), 300) << "halfway between, as factors";
  slow.Observe(50, 1000);
  EXPECT_GT(slow.At(50), 600);
}

}  // namespace
}  // namespace baton
