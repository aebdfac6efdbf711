#include "kernels/cpu/packed_weights.h"

#include <cmath>
#include <cstring>

#include "kernels/half.h"

namespace baton {
namespace {

constexpr int64_t kWordStride = 4 * kRowGroup;  // from one word of a row to its next

int64_t FloatBytes(WeightFormat format) { return format == WeightFormat::kF32 ? 4 : 2; }

float LoadF16(const std::byte* bytes) {
  uint16_t bits;
  std::memcpy(&bits, bytes, sizeof(bits));
  return F16ToF32(bits);
}

// Bits [shift, shift + count) of a byte.
int Bits(std::byte byte, int shift, int count) {
  return std::to_integer<int>(byte) >> shift & ((1 << count) - 1);
}

// ---- GGUF's blocks ----------------------------------------------------------------------------

// Where a row's block keeps its parts in GGUF; bytes.
struct SourceLayout {
  int64_t headers;
  int64_t scales;
  int64_t low;   // the low four bits of q, or all eight
  int64_t high;  // the others
};

SourceLayout SourceLayoutOf(WeightFormat format) {
  switch (format) {
    case WeightFormat::kQ4_1:
      return {.headers = 0, .scales = 0, .low = 4, .high = 0};
    case WeightFormat::kQ5_0:
      return {.headers = 0, .scales = 0, .low = 6, .high = 2};
    case WeightFormat::kQ5_1:
      return {.headers = 0, .scales = 0, .low = 8, .high = 4};
    case WeightFormat::kQ4_K:
      return {.headers = 0, .scales = 4, .low = 16, .high = 0};
    case WeightFormat::kQ5_K:
      return {.headers = 0, .scales = 4, .low = 48, .high = 16};
    case WeightFormat::kQ6_K:
      return {.headers = 208, .scales = 192, .low = 0, .high = 128};
    default:
      return {.headers = 0, .scales = 0, .low = 2, .high = 0};  // Q8_0, Q4_0
  }
}

// q of column c of group g of a block, as the unsigned number that the file holds.
int SourceQuant(WeightFormat format, const std::byte* block, int64_t g, int64_t c) {
  const SourceLayout at = SourceLayoutOf(format);
  const std::byte* low = block + at.low;
  const std::byte* high = block + at.high;
  switch (format) {
    case WeightFormat::kQ4_K:
      return Bits(low[g / 2 * 32 + c], g % 2 * 4, 4);
    case WeightFormat::kQ5_K:
      return Bits(low[g / 2 * 32 + c], g % 2 * 4, 4) | Bits(high[c], static_cast<int>(g), 1) << 4;
    case WeightFormat::kQ6_K:
      return Bits(low[g / 4 * 64 + g % 2 * 32 + c], g % 4 / 2 * 4, 4) |
             Bits(high[g / 4 * 32 + c], g % 4 * 2, 2) << 4;
    default:  // Q5_0, Q5_1
      return Bits(low[c % 16], c < 16 ? 0 : 4, 4) | Bits(high[c / 8], c % 8, 1) << 4;
  }
}

// The 32 columns of group g as the words of the packed layout.
void SourceWords(WeightFormat format, const std::byte* block, int64_t g, uint32_t* words) {
  const int64_t count = BlockLayoutOf(format).words;
  if (format == WeightFormat::kQ8_0 || format == WeightFormat::kQ4_0 ||
      format == WeightFormat::kQ4_1) {
    std::memcpy(words, block + SourceLayoutOf(format).low, 4 * count);
    return;
  }
  std::memset(words, 0, 4 * count);
  for (int c = 0; c < kQuantGroup; ++c) {
    const auto q = static_cast<uint32_t>(SourceQuant(format, block, g, c));
    const int byte = c % 4 * 8;
    words[c % 16 / 4] |= (q & 15) << (byte + c / 16 * 4);
    if (count == 5) words[4] |= q >> 4 << (byte + c / 4);
    if (count == 6) words[4 + c / 16] |= q >> 4 << (byte + c % 16 / 4 * 2);
  }
}

// The six-bit scale and minimum of group g (Q4_K, Q5_K), from GGUF's twelve bytes.
struct ScaleAndMinimum {
  int scale;
  int minimum;
};
ScaleAndMinimum SourceScales(const std::byte* scales, int64_t g) {
  if (g < 4) return {Bits(scales[g], 0, 6), Bits(scales[4 + g], 0, 6)};
  return {Bits(scales[4 + g], 0, 4) | Bits(scales[g - 4], 6, 2) << 4,
          Bits(scales[4 + g], 4, 4) | Bits(scales[g], 6, 2) << 4};
}

// Puts a row's scales of group g to their place; `packed` is zero where the row's bits go.
void PackScales(WeightFormat format, const std::byte* source, int64_t g, int64_t lane,
                std::byte* packed) {
  if (format == WeightFormat::kQ6_K) {
    packed[lane] = source[2 * g];
    packed[kRowGroup + lane] = source[2 * g + 1];
  } else {
    const ScaleAndMinimum s = SourceScales(source, g);
    packed[lane] = static_cast<std::byte>(s.scale | (s.minimum & 3) << 6);
    packed[kRowGroup + lane % 8] |= static_cast<std::byte>(s.minimum >> 2 << (lane < 8 ? 0 : 4));
  }
}

void PackQuantizedRow(WeightFormat format, int64_t blocks, int64_t lane, const std::byte* source,
                      std::byte* packed) {
  const BlockLayout layout = BlockLayoutOf(format);
  const SourceLayout at = SourceLayoutOf(format);
  for (int64_t b = 0; b < blocks; ++b) {
    for (int64_t h = 0; h < layout.headers; ++h) {
      std::memcpy(packed + 2 * (h * kRowGroup + lane), source + at.headers + 2 * h, 2);
    }
    for (int64_t g = 0; g < layout.groups; ++g) {
      if (layout.scale_bytes > 0) {
        PackScales(format, source + at.scales, g, lane, packed + layout.ScalesAt(g));
      }
      uint32_t words[8];
      SourceWords(format, source, g, words);
      for (int64_t w = 0; w < layout.words; ++w) {
        std::memcpy(packed + layout.WordsAt(g) + w * kWordStride + 4 * lane, &words[w], 4);
      }
    }
    source += layout.bytes() / kRowGroup;
    packed += layout.bytes();
  }
}

void PackFloatRow(int64_t value_bytes, int64_t cols, int64_t lane, const std::byte* source,
                  std::byte* group) {
  for (int64_t c = 0; c < cols; ++c) {
    std::memcpy(group + value_bytes * (c * kRowGroup + lane), source + value_bytes * c,
                static_cast<size_t>(value_bytes));
  }
}

// ---- packed blocks ----------------------------------------------------------------------------

// The 32 q of a row. Not for Q8_0.
void ReadQuants(int64_t words, int zero_point, const std::byte* row, int8_t q[kQuantGroup]) {
  for (int c = 0; c < kQuantGroup / 2; ++c) {
    const std::byte both = row[c / 4 * kWordStride + c % 4];
    int low = Bits(both, 0, 4);
    int high = Bits(both, 4, 4);
    if (words == 5) {
      const std::byte fifth = row[4 * kWordStride + c % 4];
      low |= Bits(fifth, c / 4, 1) << 4;
      high |= Bits(fifth, 4 + c / 4, 1) << 4;
    } else if (words == 6) {
      low |= Bits(row[4 * kWordStride + c % 4], c / 4 * 2, 2) << 4;
      high |= Bits(row[5 * kWordStride + c % 4], c / 4 * 2, 2) << 4;
    }
    q[c] = static_cast<int8_t>(low - zero_point);
    q[c + kQuantGroup / 2] = static_cast<int8_t>(high - zero_point);
  }
}

void ReadFloatRow(const PackedMatrix& matrix, const std::byte* group, int64_t lane, float* out) {
  for (int64_t c = 0; c < matrix.cols; ++c) {
    const std::byte* at = group + FloatBytes(matrix.format) * (c * kRowGroup + lane);
    if (matrix.format == WeightFormat::kF32) {
      std::memcpy(out + c, at, 4);
    } else if (matrix.format == WeightFormat::kF16) {
      out[c] = LoadF16(at);
    } else {
      uint16_t bits;
      std::memcpy(&bits, at, sizeof(bits));
      out[c] = BF16ToF32(bits);
    }
  }
}

}  // namespace

int64_t RowGroupBytes(WeightFormat format, int64_t cols) {
  if (!IsQuantized(format)) return kRowGroup * cols * FloatBytes(format);
  return cols / BlockColumns(format) * BlockLayoutOf(format).bytes();
}

size_t PackedMatrixBytes(WeightFormat format, int64_t rows, int64_t cols) {
  const int64_t groups = (rows + kRowGroup - 1) / kRowGroup;
  return static_cast<size_t>(groups * RowGroupBytes(format, cols));
}

void PackMatrixRows(WeightFormat format, int64_t rows, int64_t cols, const std::byte* source,
                    std::byte* destination) {
  const int64_t group_bytes = RowGroupBytes(format, cols);
  const int64_t row_bytes = group_bytes / kRowGroup;                // packing only moves bits
  const bool shares_bytes = BlockLayoutOf(format).scale_bytes > 0;  // rows of one group do
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t lane = row % kRowGroup;
    std::byte* group = destination + row / kRowGroup * group_bytes;
    if (lane == 0 && (shares_bytes || rows - row < kRowGroup)) std::memset(group, 0, group_bytes);
    if (IsQuantized(format)) {
      PackQuantizedRow(format, cols / BlockColumns(format), lane, source + row * row_bytes, group);
    } else {
      PackFloatRow(FloatBytes(format), cols, lane, source + row * row_bytes, group);
    }
  }
}

