// The two integer products of int8 attention (NUMERICS §8) on AVX-512 with VNNI.
//
// VPDPBUSD multiplies unsigned with signed bytes and adds four products in a 32-bit lane. Stored
// bytes b are kept unsigned, as b + 128. A 16-bit operand v is kept as two signed planes:
//   v = 256 high + low + 128, so
//   Σ v·b = 256 Σ high·(b+128) + Σ low·(b+128) + 128 Σ (b+128) − 128 Σ v.
// This identity holds for integers modulo 2³², and the result fits. int8_pair_products.h defines
// the same names. Only int8_attention_lanes.h may use this header. Everything has internal linkage.
#pragma once

#include <cstdint>

#include "kernels/cpu/int16_pairs_avx512.h"
#include "kernels/cpu/unroll.h"
#include "kernels/cpu/vector_math_avx512.h"
#include "kernels/numerics.h"

namespace baton {
namespace {

// Most queries that a product takes at once, times two registers of keys or values. Their twelve
// accumulators hide the latency of VPDPBUSD. A step loads two words for three queries.
inline constexpr int kInt8Queries = 3;
inline constexpr int kInt8Registers = 2;

// `count` 16-bit values as planes. `count` is a multiple of 64.
struct Int16Operand {
  alignas(64) int8_t high[kMaxHeadDim];
  alignas(64) int8_t low[kMaxHeadDim];
  int32_t bias;  // −128 Σ v
};

inline void PackOperand(const int16_t* values, int64_t count, Int16Operand* out) {
  __m512i sum = _mm512_setzero_si512();
  for (int64_t i = 0; i < count; i += 32) {
    const __m512i v = _mm512_loadu_si512(values + i);
    const __m256i high = _mm512_cvtepi16_epi8(_mm512_srai_epi16(v, 8));
    const __m256i low = _mm256_xor_si256(_mm512_cvtepi16_epi8(v), _mm256_set1_epi8(-128));
    _mm256_store_si256(reinterpret_cast<__m256i*>(out->high + i), high);
    _mm256_store_si256(reinterpret_cast<__m256i*>(out->low + i), low);
    sum = _mm512_add_epi32(sum, _mm512_madd_epi16(v, _mm512_set1_epi16(1)));
  }
  out->bias = -128 * _mm512_reduce_add_epi32(sum);
}

// Word [i][slot] holds dims 4i…4i+3 of a slot.
struct KeyTile {
  alignas(64) uint32_t words[kMaxHeadDim / 4][kAttentionTile];
  alignas(64) int32_t bias[kAttentionTile];  // 128 Σ (b + 128)
};

// `rows` is [slot, dims].
inline void PackKeys(const int8_t* rows, int64_t dims, KeyTile* out) {
  for (int64_t j = 0; j < kAttentionTile; j += kLanes) {
    for (int64_t d = 0; d < dims; d += 64) {
      Transpose16(reinterpret_cast<const float*>(rows + j * dims + d), dims / 4,
                  reinterpret_cast<float*>(&out->words[d / 4][j]), kAttentionTile);
    }
    __m512i sum = _mm512_setzero_si512();
    for (int64_t i = 0; i < dims / 4; ++i) {
      const __m512i biased =
          _mm512_xor_si512(_mm512_load_si512(&out->words[i][j]), _mm512_set1_epi8(-128));
      _mm512_store_si512(&out->words[i][j], biased);
      sum = _mm512_dpbusd_epi32(sum, biased, _mm512_set1_epi8(1));
    }
    _mm512_store_si512(out->bias + j, _mm512_slli_epi32(sum, 7));
  }
}

inline __m512i BroadcastWord(const int8_t* p) {
  int32_t word;
  std::memcpy(&word, p, sizeof(word));
  return _mm512_set1_epi32(word);
}

inline __m512i JoinPlanes(__m512i high, __m512i low, __m512i bias, int32_t operand_bias) {
  return _mm512_add_epi32(_mm512_add_epi32(_mm512_slli_epi32(high, 8), low),
                          _mm512_add_epi32(bias, _mm512_set1_epi32(operand_bias)));
}

template <int kQueries>
struct PlaneSums {
  __m512i high[kQueries][kInt8Registers];
  __m512i low[kQueries][kInt8Registers];
};

// Adds the products of word `i` of every operand with kInt8Registers registers at `words`.
template <int kQueries>
[[gnu::always_inline]] inline void AddPlanes(const uint32_t* words, int64_t i,
                                             const Int16Operand* const* operands,
                                             PlaneSums<kQueries>& sums) {
  __m512i word[kInt8Registers];
  Unroll<kInt8Registers>([&](int r) __attribute__((always_inline)) {
    word[r] = _mm512_load_si512(words + r * kLanes);
  });
  Unroll<kQueries>([&](int n) __attribute__((always_inline)) {
    const __m512i high = BroadcastWord(operands[n]->high + 4 * i);
    const __m512i low = BroadcastWord(operands[n]->low + 4 * i);
    Unroll<kInt8Registers>([&](int r) __attribute__((always_inline)) {
      sums.high[n][r] = _mm512_dpbusd_epi32(sums.high[n][r], word[r], high);
      sums.low[n][r] = _mm512_dpbusd_epi32(sums.low[n][r], word[r], low);
    });
  });
}

template <int kQueries>
[[gnu::always_inline]] inline void ClearPlanes(PlaneSums<kQueries>& sums) {
  Unroll<kQueries * kInt8Registers>([&](int k) __attribute__((always_inline)) {
    sums.high[k / kInt8Registers][k % kInt8Registers] = _mm512_setzero_si512();
    sums.low[k / kInt8Registers][k % kInt8Registers] = _mm512_setzero_si512();
  });
}

// Returns the final integer sum as floats.
template <int kQueries>
[[gnu::always_inline]] inline __m512 SumAsFloats(const PlaneSums<kQueries>& sums, int n, int r,
                                                 const int32_t* bias, int32_t operand_bias) {
  const __m512i sum = JoinPlanes(sums.high[n][r], sums.low[n][r],
                                 _mm512_load_si512(bias + r * kLanes), operand_bias);
  return _mm512_cvtepi32_ps(sum);
}

// dots[n][slot] = float(Σ_d q[n][d] · key[slot][d]) for all slots of the tile.
template <int kQueries>
inline void DotKeys(const KeyTile& keys, int64_t dims, const Int16Operand* const* q,
                    float (*dots)[kAttentionTile]) {
  for (int64_t j = 0; j < kAttentionTile; j += kInt8Registers * kLanes) {
    PlaneSums<kQueries> sums;
    ClearPlanes(sums);
    for (int64_t i = 0; i < dims / 4; ++i) AddPlanes<kQueries>(&keys.words[i][j], i, q, sums);
    Unroll<kQueries>([&](int n) __attribute__((always_inline)) {
      Unroll<kInt8Registers>([&](int r) __attribute__((always_inline)) {
        _mm512_store_ps(dots[n] + j + r * kLanes,
                        SumAsFloats(sums, n, r, keys.bias + j, q[n]->bias));
      });
    });
  }
}

// Word [i][…] holds slots 4i…4i+3 of a dimension. In every 64 dimensions, register k holds dims 16
// l + 4 k … 16 l + 4 k + 3 in its 128-bit lane l. Byte interleaving produces this order.
struct ValueTile {
  alignas(64) uint32_t words[kAttentionTile / 4][kMaxHeadDim];
  alignas(64) int32_t bias[kMaxHeadDim];  // 128 Σ (b + 128), in the same order
};

// `rows` is [slot, dims].
inline void PackValues(const int8_t* rows, int64_t dims, ValueTile* out) {
  const __m512i flip = _mm512_set1_epi8(-128);
  for (int64_t d = 0; d < dims; d += 64) {
    __m512i sum[4];
    for (__m512i& of_register : sum) of_register = _mm512_setzero_si512();
    for (int64_t i = 0; i < kAttentionTile / 4; ++i) {
      __m512i row[4];
      for (int r = 0; r < 4; ++r) {
        row[r] = _mm512_xor_si512(_mm512_loadu_si512(rows + (4 * i + r) * dims + d), flip);
      }
      const __m512i low_01 = _mm512_unpacklo_epi8(row[0], row[1]);
      const __m512i high_01 = _mm512_unpackhi_epi8(row[0], row[1]);
      const __m512i low_23 = _mm512_unpacklo_epi8(row[2], row[3]);
      const __m512i high_23 = _mm512_unpackhi_epi8(row[2], row[3]);
      const __m512i word[4] = {
          _mm512_unpacklo_epi16(low_01, low_23), _mm512_unpackhi_epi16(low_01, low_23),
          _mm512_unpacklo_epi16(high_01, high_23), _mm512_unpackhi_epi16(high_01, high_23)};
      for (int k = 0; k < 4; ++k) {
        _mm512_store_si512(&out->words[i][d + 16 * k], word[k]);
        sum[k] = _mm512_dpbusd_epi32(sum[k], word[k], _mm512_set1_epi8(1));
      }
    }
    for (int k = 0; k < 4; ++k) {
      _mm512_store_si512(out->bias + d + 16 * k, _mm512_slli_epi32(sum[k], 7));
    }
  }
}

// Converts four registers (64 dimensions) from the order of ValueTile to the order of dimensions.
[[gnu::always_inline]] inline void SortLanes(const __m512 (&sum)[4], Lanes (&ordered)[4]) {
  const __m512 even_01 = _mm512_shuffle_f32x4(sum[0], sum[1], 0x88);
  const __m512 odd_01 = _mm512_shuffle_f32x4(sum[0], sum[1], 0xdd);
  const __m512 even_23 = _mm512_shuffle_f32x4(sum[2], sum[3], 0x88);
  const __m512 odd_23 = _mm512_shuffle_f32x4(sum[2], sum[3], 0xdd);
  ordered[0] = {_mm512_shuffle_f32x4(even_01, even_23, 0x88)};
  ordered[1] = {_mm512_shuffle_f32x4(odd_01, odd_23, 0x88)};
  ordered[2] = {_mm512_shuffle_f32x4(even_01, even_23, 0xdd)};
  ordered[3] = {_mm512_shuffle_f32x4(odd_01, odd_23, 0xdd)};
}

// outputs[n][d] = fma(scales[n], float(Σ_slot u[n][slot] · value[slot][d]), outputs[n][d]).
template <int kQueries>
inline void AddInt8Values(const ValueTile& values, int64_t dims, const Int16Operand* const* u,
                          const float* scales, float* const* outputs) {
  for (int64_t d = 0; d < dims; d += 64) {
    __m512 sum[kQueries][4];
    Unroll<4 / kInt8Registers>([&](int half) __attribute__((always_inline)) {
      const int64_t at = d + half * kInt8Registers * kLanes;
      PlaneSums<kQueries> sums;
      ClearPlanes(sums);
      for (int64_t i = 0; i < kAttentionTile / 4; ++i) {
        AddPlanes<kQueries>(&values.words[i][at], i, u, sums);
      }
      Unroll<kQueries>([&](int n) __attribute__((always_inline)) {
        Unroll<kInt8Registers>([&](int r) __attribute__((always_inline)) {
          sum[n][half * kInt8Registers + r] = SumAsFloats(sums, n, r, values.bias + at, u[n]->bias);
        });
      });
    });
    Unroll<kQueries>([&](int n) __attribute__((always_inline)) {
      Lanes ordered[4];
      SortLanes(sum[n], ordered);
      float* output = outputs[n] + d;
      Unroll<4>([&](int k) __attribute__((always_inline)) {
        Store(output + 16 * k, Fma(Set(scales[n]), ordered[k], Load(output + 16 * k)));
      });
    });
  }
}

// ---- rows as stored in the pool ----------------------------------------------------------------

// Adds a[2i] b[2i] + a[2i+1] b[2i+1] to lane i of the sum.
inline Lanes AddPairProducts(Lanes sum, Pairs a, Pairs b) {
  return {_mm512_castsi512_ps(_mm512_dpwssd_epi32(_mm512_castps_si512(sum.v), a.v, b.v))};
}

}  // namespace
}  // namespace baton
