#include "kernels/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace baton {
namespace {

// The definition of f16: sign · 2^(e−15) · 1.m, or sign · 2^-14 · 0.m for subnormals.
double F16Value(uint16_t h) {
  const int exponent = (h >> 10) & 31;
  const int mantissa = h & 1023;
  const double sign = (h & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

bool IsF16Nan(uint16_t h) { return (h & 0x7c00) == 0x7c00 && (h & 0x3ff) != 0; }

TEST(Half, EveryF16WidensToItsDefinitionAndComesBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto h = static_cast<uint16_t>(bits);
    const float wide = F16ToF32(h);
    if (IsF16Nan(h)) {
      EXPECT_TRUE(std::isnan(wide));
      EXPECT_EQ(F32ToF16(wide), h | 0x200) << bits;  // quiet, payload kept
      continue;
    }
    if ((h & 0x7fff) == 0x7c00) {
      EXPECT_TRUE(std::isinf(wide));
    } else {
      EXPECT_EQ(static_cast<double>(wide), F16Value(h)) << bits;
    }
    EXPECT_EQ(std::signbit(wide), (h & 0x8000) != 0);
    EXPECT_EQ(F32ToF16(wide), h) << bits;
  }
}

// Checks rounding to nearest, ties to even. Tests each midpoint between two finite positive f16
// values, and its float neighbours on both sides.
TEST(Half, F16NarrowingRoundsToNearestEvenAroundEveryMidpoint) {
  for (uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const auto low = static_cast<uint16_t>(bits);
    const auto high = static_cast<uint16_t>(bits + 1);
    const double upper = high == 0x7c00 ? 65536.0 : F16Value(high);
    const auto middle = static_cast<float>((F16Value(low) + upper) / 2);  // exact in binary32
    const float infinity = std::numeric_limits<float>::infinity();
    EXPECT_EQ(F32ToF16(std::nextafter(middle, 0.0f)), low) << bits;
    EXPECT_EQ(F32ToF16(std::nextafter(middle, infinity)), high) << bits;
    EXPECT_EQ(F32ToF16(middle), (low & 1) == 0 ? low : high) << bits;
    EXPECT_EQ(F32ToF16(-middle), 0x8000 | ((low & 1) == 0 ? low : high)) << bits;
  }
}

TEST(Half, F16NarrowingOverflowsToInfinityAndUnderflowsToZero) {
  EXPECT_EQ(F32ToF16(std::numeric_limits<float>::max()), 0x7c00);
  EXPECT_EQ(F32ToF16(-std::numeric_limits<float>::infinity()), 0xfc00);
  EXPECT_EQ(F32ToF16(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(F32ToF16(-0.0f), 0x8000);
}

TEST(Half, EveryBF16WidensToItsUpperBitsAndComesBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto b = static_cast<uint16_t>(bits);
    const float wide = BF16ToF32(b);
    EXPECT_EQ(std::bit_cast<uint32_t>(wide), bits << 16);
    EXPECT_EQ(F32ToBF16(wide), std::isnan(wide) ? b | 0x40 : b) << bits;
  }
}

TEST(Half, BF16NarrowingRoundsToNearestEvenAroundEveryMidpoint) {
  for (uint32_t bits = 0; bits < 0x7f80; ++bits) {
    const uint32_t middle = (bits << 16) | 0x8000;
    EXPECT_EQ(F32ToBF16(std::bit_cast<float>(middle - 1)), bits);
    EXPECT_EQ(F32ToBF16(std::bit_cast<float>(middle + 1)), bits + 1);
    EXPECT_EQ(F32ToBF16(std::bit_cast<float>(middle)), bits + (bits & 1));
  }
}

}  // namespace
}  // namespace baton
