// Parameters of the kernels that run single tensor-core instructions for mma_conformance_test.cc.
#pragma once

#include <cstdint>

namespace baton {

// Each warp computes d = a · b^T + c of one tile: a [16, k], b [8, k], c and d [16, 8].
struct HalfTilesParams {  // k = 16, bf16 or f16 by their bits
  const uint16_t* a;
  const uint16_t* b;
  const float* c;
  float* d;
  int64_t tiles;
};
struct ByteTilesParams {  // k = 32
  const int8_t* a;
  const int8_t* b;
  const int32_t* c;
  int32_t* d;
  int64_t tiles;
};

}  // namespace baton
