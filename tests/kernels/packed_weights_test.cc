#include "kernels/cpu/packed_weights.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "tests/kernels/gguf_weight.h"
#include "tests/kernels/random_inputs.h"

namespace baton {
namespace {

constexpr uint64_t kSeed = 7001;

float SourceValue(WeightFormat format, int64_t cols, const std::vector<std::byte>& source,
                  int64_t row, int64_t col) {
  const GgufWeight weight = ReadGgufWeight(format, cols, source, row, col);
  const float factor = weight.factor * static_cast<float>(weight.scale);
  return weight.has_minimum ? std::fma(factor, static_cast<float>(weight.q), weight.minimum)
                            : factor * static_cast<float>(weight.q);
}

TEST(PackedWeights, GroupSizesAreTheDocumentedOnes) {
  EXPECT_EQ(RowGroupBytes(WeightFormat::kQ8_0, 32), 544);
  EXPECT_EQ(RowGroupBytes(WeightFormat::kQ4_0, 32), 288);
  EXPECT_EQ(RowGroupBytes(WeightFormat::kQ4_1, 64), 640);
  EXPECT_EQ(RowGroupBytes(WeightFormat::kQ5_0, 32), 352);
  EXPECT_EQ(RowGroupBytes(WeightFormat::kQ5_1, 32), 384);
  EXPECT_EQ(RowGroupBytes(WeightFormat::kQ4_K, 512), 2 * 2304);
  EXPECT_EQ(RowGroupBytes(WeightFormat::kQ5_K, 256), 2816);
  EXPECT_EQ(RowGroupBytes(WeightFormat::kQ6_K, 256), 3360);
  EXPECT_EQ(RowGroupBytes(WeightFormat::kF32, 5), 320);
  EXPECT_EQ(RowGroupBytes(WeightFormat::kBF16, 5), 160);
  EXPECT_EQ(PackedMatrixBytes(WeightFormat::kQ4_1, 17, 64), 2 * 640);
  EXPECT_EQ(PackedMatrixBytes(WeightFormat::kF16, 0, 64), 0);
}

TEST(PackedWeights, UnpackedRowsEqualTheSourceInEveryFormatAndPaddingIsZero) {
  for (const WeightFormat format : kAllWeightFormats) {
    SCOPED_TRACE(WeightFormatName(format));
    for (const int64_t rows : {1, 15, 16, 17, 40}) {
      std::mt19937_64 random(kSeed);
      SCOPED_TRACE(testing::Message() << rows << " rows, seed " << kSeed);
      const int64_t cols = WholeBlocks(format, 320);
      const auto source = RandomGgufMatrix(random, format, rows, cols);
      std::vector<std::byte> packed(PackedMatrixBytes(format, rows, cols), std::byte{0xff});
      PackMatrixRows(format, rows, cols, source.data(), packed.data());
      const int64_t padded = (rows + 15) / 16 * 16;
      const PackedMatrix matrix{format, padded, cols, packed.data()};
      std::vector<float> row(cols);
      for (int64_t r = 0; r < padded; ++r) {
        UnpackRow(matrix, r, row.data());
        for (int64_t c = 0; c < cols; ++c) {
          const float expected = r < rows ? SourceValue(format, cols, source, r, c) : 0.0f;
          ASSERT_EQ(row[c], expected) << "row " << r << " column " << c;
        }
      }
    }
  }
}

// The fast kernels read these positions, so this test makes a change of layout deliberate.
TEST(PackedWeights, Q41InterleavesRowsAsTheHeaderSays) {
  std::mt19937_64 random(kSeed);
  const int64_t rows = 32, cols = 64;
  const auto source = RandomGgufMatrix(random, WeightFormat::kQ4_1, rows, cols);
  std::vector<std::byte> packed(PackedMatrixBytes(WeightFormat::kQ4_1, rows, cols));
  PackMatrixRows(WeightFormat::kQ4_1, rows, cols, source.data(), packed.data());
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t g = 0; g < 2; ++g) {
      const std::byte* block = source.data() + (row * 2 + g) * 20;
      const std::byte* group = packed.data() + row / 16 * 640 + g * 320;
      EXPECT_EQ(std::memcmp(group + 2 * (row % 16), block, 2), 0);           // d
      EXPECT_EQ(std::memcmp(group + 32 + 2 * (row % 16), block + 2, 2), 0);  // m
      for (int j = 0; j < 4; ++j) {
        EXPECT_EQ(std::memcmp(group + 64 + (j * 16 + row % 16) * 4, block + 4 + 4 * j, 4), 0);
      }
    }
  }
}

}  // namespace
}  // namespace baton
