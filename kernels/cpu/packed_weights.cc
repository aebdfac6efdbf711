#include "kernels/cpu/packed_weights.h"

#include <cmath>
#include <cstring>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/half.h"

namespace baton {
namespace {

// How GGUF and the packed group store 32 columns of a quantised row: one or two f16 (d, then m)
// followed by whole 4-byte words, which packing interleaves by row.
struct QuantizedBlock {
  int64_t headers;  // f16 values
  int64_t words;    // 4-byte words
  int64_t source_bytes() const { return 2 * headers + 4 * words; }
  int64_t packed_bytes() const { return kRowGroup * source_bytes(); }
};

QuantizedBlock BlockOf(WeightFormat format) {
  switch (format) {
    case WeightFormat::kQ8_0:
      return {.headers = 1, .words = 8};
    case WeightFormat::kQ4_1:
      return {.headers = 2, .words = 4};
    default:
      return {.headers = 1, .words = 4};  // Q4_0
  }
}

int64_t FloatBytes(WeightFormat format) { return format == WeightFormat::kF32 ? 4 : 2; }

void PackQuantizedRow(const QuantizedBlock& block, int64_t groups, int64_t lane,
                      const std::byte* source, std::byte* group) {
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t h = 0; h < block.headers; ++h) {
      std::memcpy(group + 2 * (h * kRowGroup + lane), source + 2 * h, 2);
    }
    std::byte* words = group + 2 * block.headers * kRowGroup;
    for (int64_t w = 0; w < block.words; ++w) {
      std::memcpy(words + 4 * (w * kRowGroup + lane), source + 2 * block.headers + 4 * w, 4);
    }
    source += block.source_bytes();
    group += block.packed_bytes();
  }
}

void PackFloatRow(int64_t value_bytes, int64_t cols, int64_t lane, const std::byte* source,
                  std::byte* group) {
  for (int64_t c = 0; c < cols; ++c) {
    std::memcpy(group + value_bytes * (c * kRowGroup + lane), source + value_bytes * c,
                static_cast<size_t>(value_bytes));
  }
}

float LoadF16(const std::byte* bytes) {
  uint16_t bits;
  std::memcpy(&bits, bytes, sizeof(bits));
  return F16ToF32(bits);
}

// Dequantises the 32 columns of row `lane` at `group` (NUMERICS §5).
void UnpackBlock(WeightFormat format, const std::byte* group, int64_t lane, float* out) {
  const QuantizedBlock block = BlockOf(format);
  const float d = LoadF16(group + 2 * lane);
  const std::byte* words = group + 2 * block.headers * kRowGroup + 4 * lane;
  if (format == WeightFormat::kQ8_0) {
    for (int c = 0; c < kQuantGroup; ++c) {
      const auto q = static_cast<int8_t>(words[4 * kRowGroup * (c / 4) + c % 4]);
      out[c] = d * static_cast<float>(q);
    }
    return;
  }
  const float m = format == WeightFormat::kQ4_1 ? LoadF16(group + 2 * (kRowGroup + lane)) : 0;
  for (int c = 0; c < kQuantGroup; ++c) {
    const int half = c % 16;
    const auto byte = static_cast<uint8_t>(words[4 * kRowGroup * (half / 4) + half % 4]);
    const int q = c < 16 ? byte & 15 : byte >> 4;
    out[c] = format == WeightFormat::kQ4_1 ? std::fma(d, static_cast<float>(q), m)
                                           : d * static_cast<float>(q - 8);
  }
}

}  // namespace

int64_t RowGroupBytes(WeightFormat format, int64_t cols) {
  if (!IsQuantized(format)) return kRowGroup * cols * FloatBytes(format);
  return cols / kQuantGroup * BlockOf(format).packed_bytes();
}

size_t PackedMatrixBytes(WeightFormat format, int64_t rows, int64_t cols) {
  const int64_t groups = (rows + kRowGroup - 1) / kRowGroup;
  return static_cast<size_t>(groups * RowGroupBytes(format, cols));
}

void PackMatrixRows(WeightFormat format, int64_t rows, int64_t cols, const std::byte* source,
                    std::byte* destination) {
  const int64_t group_bytes = RowGroupBytes(format, cols);
  const int64_t row_bytes = group_bytes / kRowGroup;  // packing only moves bytes
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t lane = row % kRowGroup;
    std::byte* group = destination + row / kRowGroup * group_bytes;
    if (lane == 0 && rows - row < kRowGroup) std::memset(group, 0, group_bytes);
    if (IsQuantized(format)) {
      PackQuantizedRow(BlockOf(format), cols / kQuantGroup, lane, source + row * row_bytes, group);
    } else {
      PackFloatRow(FloatBytes(format), cols, lane, source + row * row_bytes, group);
    }
  }
}

void UnpackRow(const PackedMatrix& matrix, int64_t row, float* out) {
  const int64_t lane = row % kRowGroup;
  const std::byte* group =
      matrix.data + row / kRowGroup * RowGroupBytes(matrix.format, matrix.cols);
  switch (matrix.format) {
    case WeightFormat::kF32:
      for (int64_t c = 0; c < matrix.cols; ++c) {
        std::memcpy(out + c, group + 4 * (c * kRowGroup + lane), 4);
      }
      return;
    case WeightFormat::kF16:
      for (int64_t c = 0; c < matrix.cols; ++c)
        out[c] = LoadF16(group + 2 * (c * kRowGroup + lane));
      return;
    case WeightFormat::kBF16:
      for (int64_t c = 0; c < matrix.cols; ++c) {
        uint16_t bits;
        std::memcpy(&bits, group + 2 * (c * kRowGroup + lane), sizeof(bits));
        out[c] = BF16ToF32(bits);
      }
      return;
    default:
      break;
  }
  const int64_t block_bytes = BlockOf(matrix.format).packed_bytes();
  for (int64_t c = 0; c < matrix.cols; c += kQuantGroup) {
    UnpackBlock(matrix.format, group + c / kQuantGroup * block_bytes, lane, out + c);
  }
}

}  // namespace baton
