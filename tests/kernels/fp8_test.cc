#include "kernels/fp8.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#include "tests/kernels/naive_fp8.h"

namespace baton {
namespace {

TEST(Fp8, EveryByteWidensToItsDefinition) {
  for (int bits = 0; bits < 256; ++bits) {
    const auto byte = static_cast<uint8_t>(bits);
    EXPECT_EQ(static_cast<double>(Fp8ToF32(byte)), NaiveFp8Value(byte)) << bits;
    EXPECT_EQ(std::signbit(Fp8ToF32(byte)), bits >= 0x80) << bits;
  }
  EXPECT_EQ(Fp8ToF32(0x01), 0x1p-9f);
  EXPECT_EQ(Fp8ToF32(0x08), 0x1p-6f);
  EXPECT_EQ(Fp8ToF32(0x38), 1.0f);
  EXPECT_EQ(Fp8ToF32(0xfe), -448.0f);
  EXPECT_EQ(Fp8ToF32(0x7f), 480.0f);
}

TEST(Fp8, EveryNumberThatAWriteMakesComesBack) {
  for (int bits = 0; bits < 256; ++bits) {
    if ((bits & 0x7f) == 0x7f) continue;
    EXPECT_EQ(F32ToFp8(Fp8ToF32(static_cast<uint8_t>(bits))), bits);
  }
}

// Tests each midpoint between two adjacent positive numbers, subnormal ones too, and its float
// neighbours on both sides.
TEST(Fp8, RoundsToNearestEvenAroundEveryMidpoint) {
  for (int bits = 0; bits < 0x7e; ++bits) {
    const auto low = static_cast<uint8_t>(bits);
    const auto high = static_cast<uint8_t>(bits + 1);
    const auto middle = static_cast<float>((NaiveFp8Value(low) + NaiveFp8Value(high)) / 2);
    const float infinity = std::numeric_limits<float>::infinity();
    EXPECT_EQ(F32ToFp8(std::nextafter(middle, 0.0f)), low) << bits;
    EXPECT_EQ(F32ToFp8(std::nextafter(middle, infinity)), high) << bits;
    EXPECT_EQ(F32ToFp8(middle), bits % 2 == 0 ? low : high) << bits;
    EXPECT_EQ(F32ToFp8(-middle), 0x80 | (bits % 2 == 0 ? low : high)) << bits;
  }
}

TEST(Fp8, EqualsASearchForEveryExponent) {
  std::mt19937 random(7101);
  for (uint32_t exponent = 0; exponent < 255; ++exponent) {
    for (int i = 0; i < 300; ++i) {
      const uint32_t bits = exponent << 23 | (random() & 0x807fffffu);
      const auto value = std::bit_cast<float>(bits);
      ASSERT_EQ(F32ToFp8(value), NaiveFp8(value)) << value;
    }
  }
}

TEST(Fp8, NumbersOutOfRangeBecomeTheLargestAndZerosKeepTheirSign) {
  EXPECT_EQ(F32ToFp8(464.0f), 0x7e);
  EXPECT_EQ(F32ToFp8(1e30f), 0x7e);
  EXPECT_EQ(F32ToFp8(-std::numeric_limits<float>::max()), 0xfe);
  EXPECT_EQ(F32ToFp8(0.0f), 0x00);
  EXPECT_EQ(F32ToFp8(-0.0f), 0x80);
  EXPECT_EQ(F32ToFp8(0x1p-10f), 0x00);  // a tie with zero
  EXPECT_EQ(F32ToFp8(std::nextafter(0x1p-10f, 1.0f)), 0x01);
  EXPECT_EQ(F32ToFp8(-std::numeric_limits<float>::denorm_min()), 0x80);
}

TEST(Fp8, TheInverseIsFiniteForEveryLargestMagnitude) {
  EXPECT_EQ(Fp8Inverse(0.0f), 0.0f);
  EXPECT_EQ(Fp8Inverse(448.0f), 1.0f);
  EXPECT_EQ(Fp8Inverse(3.0f), 448.0f / 3.0f);
  for (const float tiny : {1e-36f, 1e-38f, std::numeric_limits<float>::denorm_min()}) {
    EXPECT_TRUE(std::isfinite(Fp8Inverse(tiny))) << tiny;
    EXPECT_EQ(0.0f * Fp8Inverse(tiny), 0.0f);
  }
}

}  // namespace
}  // namespace baton
