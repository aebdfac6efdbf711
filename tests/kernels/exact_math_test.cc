#include "kernels/exact_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

namespace baton {
namespace {

constexpr uint64_t kSeed = 20261;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(ExactMath, ExpIsWithinAFewUlpOfLibm) {
  std::mt19937_64 random(kSeed);
  std::uniform_real_distribution<double> uniform(-708, 709);
  for (int i = 0; i < 200000; ++i) {
    const double x = i % 2 == 0 ? uniform(random) : uniform(random) / 700;
    ASSERT_NEAR(ExactExp(x) / std::exp(x), 1.0, 1e-15) << x << " seed " << kSeed;
  }
}

TEST(ExactMath, ExpAtTheEdges) {
  EXPECT_EQ(ExactExp(0), 1.0);
  EXPECT_EQ(ExactExp(-0.0), 1.0);
  EXPECT_EQ(ExactExp(kInfinity), kInfinity);
  EXPECT_EQ(ExactExp(-kInfinity), 0.0);
  EXPECT_EQ(ExactExp(710), kInfinity);
  EXPECT_NEAR(ExactExp(709.78) / std::exp(709.78), 1, 1e-15);
  EXPECT_NEAR(ExactExp(-740) / std::exp(-740.0), 1, 0.01);  // subnormals have few bits
  EXPECT_EQ(ExactExp(-746), 0.0);
  EXPECT_TRUE(std::isnan(ExactExp(std::nan(""))));
}

TEST(ExactMath, LogIsWithinAFewUlpOfLibm) {
  std::mt19937_64 random(kSeed);
  std::uniform_real_distribution<double> exponent(-1070, 1020);
  std::uniform_real_distribution<double> near_one(0.5, 2);
  for (int i = 0; i < 200000; ++i) {
    const double x = i % 2 == 0 ? std::exp2(exponent(random)) : near_one(random);
    const double expected = std::log(x);
    ASSERT_NEAR(ExactLog(x), expected, 1e-15 * std::abs(expected) + 1e-300)
        << x << " seed " << kSeed;
  }
}

TEST(ExactMath, LogAtTheEdges) {
  EXPECT_EQ(ExactLog(1), 0.0);
  EXPECT_EQ(ExactLog(0), -kInfinity);
  EXPECT_EQ(ExactLog(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(ExactLog(-1)));
  EXPECT_TRUE(std::isnan(ExactLog(std::nan(""))));
  EXPECT_NEAR(ExactLog(std::numeric_limits<double>::denorm_min()), -744.4400719213812, 1e-12);
}

TEST(ExactMath, SinAndCosAreWithinAFewUlpOfLibm) {
  std::mt19937_64 random(kSeed);
  for (const double range : {1.0, 10.0, 1e3, 1e6, 2147483647.0}) {
    std::uniform_real_distribution<double> uniform(-range, range);
    for (int i = 0; i < 100000; ++i) {
      const double x = uniform(random);
      ASSERT_NEAR(ExactSin(x), std::sin(x), 5e-16) << x << " seed " << kSeed;
      ASSERT_NEAR(ExactCos(x), std::cos(x), 5e-16) << x << " seed " << kSeed;
    }
  }
}

TEST(ExactMath, WholePositionsAreExactToo) {
  for (int position = 0; position < 1000000; position += 37) {
    ASSERT_NEAR(ExactSin(position), std::sin(static_cast<double>(position)), 5e-16) << position;
    ASSERT_NEAR(ExactCos(position), std::cos(static_cast<double>(position)), 5e-16) << position;
  }
}

TEST(ExactMath, AnglesAtTheEdges) {
  EXPECT_EQ(ExactSin(0), 0.0);
  EXPECT_EQ(ExactCos(0), 1.0);
  EXPECT_TRUE(std::isnan(ExactSin(kInfinity)));
  EXPECT_TRUE(std::isnan(ExactCos(1e300)));
  EXPECT_TRUE(std::isnan(ExactCos(std::nan(""))));
}

// These values must be the same on every machine and compiler. Otherwise rotary tables would
// differ.
TEST(ExactMath, BitsAreFrozen) {
  EXPECT_EQ(ExactExp(-3.25), 0x1.3da368521902dp-5);
  EXPECT_EQ(ExactLog(10000.0), 0x1.26bb1bbb55516p+3);
  EXPECT_EQ(ExactSin(12345.678), -0x1.687d5890974a5p-1);
  EXPECT_EQ(ExactCos(987654.25), 0x1.e0aeff3330cabp-1);
}

}  // namespace
}  // namespace baton
