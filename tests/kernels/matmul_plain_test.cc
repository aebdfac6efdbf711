#include <gtest/gtest.h>

#include <cmath>

#include "kernels/cpu/packed_weights.h"
#include "kernels/cpu/plain_kernels.h"
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

float F16(const std::byte* at) {
  uint16_t h;
  std::memcpy(&h, at, 2);
  return F16ToF32(h);
}

// NUMERICS §4 for one output of a quantised matrix, from GGUF's bytes.
float LiteralQuantized(const Case& c, int64_t row, int64_t token) {
  const WeightFormat format = c.args.weight.format;
  const int64_t groups = c.args.weight.cols / 32;
  float acc = 0;
  for (int64_t g = 0; g < groups; ++g) {
    const int8_t* a = c.x.q8.data() + (token * groups + g) * 32;
    const float scale = c.x.scale[token * groups + g];
    const int64_t block_bytes = format == WeightFormat::kQ8_0   ? 34
                                : format == WeightFormat::kQ4_0 ? 18
                                                                : 20;
    const std::byte* block = c.source.data() + (row * groups + g) * block_bytes;
    const std::byte* q = block + (format == WeightFormat::kQ4_1 ? 4 : 2);
    int isum = 0;
    for (int i = 0; i < 32; ++i) {
      if (format == WeightFormat::kQ8_0) {
        isum += static_cast<int8_t>(q[i]) * a[i];
      } else {
        const auto byte = static_cast<uint8_t>(q[i % 16]);
        const int nibble = i < 16 ? byte % 16 : byte / 16;
        isum += (format == WeightFormat::kQ4_0 ? nibble - 8 : nibble) * a[i];
      }
    }
    const float product = F16(block) * scale;
    acc = std::fma(product, static_cast<float>(isum), acc);
    if (format == WeightFormat::kQ4_1) {
      acc = std::fma(F16(block + 2), c.x.scaled_sum[token * groups + g], acc);
    }
  }
  return acc;
}

TEST(MatMulPlain, QuantizedOutputsAreTheLiteralTranscription) {
  for (const WeightFormat format :
       {WeightFormat::kQ8_0, WeightFormat::kQ4_0, WeightFormat::kQ4_1}) {
    SCOPED_TRACE(testing::Message() << WeightFormatName(format) << " seed " << kSeed);
    Case c(format, 37, 160, 3);
    const std::vector<float> out = c.Run(false, 99);
    for (int64_t token = 0; token < 3; ++token) {
      for (int64_t row = 0; row < 37; ++row) {
        ASSERT_EQ(out[token * c.args.out_stride + row], LiteralQuantized(c, row, token));
      }
    }
  }
}

TEST(MatMulPlain, EveryFormatIsNearTheProductInDoublePrecision) {
  for (const WeightFormat format : kAllWeightFormats) {
    SCOPED_TRACE(testing::Message() << WeightFormatName(format) << " seed " << kSeed);
    const int64_t cols = IsQuantized(format) ? 192 : 77;
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
        // int8 activations: half a step in 127 per value.
        const double tolerance = IsQuantized(format) ? 0.02 * magnitude : 1e-5 * magnitude;
        EXPECT_NEAR(out[token * c.args.out_stride + row], sum, tolerance);
      }
    }
  }
}

TEST(MatMulPlain, FloatOutputsAreOneChainOfFusedOperations) {
  for (const WeightFormat format : {WeightFormat::kF32, WeightFormat::kF16, WeightFormat::kBF16}) {
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
  for (const WeightFormat format : {WeightFormat::kF32, WeightFormat::kQ4_1}) {
    Case c(format, 19, 64, 2);
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
    Case c(format, 70, 64, 5);
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
