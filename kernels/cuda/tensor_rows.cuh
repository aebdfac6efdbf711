// Parts that all kernels of t1's matrix products share: the tiles of weights in a pair, one step of
// 16 columns on fragments, and the stores of the results (NUMERICS_T1 §3).
#pragma once

#include "kernels/cuda/device_code.cuh"
#include "kernels/cuda/matmul_params.h"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/silu.cuh"
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
  // Returns how many of the 2 · `pairs` tiles of the pairs from `first` on the weight has. Tiles
  // that it does not have are the last.
  __device__ __forceinline__ int Present(int first, int pairs) const {
    const int left = kGated ? 2 * (count() - first) : tiles - 2 * first;
    return left < 2 * pairs ? left : 2 * pairs;
  }
  // Returns the number of tiles from the first tile of a pair to the i-th tile of the pairs from it
  // on.
  __device__ __forceinline__ int64_t Behind(int i) const {
    return kGated ? int64_t{i % 2} * (tiles / 2) + i / 2 : i;
  }
};

// Calls copy(i) for tiles 0 to `tiles` - 1 of a stage of kMost tiles. A full stage has no branches.
template <int kMost, typename Copy>
__device__ __forceinline__ void CopyTiles(int tiles, const Copy& copy) {
  if (tiles == kMost) {
#pragma unroll
    for (int i = 0; i < kMost; ++i) copy(i);
  } else {
#pragma unroll 1
    for (int i = 0; i < tiles; ++i) copy(i);
  }
}

template <WeightFormat kFormat>
__device__ __forceinline__ unsigned PackHalf(float low, float high) {
  return kFormat == WeightFormat::kBF16 ? PackBF16(low, high) : PackF16(low, high);
}

template <WeightFormat kFormat>
__device__ __forceinline__ void MultiplyStep(float (&sums)[4], const unsigned (&a)[4],
                                             const unsigned (&b)[2]) {
  if constexpr (kFormat == WeightFormat::kBF16) {
    MmaM16N8K16Bf16(sums, a, b);
  } else {
    MmaM16N8K16F16(sums, a, b);
  }
}

// Adds the product of 16 columns for at most 8 tokens to sums[4]. `weights` is the lane's address
// for ldmatrix. `x` has the f32 activations of token lane / 4, from column 2 · (lane % 4) on, if
// that token is `valid`. Columns from `left` on count as zeros.
template <WeightFormat kFormat>
__device__ __forceinline__ void AddStep(const uint8_t* weights, const float* x, bool valid,
                                        int left, int lane, float (&sums)[4]) {
  unsigned a[4];
  LdMatrixX4(a, weights);
  float2 low = {0, 0}, high = {0, 0};
  if (valid) {
    low = *reinterpret_cast<const float2*>(x);
    high = *reinterpret_cast<const float2*>(x + 8);
  }
  if (left < kTensorDepth) {  // memory past the columns may hold NaNs
    const int at = 2 * (lane % 4);
    if (at >= left) low.x = 0;
    if (at + 1 >= left) low.y = 0;
    if (at + 8 >= left) high.x = 0;
    if (at + 9 >= left) high.y = 0;
  }
  const unsigned b[2] = {PackHalf<kFormat>(low.x, low.y), PackHalf<kFormat>(high.x, high.y)};
  MultiplyStep<kFormat>(sums, a, b);
}

// A lane's operands in a stage of the products for at most 8 tokens: kTensorFewColumns columns.
struct FewTokensLane {
  // Of ldmatrix: lane i gives row i % 8 of matrix i / 8. Matrices 0 and 1 are the pair's tiles.
  __device__ __forceinline__ FewTokensLane(int lane, int tokens)
      : lane(lane),
        weights_at(lane / 16 * kTileRowBytes + lane % 8 * kFloatUnitBytes),
        x_at(lane / 4 * kTensorFewTokenFloats + 2 * (lane % 4)),
        valid(lane / 4 < tokens) {}

  // Adds the stage's products to sums[4]. `tile` is the lane's tile of weights, `rows` has the
  // activations of all tokens. Columns from `columns` on count as zeros. kZeros: they are.
  template <WeightFormat kFormat, bool kZeros>
  __device__ __forceinline__ void AddStage(const uint8_t* tile, const float* rows, int columns,
                                           float (&sums)[4]) const {
    const uint8_t* const weights = tile + weights_at;
    const float* const x = rows + x_at;
    if (columns >= kTensorFewColumns) {
#pragma unroll
      for (int k = 0; k < kTensorFewColumns; k += kTensorDepth) {
        AddStep<kFormat>(weights + k * kFloatUnitBytes, x + k, valid, kTensorDepth, lane, sums);
      }
    } else {
#pragma unroll 1
      for (int k = 0; k < columns; k += kTensorDepth) {
        const int left = kZeros ? kTensorDepth : columns - k;
        AddStep<kFormat>(weights + k * kFloatUnitBytes, x + k, valid, left, lane, sums);
      }
    }
  }

  const int lane, weights_at, x_at;
  const bool valid;
};

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

  // Loads the present outputs of `kTiles` tiles of 8 tokens, and goes on to the tile behind them.
  // Outputs that do not exist become zeros. So nvcc needs no branches and issues the loads early.
  // Then many of them are in flight; each takes hundreds of clocks.
  template <int kTiles>
  __device__ __forceinline__ void Load(float (&old)[4 * kTiles]) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n, Advance()) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* const at = at_ + i % 2 * stride_ + kFloatTileRows * (i / 2);
        old[4 * n + i] = valid_[i / 2] && i % 2 < left_ ? *at : 0.0f;
      }
    }
  }

  // The same, and adds them to sums[4 · kTiles]. REQUIRES: no gate.
  template <int kTiles>
  __device__ __forceinline__ void AddTo(float* sums) {
    float old[4 * kTiles];
    Load<kTiles>(old);
#pragma unroll
    for (int i = 0; i < 4 * kTiles; ++i) sums[i] = __fadd_rn(old[i], sums[i]);
  }

  __device__ __forceinline__ void Store(const float* sums) const {
#pragma unroll
    for (int i = 0; i < (kGated ? 2 : 4); ++i) {
      if (!valid_[i / 2] || i % 2 >= left_) continue;
      at_[i % 2 * stride_ + kFloatTileRows * (i / 2)] =
          kGated ? __fmul_rn(SiluWithoutBranches(sums[i]), sums[i + 2]) : sums[i];
    }
  }

 private:
  float* at_;
  const int64_t stride_;
  int left_;  // tokens
  bool valid_[2];
};

}  // namespace baton
