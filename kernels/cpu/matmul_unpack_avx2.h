// Unpacks the weights of 32 columns and half a row group into AVX2 registers, one row per lane
// (packed_weights.h).
//
// Only matmul_avx2.cc includes this header. Everything has internal linkage.
#pragma once

#include "kernels/cpu/matmul_tiles.h"
#include "kernels/cpu/packed_weights.h"
#include "kernels/cpu/vector_math_avx2.h"

namespace baton::avx2 {
namespace {

template <WeightFormat kFormat>
struct HalfGroup {
  // [plane, i]: columns 4i…4i+3 of eight rows, as unsigned bytes q + bias.
  __m256i word[PlanesOf(kFormat)][8];
  __m256 factor;
  __m256 minimum;         // for formats with a minimum
  __m256 half_scales[2];  // for Q6_K
};

inline __m256i LoadBytes(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
inline __m128i LoadEightBytes(const std::byte* p) {
  return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
}
// Loads the headers of eight of the sixteen rows. `half` is 0 or 1.
inline __m256 LoadHeader(const std::byte* p, int half) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16 * half)));
}

template <int kShift>
inline __m256i ShiftBits(__m256i a) {  // left; right if negative
  if constexpr (kShift > 0) return _mm256_slli_epi32(a, kShift);
  if constexpr (kShift < 0) return _mm256_srli_epi32(a, -kShift);
  return a;
}
// low | (high & mask).
inline __m256i Insert(__m256i low, __m256i high, __m256i mask) {
  return _mm256_or_si256(low, _mm256_and_si256(high, mask));
}

template <WeightFormat kFormat>
[[gnu::always_inline]] inline void UnpackWords(const std::byte* p, int half,
                                               __m256i word[PlanesOf(kFormat)][8]) {
  const __m256i nibble = _mm256_set1_epi8(15);
  const auto load = [&](int i) { return LoadBytes(p + 64 * i + 32 * half); };
  if constexpr (kFormat == WeightFormat::kQ8_0) {
    for (int i = 0; i < 8; ++i) {
      const __m256i biased = _mm256_xor_si256(load(i), _mm256_set1_epi8(-128));
      word[0][i] = _mm256_and_si256(biased, nibble);
      word[1][i] = _mm256_and_si256(_mm256_srli_epi16(biased, 4), nibble);
    }
    return;
  }
  for (int i = 0; i < 4; ++i) {
    const __m256i both = load(i);
    word[0][i] = _mm256_and_si256(both, nibble);
    word[0][i + 4] = _mm256_and_si256(_mm256_srli_epi16(both, 4), nibble);
  }
  constexpr int64_t kWords = BlockLayoutOf(kFormat).words;
  if constexpr (kWords == 5) {
    const __m256i high = load(4);
    const __m256i mask = _mm256_set1_epi8(0x10);
    Unroll<8>([&](auto i) __attribute__((always_inline)) {
      word[0][i] = Insert(word[0][i], ShiftBits<4 - i>(high), mask);
    });
  }
  if constexpr (kWords == 6) {
    const __m256i high[2] = {load(4), load(5)};
    const __m256i mask = _mm256_set1_epi8(0x30);
    Unroll<8>([&](auto i) __attribute__((always_inline)) {
      word[0][i] = Insert(word[0][i], ShiftBits<4 - 2 * (i % 4)>(high[i / 4]), mask);
    });
  }
}

// Unpacks the six-bit scales and minima from 24 bytes.
inline void UnpackScales(const std::byte* p, int half, __m256* scale, __m256* minimum) {
  const __m256i low = _mm256_cvtepu8_epi32(LoadEightBytes(p + 8 * half));
  const __m256i high = _mm256_srli_epi32(_mm256_cvtepu8_epi32(LoadEightBytes(p + 16)), 4 * half);
  const __m256i nibbles = _mm256_and_si256(high, _mm256_set1_epi32(15));
  *scale = _mm256_cvtepi32_ps(_mm256_and_si256(low, _mm256_set1_epi32(63)));
  *minimum =
      _mm256_cvtepi32_ps(_mm256_or_si256(_mm256_srli_epi32(low, 6), _mm256_slli_epi32(nibbles, 2)));
}

// Unpacks columns 32·g… of eight rows of the block.
template <WeightFormat kFormat>
[[gnu::always_inline]] inline HalfGroup<kFormat> UnpackHalf(const std::byte* block, int64_t g,
                                                            int half) {
  constexpr BlockLayout kLayout = BlockLayoutOf(kFormat);
  HalfGroup<kFormat> unpacked;
  UnpackWords<kFormat>(block + kLayout.WordsAt(g), half, unpacked.word);
  unpacked.factor = LoadHeader(block, half);
  if constexpr (kLayout.headers == 2) unpacked.minimum = LoadHeader(block + 32, half);
  if constexpr (kLayout.scale_bytes == 24) {
    __m256 scale, minimum;
    UnpackScales(block + kLayout.ScalesAt(g), half, &scale, &minimum);
    unpacked.factor = _mm256_mul_ps(unpacked.factor, scale);
    unpacked.minimum =
        _mm256_xor_ps(_mm256_mul_ps(unpacked.minimum, minimum), _mm256_set1_ps(-0.0f));
  }
  if constexpr (kLayout.scale_bytes == 32) {
    const std::byte* scales = block + kLayout.ScalesAt(g) + 8 * half;
    for (int part = 0; part < 2; ++part) {
      const __m256i bytes = _mm256_cvtepi8_epi32(LoadEightBytes(scales + part * kRowGroup));
      unpacked.half_scales[part] = _mm256_cvtepi32_ps(bytes);
    }
  }
  return unpacked;
}

}  // namespace
}  // namespace baton::avx2
