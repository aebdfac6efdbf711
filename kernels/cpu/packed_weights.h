// How the CPU backend stores a weight matrix: groups of 16 rows, interleaved so that one register
// lane is one row.
//
// The same layout serves every instruction set (16 lanes are one AVX-512 register or two AVX2
// ones) and has the bytes of the file: packing only moves bits. Rows are padded with zeros to a
// multiple of 16. Row group r (rows 16r…16r+15) is contiguous; inside, columns in rising order.
//
// F32, F16, BF16, per column: 16 values, one per row.
// Quantised formats, per block of BlockColumns(format) columns (BlockLayout):
// 1. headers, f16[16] each: d; for Q4_1 and Q5_1 then m; for Q4_K and Q5_K then e (NUMERICS §4).
// 2. block scales, per 32 columns. Q4_K, Q5_K: 24 bytes; byte r = s | (m & 3) << 6 of row r; byte
//    16+r = m >> 2 of row r in its low half, of row r+8 in its high half. Q6_K: int8 s₀[16] of the
//    first sixteen columns, then s₁[16].
// 3. words, per 32 columns: for w in 0…words−1, for row in 0…15 four bytes. Q8_0: word j is int8 q
//    of columns 4j…4j+3. Others: the low four bits of q in words 0…3, byte i of word j being
//    q(4j+i) | q(16+4j+i) << 4; bit 4 of five-bit q in word 4, bit 8i+j being that of q(4j+i),
//    j in 0…7; bits 4–5 of six-bit q in words 4 (columns 0…15) and 5 (16…31), bits 8i+2j and
//    8i+2j+1 being those of q(4j+i), j in 0…3.
// A row group's bytes are a multiple of 32; the matrix starts on a 64-byte boundary.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/numerics.h"
#include "kernels/ops.h"

namespace baton {

// Where things lie in one block of 16 rows of a quantised format; bytes.
struct BlockLayout {
  int64_t groups;       // of 32 columns
  int64_t headers;      // f16 values per row
  int64_t scale_bytes;  // of 32 columns of all rows
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

// Formats with a term that does not depend on q: w = factor·q + minimum.
constexpr bool HasMinimum(WeightFormat format) { return BlockLayoutOf(format).headers == 2; }

// By how much the stored number of a weight exceeds the q of w = factor·q + minimum. Q8_0 stores q
// itself, with its sign.
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

// Bytes of one row group of `cols` columns.
int64_t RowGroupBytes(WeightFormat format, int64_t cols);
size_t PackedMatrixBytes(WeightFormat format, int64_t rows, int64_t cols);
// From GGUF's row-major blocks (`source`, rows * row bytes). Whole row groups may be packed apart:
// a row group takes as many bytes in both.
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
// Columns 32·column_group… of row `lane` of the row group at `group`.
RowWeights ReadRowWeights(WeightFormat format, const std::byte* group, int64_t column_group,
                          int64_t lane);
// One row as f32 (NUMERICS §5): embedding lookup.
void UnpackRow(const PackedMatrix& matrix, int64_t row, float* out);

}  // namespace baton
