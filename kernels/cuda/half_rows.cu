// Rounds activations to 16 bits and lays them out as operands of tensor cores (NUMERICS_T1 §1).
//
// A lane takes 8 columns of one token. Eight lanes write the 128 bytes of a unit of a tile; four
// read 128 bytes of a row. Bound by memory: 4 bytes read and 2 written for each value.
#include "kernels/cuda/activation_rows.cuh"
#include "kernels/cuda/device_code.cuh"
#include "kernels/cuda/kernel_order.cuh"
#include "kernels/cuda/tensor_rows.cuh"

namespace baton {

// Grid: [tiles of 8 tokens, slices of kHalfRowsColumns columns]. Block: kHalfRowsThreads.
template <WeightFormat kFormat>
__device__ __forceinline__ void RoundRows(const HalfRowsParams& p) {
  BeginKernel();
  const int in_tile = static_cast<int>(threadIdx.x) % 8;
  const int column =
      static_cast<int>(blockIdx.y) * kHalfRowsColumns + static_cast<int>(threadIdx.x) / 8 * 8;
  const int block = column / kHalfColumns;
  if (block >= HalfColumnBlocks(p.cols)) return;
  const int tile = static_cast<int>(blockIdx.x);
  const int token = 8 * tile + in_tile;
  float x[8] = {};
  if (token < p.tokens) {
    const float* row = p.x + int64_t{token} * p.cols;
    float low[4], high[4];
    LoadFour(row, column, p.cols, low);
    LoadFour(row, column + 4, p.cols, high);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      x[i] = low[i];
      x[4 + i] = high[i];
    }
  }
  uint8_t* to = p.halves + (block * HalfTokenTiles(p.tokens) + tile) * kHalfTileBytes +
                column % kHalfColumns / 8 * kTileRowBytes + in_tile * kFloatUnitBytes;
  *reinterpret_cast<uint4*>(to) =
      uint4{PackHalf<kFormat>(x[0], x[1]), PackHalf<kFormat>(x[2], x[3]),
            PackHalf<kFormat>(x[4], x[5]), PackHalf<kFormat>(x[6], x[7])};
}

extern "C" __global__ void __launch_bounds__(kHalfRowsThreads)
    baton_half_rows_bf16(const __grid_constant__ HalfRowsParams p) {
  RoundRows<WeightFormat::kBF16>(p);
}
extern "C" __global__ void __launch_bounds__(kHalfRowsThreads)
    baton_half_rows_f16(const __grid_constant__ HalfRowsParams p) {
  RoundRows<WeightFormat::kF16>(p);
}

BATON_KERNEL(baton_half_rows_bf16, HalfRowsParams);
BATON_KERNEL(baton_half_rows_f16, HalfRowsParams);

}  // namespace baton
