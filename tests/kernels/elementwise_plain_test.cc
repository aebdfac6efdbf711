#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "kernels/cpu/plain_kernels.h"
#include "kernels/cpu/plain_math.h"
#include "tests/kernels/naive_fp8.h"
#include "tests/kernels/random_inputs.h"

namespace baton {
namespace {

constexpr uint64_t kSeed = 7003;

TEST(RmsNormPlain, IsTheLiteralTranscriptionAndNearDoublePrecision) {
  std::mt19937_64 random(kSeed);
  for (const int64_t cols : {32, 64, 576}) {
    const int64_t tokens = 3;
    const auto x = RandomFloats(random, tokens * cols, 3);
    const auto weight = RandomFloats(random, cols);
    OwnedActivations out(tokens, cols);
    plain::RmsNorm({x.data(), weight.data(), 1e-5f, tokens, cols, out.view()}, 0, tokens);
    for (int64_t t = 0; t < tokens; ++t) {
      const float* row = x.data() + t * cols;
      double squares = 0;
      for (int64_t i = 0; i < cols; ++i) squares += double{row[i]} * row[i];
      const float mean = plain::Dot16(row, row, cols) / static_cast<float>(cols);
      const float inverse = 1.0f / std::sqrt(mean + 1e-5f);
      for (int64_t i = 0; i < cols; ++i) {
        const float y = out.f32[t * cols + i];
        ASSERT_EQ(y, (row[i] * inverse) * weight[i]);
        ASSERT_NEAR(y, row[i] / std::sqrt(squares / cols + 1e-5) * weight[i], 1e-5);
      }
    }
  }
}

TEST(RmsNormPlain, TheInt8FormIsTheQuantizedF32FormAlsoAlone) {
  std::mt19937_64 random(kSeed);
  const int64_t tokens = 2, cols = 96;
  const auto x = RandomFloats(random, tokens * cols);
  const auto weight = RandomFloats(random, cols);
  OwnedActivations both(tokens, cols), alone(tokens, cols), quantized(tokens, cols);
  plain::RmsNorm({x.data(), weight.data(), 1e-6f, tokens, cols, both.view()}, 0, tokens);
  Activations view = alone.view();
  view.f32 = nullptr;
  plain::RmsNorm({x.data(), weight.data(), 1e-6f, tokens, cols, view}, 0, tokens);
  quantized.f32 = both.f32;
  alone.f32 = both.f32;
  plain::Quantize(both.f32.data(), cols, quantized.view(), 0, tokens);
  EXPECT_EQ(both, quantized);
  EXPECT_EQ(alone, quantized);
}

TEST(RmsNormPlain, F32RowsNeedNoGroupsOf32) {
  const std::vector<float> x = {3, 4, 0, 0, 5};
  const std::vector<float> weight = {1, 2, 3, 4, 5};
  std::vector<float> y(5);
  plain::RmsNorm({x.data(), weight.data(), 0, 1, 5, {.f32 = y.data()}}, 0, 1);
  for (int i = 0; i < 5; ++i) EXPECT_NEAR(y[i], x[i] / std::sqrt(10.0) * weight[i], 1e-6);
}

TEST(SiluMulPlain, GatesTheUpHalf) {
  std::mt19937_64 random(kSeed);
  const int64_t tokens = 3, cols = 64;
  const auto gate_up = RandomFloats(random, tokens * 2 * cols, 4);
  OwnedActivations out(tokens, cols), quantized(tokens, cols);
  plain::SiluMul({gate_up.data(), tokens, cols, out.view()}, 0, tokens);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t i = 0; i < cols; ++i) {
      const float gate = gate_up[t * 2 * cols + i];
      const float up = gate_up[t * 2 * cols + cols + i];
      ASSERT_EQ(out.f32[t * cols + i], gate / (1 + plain::Exp(-gate)) * up);
    }
  }
  quantized.f32 = out.f32;
  plain::Quantize(out.f32.data(), cols, quantized.view(), 0, tokens);
  EXPECT_EQ(out, quantized);
}

