// Indexes beyond 2^31. The result of each kernel far from the beginning of its buffers must equal
// that of the plain kernel near it. The buffers are reservations of which few pages are touched.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/cpu_stream.h"
#include "kernels/cpu/packed_weights.h"
#include "tests/kernels/random_inputs.h"
#include "tests/kernels/sparse_buffer.h"

namespace baton {
namespace {

constexpr int64_t kTokens = 3;  // computed by each test

class FarOffsets : public InstructionSetTest {
 protected:
  const CpuKernels& kernels() const { return KernelsFor(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(InstructionSets, FarOffsets, AllInstructionSets(), NameOf);

// Activations of kTokens tokens that follow `first` other tokens.
struct FarActivations {
  FarActivations(int64_t first, int64_t cols)
      : first(first),
        cols(cols),
        f32((first + kTokens) * cols),
        q8((first + kTokens) * cols),
        scale((first + kTokens) * (cols / 32)),
        scaled_sum((first + kTokens) * (cols / 32)) {}
  bool ok() const { return f32.ok() && q8.ok() && scale.ok() && scaled_sum.ok(); }
  Activations view() const { return {f32.data(), q8.data(), scale.data(), scaled_sum.data()}; }
  void Put(const OwnedActivations& near) {
    f32.Put(first * cols, near.f32);
    q8.Put(first * cols, near.q8);
    scale.Put(first * (cols / 32), near.scale);
    scaled_sum.Put(first * (cols / 32), near.scaled_sum);
  }

  const int64_t first;
  const int64_t cols;
  Sparse<float> f32;
  Sparse<int8_t> q8;
  Sparse<float> scale;
  Sparse<float> scaled_sum;
};

void ExpectSameActivations(const OwnedActivations& near, const FarActivations& far) {
  const int64_t groups = far.cols / 32;
  ExpectSameBits(near.f32, far.f32.Get(far.first * far.cols, kTokens * far.cols), "f32");
  EXPECT_EQ(near.q8, far.q8.Get(far.first * far.cols, kTokens * far.cols));
  ExpectSameBits(near.scale, far.scale.Get(far.first * groups, kTokens * groups), "scale");
  ExpectSameBits(near.scaled_sum, far.scaled_sum.Get(far.first * groups, kTokens * groups),
                 "scaled sum");
}

OwnedActivations RandomActivations(std::mt19937_64& random, int64_t cols) {
  OwnedActivations x(kTokens, cols);
  x.f32 = RandomFloats(random, kTokens * cols);
  PlainKernels().quantize(x.f32.data(), cols, x.view(), 0, kTokens);
  return x;
}

std::vector<std::byte> RandomPackedMatrix(std::mt19937_64& random, WeightFormat format,
                                          int64_t rows, int64_t cols) {
  std::vector<std::byte> packed(PackedMatrixBytes(format, rows, cols));
  PackMatrixRows(format, rows, cols, RandomGgufMatrix(random, format, rows, cols).data(),
                 packed.data());
  return packed;
}

// Returns [kTokens, rows], a product whose operands are at the beginning of their buffers.
std::vector<float> NearProduct(WeightFormat format, int64_t rows, int64_t cols,
                               const std::vector<std::byte>& packed, OwnedActivations& x) {
  std::vector<float> out(kTokens * rows);
  MatMulArgs args;
  args.x = x.view();
  args.weight = {format, rows, cols, packed.data()};
  args.out = out.data();
  args.out_stride = rows;
  args.tokens = kTokens;
  PlainKernels().matmul(args, 0, rows, 0, kTokens);
  return out;
}

TEST_P(FarOffsets, ProductsOfTheLastRowsOfALargeMatrix) {
  std::mt19937_64 random(TestSeed());
  constexpr int64_t kCols = 4096, kRows = 32, kFirstRow = int64_t{1} << 20;
  for (const WeightFormat format : kAllWeightFormats) {
    SCOPED_TRACE(std::string(WeightFormatName(format)));
    const auto packed = RandomPackedMatrix(random, format, kRows, kCols);
    OwnedActivations x = RandomActivations(random, kCols);
    const std::vector<float> near = NearProduct(format, kRows, kCols, packed, x);

    const int64_t first_byte = kFirstRow / kRowGroup * RowGroupBytes(format, kCols);
    ASSERT_GT(first_byte, kTwoTo31);
    Sparse<std::byte> weight(first_byte + static_cast<int64_t>(packed.size()));
    Sparse<float> out(kTokens * (kFirstRow + kRows));
    ASSERT_TRUE(weight.ok() && out.ok());
    weight.Put(first_byte, packed);
    MatMulArgs args;
    args.x = x.view();
    args.weight = {format, kFirstRow + kRows, kCols, weight.data()};
    args.out = out.data();
    args.out_stride = kFirstRow + kRows;
    args.tokens = kTokens;
    kernels().matmul(args, kFirstRow, kFirstRow + kRows, 0, kTokens);
    std::vector<float> far;
    for (int64_t token = 0; token < kTokens; ++token) {
      const auto row = out.Get(token * args.out_stride + kFirstRow, kRows);
      far.insert(far.end(), row.begin(), row.end());
    }
    ASSERT_NO_FATAL_FAILURE(ExpectSameBits(near, far, "products"));
  }
}

TEST_P(FarOffsets, ProductsOfTheLastTokensOfALargeBatch) {
  std::mt19937_64 random(TestSeed());
  constexpr int64_t kCols = 4096, kRows = 32, kFirst = int64_t{1} << 20, kStride = 4099;
  for (const WeightFormat format : kAllWeightFormats) {
    SCOPED_TRACE(std::string(WeightFormatName(format)));
    const auto packed = RandomPackedMatrix(random, format, kRows, kCols);
    OwnedActivations x = RandomActivations(random, kCols);
    const std::vector<float> near = NearProduct(format, kRows, kCols, packed, x);

    FarActivations far_x(kFirst, kCols);
    Sparse<float> out((kFirst + kTokens) * kStride);
    ASSERT_TRUE(far_x.ok() && out.ok());
    far_x.Put(x);
    MatMulArgs args;
    args.x = far_x.view();
    args.weight = {format, kRows, kCols, packed.data()};
    args.out = out.data();
    args.out_stride = kStride;
    args.tokens = kFirst + kTokens;
    kernels().matmul(args, 0, kRows, kFirst, kFirst + kTokens);
    std::vector<float> far;
    for (int64_t token = kFirst; token < kFirst + kTokens; ++token) {
      const auto row = out.Get(token * kStride, kRows);
      far.insert(far.end(), row.begin(), row.end());
    }
    ASSERT_NO_FATAL_FAILURE(ExpectSameBits(near, far, "products"));
  }
}

// The up projection's rows follow those of all gates.
TEST_P(FarOffsets, GatedProductsOfTheLastTokensAndRows) {
  std::mt19937_64 random(TestSeed());
  constexpr int64_t kCols = 256, kRows = 32, kGates = 4096 + kRows, kFirst = int64_t{1} << 24;
  for (const WeightFormat format : kQuantizedFormats) {
    SCOPED_TRACE(std::string(WeightFormatName(format)));
    const auto packed = RandomPackedMatrix(random, format, 2 * kRows, kCols);
    OwnedActivations x = RandomActivations(random, kCols);
    std::vector<float> products(kTokens * 2 * kRows);
    OwnedActivations near(kTokens, kRows);
    MatMulArgs args;
    args.x = x.view();
    args.weight = {format, 2 * kRows, kCols, packed.data()};
    args.out = products.data();
    args.out_stride = 2 * kRows;
    args.tokens = kTokens;
    PlainKernels().gated_matmul(args, near.view(), 0, kRows, 0, kTokens);

    const int64_t group_bytes = RowGroupBytes(format, kCols);
    std::vector<std::byte> weight(2 * kGates / kRowGroup * group_bytes);
    const int64_t half = kRows / kRowGroup * group_bytes;
    std::copy_n(packed.begin(), half, weight.begin() + (kGates - kRows) / kRowGroup * group_bytes);
    std::copy_n(packed.begin() + half, half,
                weight.begin() + (2 * kGates - kRows) / kRowGroup * group_bytes);
    FarActivations far_x(kFirst, kCols), out(kFirst, kGates);
    Sparse<float> far_products((kFirst + kTokens) * 2 * kGates);
    ASSERT_TRUE(far_x.ok() && out.ok() && far_products.ok());
    far_x.Put(x);
    args.x = far_x.view();
    args.weight = {format, 2 * kGates, kCols, weight.data()};
    args.out = far_products.data();
    args.out_stride = 2 * kGates;
    args.tokens = kFirst + kTokens;
    kernels().gated_matmul(args, out.view(), kGates - kRows, kGates, kFirst, kFirst + kTokens);
    for (int64_t token = 0; token < kTokens; ++token) {
      const int64_t at = (kFirst + token + 1) * kGates - kRows;
      ASSERT_NO_FATAL_FAILURE(
          ExpectSameBits({near.f32.begin() + token * kRows, near.f32.begin() + (token + 1) * kRows},
                         out.f32.Get(at, kRows), "f32"));
      EXPECT_EQ(std::vector<int8_t>(near.q8.begin() + token * kRows,
                                    near.q8.begin() + (token + 1) * kRows),
                out.q8.Get(at, kRows));
      EXPECT_EQ(near.scale[token], out.scale[at / 32]);
      EXPECT_EQ(near.scaled_sum[token], out.scaled_sum[at / 32]);
    }
  }
}

TEST_P(FarOffsets, NormsGatesAndInt8RowsOfTheLastTokens) {
  std::mt19937_64 random(TestSeed());
  constexpr int64_t kCols = 64, kFirst = (int64_t{1} << 36) / kCols;  // 2^31 scales
  const std::vector<float> x = RandomFloats(random, kTokens * kCols);
  const std::vector<float> gate_up = RandomFloats(random, kTokens * 2 * kCols);
  const std::vector<float> weight = RandomFloats(random, kCols);
  Sparse<float> far_x((kFirst + kTokens) * kCols), far_gate_up((kFirst + kTokens) * 2 * kCols);
  ASSERT_TRUE(far_x.ok() && far_gate_up.ok());
  far_x.Put(kFirst * kCols, x);
  far_gate_up.Put(kFirst * 2 * kCols, gate_up);
  const auto check = [&](const char* what, const auto& near_op, const auto& far_op) {
    SCOPED_TRACE(what);
    OwnedActivations near(kTokens, kCols);
    FarActivations far(kFirst, kCols);
    ASSERT_TRUE(far.ok());
    near_op(near.view());
    far_op(far.view());
    ExpectSameActivations(near, far);
  };
  const int64_t end = kFirst + kTokens;
  check(
      "norm",
      [&](const Activations& out) {
        PlainKernels().rms_norm({x.data(), weight.data(), 1e-5f, kTokens, kCols, out}, 0, kTokens);
      },
      [&](const Activations& out) {
        kernels().rms_norm({far_x.data(), weight.data(), 1e-5f, end, kCols, out}, kFirst, end);
      });
  check(
      "gate",
      [&](const Activations& out) {
        PlainKernels().silu_mul({gate_up.data(), kTokens, kCols, out}, 0, kTokens);
      },
      [&](const Activations& out) {
        kernels().silu_mul({far_gate_up.data(), end, kCols, out}, kFirst, end);
      });
  check(
      "quantize",
      [&](Activations out) {
        std::copy(x.begin(), x.end(), out.f32);
        PlainKernels().quantize(x.data(), kCols, out, 0, kTokens);
      },
      [&](Activations out) {
        std::copy(x.begin(), x.end(), out.f32 + kFirst * kCols);
        kernels().quantize(far_x.data(), kCols, out, kFirst, end);
      });
}

TEST_P(FarOffsets, RotationsOfTheLastTokens) {
  std::mt19937_64 random(TestSeed());
  constexpr int64_t kHalf = 32, kStride = 2 * kHalf + 3, kFirst = kTwoTo31 / kHalf;
  for (const bool neighbours : {true, false}) {
    std::vector<float> near = RandomFloats(random, kTokens * kStride);
    const std::vector<float> cosines = RandomFloats(random, kTokens * kHalf);
    const std::vector<float> sines = RandomFloats(random, kTokens * kHalf);
    Sparse<float> x((kFirst + kTokens) * kStride);
    Sparse<float> far_cosines((kFirst + kTokens) * kHalf), far_sines((kFirst + kTokens) * kHalf);
    ASSERT_TRUE(x.ok() && far_cosines.ok() && far_sines.ok());
    x.Put(kFirst * kStride, near);
    far_cosines.Put(kFirst * kHalf, cosines);
    far_sines.Put(kFirst * kHalf, sines);
    PlainKernels().rope({near.data(), kStride, 1, 2 * kHalf, cosines.data(), sines.data(), kHalf,
                         neighbours, kTokens},
                        0, kTokens);
    kernels().rope({x.data(), kStride, 1, 2 * kHalf, far_cosines.data(), far_sines.data(), kHalf,
                    neighbours, kFirst + kTokens},
                   kFirst, kFirst + kTokens);
    ASSERT_NO_FATAL_FAILURE(
        ExpectSameBits(near, x.Get(kFirst * kStride, kTokens * kStride), "rotated"));
  }
}

// ---- ops with only one implementation -----------------------------------------------------------

TEST(FarOffsetsOfOps, RowsAreGatheredEmbeddedAndDrawnFromFarBuffers) {
  constexpr int64_t kCols = 4096, kRow = kTwoTo31 / kCols + 5;
  std::mt19937_64 random(TestSeed());
  ThreadPool pool(2);
  const CpuOps ops(PlainKernels(), pool);
  CpuStream stream(pool, CpuStream::Runs::kInline);
  const auto index = static_cast<int32_t>(kRow);

  const std::vector<float> values = RandomFloats(random, kCols);
  Sparse<float> rows((kRow + 1) * kCols);
  ASSERT_TRUE(rows.ok());
  rows.Put(kRow * kCols, values);
  std::vector<float> gathered(kCols);
  ops.GatherRows(stream, {rows.data(), &index, gathered.data(), 1, kCols, kCols});
  EXPECT_EQ(gathered, values);

  std::vector<float> embedded(kCols);
  const int32_t no_token = -1;
  ops.EmbedTokens(stream, {.table = {WeightFormat::kQ8_0, 1, kCols, nullptr},
                           .token_ids = &no_token,
                           .embedding_rows = &index,
                           .embeddings = rows.data(),
                           .out = embedded.data(),
                           .tokens = 1});
  EXPECT_EQ(embedded, values);

  for (const WeightFormat format : kAllWeightFormats) {
    const auto packed = RandomPackedMatrix(random, format, kRowGroup, kCols);
    const int64_t group = kRow / kRowGroup * 4;  // 2^31 bytes of any format lie before it
    const int64_t at = group * RowGroupBytes(format, kCols);
    Sparse<std::byte> table(at + static_cast<int64_t>(packed.size()));
    ASSERT_TRUE(table.ok());
    ASSERT_GT(at, kTwoTo31);
    table.Put(at, packed);
    const auto token = static_cast<int32_t>(group * kRowGroup + 7);
    ops.EmbedTokens(stream, {.table = {format, (group + 1) * kRowGroup, kCols, table.data()},
                             .token_ids = &token,
                             .out = embedded.data(),
                             .tokens = 1});
    std::vector<float> near(kCols);
    UnpackRow({format, kRowGroup, kCols, packed.data()}, 7, near.data());
    ASSERT_NO_FATAL_FAILURE(ExpectSameBits(near, embedded, std::string(WeightFormatName(format))));
  }

  const RowDraw draw = {.row = index, .rule = {.temperature = 0}, .key = {}};
  TokenId drawn = -1;
  ops.Sample(
      stream,
      {.logits = rows.data(), .vocabulary = kCols, .draws = &draw, .tokens = &drawn, .count = 1});
  EXPECT_EQ(drawn, std::max_element(values.begin(), values.end()) - values.begin());
}

}  // namespace
}  // namespace baton
