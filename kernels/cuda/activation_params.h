// Activations as parameters of kernels. The fields are those of Activations in kernels/ops.h.
#pragma once

#include <cstdint>

namespace baton {

struct ActivationParams {
  float* f32;         // [tokens, cols]; null: not wanted
  int8_t* q8;         // [tokens, cols]; null: not wanted
  float* scale;       // [tokens, cols / 32]
  float* scaled_sum;  // [tokens, cols / 32]
};

}  // namespace baton
