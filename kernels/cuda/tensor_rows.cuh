// Parts that all kernels of t1's matrix products share: which tiles of weights a pair is, one k16
// step on fragments, and the stores of the results (NUMERICS_T1 §3).
#pragma once

#include "kernels/cuda/device_code.cuh"
#include "kernels/cuda/matmul_params.h"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/tensor_matmul_shape.h"
#include "kernels/elementary.h"

namespace baton {

// The pairs of 8-row tiles of a weight (tensor_matmul_shape.h).
template <bool kGated>
struct TilePairs {
  int tiles;  // of the weight

  __device__ __forceinline__ explicit TilePairs(int rows)
      : tiles((rows + kFloatTileRows - 1) / kFloatTileRows) {}
  __device__ __forceinline__ int count() const { return kGated ? tiles / 2 : (tiles + 1) / 2; }
  // Returns the tile of a half (0 or 1) of a pair, or -1 if the weight does not have it.
  __device__ __forceinline__ int TileOf(int pair, int half) const {
    const int tile = kGated ? half * (tiles / 2) + pair : 2 * pair + half;
    return pair < count() && tile < tiles ? tile : -1;
  }
};

template <WeightFormat kFormat>
__device__ __forceinline__ unsigned PackHalf(float low, float high) {
  return kFormat == WeightFormat::kBF16 ? PackBF16(low, high) : PackF16(low, high);
}

// A lane's sums of a pair for two neighbouring tokens: sums[i] is of row lane / 4 of half i / 2,
// and of token `token` + i % 2. Calls fn(i, output) for the sums whose row and token exist.
template <typename Function>
__device__ __forceinline__ void ForOutputs(const TensorMatMulParams& p, int pair, int token,
                                           int lane, const Function& fn) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = kTensorPairRows * pair + kFloatTileRows * (i / 2) + lane / 4;
    if (row < p.rows && token + i % 2 < p.tokens) {
      fn(i, p.out + (token + i % 2) * p.out_stride + row);
    }
  }
}

// Adds the present outputs to sums[4].
__device__ __forceinline__ void AddOutputs(const TensorMatMulParams& p, int pair, int token,
                                           int lane, float* sums) {
  ForOutputs(p, pair, token, lane,
             [sums](int i, const float* out) { sums[i] = __fadd_rn(*out, sums[i]); });
}

// Stores sums[4], or with the gate the two columns that they give.
template <bool kGated>
__device__ __forceinline__ void StorePair(const TensorMatMulParams& p, int pair, int token,
                                          int lane, const float* sums) {
  if constexpr (!kGated) {
    ForOutputs(p, pair, token, lane, [sums](int i, float* out) { *out = sums[i]; });
    return;
  }
  const int column = kFloatTileRows * pair + lane / 4;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (2 * column >= p.rows || token + i >= p.tokens) continue;
    p.out[(token + i) * p.out_stride + column] = __fmul_rn(r1::Silu(sums[i]), sums[i + 2]);
  }
}

}  // namespace baton
