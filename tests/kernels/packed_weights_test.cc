#include "kernels/cpu/packed_weights.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "tests/kernels/random_inputs.h"

namespace baton {
namespace {

constexpr uint64_t kSeed = 7001;

float F16(const std::byte* at) {
  uint16_t h;
  std::memcpy(&h, at, 2);
  return F16ToF32(h);
}

// One weight from GGUF's row-major bytes, straight from GGUF's description of the block types.
float SourceWeight(WeightFormat format, int64_t cols, const std::vector<std::byte>& source,
                   int64_t row, int64_t col) {
  const std::byte* at = source.data();
  const auto byte = [](const std::byte* p) { return static_cast<uint8_t>(*p); };
  const int64_t block = row * (cols / 32) + col / 32;
  const int64_t i = col % 32;
  switch (format) {
    case WeightFormat::kF32: {
      float value;
      std::memcpy(&value, at + 4 * (row * cols + col), 4);
      return value;
    }
    case WeightFormat::kF16:
      return F16(at + 2 * (row * cols + col));
    case WeightFormat::kBF16: {
      uint16_t b;
      std::memcpy(&b, at + 2 * (row * cols + col), 2);
      return BF16ToF32(b);
    }
    case WeightFormat::kQ8_0:
      at += 34 * block;
      return F16(at) * static_cast<float>(static_cast<int8_t>(byte(at + 2 + i)));
    case WeightFormat::kQ4_0: {
      at += 18 * block;
      const int q = i < 16 ? byte(at + 2 + i) & 15 : byte(at + 2 + i - 16) >> 4;
      return F16(at) * static_cast<float>(q - 8);
    }
    case WeightFormat::kQ4_1: {
      at += 20 * block;
      const int q = i < 16 ? byte(at + 4 + i) & 15 : byte(at + 4 + i - 16) >> 4;
      return std::fma(F16(at), static_cast<float>(q), F16(at + 2));
    }
  }
  return 0;
}

TEST(PackedWeights, GroupSizesAreTheDocumentedOnes) {
  EXPECT_EQ(RowGroupBytes(WeightFormat::kQ8_0, 32), 544);
  EXPECT_EQ(RowGroupBytes(WeightFormat::kQ4_0, 32), 288);
  EXPECT_EQ(RowGroupBytes(WeightFormat::kQ4_1, 64), 640);
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
      const int64_t cols = 96;
      const auto source = RandomGgufMatrix(random, format, rows, cols);
      std::vector<std::byte> packed(PackedMatrixBytes(format, rows, cols), std::byte{0xff});
      PackMatrixRows(format, rows, cols, source.data(), packed.data());
      const int64_t padded = (rows + 15) / 16 * 16;
      const PackedMatrix matrix{format, padded, cols, packed.data()};
      std::vector<float> row(cols);
      for (int64_t r = 0; r < padded; ++r) {
        UnpackRow(matrix, r, row.data());
        for (int64_t c = 0; c < cols; ++c) {
          const float expected = r < rows ? SourceWeight(format, cols, source, r, c) : 0.0f;
          ASSERT_EQ(row[c], expected) << "row " << r << " column " << c;
        }
      }
    }
  }
}

// The fast kernels read these positions; a change of layout must be deliberate.
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
