#include "kernels/tensor_core/fused_dot.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/half.h"
#include "tests/kernels/fast_kernels.h"

namespace baton {
namespace {

constexpr HalfType kHalfTypes[] = {HalfType::kBF16, HalfType::kF16};
constexpr uint32_t kNaNBits = 0x7fffffffu;

double Widen(HalfType type, uint16_t bits) {
  return type == HalfType::kBF16 ? BF16ToF32(bits) : F16ToF32(bits);
}
uint16_t Narrow(HalfType type, float value) {
  return type == HalfType::kBF16 ? F32ToBF16(value) : F32ToF16(value);
}
int LeastExponent(HalfType type) { return type == HalfType::kBF16 ? -126 : -14; }

// Independent of the code under test: in binary64 with the library's functions, where every value
// of the model is exact.
float ReferenceStep(HalfType type, int fraction_bits, const uint16_t* a, const uint16_t* b,
                    int count, float c) {
  double terms[17];
  int largest = std::numeric_limits<int>::min();
  const auto exponent = [](double x, int least) { return std::max(std::ilogb(x), least); };
  for (int i = 0; i < count; ++i) {
    const double x = Widen(type, a[i]), y = Widen(type, b[i]);
    terms[i] = x * y;
    const int least = LeastExponent(type);
    if (terms[i] != 0) largest = std::max(largest, exponent(x, least) + exponent(y, least));
  }
  terms[count] = c;
  if (c != 0) largest = std::max(largest, exponent(c, -126));
  double sum = 0;
  for (int i = 0; i <= count; ++i) {
    if (terms[i] != 0) sum += std::trunc(std::ldexp(terms[i], fraction_bits - largest));
  }
  if (sum == 0) return 0;
  const double exact = std::ldexp(sum, largest - fraction_bits);
  if (std::fabs(exact) >= 0x1p128) return static_cast<float>(std::copysign(HUGE_VAL, exact));
  float result = static_cast<float>(exact);
  if (std::fabs(result) > std::fabs(exact)) result = std::nextafterf(result, 0.0f);
  return result == 0 ? 0 : result;
}

float Reference(const DotModel& model, HalfType type, const std::vector<uint16_t>& a,
                const std::vector<uint16_t>& b, float c) {
  const int count = static_cast<int>(a.size());
  for (int i = 0; i < count; i += model.step) {
    const int terms = std::min(model.step, count - i);
    c = ReferenceStep(type, model.fraction_bits, a.data() + i, b.data() + i, terms, c);
  }
  return c;
}

struct Operands {
  std::vector<uint16_t> a, b;
  float c = 0;
};

uint16_t FiniteBits(HalfType type, uint64_t bits) {
  const uint16_t special = type == HalfType::kBF16 ? 0x7f80 : 0x7c00;
  const auto half = static_cast<uint16_t>(bits);
  return (half & special) == special ? half & 0x80ff : half;
}

// Operands that are meant to be hard for a wrong implementation. `kind` is below kKinds.
constexpr int kKinds = 8;
Operands MakeOperands(std::mt19937_64& random, HalfType type, int kind, int count) {
  std::normal_distribution<float> normal(0, 1);
  const auto spread = [&](int most) {
    return std::exp2(static_cast<float>(static_cast<int>(random() % (2 * most + 1)) - most));
  };
  Operands o{std::vector<uint16_t>(count), std::vector<uint16_t>(count), normal(random)};
  for (int i = 0; i < count; ++i) {
    const float wide = kind == 1 ? 13 : kind == 2 ? 6 : 0;
    o.a[i] = Narrow(type, normal(random) * spread(static_cast<int>(wide)));
    o.b[i] = Narrow(type, normal(random) * spread(static_cast<int>(wide)));
    if (kind == 3) {  // any finite bits, so also subnormals and overflow
      o.a[i] = FiniteBits(type, random());
      o.b[i] = FiniteBits(type, random());
    }
    if (kind == 4) {  // subnormals and the smallest normal numbers
      o.a[i] = static_cast<uint16_t>(random() & (type == HalfType::kBF16 ? 0x81ff : 0x87ff));
      o.b[i] = kind == 4 && random() % 4 == 0 ? o.a[i] : o.b[i];
    }
  }
  if (kind == 5) {  // sums that cancel but for a small rest
    for (int i = 1; i < count; i += 2) {
      o.a[i] = o.a[i - 1] ^ 0x8000;
      o.b[i] = static_cast<uint16_t>(o.b[i - 1] ^ (random() % 4 == 0));
    }
    o.c *= spread(20);
  }
  if (kind == 6) o.c *= spread(30);
  if (kind == 7) {  // zeros of both signs, and an accumulator of any finite bits
    for (int i = 0; i < count; ++i) {
      if (random() % 2 == 0) o.a[i] = random() & 0x8000;
      if (random() % 3 == 0) o.b[i] = random() & 0x8000;
    }
    const auto bits = static_cast<uint32_t>(random());
    o.c = std::bit_cast<float>((bits & 0x7f800000u) == 0x7f800000u ? bits & 0x80ffffffu : bits);
  }
  return o;
}

TEST(FusedDot, PlainAndFastAreTheReferenceForHardOperands) {
  std::mt19937_64 random(TestSeed());
  for (const HalfType type : kHalfTypes) {
    for (const DotModel& model : {kHopperDot, kAmpereDot}) {
      for (int round = 0; round < 24000; ++round) {
        const int kind = round % kKinds;
        const int count = round % 3 == 0 ? 1 + static_cast<int>(random() % 40) : 16;
        const Operands o = MakeOperands(random, type, kind, count);
        const uint32_t expected = std::bit_cast<uint32_t>(Reference(model, type, o.a, o.b, o.c));
        const float plain = PlainFusedDot(model, type, o.a.data(), o.b.data(), count, o.c);
        const float fast = FusedDot(model, type, o.a.data(), o.b.data(), count, o.c);
        ASSERT_EQ(std::bit_cast<uint32_t>(plain), expected) << "kind " << kind << " of " << count;
        ASSERT_EQ(std::bit_cast<uint32_t>(fast), expected) << "kind " << kind << " of " << count;
      }
    }
  }
}

// Each rule of the model changes results of ordinary operands. So a kernel with another rule cannot
// pass for this one.
TEST(FusedDot, EveryRuleIsVisibleInOrdinaryOperands) {
  std::mt19937_64 random(7011);
  int fewer_bits = 0, more_bits = 0, ampere = 0, nearest = 0, backwards = 0;
  constexpr int kRounds = 2000;
  for (int round = 0; round < kRounds; ++round) {
    Operands o = MakeOperands(random, HalfType::kBF16, 0, 64);
    const auto run = [&](const DotModel& model) {
      return PlainFusedDot(model, HalfType::kBF16, o.a.data(), o.b.data(), 64, o.c);
    };
    const float hopper = run(kHopperDot);
    fewer_bits += hopper != run({.fraction_bits = 24, .step = 16});
    more_bits += hopper != run({.fraction_bits = 26, .step = 16});
    ampere += hopper != run(kAmpereDot);
    double sum = o.c;
    for (int i = 0; i < 64; ++i) {
      sum += Widen(HalfType::kBF16, o.a[i]) * Widen(HalfType::kBF16, o.b[i]);
    }
    nearest += hopper != static_cast<float>(sum);
    std::reverse(o.a.begin(), o.a.end());
    std::reverse(o.b.begin(), o.b.end());
    backwards += hopper != run(kHopperDot);
  }
  for (const int differ : {fewer_bits, more_bits, ampere, nearest, backwards}) {
    EXPECT_GT(differ, kRounds / 100);
  }
}

TEST(FusedDot, OrderInsideAStepDoesNotMatter) {
  std::mt19937_64 random(7012);
  for (int round = 0; round < 2000; ++round) {
    Operands o = MakeOperands(random, HalfType::kF16, round % kKinds, 16);
    const float before = FusedDot(kHopperDot, HalfType::kF16, o.a.data(), o.b.data(), 16, o.c);
    std::rotate(o.a.begin(), o.a.begin() + 5, o.a.end());
    std::rotate(o.b.begin(), o.b.begin() + 5, o.b.end());
    const float after = FusedDot(kHopperDot, HalfType::kF16, o.a.data(), o.b.data(), 16, o.c);
    ASSERT_EQ(std::bit_cast<uint32_t>(before), std::bit_cast<uint32_t>(after));
  }
}

TEST(FusedDot, PublishedExamplesOfTruncation) {
  const uint16_t one = F32ToBF16(1), big = F32ToBF16(0x1p13f), minus_big = F32ToBF16(-0x1p13f);
  // 2^26 − 2^26 + 1.5: the 1.5 is cut off at 2^(26 − 25).
  const uint16_t a[3] = {big, minus_big, F32ToBF16(1.5f)}, b[3] = {big, big, one};
  EXPECT_EQ(FusedDot(kHopperDot, HalfType::kBF16, a, b, 3, 0), 0.0f);
  EXPECT_EQ(FusedDot({26, 16}, HalfType::kBF16, a, b, 3, 0), 1.0f);
  // The result is cut off, not rounded: 1 + 2^-24 + 2^-25 stays 1, and −1 − 2^-24 − 2^-25 stays −1.
  const uint16_t tiny[2] = {F32ToBF16(0x1p-24f), F32ToBF16(0x1p-25f)}, ones[2] = {one, one};
  EXPECT_EQ(FusedDot(kHopperDot, HalfType::kBF16, tiny, ones, 2, 1), 1.0f);
  const uint16_t minus[2] = {F32ToBF16(-0x1p-24f), F32ToBF16(-0x1p-25f)};
  EXPECT_EQ(FusedDot(kHopperDot, HalfType::kBF16, minus, ones, 2, -1), -1.0f);
}

TEST(FusedDot, SpecialOperands) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const HalfType type : kHalfTypes) {
    const auto dot = [&](float x0, float y0, float x1, float y1, float c) {
      const uint16_t a[16] = {Narrow(type, x0), Narrow(type, x1)};
      const uint16_t b[16] = {Narrow(type, y0), Narrow(type, y1)};
      const float plain = PlainFusedDot(kHopperDot, type, a, b, 16, c);
      const float fast = FusedDot(kHopperDot, type, a, b, 16, c);
      EXPECT_EQ(std::bit_cast<uint32_t>(plain), std::bit_cast<uint32_t>(fast));
      return fast;
    };
    const auto is_nan = [](float x) { return std::bit_cast<uint32_t>(x) == kNaNBits; };
    EXPECT_EQ(dot(inf, 2, 1, 1, 0), inf);
    EXPECT_EQ(dot(inf, -2, 1, 1, 5), -inf);
    EXPECT_EQ(dot(1, 1, 1, 1, -inf), -inf);
    EXPECT_TRUE(is_nan(dot(inf, 0, 1, 1, 0)));
    EXPECT_TRUE(is_nan(dot(inf, 1, inf, -1, 0)));
    EXPECT_TRUE(is_nan(dot(inf, 1, 1, 1, -inf)));
    EXPECT_TRUE(is_nan(dot(std::nanf(""), 0, 1, 1, 0)));
    EXPECT_TRUE(is_nan(dot(1, 1, 1, 1, std::nanf(""))));
    EXPECT_EQ(std::bit_cast<uint32_t>(dot(-0.0f, 1, -1, 0, -0.0f)), 0u);
  }
  const uint16_t huge[2] = {F32ToBF16(0x1p100f), F32ToBF16(-0x1p100f)};
  EXPECT_EQ(FusedDot(kHopperDot, HalfType::kBF16, huge, huge, 1, 0), inf);
  const uint16_t both[2] = {huge[0], huge[0]};
  EXPECT_EQ(FusedDot(kHopperDot, HalfType::kBF16, huge, both, 2, 3), 0.0f);
}

// A tile that a row cannot see multiplies by zeros. That must not change the accumulator.
TEST(FusedDot, ZeroProductsKeepTheAccumulator) {
  std::mt19937_64 random(7013);
  uint16_t zeros[16] = {0, 0x8000, 0, 0x8000};
  for (int round = 0; round < 5000; ++round) {
    const Operands o = MakeOperands(random, HalfType::kF16, 7, 16);
    if (o.c == 0) continue;
    const float kept = FusedDot(kHopperDot, HalfType::kF16, zeros, o.b.data(), 16, o.c);
    ASSERT_EQ(std::bit_cast<uint32_t>(kept), std::bit_cast<uint32_t>(o.c));
  }
}

}  // namespace
}  // namespace baton
