#include "kernels/cuda/pack_weights.h"

#include <algorithm>
#include <cstring>

#include "kernels/cuda/weight_layout.h"
#include "kernels/numerics.h"

namespace baton {
namespace {

constexpr int kWordsPerGroup = 8;  // four columns each

uint32_t LoadWord(const std::byte* from) {
  uint32_t word;
  std::memcpy(&word, from, sizeof(word));
  return word;
}

void StoreWord(uint32_t word, std::byte* to) { std::memcpy(to, &word, sizeof(word)); }

// Copies bits 0…3 of `bits` into bit 0 of bytes 0…3.
uint32_t SpreadBits(uint32_t bits) { return (bits & 15) * 0x00204081u & 0x01010101u; }

struct SourceBlock {
  int bytes;
  int scales_at;
  int low_at;   // the low four bits of q, or all eight
  int high_at;  // the remaining bits
};

constexpr SourceBlock SourceBlockOf(WeightFormat format) {
  switch (format) {
    case WeightFormat::kQ8_0:
      return {34, 0, 2, 0};
    case WeightFormat::kQ4_1:
      return {20, 0, 4, 0};
    case WeightFormat::kQ5_0:
      return {22, 0, 6, 2};
    case WeightFormat::kQ5_1:
      return {24, 0, 8, 4};
    case WeightFormat::kQ4_K:
      return {144, 4, 16, 0};
    case WeightFormat::kQ5_K:
      return {176, 4, 48, 16};
    case WeightFormat::kQ6_K:
      return {210, 192, 0, 128};
    default:
      return {18, 0, 2, 0};  // Q4_0
  }
}

// Word j gets columns 4j…4j+3 of group g of a block, one byte each, as the format numbers them:
// without a sign, except for Q8_0.
template <WeightFormat kFormat>
void ReadGroup(const std::byte* block, int g, uint32_t words[kWordsPerGroup]) {
  constexpr SourceBlock kAt = SourceBlockOf(kFormat);
  constexpr uint32_t kNibbles = 0x0f0f0f0f;
  if constexpr (kFormat == WeightFormat::kQ8_0) {
    std::memcpy(words, block + kAt.low_at, kQuantGroup);
  } else if constexpr (BlockColumns(kFormat) == kQuantGroup) {
    for (int j = 0; j < 4; ++j) {
      const uint32_t both = LoadWord(block + kAt.low_at + 4 * j);
      words[j] = both & kNibbles;
      words[4 + j] = both >> 4 & kNibbles;
    }
    if constexpr (kAt.high_at != 0) {
      const uint32_t high = LoadWord(block + kAt.high_at);
      for (int j = 0; j < kWordsPerGroup; ++j) words[j] |= SpreadBits(high >> 4 * j) << 4;
    }
  } else if constexpr (kFormat == WeightFormat::kQ6_K) {
    const std::byte* low = block + kAt.low_at + g / 4 * 64 + g % 2 * 32;
    const std::byte* high = block + kAt.high_at + g / 4 * 32;
    for (int j = 0; j < kWordsPerGroup; ++j) {
      words[j] = (LoadWord(low + 4 * j) >> (g % 4 / 2 * 4) & kNibbles) |
                 (LoadWord(high + 4 * j) >> (g % 4 * 2) & 0x03030303u) << 4;
    }
  } else {
    const std::byte* low = block + kAt.low_at + g / 2 * 32;
    for (int j = 0; j < kWordsPerGroup; ++j) {
      words[j] = LoadWord(low + 4 * j) >> (g % 2 * 4) & kNibbles;
      if constexpr (kAt.high_at != 0) {
        words[j] |= (LoadWord(block + kAt.high_at + 4 * j) >> g & 0x01010101u) << 4;
      }
    }
  }
}

// Flips the bits that turn q into q less its zero point, as two's complement of as many bits.
constexpr uint32_t SignFlip(WeightFormat format) {
  switch (format) {
    case WeightFormat::kQ4_0:
      return 0x08080808;
    case WeightFormat::kQ5_0:
      return 0x10101010;
    case WeightFormat::kQ6_K:
      return 0x20202020;
    default:
      return 0;
  }
}

// Where a row's values lie in a tile: fragment words of lanes 4r…4r+3, upper or lower.
struct TileRow {
  int row;                                  // 0…15
  int lane() const { return row % 8 * 4; }  // first of four lanes
  int upper() const { return row / 8; }     // 1 for rows 8…15
};

// Stores group g of a block. REQUIRES: the row's bits in the block are zero.
template <WeightFormat kFormat>
void StoreGroup(TileRow row, int g, const uint32_t words[kWordsPerGroup], std::byte* block) {
  constexpr WeightLayout kLayout = WeightLayoutOf(kFormat);
  const int piece = g / kPieceGroups;
  const int in_piece = g % kPieceGroups;
  for (int t = 0; t < 4; ++t) {
    std::byte* low = block + kLayout.LowAt(piece) + 16 * (row.lane() + t);
    const uint32_t first = words[2 * t] ^ SignFlip(kFormat);
    const uint32_t second = words[2 * t + 1] ^ SignFlip(kFormat);
    if constexpr (kFormat == WeightFormat::kQ8_0) {
      StoreWord(first, low + 512 * in_piece + 4 * row.upper());
      StoreWord(second, low + 512 * in_piece + 8 + 4 * row.upper());
      continue;
    }
    StoreWord((first & 0x0f0f0f0fu) | (second & 0x0f0f0f0fu) << 4,
              low + 512 * (in_piece / 2) + 8 * (in_piece % 2) + 4 * row.upper());
    if constexpr (kLayout.high_words > 0) {
      constexpr int kBits = kLayout.high_words / 2;  // 1 or 2
      constexpr uint32_t kMask = kBits == 1 ? 0x01010101u : 0x03030303u;
      const int shift = kBits == 1 ? 4 * (in_piece % 2) : 0;
      std::byte* high = block + kLayout.HighAt(piece) + kLayout.PairHigh(in_piece / 2) +
                        4 * (kBits * (row.lane() + t) + (kBits == 1 ? 0 : in_piece % 2));
      const uint32_t bits = (first >> 4 & kMask) << (shift + kBits * row.upper()) |
                            (second >> 4 & kMask) << (shift + kBits * (row.upper() + 2));
      StoreWord(LoadWord(high) | bits, high);
    }
  }
}

struct ScaleAndMinimumBits {
  uint32_t scale;
  uint32_t minimum;
};
// Returns the six-bit scale and minimum of group g (Q4_K, Q5_K), from GGUF's twelve bytes.
ScaleAndMinimumBits SixBitScales(const std::byte* bytes, int g) {
  const auto at = [bytes](int i) { return std::to_integer<uint32_t>(bytes[i]); };
  if (g < 4) return {at(g) & 63, at(4 + g) & 63};
  return {(at(4 + g) & 15) | at(g - 4) >> 6 << 4, at(4 + g) >> 4 | at(g) >> 6 << 4};
}

// Stores the headers of a row. `blocks` are the row's blocks of the file that this block covers,
// `count` of them.
template <WeightFormat kFormat>
void StoreHeaders(TileRow row, const std::byte* source, int count, std::byte* header) {
  constexpr SourceBlock kAt = SourceBlockOf(kFormat);
  if constexpr (BlockColumns(kFormat) == kQuantGroup) {
    for (int g = 0; g < count; ++g) {
      std::byte* d = header + 64 * (g / 2) + 4 * row.row + 2 * (g % 2);
      std::memcpy(d, source + g * kAt.bytes, 2);
      if constexpr (HasMinimumTerm(kFormat)) std::memcpy(d + 128, source + g * kAt.bytes + 2, 2);
    }
  } else if constexpr (kFormat == WeightFormat::kQ6_K) {
    for (int pair = 0; pair < 4; ++pair) {
      std::memcpy(header + 64 * pair + 4 * row.row, source + kAt.scales_at + 4 * pair, 4);
    }
    std::memcpy(header + 256 + 2 * row.row, source + 208, 2);
  } else {
    std::memcpy(header + 4 * row.row, source, 4);
    for (int pair = 0; pair < 4; ++pair) {
      const ScaleAndMinimumBits first = SixBitScales(source + kAt.scales_at, 2 * pair);
      const ScaleAndMinimumBits second = SixBitScales(source + kAt.scales_at, 2 * pair + 1);
      const auto word =
          static_cast<uint16_t>(first.scale | first.minimum << 6 | (second.scale & 15) << 12);
      std::memcpy(header + 64 + 2 * (16 * pair + row.row), &word, 2);
      header[192 + 16 * pair + row.row] =
          static_cast<std::byte>(second.scale >> 4 | second.minimum << 2);
    }
  }
}

// Packs one tile, which has `rows` rows.
template <WeightFormat kFormat>
void PackTile(int rows, int64_t cols, const std::byte* source, std::byte* tile) {
  constexpr WeightLayout kLayout = WeightLayoutOf(kFormat);
  constexpr SourceBlock kAt = SourceBlockOf(kFormat);
  constexpr int64_t kGroupsPerSource = BlockColumns(kFormat) / kQuantGroup;
  constexpr int64_t kSourcesPerBlock = kLayout.columns() / BlockColumns(kFormat);
  const int64_t sources = cols / BlockColumns(kFormat);  // of a row
  std::memset(tile, 0, static_cast<size_t>(WeightTileBytes(kFormat, cols)));
  for (int64_t first = 0; first < sources; first += kSourcesPerBlock) {
    std::byte* block = tile + first / kSourcesPerBlock * kLayout.bytes();
    const int count = static_cast<int>(std::min(kSourcesPerBlock, sources - first));
    for (int r = 0; r < rows; ++r) {
      const std::byte* row_source = source + (r * sources + first) * kAt.bytes;
      StoreHeaders<kFormat>({r}, row_source, count, block + kLayout.HeaderAt());
      for (int g = 0; g < count * kGroupsPerSource; ++g) {
        uint32_t words[kWordsPerGroup];
        ReadGroup<kFormat>(row_source + g / kGroupsPerSource * kAt.bytes, g % kGroupsPerSource,
                           words);
        StoreGroup<kFormat>({r}, g, words, block);
      }
    }
  }
}

// Packs one tile of a float matrix: units of 16 bytes, 8 rows each.
void PackFloatTile(WeightFormat format, int rows, int64_t cols, const std::byte* source,
                   std::byte* tile) {
  const int64_t row_bytes = cols * FloatWeightBytes(format);
  std::memset(tile, 0, static_cast<size_t>(WeightTileBytes(format, cols)));
  for (int64_t at = 0; at < row_bytes; at += kFloatUnitBytes) {
    const int64_t bytes = std::min<int64_t>(kFloatUnitBytes, row_bytes - at);
    for (int r = 0; r < rows; ++r) {
      std::memcpy(tile + kFloatTileRows * at + kFloatUnitBytes * r, source + r * row_bytes + at,
                  static_cast<size_t>(bytes));
    }
  }
}

template <WeightFormat kFormat>
void PackTiles(int64_t rows, int64_t cols, const std::byte* source, std::byte* destination) {
  const int64_t row_bytes = cols / BlockColumns(kFormat) * SourceBlockOf(kFormat).bytes;
  for (int64_t row = 0; row < rows; row += kWeightTileRows) {
    PackTile<kFormat>(static_cast<int>(std::min<int64_t>(kWeightTileRows, rows - row)), cols,
                      source + row * row_bytes, destination);
    destination += WeightTileBytes(kFormat, cols);
  }
}

}  // namespace

int64_t DeviceTileRows(WeightFormat format) {
  return IsQuantized(format) ? kWeightTileRows : kFloatTileRows;
}

size_t DeviceMatrixBytes(WeightFormat format, int64_t rows, int64_t cols) {
  const int64_t tile_rows = DeviceTileRows(format);
  return static_cast<size_t>((rows + tile_rows - 1) / tile_rows * WeightTileBytes(format, cols));
}

void PackDeviceMatrix(WeightFormat format, int64_t rows, int64_t cols, const std::byte* source,
                      std::byte* destination) {
  switch (format) {
    case WeightFormat::kF32:
    case WeightFormat::kF16:
    case WeightFormat::kBF16:
      break;
    case WeightFormat::kQ8_0:
      return PackTiles<WeightFormat::kQ8_0>(rows, cols, source, destination);
    case WeightFormat::kQ4_0:
      return PackTiles<WeightFormat::kQ4_0>(rows, cols, source, destination);
    case WeightFormat::kQ4_1:
      return PackTiles<WeightFormat::kQ4_1>(rows, cols, source, destination);
    case WeightFormat::kQ5_0:
      return PackTiles<WeightFormat::kQ5_0>(rows, cols, source, destination);
    case WeightFormat::kQ5_1:
      return PackTiles<WeightFormat::kQ5_1>(rows, cols, source, destination);
    case WeightFormat::kQ4_K:
      return PackTiles<WeightFormat::kQ4_K>(rows, cols, source, destination);
    case WeightFormat::kQ5_K:
      return PackTiles<WeightFormat::kQ5_K>(rows, cols, source, destination);
    case WeightFormat::kQ6_K:
      return PackTiles<WeightFormat::kQ6_K>(rows, cols, source, destination);
  }
  const int64_t row_bytes = cols * FloatWeightBytes(format);
  for (int64_t row = 0; row < rows; row += kFloatTileRows) {
    PackFloatTile(format, static_cast<int>(std::min<int64_t>(kFloatTileRows, rows - row)), cols,
                  source + row * row_bytes, destination);
    destination += WeightTileBytes(format, cols);
  }
}

}  // namespace baton
