// Parameters of the kernels of matrix products (NUMERICS §4, NUMERICS_T1 §3).
#pragma once

#include <cstdint>

#include "kernels/cuda/activation_params.h"

namespace baton {

struct MatMulParams {
  const int8_t* q8;         // [tokens, cols], for quantised weights; 16-byte aligned
  const float* scale;       // [tokens, cols / 32]
  const float* scaled_sum;  // [tokens, cols / 32]
  const float* f32;         // [tokens, cols], for float weights
  const uint8_t* weight;    // in the layout of weight_layout.h
  float* out;               // [tokens, out_stride]
  int64_t out_stride;
  int64_t tile_bytes;  // of the weight
  int32_t rows;
  int32_t cols;
  int32_t tokens;
  int32_t accumulate;  // not 0: out += instead of out =
};

// The weight's rows are the gate projection, then the up projection.
struct GatedMatMulParams {
  MatMulParams product;  // `out` and `accumulate` are not used
  ActivationParams out;  // [tokens, product.rows / 2]
};

// Products on tensor cores (NUMERICS_T1 §3). With the gate, the weight's rows are the gate
// projection, then the up projection, and `out` has rows / 2 columns.
struct TensorMatMulParams {
  const float* f32;       // [tokens, cols], 16-byte aligned: read by the kernels for few tokens
  const uint8_t* halves;  // the same rounded to 16 bits (tensor_matmul_shape.h): by the others
  const uint8_t* weight;  // in the layout of weight_layout.h, 16 bits a value
  float* out;             // [tokens, out_stride]
  int64_t out_stride;
  int64_t tile_bytes;  // of the weight
  int32_t rows;
  int32_t cols;
  int32_t tokens;
  int32_t accumulate;  // not 0: out += instead of out =; not with the gate
};

struct HalfRowsParams {
  const float* x;   // [tokens, cols]
  uint8_t* halves;  // as tensor_matmul_shape.h says
  int32_t tokens;
  int32_t cols;
};

}  // namespace baton
