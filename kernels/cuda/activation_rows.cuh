// Reads and writes rows of activations. Each lane has four neighbouring columns (NUMERICS §3).
#pragma once

#include "kernels/cuda/activation_params.h"
#include "kernels/cuda/device_code.cuh"
#include "kernels/elementary.h"

namespace baton {

// Loads columns column…column + 3 of a row. Columns past the end become 0. Rows of a multiple of
// four columns are 16-byte aligned.
__device__ __forceinline__ void LoadFour(const float* row, int column, int cols, float (&x)[4]) {
  if (cols % 4 == 0) {
    const float4 four =
        column < cols ? *reinterpret_cast<const float4*>(row + column) : float4{0, 0, 0, 0};
    x[0] = four.x;
    x[1] = four.y;
    x[2] = four.z;
    x[3] = four.w;
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) x[i] = column + i < cols ? row[column + i] : 0.0f;
}

// Writes columns column…column + 3 of a row in every form that `out` requests. Whole warp: eight
// neighbouring lanes hold one group of 32 columns. A lane whose column is not below `cols` takes
// part and writes nothing.
__device__ __forceinline__ void StoreFour(const ActivationParams& out, int64_t token, int column,
                                          int cols, const float (&y)[4]) {
  const bool valid = column < cols;
  const int64_t at = token * cols + column;
  if (out.f32 != nullptr) {
    if (cols % 4 == 0) {
      if (valid) *reinterpret_cast<float4*>(out.f32 + at) = float4{y[0], y[1], y[2], y[3]};
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (column + i < cols) out.f32[at + i] = y[i];
      }
    }
  }
  if (out.q8 == nullptr) return;
  uint32_t most = 0;  // bits of the largest magnitude
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t magnitude = r1::MagnitudeBits(y[i]);
    most = magnitude > most ? magnitude : most;
  }
#pragma unroll
  for (int apart = 1; apart < 8; apart *= 2) {
    const uint32_t other = __shfl_xor_sync(0xffffffffu, most, apart);
    most = other > most ? other : most;
  }
  const float amax = __uint_as_float(most);
  const float inverse = amax > 0 ? __fdiv_rn(127.0f, amax) : 0.0f;
  int sum = 0;
  uint32_t bytes = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int q = r1::QuantizedByte(y[i], inverse);
    sum += q;
    bytes |= static_cast<uint32_t>(q & 0xff) << 8 * i;
  }
#pragma unroll
  for (int apart = 1; apart < 8; apart *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, apart);
  if (!valid) return;
  *reinterpret_cast<uint32_t*>(out.q8 + at) = bytes;
  if (column % 32 == 0) {
    const float scale = __fdiv_rn(amax, 127.0f);
    out.scale[at / 32] = scale;
    out.scaled_sum[at / 32] = __fmul_rn(scale, static_cast<float>(sum));
  }
}

}  // namespace baton
