// Parameters of the sample kernels that use Hopper's instructions.
#pragma once

#include <cstdint>

#include "kernels/cuda/tensor_map.h"

namespace baton {

struct SampleTileMatMulParams {
  TensorMap a;  // [rows, depth] bf16, boxes of 64 rows and 64 columns, swizzled by 128 bytes
  TensorMap b;  // [cols, depth] bf16, the same
  float* c;     // [rows, cols]
  int rows;
  int cols;
  int depth;
};

}  // namespace baton