RowWeights ReadRowWeights(WeightFormat format, const std::byte* group, int64_t column_group,
                          int64_t lane) {
  const BlockLayout layout = BlockLayoutOf(format);
  const auto index = static_cast<uint32_t>(column_group);  // whose division is fast
  const auto groups = static_cast<uint32_t>(layout.groups);
  const std::byte* block = group + index / groups * layout.bytes();
  const int64_t g = index % groups;
  const std::byte* scales = block + layout.ScalesAt(g);
  const std::byte* words = block + layout.WordsAt(g) + 4 * lane;
  RowWeights row = {.factor = LoadF16(block + 2 * lane),
                    .minimum = 0,
                    .has_half_scales = format == WeightFormat::kQ6_K,
                    .half_scales = {1, 1},
                    .q = {}};
  if (layout.headers == 2) row.minimum = LoadF16(block + 2 * (kRowGroup + lane));
  if (row.has_half_scales) {
    for (int half = 0; half < 2; ++half) {
      row.half_scales[half] =
          static_cast<float>(static_cast<int8_t>(scales[kRowGroup * half + lane]));
    }
  } else if (layout.scale_bytes > 0) {
    const int minimum =
        Bits(scales[lane], 6, 2) | Bits(scales[kRowGroup + lane % 8], lane < 8 ? 0 : 4, 4) << 2;
    row.factor *= static_cast<float>(Bits(scales[lane], 0, 6));
    row.minimum = -(row.minimum * static_cast<float>(minimum));
  }
  if (format == WeightFormat::kQ8_0) {
    for (int c = 0; c < kQuantGroup; c += 4) std::memcpy(row.q + c, words + c / 4 * kWordStride, 4);
  } else {
    ReadQuants(layout.words, ZeroPointOf(format), words, row.q);
  }
  return row;
}

void UnpackRow(const PackedMatrix& matrix, int64_t row, float* out) {
  const int64_t lane = row % kRowGroup;
  const std::byte* group =
      matrix.data + row / kRowGroup * RowGroupBytes(matrix.format, matrix.cols);
  if (!IsQuantized(matrix.format)) return ReadFloatRow(matrix, group, lane, out);
  const bool has_minimum = HasMinimum(matrix.format);
  for (int64_t g = 0; g < matrix.cols / kQuantGroup; ++g) {
    const RowWeights weights = ReadRowWeights(matrix.format, group, g, lane);
    for (int c = 0; c < kQuantGroup; ++c) {
      const float factor = weights.factor * weights.half_scales[c / 16];
      const auto q = static_cast<float>(weights.q[c]);
      *out++ = has_minimum ? std::fma(factor, q, weights.minimum) : factor * q;
    }
  }
}

}  // namespace baton
