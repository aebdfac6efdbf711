#include "kernels/rope_frequencies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace baton {
namespace {

using testing::HasSubstr;

TEST(RopeFrequencies, PlainOnesFallFromOneByPowersOfTheBase) {
  const auto f = RopeFrequencies({.dim = 64, .base = 100000});
  ASSERT_TRUE(f.ok());
  ASSERT_EQ(f->size(), 32);
  EXPECT_EQ((*f)[0], 1.0);
  for (int i = 0; i < 32; ++i) {
    EXPECT_NEAR((*f)[i] / std::pow(100000.0, -2.0 * i / 64), 1, 1e-14) << i;
  }
}

TEST(RopeFrequencies, LinearScalingDividesByTheFactor) {
  const auto plain = RopeFrequencies({.dim = 32});
  const auto linear = RopeFrequencies({.dim = 32, .scaling = RopeScaling::kLinear, .factor = 2.5});
  ASSERT_TRUE(plain.ok() && linear.ok());
  for (int i = 0; i < 16; ++i) EXPECT_EQ((*linear)[i], (*plain)[i] / 2.5);
}

TEST(RopeFrequencies, Llama3KeepsShortWavesStretchesLongOnesAndBlendsBetween) {
  const RopeFrequenciesSpec spec{.dim = 128,
                                 .base = 500000,
                                 .scaling = RopeScaling::kLlama3,
                                 .factor = 8,
                                 .low_freq_factor = 1,
                                 .high_freq_factor = 4,
                                 .original_context = 8192};
  const auto scaled = RopeFrequencies(spec);
  const auto plain = RopeFrequencies({.dim = 128, .base = 500000});
  ASSERT_TRUE(scaled.ok() && plain.ok());
  int kept = 0, stretched = 0, blended = 0;
  for (int i = 0; i < 64; ++i) {
    const double f = (*plain)[i];
    const double wavelength = 2 * M_PI / f;
    if (wavelength < 2048) {
      EXPECT_EQ((*scaled)[i], f);
      ++kept;
    } else if (wavelength > 8192) {
      EXPECT_EQ((*scaled)[i], f / 8);
      ++stretched;
    } else {
      const double smooth = (8192 / wavelength - 1) / 3;
      EXPECT_NEAR((*scaled)[i] / ((1 - smooth) * f / 8 + smooth * f), 1, 1e-14);
      ++blended;
    }
  }
  EXPECT_GT(kept, 0);
  EXPECT_GT(stretched, 0);
  EXPECT_GT(blended, 0);
}

TEST(RopeFrequencies, TheFilesDivisorsApply) {
  const std::vector<float> divisors = {1, 2, 4, 32.5f};
  const auto plain = RopeFrequencies({.dim = 8});
  const auto divided = RopeFrequencies({.dim = 8, .divisors = divisors});
  ASSERT_TRUE(plain.ok() && divided.ok());
  for (int i = 0; i < 4; ++i) EXPECT_EQ((*divided)[i], (*plain)[i] / double{divisors[i]});
}

TEST(RopeFrequencies, RefusesBadSpecsByName) {
  const auto message = [](const RopeFrequenciesSpec& spec) {
    return std::string(RopeFrequencies(spec).status().message());
  };
  EXPECT_THAT(message({.dim = 7}), HasSubstr("dim is 7"));
  EXPECT_THAT(message({.dim = 0}), HasSubstr("dim is 0"));
  EXPECT_THAT(message({.dim = 1 << 20}), HasSubstr("65536"));
  EXPECT_THAT(message({.dim = 8, .base = -1}), HasSubstr("base is -1"));
  EXPECT_THAT(message({.dim = 8, .base = std::nan("")}), HasSubstr("base"));
  EXPECT_THAT(message({.dim = 8, .scaling = RopeScaling::kLinear, .factor = 0}),
              HasSubstr("factor is 0"));
  EXPECT_THAT(message({.dim = 8, .scaling = RopeScaling::kLlama3, .low_freq_factor = 4}),
              HasSubstr("high_freq_factor is 4"));
  const std::vector<float> three = {1, 2, 3};
  EXPECT_THAT(message({.dim = 8, .divisors = three}), HasSubstr("3 values"));
  const std::vector<float> infinite = {1, 2, 3, std::numeric_limits<float>::infinity()};
  EXPECT_THAT(message({.dim = 8, .divisors = infinite}), HasSubstr("rope_freqs is inf"));
}

}  // namespace
}  // namespace baton
