#include "kernels/rope_frequencies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
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

TEST(RopeFrequencies, NtkDividesTheSlowestPairByTheFactorAndKeepsTheFastest) {
  const auto plain = RopeFrequencies({.dim = 64});
  const RopeFrequenciesSpec spec{.dim = 64, .scaling = RopeScaling::kNtk, .factor = 8};
  const auto ntk = RopeFrequencies(spec);
  ASSERT_TRUE(plain.ok() && ntk.ok());
  EXPECT_EQ((*ntk)[0], 1.0);
  EXPECT_NEAR((*ntk)[31] * 8 / (*plain)[31], 1, 1e-14);
  const double base = 10000 * std::pow(8, 64.0 / 62);
  for (int i = 0; i < 32; ++i) EXPECT_NEAR((*ntk)[i] / std::pow(base, -i / 32.0), 1, 1e-13) << i;
  EXPECT_EQ(RopeAttentionFactor(spec), 1);
}

// The expected values are those of Transformers' _compute_yarn_parameters for the same parameters.
TEST(RopeFrequencies, YarnKeepsFastPairsStretchesSlowOnesAndBlendsBetween) {
  RopeFrequenciesSpec spec{.dim = 128,
                           .base = 1000000,
                           .scaling = RopeScaling::kYarn,
                           .factor = 4,
                           .original_context = 32768};
  const auto plain = RopeFrequencies({.dim = 128, .base = 1000000});
  const auto yarn = RopeFrequencies(spec);
  ASSERT_TRUE(plain.ok() && yarn.ok());
  // Pair 23.6 turns 32 times in 32,768 tokens, pair 39.7 once.
  for (int i = 0; i < 64; ++i) {
    const double stretched = std::clamp((i - 23.0) / (40 - 23), 0.0, 1.0);
    EXPECT_NEAR((*yarn)[i] / ((*plain)[i] * (stretched / 4 + 1 - stretched)), 1, 1e-14) << i;
  }
  EXPECT_EQ((*yarn)[23], (*plain)[23]);
  EXPECT_EQ((*yarn)[40], (*plain)[40] / 4);
  EXPECT_NEAR(RopeAttentionFactor(spec), 0.1 * std::log(4) + 1, 1e-15);
  spec.beta_fast = 8;
  EXPECT_GT((*RopeFrequencies(spec))[25], (*yarn)[25]);
  spec.factor = 0.5;
  EXPECT_EQ(RopeAttentionFactor(spec), 1) << "a shorter context";
}

TEST(RopeFrequencies, AttentionFactorsMultiply) {
  EXPECT_EQ(RopeAttentionFactor({.dim = 8, .attention_factor = 1.25}), 1.25);
  RopeFrequenciesSpec spec{.dim = 8, .scaling = RopeScaling::kYarn, .factor = 40};
  const double grown = 0.1 * std::log(40) + 1;
  spec.attention_factor = 1.25;
  EXPECT_NEAR(RopeAttentionFactor(spec), 1.25 * grown, 1e-15);
  spec.log_multiplier = 1;
  EXPECT_NEAR(RopeAttentionFactor(spec), 1.25, 1e-15);
  spec.log_multiplier = 0.5;
  EXPECT_NEAR(RopeAttentionFactor(spec), 1.25 * grown / (0.05 * std::log(40) + 1), 1e-15);
}

// The ramp may start or end outside the pairs.
TEST(RopeFrequencies, YarnOfAnyContextHasFiniteFrequencies) {
  for (const double original : {1e-300, 1.0, 7.0, 512.0, 1e9, 1e300}) {
    for (const double base : {1.0001, 10000.0, 1e30}) {
      const auto yarn = RopeFrequencies({.dim = 16,
                                         .base = base,
                                         .scaling = RopeScaling::kYarn,
                                         .factor = 4,
                                         .original_context = original});
      const auto plain = RopeFrequencies({.dim = 16, .base = base});
      ASSERT_TRUE(yarn.ok() && plain.ok());
      for (int i = 0; i < 8; ++i) {
        EXPECT_GE((*yarn)[i], (*plain)[i] / 4) << original << " " << base;
        EXPECT_LE((*yarn)[i], (*plain)[i]) << original << " " << base;
      }
    }
  }
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
  const auto yarn = [](RopeFrequenciesSpec spec) {
    spec.dim = 8;
    spec.scaling = RopeScaling::kYarn;
    return spec;
  };
  EXPECT_THAT(message(yarn({.factor = -4})), HasSubstr("factor is -4"));
  EXPECT_THAT(message(yarn({.base = 1})), HasSubstr("base is 1"));
  EXPECT_THAT(message(yarn({.original_context = 0})), HasSubstr("original_context is 0"));
  EXPECT_THAT(message(yarn({.beta_fast = 1})), HasSubstr("beta_fast is 1"));
  EXPECT_THAT(message(yarn({.beta_slow = 0})), HasSubstr("beta_slow is 0"));
  EXPECT_THAT(message(yarn({.log_multiplier = -1})), HasSubstr("log_multiplier is -1"));
  EXPECT_THAT(message({.dim = 8, .attention_factor = 0}), HasSubstr("attention_factor is 0"));
  EXPECT_THAT(message({.dim = 2, .scaling = RopeScaling::kNtk}), HasSubstr("dim is 2"));
  const std::vector<float> three = {1, 2, 3};
  EXPECT_THAT(message({.dim = 8, .divisors = three}), HasSubstr("3 values"));
  const std::vector<float> infinite = {1, 2, 3, std::numeric_limits<float>::infinity()};
  EXPECT_THAT(message({.dim = 8, .divisors = infinite}), HasSubstr("rope_freqs is inf"));
}

}  // namespace
}  // namespace baton