TEST(GatedMatMulPlain, GatesRowsOfTheLowerHalfByThoseOfTheUpperAndTouchesNoOthers) {
  std::mt19937_64 random(7);
  const int64_t tokens = 2, cols = 32, gates = 96;
  std::vector<float> values = RandomFloats(random, tokens * cols);
  OwnedActivations x(tokens, cols), expected(tokens, gates), out(tokens, gates);
  plain::Quantize(values.data(), cols, x.view(), 0, tokens);
  const auto source = RandomGgufMatrix(random, WeightFormat::kQ4_1, 2 * gates, cols);
  std::vector<std::byte> packed(PackedMatrixBytes(WeightFormat::kQ4_1, 2 * gates, cols));
  PackMatrixRows(WeightFormat::kQ4_1, 2 * gates, cols, source.data(), packed.data());
  std::vector<float> products(tokens * 2 * gates);
  const MatMulArgs product = {x.view(),
                              {WeightFormat::kQ4_1, 2 * gates, cols, packed.data()},
                              products.data(),
                              2 * gates,
                              tokens};
  plain::MatMul(product, 0, 2 * gates, 0, tokens);
  plain::SiluMul({products.data(), tokens, gates, expected.view()}, 0, tokens);
  const OwnedActivations untouched = out;
  plain::GatedMatMul(product, out.view(), 32, 64, 1, 2);
  for (int64_t i = 0; i < tokens * gates; ++i) {
    const bool done = i >= gates + 32 && i < gates + 64;
    EXPECT_EQ(out.f32[i], done ? expected.f32[i] : untouched.f32[i]) << i;
    EXPECT_EQ(out.q8[i], done ? expected.q8[i] : untouched.q8[i]) << i;
  }
  EXPECT_EQ(out.scale[4], expected.scale[4]);
  EXPECT_EQ(out.scaled_sum[4], expected.scaled_sum[4]);
}

TEST(RopePlain, RotatesPairsByTheirAngleAndLeavesTheRestAlone) {
  std::mt19937_64 random(kSeed);
  const int64_t tokens = 2, heads = 3, head_dim = 16, half = 6, stride = heads * head_dim + 5;
  for (const bool neighbours : {true, false}) {
    const auto before = RandomFloats(random, tokens * stride);
    const auto angles = RandomFloats(random, tokens * half, 3);
    std::vector<float> cosines, sines;
    for (const float angle : angles) {
      cosines.push_back(std::cos(angle));
      sines.push_back(std::sin(angle));
    }
    auto x = before;
    plain::Rope(
        {x.data(), stride, heads, head_dim, cosines.data(), sines.data(), half, neighbours, tokens},
        0, tokens);
    auto expected = before;
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t h = 0; h < heads; ++h) {
        for (int64_t i = 0; i < half; ++i) {
          const int64_t head = t * stride + h * head_dim;
          const int64_t at_a = head + (neighbours ? 2 * i : i);
          const int64_t at_b = head + (neighbours ? 2 * i + 1 : i + half);
          const float a = before[at_a], b = before[at_b];
          const float c = cosines[t * half + i], s = sines[t * half + i];
          expected[at_a] = std::fma(a, c, -(b * s));
          expected[at_b] = std::fma(a, s, b * c);
          EXPECT_NEAR(expected[at_a], double{a} * c - double{b} * s, 1e-5);
        }
      }
    }
    EXPECT_EQ(x, expected) << "neighbours " << neighbours;
  }
}

TEST(KvWritePlain, StoresEveryTypeAndLayoutAndSkipsPadding) {
  std::mt19937_64 random(kSeed);
  const int64_t kv_heads = 2, head_dim = 8, stride = 20, tokens = 3;
  const auto k = RandomFloats(random, tokens * stride);
  const auto v = RandomFloats(random, tokens * stride);
  const std::vector<int64_t> slots = {13, -1, 6};  // in 4 blocks of 4 slots
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16}) {
    std::vector<std::byte> pool(4 * 4 * kv_heads * head_dim * 2 * KvTypeBytes(type),
                                std::byte{0x5a});
    const KvLayerView kv{.base = pool.data(),
                         .type = type,
                         .block_size_log2 = 2,
                         .block_stride = 4 * kv_heads * head_dim * 2,
                         .token_stride = head_dim,
                         .head_stride = 4 * head_dim,
                         .value_offset = 4 * kv_heads * head_dim};
    auto expected = pool;
    const auto put = [&](int64_t offset, float value) {
      std::byte* at = expected.data() + offset * KvTypeBytes(type);
      const uint16_t bits = type == KvType::kF16 ? F32ToF16(value) : F32ToBF16(value);
      if (type == KvType::kF32) std::memcpy(at, &value, 4);
      if (type != KvType::kF32) std::memcpy(at, &bits, 2);
    };
    for (const int64_t t : {0, 2}) {
      for (int64_t h = 0; h < kv_heads; ++h) {
        for (int64_t d = 0; d < head_dim; ++d) {
          const int64_t at = slots[t] / 4 * 128 + h * 32 + slots[t] % 4 * 8 + d;
          put(at, k[t * stride + h * head_dim + d]);
          put(at + 64, v[t * stride + h * head_dim + d]);
        }
      }
    }
    plain::KvWrite({k.data(), v.data(), stride, kv_heads, head_dim, slots.data(), kv, tokens}, 0,
                   tokens);
    EXPECT_EQ(pool, expected) << KvTypeName(type);
  }
}

