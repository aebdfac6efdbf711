#include "kernels/cpu/plain_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace baton {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

double UlpOf(double value) {
  const auto f = static_cast<float>(value);
  return double{std::nextafter(f, kInfinity)} - f;
}

// Tests every 97th float from the lowest to the highest argument with a normal result.
TEST(PlainMath, ExpIsWithinOneAndAHalfUlp) {
  double worst = 0;
  for (const float sign : {1.0f, -1.0f}) {
    const float limit = sign > 0 ? 88.376f : 87.3365f;
    for (uint32_t bits = 0x32000000u; bits < std::bit_cast<uint32_t>(limit); bits += 97) {
      const float x = sign * std::bit_cast<float>(bits);
      const double expected = std::exp(double{x});
      worst = std::max(worst, std::abs(double{plain::Exp(x)} - expected) / UlpOf(expected));
    }
  }
  EXPECT_LT(worst, 1.5);
}

TEST(PlainMath, ExpAtTheEdges) {
  EXPECT_EQ(plain::Exp(0.0f), 1.0f);
  EXPECT_EQ(plain::Exp(-0.0f), 1.0f);
  EXPECT_EQ(std::bit_cast<uint32_t>(plain::Exp(-kInfinity)), 0u);
  EXPECT_EQ(std::bit_cast<uint32_t>(plain::Exp(-1000.0f)), 0u);
  EXPECT_EQ(plain::Exp(std::nextafter(-87.3365478515625f, -kInfinity)), 0.0f);
  EXPECT_NEAR(plain::Exp(-87.3365478515625f) / 0x1p-126f, 1, 1e-5);
  EXPECT_EQ(plain::Exp(kInfinity), plain::Exp(88.3762626647949f));
  EXPECT_NEAR(plain::Exp(kInfinity) / 2.4061436e38, 1, 1e-6);
  EXPECT_TRUE(std::isnan(plain::Exp(std::nanf(""))));
}

TEST(PlainMath, RoundIntIsNearestEven) {
  for (const float x : {0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 126.5f, 0.49999997f, -3.75f, 4194303.0f}) {
    EXPECT_EQ(plain::RoundInt(x).value, std::nearbyint(x)) << x;
    EXPECT_EQ(static_cast<int32_t>(plain::RoundInt(x).integer), std::lrint(x)) << x;
  }
}

TEST(PlainMath, SiluIsNearItsDefinition) {
  for (float x = -20; x < 20; x += 0.37f) {
    const double expected = x / (1 + std::exp(-double{x}));
    EXPECT_NEAR(plain::Silu(x), expected, 1e-6 * std::abs(expected) + 1e-12);
  }
  EXPECT_EQ(plain::Silu(1000.0f), 1000.0f);
  EXPECT_NEAR(plain::Silu(-1000.0f), 0, 1e-35);
}

// Uses values whose sum depends on the order, and adds them in the documented tree's order.
TEST(PlainMath, Tree16AddsInTheDocumentedOrder) {
  std::mt19937 random(5);
  std::uniform_real_distribution<float> uniform(-1e6f, 1e6f);
  for (int round = 0; round < 100; ++round) {
    float p[16];
    for (float& value : p) value = uniform(random) * (random() % 2 == 0 ? 1e-6f : 1.0f);
    const auto at4 = [&](int i) { return (p[i] + p[i + 8]) + (p[i + 4] + p[i + 12]); };
    const float expected = (at4(0) + at4(2)) + (at4(1) + at4(3));
    EXPECT_EQ(plain::Tree16(p), expected);
  }
}

TEST(PlainMath, Dot16PutsElementsInLanesModulo16) {
  std::mt19937 random(6);
  std::normal_distribution<float> normal;
  for (const int n : {0, 1, 15, 16, 17, 64, 100}) {
    std::vector<float> a(n), b(n);
    for (float& value : a) value = normal(random);
    for (float& value : b) value = normal(random);
    float lanes[16] = {};
    for (int lane = 0; lane < 16; ++lane) {
      for (int i = lane; i < n; i += 16) lanes[lane] = std::fma(a[i], b[i], lanes[lane]);
    }
    EXPECT_EQ(plain::Dot16(a.data(), b.data(), n), plain::Tree16(lanes));
    double exact = 0;
    for (int i = 0; i < n; ++i) exact += double{a[i]} * b[i];
    EXPECT_NEAR(plain::Dot16(a.data(), b.data(), n), exact, 1e-4);
  }
}

TEST(PlainMath, QuantizedGroupsAreWithinHalfAStep) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (int round = 0; round < 200; ++round) {
    float x[32];
    for (float& value : x) value = normal(random);
    int8_t q[32];
    float scale, scaled_sum;
    plain::QuantizeGroup(x, q, &scale, &scaled_sum);
    float amax = 0;
    int sum = 0;
    for (int i = 0; i < 32; ++i) {
      amax = std::max(amax, std::abs(x[i]));
      sum += q[i];
      EXPECT_NEAR(q[i] * scale, x[i], scale * 0.5001f);
    }
    EXPECT_EQ(scale, amax / 127);
    EXPECT_EQ(scaled_sum, scale * static_cast<float>(sum));
  }
}

TEST(PlainMath, QuantizedGroupsOfZerosAndOfTinyOrInfiniteValuesAreDefined) {
  float x[32] = {};
  int8_t q[32];
  float scale, scaled_sum;
  plain::QuantizeGroup(x, q, &scale, &scaled_sum);
  EXPECT_EQ(scale, 0.0f);
  EXPECT_EQ(scaled_sum, 0.0f);
  for (const int8_t value : q) EXPECT_EQ(value, 0);

  x[3] = 1e-40f;  // 127 / x is infinite, so the group becomes zeros
  plain::QuantizeGroup(x, q, &scale, &scaled_sum);
  for (const int8_t value : q) EXPECT_EQ(value, 0);
  EXPECT_EQ(scaled_sum, 0.0f);

  x[5] = -kInfinity;
  x[6] = std::nanf("");
  plain::QuantizeGroup(x, q, &scale, &scaled_sum);
  EXPECT_EQ(scale, kInfinity);
}

}  // namespace
}  // namespace baton
