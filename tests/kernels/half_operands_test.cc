#include "kernels/tensor_core/half_operands.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace baton {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(RoundToHalf, OutOfRangeBecomesTheLargestFiniteNumber) {
  EXPECT_EQ(F16ToF32(RoundToHalf(HalfType::kF16, 65519)), 65504);
  EXPECT_EQ(F16ToF32(RoundToHalf(HalfType::kF16, 65520)), 65504);  // rounds to infinity in r1
  EXPECT_EQ(F16ToF32(RoundToHalf(HalfType::kF16, -1e9f)), -65504);
  EXPECT_EQ(F16ToF32(RoundToHalf(HalfType::kF16, kInf)), 65504);
  EXPECT_EQ(BF16ToF32(RoundToHalf(HalfType::kBF16, -kInf)), -0x1.fep127f);
  EXPECT_EQ(BF16ToF32(RoundToHalf(HalfType::kBF16, 0x1.ffp127f)), 0x1.fep127f);
  EXPECT_TRUE(std::isnan(F16ToF32(RoundToHalf(HalfType::kF16, std::nanf("")))));
  EXPECT_TRUE(std::isnan(BF16ToF32(RoundToHalf(HalfType::kBF16, std::nanf("")))));
}

TEST(RoundToHalf, InRangeIsNearestEven) {
  EXPECT_EQ(RoundToHalf(HalfType::kBF16, 1 + 0x1p-8f), 0x3f80);
  EXPECT_EQ(RoundToHalf(HalfType::kBF16, 1 + 0x3p-8f), 0x3f82);
  EXPECT_EQ(RoundToHalf(HalfType::kF16, 0x1p-25f), 0x0000);
  EXPECT_EQ(RoundToHalf(HalfType::kF16, 0x1.8p-25f), 0x0001);
  EXPECT_EQ(RoundToHalf(HalfType::kF16, 1), HalfOne(HalfType::kF16));
  EXPECT_EQ(RoundToHalf(HalfType::kBF16, 1), HalfOne(HalfType::kBF16));
}

TEST(FiniteHalf, EveryBitPatternIsFiniteAndFiniteOnesStay) {
  for (const HalfType type : {HalfType::kBF16, HalfType::kF16}) {
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
      const auto half = static_cast<uint16_t>(bits);
      const auto widen = type == HalfType::kBF16 ? BF16ToF32 : F16ToF32;
      const float before = widen(half);
      const float after = widen(FiniteHalf(type, half));
      ASSERT_TRUE(std::isfinite(after)) << bits;
      if (std::isfinite(before)) {
        ASSERT_EQ(FiniteHalf(type, half), half);
      } else if (std::isnan(before)) {
        ASSERT_EQ(FiniteHalf(type, half), 0);
      } else {
        ASSERT_EQ(std::signbit(after), std::signbit(before));
        ASSERT_EQ(RoundToHalf(type, before), FiniteHalf(type, half));
      }
    }
  }
}

}  // namespace
}  // namespace baton
