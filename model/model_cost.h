// Amount of arithmetic that a model needs, for benchmarks that compare a speed with a limit.
//
// Thread safety: plain data.
#pragma once

namespace baton {

// Multiply-adds of matrix products, by the type of their activations.
struct MatrixMacs {
  double int8 = 0;
  double f32 = 0;

  MatrixMacs operator+(MatrixMacs other) const { return {int8 + other.int8, f32 + other.f32}; }
  MatrixMacs operator*(double count) const { return {int8 * count, f32 * count}; }
};

struct ModelCost {
  MatrixMacs layers;          // matrices of all layers, per token
  MatrixMacs head;            // output matrix, per sampled row
  double attention_macs = 0;  // per token and visible slot
};

}  // namespace baton
