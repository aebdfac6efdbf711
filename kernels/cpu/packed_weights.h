// How the CPU backend stores a weight matrix: groups of 16 rows, interleaved so that one register
// lane is one row.
//
// The same layout serves every instruction set (16 lanes are one AVX-512 register or two AVX2
// ones). Rows are padded with zeros to a multiple of 16. Group g (rows 16g…16g+15) is contiguous;
// inside, columns in rising order:
//   Q8_0, per 32 columns, 544 bytes: d f16[16]; then for j in 0…7, for row in 0…15: q int8 of
//   columns 4j…4j+3. Q4_0, per 32 columns, 288 bytes: d f16[16]; then for j in 0…3, for row in
//   0…15: 4 bytes, byte i = q(4j+i) | q(16+4j+i) << 4. Q4_1, per 32 columns, 320 bytes: d f16[16];
//   m f16[16]; then nibbles as Q4_0. F32, F16, BF16, per column: 16 values, one per row.
// A group's bytes are a multiple of 32; the matrix starts on a 64-byte boundary.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/ops.h"

namespace baton {

// Bytes of one row group of `cols` columns.
int64_t RowGroupBytes(WeightFormat format, int64_t cols);
size_t PackedMatrixBytes(WeightFormat format, int64_t rows, int64_t cols);
// From GGUF's row-major blocks (`source`, rows * row bytes).
void PackMatrixRows(WeightFormat format, int64_t rows, int64_t cols, const std::byte* source,
                    std::byte* destination);
// One row as f32 (NUMERICS §5): embedding lookup.
void UnpackRow(const PackedMatrix& matrix, int64_t row, float* out);

}  // namespace baton
