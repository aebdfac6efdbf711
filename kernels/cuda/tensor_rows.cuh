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

// Where a lane stores its results of a pair, for two neighbouring tokens. A lane has four sums:
// sums[i] is of row lane / 4 of half i / 2, and of token i % 2. With the gate, the halves are the
// two factors of a column.
template <bool kGated>
class PairOutputs {
 public:
  __device__ __forceinline__ PairOutputs(const TensorMatMulParams& p, int pair, int token, int lane)
      : stride_(p.out_stride), left_(p.tokens - token) {
    const int row = (kGated ? kFloatTileRows : kTensorPairRows) * pair + lane / 4;
    const int rows = kGated ? p.rows / 2 : p.rows;
    at_ = p.out + int64_t{token} * stride_ + row;
    valid_[0] = row < rows;
    valid_[1] = row + kFloatTileRows < rows;
  }

  // Goes on to tokens 8 and 9 from the present ones.
  __device__ __forceinline__ void Advance() {
    at_ += 8 * stride_;
    left_ -= 8;
  }

  // Adds the present outputs to sums[4]. REQUIRES: no gate.
  __device__ __forceinline__ void AddTo(float* sums) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (valid_[i / 2] && i % 2 < left_) {
        sums[i] = __fadd_rn(at_[i % 2 * stride_ + kFloatTileRows * (i / 2)], sums[i]);
      }
    }
  }

  __device__ __forceinline__ void Store(const float* sums) const {
#pragma unroll
    for (int i = 0; i < (kGated ? 2 : 4); ++i) {
      if (!valid_[i / 2] || i % 2 >= left_) continue;
      at_[i % 2 * stride_ + kFloatTileRows * (i / 2)] =
          kGated ? __fmul_rn(r1::Silu(sums[i]), sums[i + 2]) : sums[i];
    }
  }

 private:
  float* at_;
  const int64_t stride_;
  int left_;  // tokens
  bool valid_[2];
};

}  // namespace baton
