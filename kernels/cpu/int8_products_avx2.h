// The two integer products of int8 attention (NUMERICS §8) on AVX2.
//
// Stored bytes are widened to 16 bits once per tile. VPMADDWD then multiplies them with the 16-bit
// operand and adds two products in a 32-bit lane, exactly. int8_products_avx512.h defines the same
// names. Only int8_attention_lanes.h may use this header. Everything has internal linkage.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cpu/unroll.h"
#include "kernels/cpu/vector_math_avx2.h"
#include "kernels/numerics.h"

namespace baton {
namespace {

// Most queries that a product takes at once. Their accumulators fit the registers.
inline constexpr int kInt8Queries = 3;

struct Int16Operand {
  alignas(32) int16_t values[kMaxHeadDim];
};

inline void PackOperand(const int16_t* values, int64_t count, Int16Operand* out) {
  std::memcpy(out->values, values, static_cast<size_t>(count) * sizeof(int16_t));
}

// Word [i][slot] holds dims 2i and 2i+1 of a slot.
struct KeyTile {
  alignas(32) uint32_t words[kMaxHeadDim / 2][kAttentionTile];
};

// `rows` is [slot, dims].
inline void PackKeys(const int8_t* rows, int64_t dims, KeyTile* out) {
  alignas(32) int16_t wide[kLanes][kMaxHeadDim];
  for (int64_t j = 0; j < kAttentionTile; j += kLanes) {
    for (int r = 0; r < kLanes; ++r) {
      for (int64_t d = 0; d < dims; d += 16) {
        const auto* bytes = reinterpret_cast<const __m128i*>(rows + (j + r) * dims + d);
        _mm256_store_si256(reinterpret_cast<__m256i*>(&wide[r][d]),
                           _mm256_cvtepi8_epi16(_mm_loadu_si128(bytes)));
      }
    }
    for (int64_t d = 0; d < dims; d += 32) {
      Transpose16(reinterpret_cast<const float*>(&wide[0][d]), kMaxHeadDim / 2,
                  reinterpret_cast<float*>(&out->words[d / 2][j]), kAttentionTile);
    }
  }
}

inline __m256i BroadcastWord(const int16_t* p) {
  int32_t word;
  std::memcpy(&word, p, sizeof(word));
  return _mm256_set1_epi32(word);
}

// sums[n][k] += word[k] · pairs of operand[n], for two registers of words.
template <int kQueries>
[[gnu::always_inline]] inline void AddPairs(const uint32_t* words, const int16_t* const* operands,
                                            __m256i (&sums)[kQueries][2]) {
  const __m256i first = _mm256_load_si256(reinterpret_cast<const __m256i*>(words));
  const __m256i second = _mm256_load_si256(reinterpret_cast<const __m256i*>(words + 8));
  Unroll<kQueries>([&](int n) __attribute__((always_inline)) {
    const __m256i operand = BroadcastWord(operands[n]);
    sums[n][0] = _mm256_add_epi32(sums[n][0], _mm256_madd_epi16(first, operand));
    sums[n][1] = _mm256_add_epi32(sums[n][1], _mm256_madd_epi16(second, operand));
  });
}

// dots[n][slot] = float(Σ_d q[n][d] · key[slot][d]) for all slots of the tile.
template <int kQueries>
inline void DotKeys(const KeyTile& keys, int64_t dims, const Int16Operand* const* q,
                    float (*dots)[kAttentionTile]) {
  for (int64_t j = 0; j < kAttentionTile; j += kLanes) {
    __m256i sums[kQueries][2];
    for (auto& of_query : sums) of_query[0] = of_query[1] = _mm256_setzero_si256();
    for (int64_t i = 0; i < dims / 2; ++i) {
      const int16_t* operands[kQueries];
      for (int n = 0; n < kQueries; ++n) operands[n] = q[n]->values + 2 * i;
      AddPairs<kQueries>(&keys.words[i][j], operands, sums);
    }
    for (int n = 0; n < kQueries; ++n) {
      Store(dots[n] + j, {_mm256_cvtepi32_ps(sums[n][0]), _mm256_cvtepi32_ps(sums[n][1])});
    }
  }
}

// Word [i][d] holds slots 2i and 2i+1 of a dimension.
struct ValueTile {
  alignas(32) uint32_t words[kAttentionTile / 2][kMaxHeadDim];
};

// `rows` is [slot, dims].
inline void PackValues(const int8_t* rows, int64_t dims, ValueTile* out) {
  const auto widen = [](const int8_t* p) {
    return _mm_cvtepi8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  };
  for (int64_t i = 0; i < kAttentionTile / 2; ++i) {
    for (int64_t d = 0; d < dims; d += 8) {
      const __m128i even = widen(rows + 2 * i * dims + d);
      const __m128i odd = widen(rows + (2 * i + 1) * dims + d);
      auto* words = reinterpret_cast<__m128i*>(&out->words[i][d]);
      _mm_store_si128(words, _mm_unpacklo_epi16(even, odd));
      _mm_store_si128(words + 1, _mm_unpackhi_epi16(even, odd));
    }
  }
}

// outputs[n][d] = fma(scales[n], float(Σ_slot u[n][slot] · value[slot][d]), outputs[n][d]).
template <int kQueries>
inline void AddInt8Values(const ValueTile& values, int64_t dims, const Int16Operand* const* u,
                          const float* scales, float* const* outputs) {
  for (int64_t d = 0; d < dims; d += kLanes) {
    __m256i sums[kQueries][2];
    for (auto& of_query : sums) of_query[0] = of_query[1] = _mm256_setzero_si256();
    for (int64_t i = 0; i < kAttentionTile / 2; ++i) {
      const int16_t* operands[kQueries];
      for (int n = 0; n < kQueries; ++n) operands[n] = u[n]->values + 2 * i;
      AddPairs<kQueries>(&values.words[i][d], operands, sums);
    }
    for (int n = 0; n < kQueries; ++n) {
      const Lanes sum = {_mm256_cvtepi32_ps(sums[n][0]), _mm256_cvtepi32_ps(sums[n][1])};
      Store(outputs[n] + d, Fma(Set(scales[n]), sum, Load(outputs[n] + d)));
    }
  }
}

// ---- rows as stored in the pool ----------------------------------------------------------------

// 32 numbers of 16 bits. Sums of products of adjacent numbers are kept in Lanes, as integers.
struct Pairs {
  __m256i lo;
  __m256i hi;
};
inline Pairs LoadPairs(const int16_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 16))};
}
inline Pairs WidenToPairs(const int8_t* p) {
  return {_mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16)))};
}
// Repeats the same two numbers sixteen times.
inline Pairs SetPair(const int16_t* p) {
  const __m256i pair = BroadcastWord(p);
  return {pair, pair};
}
// Adds a[2i] b[2i] + a[2i+1] b[2i+1] to lane i of the sum.
inline Lanes AddPairProducts(Lanes sum, Pairs a, Pairs b) {
  return {AddLanes<true>(sum.lo, _mm256_castsi256_ps(_mm256_madd_epi16(a.lo, b.lo))),
          AddLanes<true>(sum.hi, _mm256_castsi256_ps(_mm256_madd_epi16(a.hi, b.hi)))};
}
inline Lanes FloatsOfIntegers(Lanes a) {
  return {_mm256_cvtepi32_ps(_mm256_castps_si256(a.lo)),
          _mm256_cvtepi32_ps(_mm256_castps_si256(a.hi))};
}
// Pairs up the numbers a[i] and b[i]. Lane 4l + i of out[k] holds number 8l + 4k + i (i < 4).
inline void PairUp(Pairs a, Pairs b, Pairs (&out)[2]) {
  out[0] = {_mm256_unpacklo_epi16(a.lo, b.lo), _mm256_unpacklo_epi16(a.hi, b.hi)};
  out[1] = {_mm256_unpackhi_epi16(a.lo, b.lo), _mm256_unpackhi_epi16(a.hi, b.hi)};
}
// Restores the natural order from the order that PairUp leaves.
inline void SortPairedUp(Lanes (&a)[2]) {
  const Lanes low = a[0];
  const Lanes high = a[1];
  a[0] = {_mm256_permute2f128_ps(low.lo, high.lo, 0x20),
          _mm256_permute2f128_ps(low.lo, high.lo, 0x31)};
  a[1] = {_mm256_permute2f128_ps(low.hi, high.hi, 0x20),
          _mm256_permute2f128_ps(low.hi, high.hi, 0x31)};
}

}  // namespace
}  // namespace baton
