// Storage layout of a weight matrix in the CUDA backend. Packing and kernels use this file.
//
// Quantised formats: a tile has 16 rows, the m16 side of an integer MMA. It is a sequence of blocks
// of 128 columns (256 for K formats). A "piece" of a block is 128 columns, that is four groups
// of 32. A warp loads a piece in units of 16 bytes for each lane. The loaded words are already the
// MMA fragments. Of each group, lane 4r + t of a warp holds columns 8t…8t+7 of rows r and r + 8.
// This order of columns differs from the instruction's. That is correct, because activations are
// loaded in the same order, and an integer sum does not depend on it.
//
// A block has these parts, in this order:
// 1. Low words: for each piece, load, lane: 16 bytes.
//    - Q8_0: load i is group i. Its words are the int8 q of (row r, columns 8t…8t+3), (row r + 8,
//      the same), (row r, columns 8t+4…8t+7), (row r + 8, the same).
//    - All others: load i is groups 2i and 2i + 1. Each has one word for row r, then one for row
//      r + 8. Byte b of a word has the low four bits of q(8t + b) and, in its high half, of
//      q(8t + 4 + b).
// 2. High words: for each piece, pair of groups, lane.
//    - Five-bit q: one word. Bit 8b + f is the fifth bit of byte b of fragment word f, f in 0…3 for
//      the first group and in 4…7 for the second.
//    - Six-bit q: one word for each group. Bits 8b + 2f and 8b + 2f + 1 are the upper two bits of
//      byte b of fragment word f.
// 3. Headers, for each pair of groups (64 columns), row.
//    - Q8_0, Q4_0, Q5_0: f16 d of both groups. Q4_1, Q5_1: then f16 m of both, for all pairs.
//    - Q4_K, Q5_K: f16 d and e of each row. Then, per pair and row, 16 bits
//      s₀ | m₀ << 6 | (s₁ & 15) << 12. Then, per pair and row, 8 bits s₁ >> 4 | m₁ << 2.
//    - Q6_K: per pair and row four int8 scales in rising order of columns. Then f16 d of each row.
//
// Formats with a zero point (Q4_0, Q5_0, Q6_K) store q minus the zero point, as two's complement.
// So a block takes as many bytes as its rows take in the file. Zeros pad the rows to a multiple of
// 16, and the columns to whole blocks. Kernels skip the padded groups.
//
// Float formats: a tile has 8 rows and consists of units. A unit has 16 bytes of each row: 4
// columns of f32, or 8 columns of 16 bits. With 16 bits, a unit (128 bytes) is a matrix of
// `ldmatrix` and a core matrix of `wgmma`. So tensor cores read tiles without conversion, for few
// tokens and for many. Zeros pad the rows to whole tiles. They pad the columns of f32 to whole
// units, and the columns of 16 bits to multiples of 64.
//
// Matrices start on a 16-byte boundary.
#pragma once

#include <cstdint>

#include "kernels/host_device.h"
#include "kernels/weight_format.h"

namespace baton {

inline constexpr int kWeightTileRows = 16;
inline constexpr int kPieceGroups = 4;
inline constexpr int kPieceColumns = 128;
inline constexpr int kFloatTileRows = 8;
inline constexpr int kFloatUnitBytes = 16;  // of a row
inline constexpr int kHalfColumns = 64;     // columns of 16 bits are padded to a multiple of this

// Sizes of one block of 16 rows of a quantised format.
struct WeightLayout {
  int pieces;        // of a block
  int low_words;     // per lane and piece
  int high_words;    // per lane and piece
  int header_bytes;  // of a block

  BATON_HOST_DEVICE constexpr int LowAt(int piece) const { return 128 * low_words * piece; }
  BATON_HOST_DEVICE constexpr int HighAt(int piece) const {
    return LowAt(pieces) + 128 * high_words * piece;
  }
  // Offsets of a pair of groups (0 or 1) from LowAt and HighAt.
  BATON_HOST_DEVICE constexpr int PairLow(int pair) const { return 64 * low_words * pair; }
  BATON_HOST_DEVICE constexpr int PairHigh(int pair) const { return 64 * high_words * pair; }
  BATON_HOST_DEVICE constexpr int HeaderAt() const { return HighAt(pieces); }
  BATON_HOST_DEVICE constexpr int bytes() const { return HeaderAt() + header_bytes; }
  BATON_HOST_DEVICE constexpr int columns() const { return pieces * kPieceColumns; }
};

BATON_HOST_DEVICE constexpr WeightLayout WeightLayoutOf(WeightFormat format) {
  switch (format) {
    case WeightFormat::kQ8_0:
      return {1, 16, 0, 128};
    case WeightFormat::kQ4_1:
      return {1, 8, 0, 256};
    case WeightFormat::kQ5_0:
      return {1, 8, 2, 128};
    case WeightFormat::kQ5_1:
      return {1, 8, 2, 256};
    case WeightFormat::kQ4_K:
      return {2, 8, 0, 256};
    case WeightFormat::kQ5_K:
      return {2, 8, 2, 256};
    case WeightFormat::kQ6_K:
      return {2, 8, 4, 288};
    default:
      return {1, 8, 0, 128};  // Q4_0
  }
}

BATON_HOST_DEVICE constexpr int FloatWeightBytes(WeightFormat format) {
  return format == WeightFormat::kF32 ? 4 : 2;
}

// Bytes of one tile: 16 rows of a quantised matrix, or 8 rows of a float matrix.
BATON_HOST_DEVICE constexpr int64_t WeightTileBytes(WeightFormat format, int64_t cols) {
  if (format == WeightFormat::kF32 || format == WeightFormat::kF16 ||
      format == WeightFormat::kBF16) {
    const int whole = FloatWeightBytes(format) == 2 ? kHalfColumns : kFloatUnitBytes / 4;
    return (cols + whole - 1) / whole * whole * FloatWeightBytes(format) * kFloatTileRows;
  }
  const WeightLayout layout = WeightLayoutOf(format);
  return (cols + layout.columns() - 1) / layout.columns() * layout.bytes();
}

// Bits by which a fragment byte is shifted left of its q: signed q are kept in a byte's upper bits.
BATON_HOST_DEVICE constexpr int FragmentShift(WeightFormat format) {
  switch (format) {
    case WeightFormat::kQ4_0:
      return 4;
    case WeightFormat::kQ5_0:
      return 3;
    case WeightFormat::kQ6_K:
      return 2;
    default:
      return 0;
  }
}

// Returns true for formats with a term that does not depend on q: w = factor·q + minimum.
BATON_HOST_DEVICE constexpr bool HasMinimumTerm(WeightFormat format) {
  return format == WeightFormat::kQ4_1 || format == WeightFormat::kQ5_1 ||
         format == WeightFormat::kQ4_K || format == WeightFormat::kQ5_K;
}

}  // namespace baton
