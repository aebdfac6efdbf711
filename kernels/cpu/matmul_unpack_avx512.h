// Unpacks the weights of 32 columns and a row group into AVX-512 registers, one row per lane
// (packed_weights.h).
//
// quantized_matmul_avx512.h includes this header after a byte_sums header. Everything has internal
// linkage.
#pragma once

#include "kernels/cpu/matmul_tiles.h"
#include "kernels/cpu/packed_weights.h"
#include "kernels/cpu/vector_math_avx512.h"

namespace baton::avx512 {
namespace {

template <int kPlanes>
struct WeightGroup {
  // [i, plane]: columns 4i…4i+3 of sixteen rows, as unsigned bytes q + bias. If there are two
  // planes, the first holds the low four bits and the second the high four.
  __m512i word[8][kPlanes];
  Lanes factor;
  Lanes minimum;         // for formats with a minimum
  Lanes half_scales[2];  // for Q6_K
};

inline Lanes LoadHeader(const std::byte* p) {
  return LoadF16(reinterpret_cast<const uint16_t*>(p));
}

template <int kShift>
inline __m512i ShiftBits(__m512i a) {  // left; right if negative
  if constexpr (kShift > 0) return _mm512_slli_epi32(a, kShift);
  if constexpr (kShift < 0) return _mm512_srli_epi32(a, -kShift);
  return a;
}
// low | (high & mask).
inline __m512i Insert(__m512i low, __m512i high, __m512i mask) {
  return _mm512_ternarylogic_epi32(low, high, mask, 0xf8);
}

template <WeightFormat kFormat, int kPlanes>
[[gnu::always_inline]] inline void UnpackWords(const std::byte* p, __m512i (&word)[8][kPlanes]) {
  const __m512i nibble = _mm512_set1_epi8(15);
  const auto high_nibbles = [=](__m512i a) __attribute__((always_inline)) {
    return _mm512_and_si512(_mm512_srli_epi16(a, 4), nibble);
  };
  if constexpr (kFormat == WeightFormat::kQ8_0) {
    for (int i = 0; i < 8; ++i) {
      const __m512i biased =
          _mm512_xor_si512(_mm512_loadu_si512(p + 64 * i), _mm512_set1_epi8(-128));
      word[i][0] = kPlanes == 2 ? _mm512_and_si512(biased, nibble) : biased;
      if constexpr (kPlanes == 2) word[i][1] = high_nibbles(biased);
    }
    return;
  }
  for (int i = 0; i < 4; ++i) {
    const __m512i both = _mm512_loadu_si512(p + 64 * i);
    word[i][0] = _mm512_and_si512(both, nibble);
    word[i + 4][0] = high_nibbles(both);
  }
  constexpr int64_t kWords = BlockLayoutOf(kFormat).words;
  if constexpr (kWords == 5) {
    const __m512i high = _mm512_loadu_si512(p + 256);
    const __m512i mask = _mm512_set1_epi8(0x10);
    Unroll<8>([&](auto i) __attribute__((always_inline)) {
      word[i][0] = Insert(word[i][0], ShiftBits<4 - i>(high), mask);
    });
  }
  if constexpr (kWords == 6) {
    const __m512i high[2] = {_mm512_loadu_si512(p + 256), _mm512_loadu_si512(p + 320)};
    const __m512i mask = _mm512_set1_epi8(0x30);
    Unroll<8>([&](auto i) __attribute__((always_inline)) {
      word[i][0] = Insert(word[i][0], ShiftBits<4 - 2 * (i % 4)>(high[i / 4]), mask);
    });
  }
}

inline __m512i WidenBytes(const std::byte* p) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline Lanes WidenSigned(const std::byte* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))};
}

// Unpacks the six-bit scales and minima from 24 bytes.
inline void UnpackScales(const std::byte* p, Lanes* scale, Lanes* minimum) {
  const __m512i low = WidenBytes(p);
  const __m512i high = _mm512_cvtepu8_epi32(_mm_set1_epi64x(
      _mm_cvtsi128_si64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 16)))));
  const __m512i nibbles =
      _mm512_and_si512(_mm512_mask_srli_epi32(high, 0xff00, high, 4), _mm512_set1_epi32(15));
  *scale = {_mm512_cvtepi32_ps(_mm512_and_si512(low, _mm512_set1_epi32(63)))};
  *minimum = {_mm512_cvtepi32_ps(
      _mm512_or_si512(_mm512_srli_epi32(low, 6), _mm512_slli_epi32(nibbles, 2)))};
}

// Unpacks columns 32·g… of the block.
template <WeightFormat kFormat>
[[gnu::always_inline]] inline WeightGroup<ProductKindOf(kFormat).planes> UnpackGroup(
    const std::byte* block, int64_t g) {
  constexpr BlockLayout kLayout = BlockLayoutOf(kFormat);
  WeightGroup<ProductKindOf(kFormat).planes> unpacked;
  UnpackWords<kFormat>(block + kLayout.WordsAt(g), unpacked.word);
  unpacked.factor = LoadHeader(block);
  if constexpr (kLayout.headers == 2) unpacked.minimum = LoadHeader(block + 32);
  if constexpr (kLayout.scale_bytes == 24) {
    Lanes scale, minimum;
    UnpackScales(block + kLayout.ScalesAt(g), &scale, &minimum);
    unpacked.factor = Multiply(unpacked.factor, scale);
    unpacked.minimum = Negate(Multiply(unpacked.minimum, minimum));
  }
  if constexpr (kLayout.scale_bytes == 32) {
    for (int half = 0; half < 2; ++half) {
      unpacked.half_scales[half] = WidenSigned(block + kLayout.ScalesAt(g) + 16 * half);
    }
  }
  return unpacked;
}

}  // namespace
}  // namespace baton::avx512
