#include "kernels/cuda/pack_weights.h"

#include <gtest/gtest.h>

#include "kernels/cuda/weight_layout.h"
#include "tests/kernels/gguf_weight.h"
#include "tests/kernels/random_inputs.h"

namespace baton {
namespace {

constexpr uint64_t kSeed = 7101;

// Reads values of a packed matrix bit by bit, as weight_layout.h describes them.
struct PackedReader {
  WeightFormat format;
  int64_t cols;
  const std::vector<std::byte>& packed;

  const uint8_t* Tile(int64_t row) const {
    const auto* data = reinterpret_cast<const uint8_t*>(packed.data());
    return data + row / DeviceTileRows(format) * WeightTileBytes(format, cols);
  }
  const uint8_t* Block(int64_t row, int64_t col) const {
    const WeightLayout layout = WeightLayoutOf(format);
    return Tile(row) + col / layout.columns() * layout.bytes();
  }

  // Returns q less the zero point.
  int Quant(int64_t row, int64_t col) const {
    const WeightLayout layout = WeightLayoutOf(format);
    const uint8_t* block = Block(row, col);
    const int in_block = static_cast<int>(col % layout.columns());
    const int piece = in_block / 128, group = in_block % 128 / 32, column = in_block % 32;
    const int lane = static_cast<int>(row % 8) * 4 + column / 8;
    const int upper = row % 16 / 8, later = column % 8 / 4, b = column % 4;
    const int fragment = upper + 2 * later;
    if (format == WeightFormat::kQ8_0) {
      return static_cast<int8_t>(block[group * 512 + lane * 16 + 4 * fragment + b]);
    }
    const uint8_t* low = block + piece * 1024 + group / 2 * 512 + lane * 16;
    int q = low[group % 2 * 8 + upper * 4 + b] >> (4 * later) & 15;
    int bits = 4;
    const uint8_t* high = block + layout.pieces * 1024 + piece * 128 * layout.high_words +
                          group / 2 * 64 * layout.high_words;
    if (layout.high_words == 2) {
      q |= (high[lane * 4 + b] >> (group % 2 * 4 + fragment) & 1) << 4;
      bits = 5;
    } else if (layout.high_words == 4) {
      q |= (high[lane * 8 + group % 2 * 4 + b] >> (2 * fragment) & 3) << 4;
      bits = 6;
    }
    const bool is_signed = FragmentShift(format) > 0;
    return is_signed && q >= 1 << (bits - 1) ? q - (1 << bits) : q;
  }

