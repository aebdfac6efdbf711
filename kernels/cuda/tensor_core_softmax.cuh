// Masks, references and weights of one tile of 64 slots (NUMERICS_T1 §5). A thread has two of the
// 16 rows of a matrix product: lane / 4 and lane / 4 + 8.
//
// Scores and weights are in tiles of 8 columns, in the layout of a product's results. In tile n,
// z[n][2 · i + c] is for row i of the thread and column 8 · n + 2 · (lane % 4) + c. `first_tile` is
// the number of z[0] in the tile of 64 slots.
#pragma once

#include "kernels/cuda/tensor_core_operands.cuh"

namespace baton::t1 {

__device__ inline float LowestScore() { return -__uint_as_float(0x7f800000u); }

// Which slots of a tile the thread's rows see.
struct TileMask {
  bool full = false;      // every row of the block sees all slots
  int begin[2] = {0, 0};  // without `full`: row i sees slots [begin[i], end[i])
  int end[2] = {0, 0};

  // Sets the bounds of row i from slots of the sequence. The tile begins at `slot`.
  __device__ void SetRow(int i, int32_t slot, int32_t visible_begin, int32_t visible_end) {
    const auto in_tile = [slot](int32_t bound) {
      const int64_t distance = int64_t{bound} - slot;
      return static_cast<int>(distance < 0                ? 0
                              : distance > kAttentionTile ? kAttentionTile
                                                          : distance);
    };
    begin[i] = in_tile(visible_begin);
    end[i] = in_tile(visible_end);
  }
  __device__ bool SeesNone(int i) const { return !full && begin[i] >= end[i]; }

  // Sets the scores or weights of invisible slots.
  template <int kTiles>
  __device__ void SetUnseen(float (&z)[kTiles][4], int first_tile, float value) const {
    if (full) return;
    // Counted from the thread's first column, so that a column's number is a constant.
    const int first = 8 * first_tile + 2 * static_cast<int>(threadIdx.x % 4);
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int column = 8 * n + i % 2;
        if (column < begin[i / 2] - first || column >= end[i / 2] - first) z[n][i] = value;
      }
    }
  }
};

// Returns the largest score of row i, over the lanes that share the row.
template <int kTiles>
__device__ inline float LargestOfRow(const float (&z)[kTiles][4], int i) {
  float largest = MaxOrNan(z[0][2 * i], z[0][2 * i + 1]);
#pragma unroll
  for (int n = 1; n < kTiles; ++n) {
    largest = MaxOrNan(largest, MaxOrNan(z[n][2 * i], z[n][2 * i + 1]));
  }
  largest = MaxOrNan(largest, __shfl_xor_sync(kWholeWarp, largest, 1));
  return MaxOrNan(largest, __shfl_xor_sync(kWholeWarp, largest, 2));
}

// Step "Reference": takes the reference of row i for a tile with this largest score. A row without
// a visible slot stays as it is. Returns the factor of step 1 of "Tile".
template <typename Pool>
__device__ inline float UpdateReference(const TileMask& mask, int i, float largest, float factor,
                                        float& reference) {
  const float before = reference;
  float next = NextReference(before, r1::Multiply(largest, factor), Pool::kBias);
  if (mask.SeesNone(i)) next = before;
  reference = next;
  // Outputs of a fresh state are zeros.
  const bool keeps = next == before || before == LowestScore();
  return keeps ? 1.0f : PowerOfTwo(r1::Subtract(before, next));
}

// Turns the scores of both rows into weights. `inverse` is 1 / factor.
template <int kTiles>
__device__ inline void WeighScores(float (&z)[kTiles][4], float factor, float inverse,
                                   const float (&reference)[2]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const RowScale scale(reference[i], inverse);
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int col = 0; col < 2; ++col) {
        z[n][2 * i + col] = WeightOf(z[n][2 * i + col], factor, scale);
      }
    }
  }
}

// Multiplies the outputs of both rows by their factors.
template <int kTiles>
__device__ inline void ScaleRows(float (&output)[kTiles][4], const float (&change)[2]) {
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) output[n][i] = r1::Multiply(output[n][i], change[i / 2]);
  }
}

}  // namespace baton::t1