TEST(KvWritePlain, Int8RowsRoundToTheirLargestValueAndKeepTheirScale) {
  std::mt19937_64 random(kSeed);
  const int64_t kv_heads = 2, head_dim = 8, row = 32, block = 2 * 4 * row;  // rows: 24 + 8 padding
  auto k = RandomFloats(random, kv_heads * head_dim);
  auto v = RandomFloats(random, kv_heads * head_dim);
  std::fill_n(k.begin() + head_dim, head_dim, 0.0f);  // K of head 1: zeros
  std::vector<std::byte> pool(3 * block, std::byte{0x5a});
  const std::vector<std::byte> before = pool;
  const KvLayerView kv{.base = pool.data(),
                       .type = KvType::kInt8,
                       .block_size_log2 = 2,
                       .block_stride = block,
                       .token_stride = row,
                       .head_stride = head_dim,
                       .value_offset = 4 * row,
                       .scale_offset = kv_heads * head_dim};
  const int64_t slot = 4 + 3;
  plain::KvWrite({k.data(), v.data(), 16, kv_heads, head_dim, &slot, kv, 1}, 0, 1);
  for (const auto& [values, at] :
       {std::pair(&k, block + 3 * row), std::pair(&v, block + 7 * row)}) {
    for (int64_t head = 0; head < kv_heads; ++head) {
      const float* x = values->data() + head * head_dim;
      float amax = 0;
      for (int64_t d = 0; d < head_dim; ++d) amax = std::max(amax, std::fabs(x[d]));
      float scale;
      std::memcpy(&scale, pool.data() + at + 16 + 4 * head, 4);
      EXPECT_EQ(scale, amax / 127.0f);
      for (int64_t d = 0; d < head_dim; ++d) {
        const int q = static_cast<int8_t>(pool[at + head * head_dim + d]);
        EXPECT_EQ(q, amax > 0 ? std::nearbyint(x[d] * (127.0f / amax)) : 0);
        EXPECT_NEAR(static_cast<float>(q) * scale, x[d], amax / 250);
      }
    }
  }
  // Nothing else was changed, not even the rows' padding.
  for (size_t i = 0; i < pool.size(); ++i) {
    const auto in = [i](int64_t begin) { return i >= begin && i < begin + 24; };
    if (in(block + 3 * row) || in(block + 7 * row)) continue;
    EXPECT_EQ(pool[i], before[i]) << i;
  }
}

// Rows of ordinary numbers, zeros, numbers so small that 448 / amax overflows, the largest float,
// an infinity and a NaN.
TEST(KvWritePlain, Fp8RowsAreTheNearestE4m3NumbersOrShowThatTheyAreNotFinite) {
  constexpr int64_t kDim = 32, kRow = kDim + 4;
  const float most = std::numeric_limits<float>::max();
  const float inf = std::numeric_limits<float>::infinity();
  std::mt19937_64 random(kSeed);
  std::vector<std::vector<float>> rows;
  for (const float size : {1.0f, 0.0f, 1e-37f, 1e-42f, 1e30f}) {
    rows.push_back(RandomFloats(random, kDim));
    for (float& x : rows.back()) x *= size;
    rows.back()[5] = -0.0f;
  }
  for (const float extreme : {most, -inf, std::nanf("")}) {
    rows.push_back(RandomFloats(random, kDim));
    rows.back()[kDim - 1] = extreme;
  }
  for (const std::vector<float>& k : rows) {
    SCOPED_TRACE(k.back());
    const std::vector<float> v(k.rbegin(), k.rend());
    std::vector<uint8_t> pool(2 * kRow, 0x5a);
    const int64_t slot = 0;
    const KvLayerView kv{.base = pool.data(),
                         .type = KvType::kFp8,
                         .block_size_log2 = 0,
                         .block_stride = 2 * kRow,
                         .token_stride = kRow,
                         .head_stride = kDim,
                         .value_offset = kRow,
                         .scale_offset = kDim};
    plain::KvWrite({k.data(), v.data(), kDim, 1, kDim, &slot, kv, 1}, 0, 1);
    for (const auto& [values, at] : {std::pair(&k, int64_t{0}), std::pair(&v, kRow)}) {
      std::vector<uint8_t> expected(kDim);
      const float expected_scale = NaiveFp8Row(values->data(), kDim, expected.data());
      EXPECT_EQ(std::vector<uint8_t>(&pool[at], &pool[at + kDim]), expected);
      float scale;
      std::memcpy(&scale, &pool[at + kDim], sizeof(scale));
      if (std::isnan(expected_scale)) {
        EXPECT_EQ(std::bit_cast<uint32_t>(scale), 0x7fc00000u);
      } else {
        EXPECT_EQ(scale, expected_scale);
      }
    }
  }
}

}  // namespace
}  // namespace baton
