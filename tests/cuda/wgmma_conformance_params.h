// Parameters of the kernels that run single wgmma instructions for wgmma_conformance_test.cc.
#pragma once

#include <cstdint>

#include "kernels/cuda/tensor_map.h"

namespace baton {

inline constexpr int kWgmmaTileRows = 64;
inline constexpr int kWgmmaTileCols = 64;
inline constexpr int kWgmmaMatrixBytes = 8 << 10;  // shared memory of a matrix

// Each block computes d = a · b^T + c of one tile, with k = 16: a and b [64, 16], c and d [64, 64].
struct WgmmaTilesParams {
  const uint8_t* images;  // [tiles, 2, kWgmmaMatrixBytes]: shared memory of a, then of b
  const uint16_t* a;      // [tiles, 64, 16], for kernels with a in registers
  const float* c;
  float* d;
  unsigned a_leading, a_stride, b_leading, b_stride;  // as for MatrixDescriptor
  SharedSwizzle a_swizzle, b_swizzle;
};

}  // namespace baton
