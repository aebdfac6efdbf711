#include "kernels/tensor_core/exp2_weight.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

namespace baton {
namespace {

constexpr uint64_t kSeed = 7021;
constexpr float kFactor = 0.125f * 1.44269504f;
constexpr ScoreScale kScoreScale{kFactor, 1 / kFactor};

TEST(Exp2Weight, IsWithinTheCubicsErrorOfTheRealPower) {
  std::mt19937_64 random(kSeed);
  std::uniform_real_distribution<float> scores(-500, 500);
  double worst = 0;
  for (int i = 0; i < 200000; ++i) {
    const float z = scores(random);
    const double exponent = static_cast<double>(z) * static_cast<double>(kFactor);
    const float reference = static_cast<float>(std::ceil(exponent)) + static_cast<float>(i % 40);
    const double exact = std::exp2(exponent - reference);
    worst = std::max(worst, std::fabs(Exp2Weight(z, kScoreScale, reference) / exact - 1));
  }
  EXPECT_LT(worst, 7.6e-5);
  EXPECT_GT(worst, 7.0e-5);  // a better value would mean that another polynomial is measured
}

TEST(Exp2Weight, AnotherReferenceOnlyMovesTheExponent) {
  std::mt19937_64 random(kSeed);
  std::uniform_real_distribution<float> scores(-500, 0);
  for (int i = 0; i < 100000; ++i) {
    const float z = scores(random);
    const float weight = Exp2Weight(z, kScoreScale, 0);
    if (weight < 0x1p-80f) continue;
    for (const float reference : {-15.0f, 1.0f, 8.0f, 18.0f}) {
      ASSERT_EQ(Exp2Weight(z, kScoreScale, reference),
                std::ldexp(weight, static_cast<int>(-reference)))
          << z;
    }
  }
}

TEST(Exp2Weight, SmallScoresHaveTheFloorAndNoScoreIsNegative) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const float reference : {-2e6f, -3.0f, 0.0f, 77.0f, 2e6f}) {
    for (const float z : {-inf, -3e38f, -1e9f, std::nanf("")}) {
      const float least = Exp2Weight(z, kScoreScale, reference);
      // The floor's own rounding moves it by at most the spacing of floats near the reference.
      EXPECT_GT(least, 0x1p-102f) << z << " " << reference;
      EXPECT_LT(least, 0x1p-98f) << z << " " << reference;
    }
  }
}

TEST(PowerOfTwo, IsExactAndZeroBelowTheNormalNumbers) {
  for (int k = -126; k <= 0; ++k) {
    EXPECT_EQ(PowerOfTwo(static_cast<float>(k)), std::ldexp(1.0f, k));
  }
  EXPECT_EQ(PowerOfTwo(-127), 0);
  EXPECT_EQ(PowerOfTwo(-4e6f), 0);
  EXPECT_EQ(PowerOfTwo(std::nanf("")), 0);
  EXPECT_EQ(PowerOfTwo(-std::numeric_limits<float>::infinity()), 0);
}

}  // namespace
}  // namespace baton
