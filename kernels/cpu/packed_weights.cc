#include "kernels/cpu/packed_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/half.h"

namespace baton {
namespace {

constexpr int64_t kWordStride = 4 * kRowGroup;  // distance between two words of one row

int64_t FloatBytes(WeightFormat format) { return format == WeightFormat::kF32 ? 4 : 2; }

float LoadF16(const std::byte* bytes) {
  uint16_t bits;
  std::memcpy(&bits, bytes, sizeof(bits));
  return F16ToF32(bits);
}

// Returns bits [shift, shift + count) of a byte.
int Bits(std::byte byte, int shift, int count) {
  return std::to_integer<int>(byte) >> shift & ((1 << count) - 1);
}

// ---- GGUF's blocks ----------------------------------------------------------------------------

// Offsets of the parts of a row's block in GGUF, in bytes.
struct SourceLayout {
  int64_t headers;
  int64_t scales;
  int64_t low;   // the low four bits of q, or all eight
  int64_t high;  // the remaining bits
};

constexpr SourceLayout SourceLayoutOf(WeightFormat format) {
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

uint32_t Load32(const std::byte* from) {
  uint32_t word;
  std::memcpy(&word, from, sizeof(word));
  return word;
}

// Returns word j of the low four bits of 32 columns. They are the nibbles at `shift` of 32 bytes.
uint32_t NibbleWord(const std::byte* bytes, int64_t j, int64_t shift) {
  constexpr uint32_t kNibbles = 0x0f0f0f0f;
  const uint32_t first = Load32(bytes + 4 * j) >> shift & kNibbles;
  const uint32_t second = Load32(bytes + kQuantGroup / 2 + 4 * j) >> shift & kNibbles;
  return first | second << 4;
}

// Returns the word of fifth bits from 32 bits in column order: bit 4j+i becomes bit 8i+j.
uint32_t FifthBitWord(uint32_t bits) {
  constexpr uint32_t kFourTimes = 0x00204081;  // copies 7 bits apart put one bit into each byte
  uint32_t word = 0;
  for (int j = 0; j < 8; ++j) {
    word |= ((bits >> 4 * j & 15) * kFourTimes & 0x01010101) << j;
  }
  return word;
}

// Writes the 32 columns of group g as words of the packed layout, four columns per word.
template <WeightFormat kFormat>
void SourceWords(const std::byte* block, int64_t g, uint32_t* words) {
  constexpr SourceLayout kAt = SourceLayoutOf(kFormat);
  constexpr int64_t kWords = BlockLayoutOf(kFormat).words;
  if constexpr (kWords == 8) {
    std::memcpy(words, block + kAt.low, 32);
  } else if constexpr (BlockLayoutOf(kFormat).groups == 1) {
    std::memcpy(words, block + kAt.low, 16);
    if constexpr (kWords == 5) words[4] = FifthBitWord(Load32(block + kAt.high));
  } else if constexpr (kWords == 6) {
    const std::byte* low = block + kAt.low + g / 4 * 64 + g % 2 * 32;
    for (int64_t j = 0; j < 4; ++j) words[j] = NibbleWord(low, j, g % 4 / 2 * 4);
    const std::byte* high = block + kAt.high + g / 4 * 32;
    words[4] = words[5] = 0;
    for (int64_t j = 0; j < 8; ++j) {
      words[4 + j / 4] |= (Load32(high + 4 * j) >> g % 4 * 2 & 0x03030303) << j % 4 * 2;
    }
  } else {
    const std::byte* low = block + kAt.low + g / 2 * 32;
    for (int64_t j = 0; j < 4; ++j) words[j] = NibbleWord(low, j, g % 2 * 4);
    if constexpr (kWords == 5) {
      words[4] = 0;
      for (int64_t j = 0; j < 8; ++j) {
        words[4] |= (Load32(block + kAt.high + 4 * j) >> g & 0x01010101) << j;
      }
    }
  }
}

// Six-bit scale and minimum of group g (Q4_K, Q5_K), from GGUF's twelve bytes.
struct ScaleAndMinimum {
  int scale;
  int minimum;
};
ScaleAndMinimum SourceScales(const std::byte* scales, int64_t g) {
  if (g < 4) return {Bits(scales[g], 0, 6), Bits(scales[4 + g], 0, 6)};
  return {Bits(scales[4 + g], 0, 4) | Bits(scales[g - 4], 6, 2) << 4,
          Bits(scales[4 + g], 4, 4) | Bits(scales[g], 6, 2) << 4};
}

// Stores a row's scales of group g. REQUIRES: the row's bits in `packed` are zero.
template <WeightFormat kFormat>
void PackScales(const std::byte* source, int64_t g, int64_t lane, std::byte* packed) {
  if constexpr (kFormat == WeightFormat::kQ6_K) {
    packed[lane] = source[2 * g];
    packed[kRowGroup + lane] = source[2 * g + 1];
  } else {
    const ScaleAndMinimum s = SourceScales(source, g);
    packed[lane] = static_cast<std::byte>(s.scale | (s.minimum & 3) << 6);
    packed[kRowGroup + lane % 8] |= static_cast<std::byte>(s.minimum >> 2 << (lane < 8 ? 0 : 4));
  }
}

template <WeightFormat kFormat>
void PackBlock(const std::byte* source, int64_t lane, std::byte* packed) {
  constexpr BlockLayout kLayout = BlockLayoutOf(kFormat);
  constexpr SourceLayout kAt = SourceLayoutOf(kFormat);
  for (int64_t h = 0; h < kLayout.headers; ++h) {
    std::memcpy(packed + 2 * (h * kRowGroup + lane), source + kAt.headers + 2 * h, 2);
  }
  for (int64_t g = 0; g < kLayout.groups; ++g) {
    if constexpr (kLayout.scale_bytes > 0) {
      PackScales<kFormat>(source + kAt.scales, g, lane, packed + kLayout.ScalesAt(g));
    }
    uint32_t words[kLayout.words];
    SourceWords<kFormat>(source, g, words);
    for (int64_t w = 0; w < kLayout.words; ++w) {
      std::memcpy(packed + kLayout.WordsAt(g) + w * kWordStride + 4 * lane, &words[w], 4);
    }
  }
}

// Packs one row group, which has `rows` rows. Works block by block, so that a block stays in the
// first-level cache until it is complete.
template <WeightFormat kFormat>
void PackQuantizedGroup(int64_t rows, int64_t cols, const std::byte* source, std::byte* group) {
  constexpr int64_t kBytes = BlockLayoutOf(kFormat).bytes();
  constexpr int64_t kSourceBytes = kBytes / kRowGroup;                   // packing only moves bits
  constexpr bool kSharesBytes = BlockLayoutOf(kFormat).scale_bytes > 0;  // rows share bytes
  const int64_t blocks = cols / BlockColumns(kFormat);
  for (int64_t b = 0; b < blocks; ++b) {
    if (kSharesBytes || rows < kRowGroup) std::memset(group + b * kBytes, 0, kBytes);
    for (int64_t lane = 0; lane < rows; ++lane) {
      PackBlock<kFormat>(source + (lane * blocks + b) * kSourceBytes, lane, group + b * kBytes);
    }
  }
}

template <typename Value>
void PackFloatGroup(int64_t rows, int64_t cols, const std::byte* source, std::byte* group) {
  constexpr int64_t kBytes = sizeof(Value);
  constexpr int64_t kTile = 64;  // columns
  if (rows < kRowGroup) std::memset(group, 0, kRowGroup * cols * kBytes);
  for (int64_t first = 0; first < cols; first += kTile) {
    const int64_t end = std::min(first + kTile, cols);
    for (int64_t lane = 0; lane < rows; ++lane) {
      for (int64_t c = first; c < end; ++c) {
        std::memcpy(group + kBytes * (c * kRowGroup + lane), source + kBytes * (lane * cols + c),
                    kBytes);
      }
    }
  }
}

using PackGroup = void (*)(int64_t rows, int64_t cols, const std::byte* source, std::byte* group);
PackGroup PackGroupOf(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
      return PackFloatGroup<uint32_t>;
    case WeightFormat::kF16:
    case WeightFormat::kBF16:
      return PackFloatGroup<uint16_t>;
    case WeightFormat::kQ8_0:
      return PackQuantizedGroup<WeightFormat::kQ8_0>;
    case WeightFormat::kQ4_0:
      return PackQuantizedGroup<WeightFormat::kQ4_0>;
    case WeightFormat::kQ4_1:
      return PackQuantizedGroup<WeightFormat::kQ4_1>;
    case WeightFormat::kQ5_0:
      return PackQuantizedGroup<WeightFormat::kQ5_0>;
    case WeightFormat::kQ5_1:
      return PackQuantizedGroup<WeightFormat::kQ5_1>;
    case WeightFormat::kQ4_K:
      return PackQuantizedGroup<WeightFormat::kQ4_K>;
    case WeightFormat::kQ5_K:
      return PackQuantizedGroup<WeightFormat::kQ5_K>;
    case WeightFormat::kQ6_K:
      break;
  }
  return PackQuantizedGroup<WeightFormat::kQ6_K>;
}

// ---- packed blocks ----------------------------------------------------------------------------

// Reads the 32 values of q of a row. REQUIRES: the format is not Q8_0.
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
  const PackGroup pack = PackGroupOf(format);
  for (int64_t row = 0; row < rows; row += kRowGroup) {
    pack(std::min(kRowGroup, rows - row), cols, source, destination);
    source += group_bytes;  // packing only moves bits
    destination += group_bytes;
  }
}

RowWeights ReadRowWeights(WeightFormat format, const std::byte* group, int64_t column_group,
                          int64_t lane) {
  const BlockLayout layout = BlockLayoutOf(format);
  const auto index = static_cast<uint32_t>(column_group);  // unsigned 32-bit division is fast
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
