#include <gtest/gtest.h>

#include <cmath>

#include "kernels/cpu/packed_weights.h"
#include "kernels/cpu/plain_kernels.h"
#include "tests/kernels/gguf_weight.h"
#include "tests/kernels/random_inputs.h"

namespace baton {
namespace {

constexpr uint64_t kSeed = 7002;

struct Case {
  Case(WeightFormat format, int64_t rows, int64_t cols, int64_t tokens)
      : random(kSeed),
        source(RandomGgufMatrix(random, format, rows, cols)),
        packed(PackedMatrixBytes(format, rows, cols)),
        x(tokens, cols) {
    PackMatrixRows(format, rows, cols, source.data(), packed.data());
    x.f32 = RandomFloats(random, tokens * cols);
    const Activations view = x.view();
    if (IsQuantized(format))
      plain::Quantize(x.f32.data(), cols, {nullptr, view.q8, view.scale, view.scaled_sum}, 0,
                      tokens);
    args = {.x = view,
            .weight = {format, rows, cols, packed.data()},
            .out_stride = rows + 3,
            .tokens = tokens};
  }

  std::vector<float> Run(bool accumulate, float initial) {
    std::vector<float> out(args.tokens * args.out_stride, initial);
    args.out = out.data();
    args.accumulate = accumulate;
    plain::MatMul(args, 0, args.weight.rows, 0, args.tokens);
    return out;
  }

  std::mt19937_64 random;
  std::vector<std::byte> source;
  std::vector<std::byte> packed;
  OwnedActivations x;
  MatMulArgs args;
};

// Literal implementation of NUMERICS §4 for one output of a quantised matrix, from GGUF's bytes.
float LiteralQuantized(const Case& c, int64_t row, int64_t token) {
  const int64_t groups = c.args.weight.cols / 32;
  float acc = 0;
  for (int64_t g = 0; g < groups; ++g) {
    const int8_t* a = c.x.q8.data() + (token * groups + g) * 32;
    const float scale = c.x.scale[token * groups + g];
    int isum[2] = {0, 0};
    GgufWeight weights[32];
    for (int i = 0; i < 32; ++i) {
      weights[i] =
          ReadGgufWeight(c.args.weight.format, c.args.weight.cols, c.source, row, 32 * g + i);
      isum[i / 16] += weights[i].q * a[i];
    }
    const GgufWeight& weight = weights[0];
    float sum = static_cast<float>(isum[0] + isum[1]);
    if (c.args.weight.format == WeightFormat::kQ6_K) {
      sum = static_cast<float>(weights[0].scale) * static_cast<float>(isum[0]);
      sum = std::fma(static_cast<float>(weights[16].scale), static_cast<float>(isum[1]), sum);
    }
    acc = std::fma(weight.factor * scale, sum, acc);
    if (weight.has_minimum) {
      acc = std::fma(weight.minimum, c.x.scaled_sum[token * groups + g], acc);
    }
  }
  return acc;
}

TEST(MatMulPlain, QuantizedOutputsAreTheLiteralTranscription) {
  for (const WeightFormat format : kQuantizedFormats) {
    SCOPED_TRACE(testing::Message() << WeightFormatName(format) << " seed " << kSeed);
    Case c(format, 37, WholeBlocks(format, 160), 11);
    const std::vector<float> out = c.Run(false, 99);
    for (int64_t token = 0; token < 11; ++token) {
      for (int64_t row = 0; row < 37; ++row) {
        ASSERT_EQ(out[token * c.args.out_stride + row], LiteralQuantized(c, row, token));
      }
    }
  }
}

TEST(MatMulPlain, EveryFormatIsNearTheProductInDoublePrecision) {
  for (const WeightFormat format : kAllWeightFormats) {
    SCOPED_TRACE(testing::Message() << WeightFormatName(format) << " seed " << kSeed);
    const int64_t cols = IsQuantized(format) ? WholeBlocks(format, 192) : 77;
    Case c(format, 20, cols, 4);
    const std::vector<float> out = c.Run(false, 99);
    std::vector<float> weights(cols);
    for (int64_t row = 0; row < 20; ++row) {
      UnpackRow(c.args.weight, row, weights.data());
      for (int64_t token = 0; token < 4; ++token) {
        double sum = 0, magnitude = 0;
        for (int64_t k = 0; k < cols; ++k) {
          const double product = double{weights[k]} * c.x.f32[token * cols + k];
          sum += product;
          magnitude += std::abs(product);
        }
        // int8 activations have an error of half a step in 127 per value.
        const double tolerance = IsQuantized(format) ? 0.02 * magnitude : 1e-5 * magnitude;
        EXPECT_NEAR(out[token * c.args.out_stride + row], sum, tolerance);
      }
    }
  }
}

TEST(MatMulPlain, FloatOutputsAreOneChainOfFusedOperations) {
  for (const WeightFormat format : kFloatFormats) {
    Case c(format, 18, 50, 2);
    const std::vector<float> out = c.Run(false, 0);
    std::vector<float> weights(50);
    UnpackRow(c.args.weight, 17, weights.data());
    float acc = 0;
    for (int k = 0; k < 50; ++k) acc = std::fma(weights[k], c.x.f32[50 + k], acc);
    EXPECT_EQ(out[c.args.out_stride + 17], acc);
  }
}

TEST(MatMulPlain, AccumulateAddsOnceAndColumnsPastTheRowsAreUntouched) {
  for (const WeightFormat format : kAllWeightFormats) {
    Case c(format, 19, WholeBlocks(format, 64), 2);
    const std::vector<float> fresh = c.Run(false, 0.1f);
    const std::vector<float> added = c.Run(true, 0.1f);
    for (int64_t token = 0; token < 2; ++token) {
      for (int64_t row = 0; row < 19; ++row) {
        const size_t at = token * c.args.out_stride + row;
        EXPECT_EQ(added[at], 0.1f + fresh[at]);
      }
      for (int64_t row = 19; row < c.args.out_stride; ++row) {
        EXPECT_EQ(fresh[token * c.args.out_stride + row], 0.1f);
      }
    }
  }
}

TEST(MatMulPlain, AnyTilingGivesTheSameBits) {
  for (const WeightFormat format : kAllWeightFormats) {
    Case c(format, 70, WholeBlocks(format, 64), 5);
    const std::vector<float> whole = c.Run(false, 0);
    std::vector<float> tiled(whole.size(), 0.0f);
    c.args.out = tiled.data();
    for (int64_t row = 0; row < 70; row += 32) {
      for (int64_t token = 0; token < 5; token += 2) {
        plain::MatMul(c.args, row, std::min<int64_t>(row + 32, 70), token,
                      std::min<int64_t>(token + 2, 5));
      }
    }
    EXPECT_EQ(tiled, whole) << WeightFormatName(format);
  }
}

}  // namespace
}  // namespace baton