  // Returns scale and minimum of a value. `half_scale` is Q6_K's int8 scale, else 1.
  struct Terms {
    float factor, minimum;
    int half_scale;
  };
  Terms TermsOf(int64_t row, int64_t col) const {
    const WeightLayout layout = WeightLayoutOf(format);
    const uint8_t* header = Block(row, col) + layout.HeaderAt();
    const int in_block = static_cast<int>(col % layout.columns());
    const int pair = in_block / 64, second = in_block % 64 / 32, r = static_cast<int>(row % 16);
    const auto f16 = [](const uint8_t* at) {
      return GgufF16(reinterpret_cast<const std::byte*>(at));
    };
    if (format == WeightFormat::kQ6_K) {
      return {f16(header + 256 + 2 * r), 0,
              static_cast<int8_t>(header[pair * 64 + r * 4 + in_block % 64 / 16])};
    }
    if (layout.pieces == 1) {
      const uint8_t* d = header + pair * 64 + r * 4 + second * 2;
      return {f16(d), HasMinimumTerm(format) ? f16(d + 128) : 0, 1};
    }
    const int word = header[64 + 2 * (16 * pair + r)] | header[65 + 2 * (16 * pair + r)] << 8;
    const int byte = header[192 + 16 * pair + r];
    const int scale = second ? word >> 12 | (byte & 3) << 4 : word & 63;
    const int minimum = second ? byte >> 2 : word >> 6 & 63;
    return {f16(header + 4 * r) * static_cast<float>(scale),
            -(f16(header + 4 * r + 2) * static_cast<float>(minimum)), 1};
  }
};

TEST(PackWeights, SizesAreThoseOfTheFileWhereRowsAndColumnsFillTiles) {
  for (const WeightFormat format : kAllWeightFormats) {
    std::mt19937_64 random(kSeed);
    EXPECT_EQ(DeviceMatrixBytes(format, 64, 512), RandomGgufMatrix(random, format, 64, 512).size())
        << WeightFormatName(format);
  }
  EXPECT_EQ(DeviceMatrixBytes(WeightFormat::kQ4_0, 17, 32), 2 * 1152);
  EXPECT_EQ(DeviceMatrixBytes(WeightFormat::kBF16, 33, 9), 5 * 8 * 64 * 2);
  EXPECT_EQ(DeviceMatrixBytes(WeightFormat::kQ8_0, 0, 64), 0);
}

TEST(PackWeights, EveryQuantisedValueIsAtItsDocumentedPlaceAndPaddingIsZero) {
  for (const WeightFormat format : kQuantizedFormats) {
    for (const int64_t rows : {1, 15, 16, 41}) {
      SCOPED_TRACE(testing::Message() << WeightFormatName(format) << " rows " << rows);
      std::mt19937_64 random(kSeed);
      const int64_t cols = WholeBlocks(format, 416);
      const auto source = RandomGgufMatrix(random, format, rows, cols);
      std::vector<std::byte> packed(DeviceMatrixBytes(format, rows, cols), std::byte{0xff});
      PackDeviceMatrix(format, rows, cols, source.data(), packed.data());
      const PackedReader reader{format, cols, packed};
      const int64_t padded_cols = (cols + 127) / 128 * 128;
      for (int64_t row = 0; row < (rows + 15) / 16 * 16; ++row) {
        for (int64_t col = 0; col < padded_cols; ++col) {
          SCOPED_TRACE(testing::Message() << "row " << row << " column " << col);
          const PackedReader::Terms terms = reader.TermsOf(row, col);
          if (row >= rows || col >= cols) {
            ASSERT_EQ(reader.Quant(row, col), 0);
            ASSERT_EQ(terms.factor, 0);
            continue;
          }
          const GgufWeight weight = ReadGgufWeight(format, cols, source, row, col);
          ASSERT_EQ(reader.Quant(row, col), weight.q);
          ASSERT_EQ(terms.factor, weight.factor);
          ASSERT_EQ(terms.half_scale, weight.scale);
          ASSERT_EQ(terms.minimum, weight.minimum);
        }
      }
    }
  }
}

TEST(PackWeights, FloatRowsAreInterleavedInUnitsOfSixteenBytes) {
  for (const WeightFormat format : kFloatFormats) {
    const int64_t rows = 35, cols = 13, bytes = FloatWeightBytes(format), unit = 16 / bytes;
    std::mt19937_64 random(kSeed);
    const auto source = RandomGgufMatrix(random, format, rows, cols);
    std::vector<std::byte> packed(DeviceMatrixBytes(format, rows, cols), std::byte{0xff});
    PackDeviceMatrix(format, rows, cols, source.data(), packed.data());
    const std::vector<std::byte> zeros(bytes);
    const int64_t padded_cols = bytes == 2 ? 64 : 16;
    ASSERT_EQ(packed.size(), 40 * padded_cols * bytes);
    for (int64_t row = 0; row < 40; ++row) {
      for (int64_t col = 0; col < padded_cols; ++col) {
        const std::byte* at = packed.data() + row / 8 * WeightTileBytes(format, cols) +
                              col / unit * 128 + row % 8 * 16 + col % unit * bytes;
        const std::byte* expected =
            row < rows && col < cols ? source.data() + (row * cols + col) * bytes : zeros.data();
        ASSERT_EQ(std::memcmp(at, expected, bytes), 0) << row << " " << col;
      }
    }
  }
}

}  // namespace
}  // namespace baton
