// Operands of the tensor-core attention: the types of the two products (NUMERICS_T1 §5), access to
// matrices in shared memory, and the weights of scores.
#pragma once

#include "kernels/cuda/device_code.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/tensor_core_params.h"
#include "kernels/elementary.h"

namespace baton::t1 {

inline constexpr unsigned kWholeWarp = 0xffffffffu;

// kFp8Shift: the distance from a byte in the upper half of an operand to the place of its e4m3
// exponent and mantissa. kFp8Power: the power of two, twice, that then corrects the exponent.
struct BF16Operands {
  static constexpr unsigned kOnes = 0x3f803f80u;
  static constexpr int kFp8Shift = 4;
  static constexpr unsigned kFp8Power = 0x7b807b80u;  // 2^120
  __device__ static unsigned Pack(float low, float high) { return PackBF16(low, high); }
  __device__ static unsigned MultiplyPairs(unsigned a, unsigned b) { return MultiplyBF16(a, b); }
  __device__ static void Multiply(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    MmaM16N8K16Bf16(d, a, b);
  }
};
struct F16Operands {
  static constexpr unsigned kOnes = 0x3c003c00u;
  static constexpr int kFp8Shift = 1;
  static constexpr unsigned kFp8Power = 0x5c005c00u;  // 2^8
  __device__ static unsigned Pack(float low, float high) { return PackF16(low, high); }
  __device__ static unsigned MultiplyPairs(unsigned a, unsigned b) { return MultiplyF16(a, b); }
  __device__ static void Multiply(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    MmaM16N8K16F16(d, a, b);
  }
};

// Pools. kBias is B of NUMERICS_T1 §5.
struct BF16Pool {
  using Element = uint16_t;
  using Score = BF16Operands;
  using Value = BF16Operands;
  static constexpr bool kScaled = false;
  static constexpr float kBias = 0;
};
struct F16Pool {
  using Element = uint16_t;
  using Score = F16Operands;
  using Value = F16Operands;
  static constexpr bool kScaled = false;
  static constexpr float kBias = kT1F16Bias;
};
// Pools of bytes. Widen turns four bytes into operands, without their scale. Both operand types
// hold the numbers exactly.
struct Int8Pool {
  using Element = int8_t;
  using Score = F16Operands;
  using Value = BF16Operands;
  static constexpr bool kScaled = true;
  static constexpr float kBias = 0;

  template <typename Operands>
  __device__ static uint2 Widen(unsigned bytes) {
    const unsigned positive = bytes ^ 0x80808080u;  // each byte + 128
    float x[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      // 2^23 + byte + 128
      const unsigned bits = __byte_perm(positive, 0x4b000000u, 0x7540u | static_cast<unsigned>(i));
      x[i] = r1::Subtract(__uint_as_float(bits), 8388736.0f);
    }
    return make_uint2(Operands::Pack(x[0], x[1]), Operands::Pack(x[2], x[3]));
  }
};
struct Fp8Pool {
  using Element = uint8_t;
  using Score = F16Operands;
  using Value = BF16Operands;
  static constexpr bool kScaled = true;
  static constexpr float kBias = 0;

  // As Fp8ToF32 (kernels/fp8.h), but two numbers at once and in 16 bits. The products are exact.
  template <typename Operands>
  __device__ static uint2 Widen(unsigned bytes) {
    const auto pair = [](unsigned halves) {  // with a byte in the upper half of each
      const unsigned placed =
          (halves & 0x80008000u) | (halves & 0x7f007f00u) >> Operands::kFp8Shift;
      return Operands::MultiplyPairs(placed, Operands::kFp8Power);
    };
    return make_uint2(pair(__byte_perm(bytes, 0, 0x1404u)), pair(__byte_perm(bytes, 0, 0x3424u)));
  }
};

// Returns the byte offset of 16-byte chunk `chunk` of a row in a matrix of `rows` rows.
__device__ inline int ChunkOffset(int rows, int row, int chunk) {
  return (chunk / 8 * rows + row) * kPanelRowBytes + ((chunk % 8 ^ row % 8) << 4);
}

// 2^k for k <= 0; 0 below the normal numbers, and for NaN. `k` is an integer, −inf or NaN.
__device__ inline float PowerOfTwo(float k) {
  // The last bits of the sum are the last bits of the integer.
  const uint32_t bits = __float_as_uint(r1::Add(k, 12582912.0f + 127.0f)) << 23;
  return k >= -126.0f ? __uint_as_float(bits) : 0.0f;
}

// Returns M' of a row for scores whose largest product with the factor is `largest`.
__device__ inline float NextReference(float reference, float largest, float bias) {
  const float tile = r1::Subtract(ceilf(largest), bias);
  const bool is_bad = reference != reference || !(fabsf(tile) < 2097152.0f);  // 2^21
  if (is_bad) return __uint_as_float(0x7fffffffu);
  return tile > r1::Add(reference, kT1Slack) ? tile : reference;  // −inf is below every tile
}

// Values that all weights of a row share.
struct RowScale {
  float floor;
  float shift;

  __device__ RowScale(float reference, float inverse_factor)
      : floor(r1::Multiply(r1::Subtract(reference, kT1Floor), inverse_factor)),
        shift(r1::Subtract(12582912.0f, reference)) {}
};
__device__ inline float WeightOf(float z, float factor, const RowScale& row) {
  const float score = fmaxf(z, row.floor);  // the floor if z is NaN
  const float t = r1::Fma(score, factor, row.shift);
  const float fraction = r1::Fma(score, factor, -r1::Subtract(t, row.shift));
  float p = r1::Fma(0.05517166852951050f, fraction, 0.2426111251115799f);
  p = r1::Fma(p, fraction, 0.6932609677314758f);
  p = r1::Fma(p, fraction, 0.9999280571937561f);
  return __uint_as_float(__float_as_uint(p) + (__float_as_uint(t) << 23));
}

// Reads operand a [16, 16] of a product from a matrix: rows from `first_row` on, columns from
// 16 · step on.
__device__ inline void LoadRows(unsigned (&a)[4], const std::byte* matrix, int rows, int first_row,
                                int step) {
  const int lane = threadIdx.x % 32;
  LdMatrixX4(a, matrix + ChunkOffset(rows, first_row + lane % 16, 2 * step + lane / 16));
}

// Reads operands b [16, 8] twice, where the matrix's rows are columns of the product: K. Rows from
// `first_row` and `first_row` + 8 on, columns from 16 · step on.
__device__ inline void LoadKeys(unsigned (&b)[4], const std::byte* matrix, int first_row,
                                int step) {
  const int lane = threadIdx.x % 32;
  const int row = first_row + lane % 8 + lane / 16 * 8;
  LdMatrixX4(b, matrix + ChunkOffset(kAttentionTile, row, 2 * step + lane / 8 % 2));
}

// Reads operands b [16, 8] twice, where the matrix's rows are rows of b: V. Rows from 16 · step on,
// columns from 8 · tile on and the next eight.
__device__ inline void LoadValues(unsigned (&b)[4], const std::byte* matrix, int step, int tile) {
  const int lane = threadIdx.x % 32;
  const int row = 16 * step + lane % 16;
  LdMatrixX4Transposed(b, matrix + ChunkOffset(kAttentionTile, row, tile + lane / 16));
}
// The same, once.
__device__ inline void LoadValues(unsigned (&b)[2], const std::byte* matrix, int step, int tile) {
  const int row = 16 * step + threadIdx.x % 16;
  LdMatrixX2Transposed(b, matrix + ChunkOffset(kAttentionTile, row, tile));
}

}  // namespace baton::t1
