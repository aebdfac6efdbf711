// How matrices with 16-bit elements lie in shared memory for wgmma, written element by element from
// the PTX ISA, "Shared Memory Matrix Layout". For tests.
//
// Thread safety: pure functions.
#pragma once

#include "kernels/cuda/tensor_map.h"

namespace baton {

// `rows` is the dimension that is not summed over, k the other one.
struct MatrixLayout {
  bool rows_fastest;
  SharedSwizzle swizzle;
  unsigned leading, stride;
};

// Returns the offset in bytes of an element from the matrix's begin. Core matrices have 8 times 16
// bytes; a swizzled row of 32, 64 or 128 bytes has its 16-byte chunks exchanged by the row's
// number.
inline int OffsetIn(const MatrixLayout& layout, int row, int k) {
  const int slow = layout.rows_fastest ? k : row;
  const int fast = layout.rows_fastest ? row : k;
  const auto leading = static_cast<int>(layout.leading), stride = static_cast<int>(layout.stride);
  if (layout.swizzle == SharedSwizzle::kNone) {
    const int row_step = stride, k_step = leading;
    return row / 8 * row_step + k / 8 * k_step + slow % 8 * 16 + fast % 8 * 2;
  }
  const int bytes = 16 << static_cast<int>(layout.swizzle);
  const int group = slow / 8 * stride + fast / (bytes / 2) * leading;
  const int chunk = fast % (bytes / 2) / 8;
  const int r = slow % 8;
  const int exchanged = layout.swizzle == SharedSwizzle::k128Bytes  ? chunk ^ r
                        : layout.swizzle == SharedSwizzle::k64Bytes ? chunk ^ (r / 2)
                                                                    : chunk ^ (r / 4);
  return group + r * bytes + exchanged * 16 + fast % 8 * 2;
}

}  // namespace baton
