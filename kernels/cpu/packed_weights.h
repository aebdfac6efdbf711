// Storage of a weight matrix in the CPU backend: groups of 16 rows, interleaved so that one
// register lane is one row.
//
// Every instruction set uses the same layout: 16 lanes are one AVX-512 register or two AVX2
// registers. Packing only moves bits, so a packed row group has as many bytes as its rows in the
// file. Rows are padded with zeros to a multiple of 16. Row group r (rows 16r…16r+15) is
// contiguous. Inside it, columns are in rising order.
//
// F32, F16 and BF16 store 16 values per column, one per row.
//
// Quantised formats store blocks of BlockColumns(format) columns (BlockLayout). A block has three
// parts:
// 1. Headers, f16[16] each: d; then m for Q4_1 and Q5_1; then e for Q4_K and Q5_K (NUMERICS §4).
// 2. Block scales, per 32 columns.
//    - Q4_K and Q5_K: 24 bytes. Byte r is s | (m & 3) << 6 of row r. Byte 16+r holds m >> 2:
//      that of row r in its low half, that of row r+8 in its high half.
//    - Q6_K: int8 s₀[16] for the first sixteen columns, then s₁[16] for the others.
// 3. Words, per 32 columns: for each word w in 0…words−1, four bytes for each row in 0…15.
//    - Q8_0: word j holds int8 q of columns 4j…4j+3.
//    - All others: words 0…3 hold the low four bits of q. Byte i of word j is
//      q(4j+i) | q(16+4j+i) << 4.
//    - Five-bit q: word 4 holds bit 4. Bit 8i+j belongs to q(4j+i), j in 0…7.
//    - Six-bit q: words 4 (columns 0…15) and 5 (columns 16…31) hold bits 4–5. Bits 8i+2j and
//      8i+2j+1 belong to q(4j+i), j in 0…3.
// The size of a row group is a multiple of 32 bytes. The matrix starts on a 64-byte boundary.
//
// Thread safety: pure functions, safe together on disjoint outputs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/numerics.h"
#include "kernels/ops.h"

namespace baton {

// Offsets and sizes within one block of 16 rows of a quantised format, in bytes.
struct BlockLayout {
  int64_t groups;       // number of groups of 32 columns
  int64_t headers;      // f16 values per row
  int64_t scale_bytes;  // for 32 columns of all rows
  int64_t words;        // per row and 32 columns

  constexpr int64_t ScalesAt(int64_t group) const {
    return 2 * headers * kRowGroup + group * scale_bytes;
  }
  constexpr int64_t WordsAt(int64_t group) const {
    return ScalesAt(groups) + 4 * words * kRowGroup * group;
  }
  constexpr int64_t bytes() const { return WordsAt(groups); }
};

constexpr BlockLayout BlockLayoutOf(WeightFormat format) {
  switch (format) {
    case WeightFormat::kQ8_0:
      return {.groups = 1, .headers = 1, .scale_bytes = 0, .words = 8};
    case WeightFormat::kQ4_1:
      return {.groups = 1, .headers = 2, .scale_bytes = 0, .words = 4};
    case WeightFormat::kQ5_0:
      return {.groups = 1, .headers = 1, .scale_bytes = 0, .words = 5};
    case WeightFormat::kQ5_1:
      return {.groups = 1, .headers = 2, .scale_bytes = 0, .words = 5};
    case WeightFormat::kQ4_K:
      return {.groups = 8, .headers = 2, .scale_bytes = 24, .words = 4};
    case WeightFormat::kQ5_K:
      return {.groups = 8, .headers = 2, .scale_bytes = 24, .words = 5};
    case WeightFormat::kQ6_K:
      return {.groups = 8, .headers = 1, .scale_bytes = 32, .words = 6};
    default:
      return {.groups = 1, .headers = 1, .scale_bytes = 0, .words = 4};  // Q4_0
  }
}

// Returns true for formats with a term that does not depend on q: w = factor·q + minimum.
constexpr bool HasMinimum(WeightFormat format) { return BlockLayoutOf(format).headers == 2; }

// Returns the stored number of a weight less the q of w = factor·q + minimum. Q8_0 stores q itself,
// with its sign.
constexpr int ZeroPointOf(WeightFormat format) {
  switch (format) {
    case WeightFormat::kQ4_0:
      return 8;
    case WeightFormat::kQ5_0:
      return 16;
    case WeightFormat::kQ6_K:
      return 32;
    default:
      return 0;
  }
}

// Returns the bytes of one row group of `cols` columns.
int64_t RowGroupBytes(WeightFormat format, int64_t cols);
size_t PackedMatrixBytes(WeightFormat format, int64_t rows, int64_t cols);
// Packs a matrix from GGUF's row-major blocks (`source`, rows * row bytes). A row group has the
// same size in both layouts, so row groups may be packed separately.
void PackMatrixRows(WeightFormat format, int64_t rows, int64_t cols, const std::byte* source,
                    std::byte* destination);

// 32 columns of one row of a quantised matrix: w = factor · half_scales[column / 16] · q + minimum.
struct RowWeights {
  float factor;   // d, or d·s
  float minimum;  // m, or −e·m, or 0
  bool has_half_scales;
  float half_scales[2];  // Q6_K's s₀ and s₁, else 1
  int8_t q[kQuantGroup];
};
// Reads columns 32·column_group… of row `lane` of the row group at `group`.
RowWeights ReadRowWeights(WeightFormat format, const std::byte* group, int64_t column_group,
                          int64_t lane);
// Unpacks one row to f32 (NUMERICS §5), for an embedding lookup.
void UnpackRow(const PackedMatrix& matrix, int64_t row, float* out);

}  // namespace baton
