// Arithmetic intrinsics against their definitions in the CUDA Math API and the PTX ISA.
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#include "gtest/gtest.h"
#include "kernels/cuda/device_code.cuh"
#include "kernels/cuda/silu.cuh"
#include "kernels/elementary.h"

namespace baton {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(DeviceArithmetic, RoundsOnce) {
  const float a = 1.0f + 0x1p-12f, c = -(1.0f + 0x1p-11f);
  EXPECT_EQ(__fmaf_rn(a, a, c), 0x1p-24f);
  EXPECT_EQ(__fadd_rn(__fmul_rn(a, a), c), 0.0f);
  EXPECT_EQ(__fdiv_rn(1.0f, 3.0f), 1.0f / 3.0f);
  EXPECT_EQ(__fsqrt_rn(2.0f), std::sqrt(2.0f));
  EXPECT_EQ(__fma_rn(0x1p-30 + 1, 0x1p-30 + 1, -1.0 - 0x1p-29), 0x1p-60);
}

TEST(DeviceArithmetic, NanIsTheDevicesOwn) {
  EXPECT_EQ(__float_as_uint(__fadd_rn(kInfinity, -kInfinity)), 0x7fffffffu);
  EXPECT_EQ(__float_as_uint(__fmul_rn(__uint_as_float(0xffc12345u), 1.0f)), 0x7fffffffu);
  EXPECT_EQ(__float_as_uint(__fmaf_rn(kInfinity, 0.0f, 1.0f)), 0x7fffffffu);
}

TEST(DeviceArithmetic, ConversionsToIntegersSaturate) {
  EXPECT_EQ(__float2int_rn(2.5f), 2);
  EXPECT_EQ(__float2int_rn(-3.5f), -4);
  EXPECT_EQ(__float2int_rz(-3.5f), -3);
  EXPECT_EQ(__float2int_rd(-3.5f), -4);
  EXPECT_EQ(__float2int_rn(3e9f), INT32_MAX);
  EXPECT_EQ(__float2int_rn(-kInfinity), INT32_MIN);
  EXPECT_EQ(__float2int_rn(NAN), 0);
  EXPECT_EQ(__float2uint_rn(-1.0f), 0u);
  EXPECT_EQ(__float2uint_rn(4.5e9f), UINT32_MAX);
  EXPECT_EQ(__double2ll_rn(0x1p62), int64_t{1} << 62);
  EXPECT_EQ(__double2ll_rn(1e30), INT64_MAX);
  EXPECT_EQ(__double2ll_rn(NAN), INT64_MIN);
  EXPECT_EQ(__float2ll_rn(NAN), INT64_MIN);
  EXPECT_EQ(__double2int_rn(NAN), INT32_MIN);
  EXPECT_EQ(__double2int_rz(NAN), INT32_MIN);
  EXPECT_EQ(__float2uint_rz(NAN), 0u);
}

TEST(DeviceArithmetic, CountsBits) {
  EXPECT_EQ(__clz(0), 32);
  EXPECT_EQ(__clz(1), 31);
  EXPECT_EQ(__ffs(0), 0);
  EXPECT_EQ(__ffs(8), 4);
  EXPECT_EQ(__popc(0xf0f0u), 8);
  EXPECT_EQ(__brev(0x00000005u), 0xa0000000u);
}

TEST(DeviceArithmetic, WorksOnPackedBytes) {
  std::mt19937 random(1);
  for (int round = 0; round < 1000; ++round) {
    const unsigned a = random(), b = random(), selector = random() & 0x7777;
    int dot = -5;
    unsigned sum = 0, difference = 0, picked = 0;
    const uint64_t both = uint64_t{b} << 32 | a;
    for (int i = 0; i < 4; ++i) {
      const auto x = static_cast<uint8_t>(a >> (8 * i)), y = static_cast<uint8_t>(b >> (8 * i));
      dot += int{static_cast<int8_t>(x)} * int{static_cast<int8_t>(y)};
      sum |= unsigned{static_cast<uint8_t>(x + y)} << (8 * i);
      difference |= unsigned{static_cast<uint8_t>(x - y)} << (8 * i);
      const int pick = static_cast<int>(selector >> (4 * i)) & 7;
      picked |= static_cast<unsigned>(both >> (8 * pick) & 0xff) << (8 * i);
    }
    ASSERT_EQ(__dp4a(static_cast<int>(a), static_cast<int>(b), -5), dot);
    ASSERT_EQ(__vadd4(a, b), sum);
    ASSERT_EQ(__vsub4(a, b), difference);
    ASSERT_EQ(__byte_perm(a, b, selector), picked);
    ASSERT_EQ(__umulhi(a, b), static_cast<unsigned>(uint64_t{a} * b >> 32));
    ASSERT_EQ(__funnelshift_r(a, b, 7), static_cast<unsigned>(both >> 7));
    ASSERT_EQ(__funnelshift_l(a, b, 7), static_cast<unsigned>(both << 7 >> 32));
  }
}

// The emulator's reciprocal is wrong by up to one unit in the last place.
TEST(SiluWithoutBranches, HasTheBitsOfSilu) {
  int64_t wrong = 0;
  for (uint64_t bits = 3; bits < uint64_t{1} << 32; bits += 1009) {
    const float x = __uint_as_float(static_cast<uint32_t>(bits));
    const float expected = r1::Silu(x), actual = SiluWithoutBranches(x);
    wrong += x == x ? __float_as_uint(actual) != __float_as_uint(expected) : actual == actual;
  }
  for (const float x : {0.0f, -0.0f, kInfinity, -kInfinity, 88.3762626647949f, -88.3762626647949f,
                        87.3365478515625f, 0x1p-149f, -0x1p-149f, 0x1p-60f, 0x1.fffffep127f}) {
    for (const float near : {x, std::nextafterf(x, kInfinity), std::nextafterf(x, -kInfinity)}) {
      wrong += __float_as_uint(SiluWithoutBranches(near)) != __float_as_uint(r1::Silu(near));
    }
  }
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace baton
