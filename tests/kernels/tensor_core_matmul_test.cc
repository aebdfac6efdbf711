#include "kernels/tensor_core/tensor_core_matmul.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/tensor_core/fused_dot.h"
#include "tests/kernels/fast_kernels.h"
#include "tests/kernels/random_inputs.h"

namespace baton {
namespace {

constexpr uint64_t kSeed = 7022;
constexpr WeightFormat kHalfFormats[] = {WeightFormat::kBF16, WeightFormat::kF16};

struct Product {
  Product(WeightFormat format, int64_t rows, int64_t cols, int64_t tokens)
      : random(kSeed),
        source(RandomGgufMatrix(random, format, rows, cols)),
        packed(PackedMatrixBytes(format, rows, cols)),
        x(RandomFloats(random, tokens * cols)) {
    PackMatrixRows(format, rows, cols, source.data(), packed.data());
    args = {.x = {.f32 = x.data()},
            .weight = {format, rows, cols, packed.data()},
            .out_stride = rows + 2,
            .tokens = tokens};
  }
  HalfType type() const {
    return args.weight.format == WeightFormat::kBF16 ? HalfType::kBF16 : HalfType::kF16;
  }
  uint16_t Round(float value) const {
    return type() == HalfType::kBF16 ? F32ToBF16(value) : F32ToF16(value);
  }
  double Widen(uint16_t bits) const {
    return type() == HalfType::kBF16 ? BF16ToF32(bits) : F16ToF32(bits);
  }
  const uint16_t* WeightRow(int64_t row) const {
    return reinterpret_cast<const uint16_t*>(source.data()) + row * args.weight.cols;
  }
  std::vector<uint16_t> RoundedToken(int64_t token) const {
    std::vector<uint16_t> rounded;
    for (int64_t k = 0; k < args.weight.cols; ++k) {
      rounded.push_back(Round(x[token * args.weight.cols + k]));
    }
    return rounded;
  }
  std::vector<float> Run(bool accumulate = false, float initial = 0,
                         const DotModel& model = kHopperDot) {
    std::vector<float> out(args.tokens * args.out_stride, initial);
    args.out = out.data();
    args.accumulate = accumulate;
    TensorCoreMatMul(args, 0, args.weight.rows, 0, args.tokens, model);
    return out;
  }

  std::mt19937_64 random;
  std::vector<std::byte> source;
  std::vector<std::byte> packed;
  std::vector<float> x;
  MatMulArgs args;
};

class TensorCoreMatMulModels : public testing::TestWithParam<DotModel> {};
INSTANTIATE_TEST_SUITE_P(Models, TensorCoreMatMulModels, testing::Values(kAmpereDot, kHopperDot),
                         [](const auto& info) {
                           return info.param == kAmpereDot ? "Ampere" : "Hopper";
                         });

TEST_P(TensorCoreMatMulModels, IsOneChainOverTheRoundedOperands) {
  const DotModel& model = GetParam();
  for (const WeightFormat format : kHalfFormats) {
    for (const int64_t cols : {16, 64, 77}) {
      Product p(format, 37, cols, 5);
      const std::vector<float> out = p.Run(false, 0, model);
      int split_differs = 0;
      for (int64_t token = 0; token < 5; ++token) {
        const std::vector<uint16_t> x = p.RoundedToken(token);
        for (int64_t row = 0; row < 37; ++row) {
          float sum = 0;
          for (int64_t k = 0; k < cols; k += model.step) {
            sum = PlainFusedDot(model, p.type(), p.WeightRow(row) + k, x.data() + k,
                                std::min<int64_t>(model.step, cols - k), sum);
          }
          ASSERT_EQ(out[token * p.args.out_stride + row], sum) << row << " of token " << token;
          // A kernel that splits the columns between two accumulators would differ.
          const int64_t half = cols / 32 * 16;
          const float parts = PlainFusedDot(model, p.type(), p.WeightRow(row), x.data(), half, 0) +
                              PlainFusedDot(model, p.type(), p.WeightRow(row) + half,
                                            x.data() + half, cols - half, 0);
          split_differs += parts != sum;
        }
      }
      if (cols >= 32) {
        EXPECT_GT(split_differs, 10);
      }
    }
  }
}

TEST(TensorCoreMatMul, IsNearTheProductInDoublePrecision) {
  for (const WeightFormat format : kHalfFormats) {
    Product p(format, 16, 640, 3);
    const std::vector<float> out = p.Run();
    for (int64_t token = 0; token < 3; ++token) {
      for (int64_t row = 0; row < 16; ++row) {
        double sum = 0, magnitude = 0;
        for (int64_t k = 0; k < 640; ++k) {
          const double product = p.Widen(p.WeightRow(row)[k]) * p.x[token * 640 + k];
          sum += product;
          magnitude += std::abs(product);
        }
        // Each activation is rounded to 8 or 11 bits. Errors of random sign add up as a root.
        const double tolerance = format == WeightFormat::kBF16 ? 0x1p-11 : 0x1p-14;
        EXPECT_NEAR(out[token * p.args.out_stride + row], sum, tolerance * magnitude);
      }
    }
  }
}

TEST(TensorCoreMatMul, AnyTilingGivesTheSameBitsAndAccumulateAddsOnce) {
  for (const WeightFormat format : kHalfFormats) {
    Product p(format, 70, 48, 5);
    const std::vector<float> whole = p.Run();
    std::vector<float> tiled(whole.size(), 0.0f);
    p.args.out = tiled.data();
    for (int64_t row = 0; row < 70; row += 32) {
      for (int64_t token = 0; token < 5; token += 2) {
        TensorCoreMatMul(p.args, row, std::min<int64_t>(row + 32, 70), token,
                         std::min<int64_t>(token + 2, 5));
      }
    }
    EXPECT_EQ(tiled, whole);
    const std::vector<float> added = p.Run(true, 0.1f);
    for (int64_t token = 0; token < 5; ++token) {
      for (int64_t row = 0; row < p.args.out_stride; ++row) {
        const size_t at = token * p.args.out_stride + row;
        EXPECT_EQ(added[at], row < 70 ? 0.1f + whole[at] : 0.1f);
      }
    }
  }
}

TEST(TensorCoreMatMul, LargeActivationsAreLimitedToTheTypeAndNaNStays) {
  Product p(WeightFormat::kF16, 16, 16, 2);
  p.x[3] = 1e6f;
  p.x[16 + 3] = std::nanf("");
  const std::vector<float> out = p.Run();
  p.x[3] = 65504;
  const std::vector<float> limited = p.Run();
  for (int64_t row = 0; row < 16; ++row) {
    EXPECT_EQ(out[row], limited[row]);
    EXPECT_TRUE(std::isnan(out[p.args.out_stride + row]));
  }
}

}  // namespace
}  // namespace baton
