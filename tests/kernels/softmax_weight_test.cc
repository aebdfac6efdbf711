#include "kernels/softmax_weight.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace baton {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(SoftmaxWeight, IsTheRoundedPowerOfTwo) {
  for (double exponent = -60; exponent <= 0; exponent += 0.00137) {
    const double exact = std::exp2(exponent) * static_cast<double>(kMaxSoftmaxWeight);
    EXPECT_NEAR(static_cast<double>(SoftmaxWeight(exponent)), exact, 0.75) << exponent;
  }
}

TEST(SoftmaxWeight, ExactAtWholePowersAndEnds) {
  for (int power = 0; power <= kSoftmaxWeightBits; ++power) {
    EXPECT_EQ(SoftmaxWeight(-power), kMaxSoftmaxWeight >> power);
  }
  EXPECT_EQ(SoftmaxWeight(-45.5), 0u);
  EXPECT_EQ(SoftmaxWeight(-1e300), 0u);
  EXPECT_EQ(SoftmaxWeight(-std::numeric_limits<double>::infinity()), 0u);
  EXPECT_EQ(SoftmaxWeight(std::numeric_limits<double>::quiet_NaN()), 0u);
}

TEST(SoftmaxWeight, TheSumIsThatOfSingleWeightsAtEveryLength) {
  constexpr uint64_t kSeed = 4;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  std::normal_distribution<float> normal(0, 5);
  std::vector<float> logits(100);
  for (float& logit : logits) logit = random() % 10 == 0 ? -kInfinity : normal(random);
  for (size_t size = 0; size <= logits.size(); ++size) {
    const std::span<const float> part(logits.data(), size);
    uint64_t expected = 0;
    for (const float logit : part) expected += SoftmaxWeight(SoftmaxExponent(logit, 20.0f, 1.25));
    EXPECT_EQ(SumSoftmaxWeights(part, 20.0f, 1.25), expected) << size;
  }
}

}  // namespace
}  // namespace baton
