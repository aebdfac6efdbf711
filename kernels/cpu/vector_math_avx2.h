// Sixteen float lanes in two AVX2 registers, with the exact arithmetic of NUMERICS.md.
//
// vector_math_avx512.h defines the same names. attention_lanes.h and elementwise_lanes.h are
// written once against both. Only *_avx2.cc files may include this header. Everything has internal
// linkage, so the linker can never give a plain caller code that needs AVX2.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "kernels/cpu/unroll.h"

namespace baton {
namespace {

struct Lanes {
  __m256 lo;
  __m256 hi;
};

// Query heads, registers of scores and registers of outputs that an inner loop of attention holds
// at once.
inline constexpr int kQueryTile = 2;
inline constexpr int kScoreGroups = 1;
inline constexpr int kOutputTile = 2;
// Registers of exponentials computed at once.
inline constexpr int kExpBatch = 2;
// Query heads that use one row of K or V together.
inline constexpr int kDirectQueries = 2;

inline Lanes Set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Lanes Load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void Store(float* p, Lanes a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
// Loads the first `count` (0…15) values and sets the other lanes to +0. Reads no further.
inline Lanes LoadFirst(const float* p, int64_t count) {
  float values[16] = {};
  std::memcpy(values, p, static_cast<size_t>(count) * sizeof(float));
  return Load(values);
}
inline void StoreFirst(float* p, Lanes a, int64_t count) {
  float values[16];
  Store(values, a);
  std::memcpy(p, values, static_cast<size_t>(count) * sizeof(float));
}

inline Lanes Add(Lanes a, Lanes b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
inline Lanes Subtract(Lanes a, Lanes b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
inline Lanes Multiply(Lanes a, Lanes b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
inline Lanes Divide(Lanes a, Lanes b) {
  return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
inline Lanes Fma(Lanes a, Lanes b, Lanes c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
// a > b ? a : b in each lane, so a NaN in `a` is skipped.
inline Lanes Maximum(Lanes a, Lanes b) {
  return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
inline Lanes Negate(Lanes a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_xor_ps(a.lo, sign), _mm256_xor_ps(a.hi, sign)};
}
inline Lanes Magnitude(Lanes a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, a.lo), _mm256_andnot_ps(sign, a.hi)};
}
// Takes lane i of `a` where bit i is set, else of `b`.
inline Lanes Select(uint32_t bits, Lanes a, Lanes b) {
  const __m256i all = _mm256_set1_epi32(static_cast<int>(bits));
  const __m256i low = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  const __m256i high = _mm256_slli_epi32(low, 8);
  const __m256i in_low = _mm256_cmpeq_epi32(_mm256_and_si256(all, low), low);
  const __m256i in_high = _mm256_cmpeq_epi32(_mm256_and_si256(all, high), high);
  return {_mm256_blendv_ps(b.lo, a.lo, _mm256_castsi256_ps(in_low)),
          _mm256_blendv_ps(b.hi, a.hi, _mm256_castsi256_ps(in_high))};
}

// Tree16 of NUMERICS §1.
inline float Tree16(Lanes a) {
  const __m256 eight = _mm256_add_ps(a.lo, a.hi);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// Returns the largest lane. REQUIRES: no NaN.
inline float LargestLane(Lanes a) {
  const __m256 eight = _mm256_max_ps(a.lo, a.hi);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

// Does nothing on AVX2: sixteen registers are too few to keep values that can be loaded again.
[[gnu::always_inline]] inline void KeepInRegister(Lanes&) {}

// Sets every lane of out[n] to the largest lane of a[n]. REQUIRES: no NaN.
template <int kCount>
inline void LargestOfEach(const Lanes* a, Lanes* out) {
  for (int n = 0; n < kCount; ++n) out[n] = Set(LargestLane(a[n]));
}
inline float FirstLane(Lanes a) { return _mm256_cvtss_f32(a.lo); }

// Exp of NUMERICS §2 for kCount registers. Does each step for all registers before the next step,
// so that the steps of different registers overlap in the processor.
template <int kCount>
[[gnu::always_inline]] inline void ExpOfEights(const __m256* a, __m256* out) {
  const __m256 magic = _mm256_set1_ps(12582912.0f);
  __m256 t[kCount];
  __m256 r[kCount];
  __m256 p[kCount];
  const auto each = [](const auto& step) __attribute__((always_inline)) { Unroll<kCount>(step); };
  each([&](int i) __attribute__((always_inline)) {
    r[i] = _mm256_min_ps(_mm256_set1_ps(88.3762626647949f), a[i]);  // keeps NaN
    t[i] = _mm256_add_ps(_mm256_mul_ps(r[i], _mm256_set1_ps(1.44269504088896341f)), magic);
  });
  each([&](int i) __attribute__((always_inline)) {
    p[i] = _mm256_sub_ps(t[i], magic);
    r[i] = _mm256_fmadd_ps(p[i], _mm256_set1_ps(-0.693359375f), r[i]);
  });
  each([&](int i) __attribute__((always_inline)) {
    r[i] = _mm256_fmadd_ps(p[i], _mm256_set1_ps(2.12194440e-4f), r[i]);
    p[i] = _mm256_set1_ps(1.9875691500e-4f);
  });
  constexpr float kCoefficients[] = {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f,
                                     1.6666665459e-1f, 5.0000001201e-1f};
  Unroll<5>([&](int k) __attribute__((always_inline)) {
    each([&](int i) __attribute__((always_inline)) {
      p[i] = _mm256_fmadd_ps(p[i], r[i], _mm256_set1_ps(kCoefficients[k]));
    });
  });
  each([&](int i) __attribute__((always_inline)) {
    p[i] = _mm256_fmadd_ps(p[i], _mm256_mul_ps(r[i], r[i]), r[i]);
  });
  // The low bits of t hold n; the shift removes the upper bits. A NaN has passed through to p.
  each([&](int i) __attribute__((always_inline)) {
    const __m256 exponent = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(t[i]), 23));
    const __m256 ordered = _mm256_cmp_ps(a[i], a[i], _CMP_ORD_Q);
    const __m256 kept =
        _mm256_cmp_ps(a[i], _mm256_set1_ps(-87.3365478515625f), _CMP_NLT_UQ);  // or NaN
    p[i] = _mm256_add_ps(p[i], _mm256_set1_ps(1.0f));
    const __m256i scaled = _mm256_add_epi32(_mm256_castps_si256(p[i]),
                                            _mm256_castps_si256(_mm256_and_ps(ordered, exponent)));
    out[i] = _mm256_and_ps(kept, _mm256_castsi256_ps(scaled));
  });
}
template <int kCount>
inline void ExpOfAll(const Lanes* a, Lanes* out) {
  __m256 eights[2 * kCount];
  Unroll<kCount>([&](int i) __attribute__((always_inline)) {
    eights[2 * i] = a[i].lo;
    eights[2 * i + 1] = a[i].hi;
  });
  ExpOfEights<2 * kCount>(eights, eights);
  Unroll<kCount>([&](int i) __attribute__((always_inline)) {
    out[i] = {eights[2 * i], eights[2 * i + 1]};
  });
}
inline Lanes Exp(Lanes a) {
  Lanes out;
  ExpOfAll<1>(&a, &out);
  return out;
}
// Exp of kCount numbers. Each number fills every lane of its own register.
template <int kCount>
inline void ExpOfEach(const Lanes* a, Lanes* out) {
  for (int n = 0; n < kCount; ++n) {
    __m256 one;
    ExpOfEights<1>(&a[n].lo, &one);
    out[n] = {one, one};
  }
}

// ---- stored types ---------------------------------------------------------------------------

inline __m128i LoadEight(const uint16_t* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}
inline Lanes LoadF16(const uint16_t* p) {
  return {_mm256_cvtph_ps(LoadEight(p)), _mm256_cvtph_ps(LoadEight(p + 8))};
}
inline __m256 WidenBF16(__m128i bits) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
inline Lanes LoadBF16(const uint16_t* p) {
  return {WidenBF16(LoadEight(p)), WidenBF16(LoadEight(p + 8))};
}
inline void StoreF16(uint16_t* p, Lanes a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(a.lo, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8),
                   _mm256_cvtps_ph(a.hi, _MM_FROUND_TO_NEAREST_INT));
}
inline __m256i RoundToBF16(__m256 a) {
  const __m256i bits = _mm256_castps_si256(a);
  const __m256i high = _mm256_srli_epi32(bits, 16);
  const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_srli_epi32(
      _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
  const __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
  return _mm256_blendv_epi8(rounded, quiet, nan);
}
inline void StoreBF16(uint16_t* p, Lanes a) {
  const __m256i packed = _mm256_packus_epi32(RoundToBF16(a.lo), RoundToBF16(a.hi));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xd8));
}

// e4m3 (kernels/fp8.h).
inline __m256 WidenFp8(__m128i eight) {
  const __m256i bits = _mm256_and_si256(_mm256_slli_epi32(_mm256_cvtepi8_epi32(eight), 20),
                                        _mm256_set1_epi32(static_cast<int>(0x87f00000u)));
  return _mm256_mul_ps(_mm256_castsi256_ps(bits), _mm256_set1_ps(0x1p120f));
}
inline Lanes LoadFp8(const uint8_t* p) {
  return {WidenFp8(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))),
          WidenFp8(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 8)))};
}
inline __m256i RoundToFp8(__m256 a) {
  const __m256i bits = _mm256_castps_si256(a);
  const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(magnitude, 20), _mm256_set1_epi32(1));
  const __m256i half = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7ffff));
  const __m256i normal = _mm256_sub_epi32(_mm256_srli_epi32(_mm256_add_epi32(magnitude, half), 20),
                                          _mm256_set1_epi32(120 << 3));
  const __m256 magic = _mm256_set1_ps(16384.0f);  // rounds at 2^-9
  const __m256i subnormal =
      _mm256_sub_epi32(_mm256_castps_si256(_mm256_add_ps(_mm256_castsi256_ps(magnitude), magic)),
                       _mm256_castps_si256(magic));
  const __m256i is_normal = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x3c7fffff));
  const __m256i byte =
      _mm256_min_epi32(_mm256_blendv_epi8(subnormal, normal, is_normal), _mm256_set1_epi32(0x7e));
  return _mm256_or_si256(byte, _mm256_slli_epi32(_mm256_srli_epi32(bits, 31), 7));
}
// REQUIRES: the lanes are finite.
inline void StoreFp8(uint8_t* p, Lanes a) {
  const __m256i packed = _mm256_packus_epi32(RoundToFp8(a.lo), RoundToFp8(a.hi));
  const __m256i words = _mm256_permute4x64_epi64(packed, 0xd8);
  _mm_storeu_si128(
      reinterpret_cast<__m128i*>(p),
      _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
}

// ---- integers -------------------------------------------------------------------------------

// RoundInt of NUMERICS §2.
inline __m256i RoundInt(__m256 x) {
  const __m256 magic = _mm256_set1_ps(12582912.0f);
  return _mm256_sub_epi32(_mm256_castps_si256(_mm256_add_ps(x, magic)), _mm256_castps_si256(magic));
}
// Returns the low 16 bits of RoundInt of sixteen lanes, in order.
inline __m256i Rounded16(Lanes a) {
  const __m256i low = _mm256_set1_epi32(0xffff);
  const __m256i packed = _mm256_packus_epi32(_mm256_and_si256(RoundInt(a.lo), low),
                                             _mm256_and_si256(RoundInt(a.hi), low));
  return _mm256_permute4x64_epi64(packed, 0xd8);
}
// Store the low 16 or 8 bits of RoundInt.
inline void StoreRounded16(int16_t* p, Lanes a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), Rounded16(a));
}
inline void StoreRounded8(int8_t* p, Lanes a) {
  const __m256i bytes = _mm256_and_si256(Rounded16(a), _mm256_set1_epi16(0xff));
  const __m128i packed =
      _mm_packus_epi16(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), packed);
}

inline __m256i RoundedLowByte(__m256 x, __m256 inverse) {
  return _mm256_and_si256(RoundInt(_mm256_mul_ps(x, inverse)), _mm256_set1_epi32(0xff));
}

// Quantises one group of 32 values (NUMERICS §3).
inline void QuantizeGroup(Lanes a, Lanes b, int8_t* q, float* scale, float* scaled_sum) {
  const Lanes sign = Set(-0.0f);
  Lanes largest =
      Maximum({_mm256_andnot_ps(sign.lo, a.lo), _mm256_andnot_ps(sign.hi, a.hi)}, Set(0.0f));
  largest = Maximum({_mm256_andnot_ps(sign.lo, b.lo), _mm256_andnot_ps(sign.hi, b.hi)}, largest);
  const float amax = LargestLane(largest);
  const float group_scale = amax / 127.0f;
  const __m256 inverse = _mm256_set1_ps(amax > 0.0f ? 127.0f / amax : 0.0f);
  const __m256i first =
      _mm256_packus_epi32(RoundedLowByte(a.lo, inverse), RoundedLowByte(a.hi, inverse));
  const __m256i second =
      _mm256_packus_epi32(RoundedLowByte(b.lo, inverse), RoundedLowByte(b.hi, inverse));
  // The pack instructions work within 128-bit halves. Restore the order of the 32-bit pieces.
  const __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(first, second),
                                                    _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), bytes);
  const __m256i biased = _mm256_xor_si256(bytes, _mm256_set1_epi8(-128));
  const __m256i sums = _mm256_sad_epu8(biased, _mm256_setzero_si256());
  const __m128i two =
      _mm_add_epi64(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
  const int sum = _mm_cvtsi128_si32(two) + _mm_extract_epi32(two, 2) - 32 * 128;
  *scale = group_scale;
  *scaled_sum = group_scale * static_cast<float>(sum);
}

// Groups of a row that are quantised at once.
inline constexpr int kGroupsAtOnce = 1;
template <int kGroups>
inline void QuantizeGroups(const Lanes* a, int8_t* q, float* scale, float* scaled_sum) {
  static_assert(kGroups == 1);
  QuantizeGroup(a[0], a[1], q, scale, scaled_sum);
}

// ---- rotary pairs ---------------------------------------------------------------------------

struct PairCoefficients {
  Lanes of_first;   // cos, sin, …
  Lanes of_second;  // −sin, cos, …
};

inline Lanes Interleave(__m256 even, __m256 odd) {
  const __m256 low = _mm256_unpacklo_ps(even, odd);
  const __m256 high = _mm256_unpackhi_ps(even, odd);
  return {_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31)};
}
// Loads the coefficients of the eight neighbour pairs in a Lanes.
inline PairCoefficients LoadPairCoefficients(const float* cosines, const float* sines) {
  const __m256 c = _mm256_loadu_ps(cosines);
  const __m256 s = _mm256_loadu_ps(sines);
  return {Interleave(c, s), Interleave(_mm256_xor_ps(s, _mm256_set1_ps(-0.0f)), c)};
}
inline Lanes RotatePairs(Lanes x, const PairCoefficients& by) {
  const Lanes first = {_mm256_moveldup_ps(x.lo), _mm256_moveldup_ps(x.hi)};
  const Lanes second = {_mm256_movehdup_ps(x.lo), _mm256_movehdup_ps(x.hi)};
  return Fma(first, by.of_first, Multiply(second, by.of_second));
}

// ---- sixteen by sixteen ---------------------------------------------------------------------

// Always inline: GCC would call it from large callers.
[[gnu::always_inline]] inline void Transpose8(const float* in, int64_t in_stride, float* out,
                                              int64_t out_stride) {
  __m256 a[8];
  __m256 b[8];
  // Puts rows i and i + 4 into one register, so that the last step is a store.
  for (int half = 0; half < 2; ++half) {
    for (int i = 0; i < 4; ++i) {
      a[4 * half + i] =
          _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(in + i * in_stride + 4 * half)),
                               _mm_loadu_ps(in + (i + 4) * in_stride + 4 * half), 1);
    }
  }
  for (int i = 0; i < 8; i += 2) {
    b[i] = _mm256_unpacklo_ps(a[i], a[i + 1]);
    b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    float* column = out + i * out_stride;
    _mm256_storeu_ps(column, _mm256_shuffle_ps(b[i], b[i + 2], 0x44));
    _mm256_storeu_ps(column + out_stride, _mm256_shuffle_ps(b[i], b[i + 2], 0xee));
    _mm256_storeu_ps(column + 2 * out_stride, _mm256_shuffle_ps(b[i + 1], b[i + 3], 0x44));
    _mm256_storeu_ps(column + 3 * out_stride, _mm256_shuffle_ps(b[i + 1], b[i + 3], 0xee));
  }
}
// out[column][row] = in[row][column]. Strides count floats.
inline void Transpose16(const float* in, int64_t in_stride, float* out, int64_t out_stride) {
  for (int row = 0; row < 16; row += 8) {
    Transpose8(in + row * in_stride, in_stride, out + row, out_stride);
    Transpose8(in + row * in_stride + 8, in_stride, out + 8 * out_stride + row, out_stride);
  }
}

// Adds lanes as floats, or as the 32-bit integers in their bits.
template <bool kIntegers>
inline __m256 AddLanes(__m256 a, __m256 b) {
  if constexpr (!kIntegers) return _mm256_add_ps(a, b);
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), _mm256_castps_si256(b)));
}
template <bool kIntegers>
inline __m256 FoldFour(__m256 a, __m256 b) {
  return AddLanes<kIntegers>(_mm256_permute2f128_ps(a, b, 0x20),
                             _mm256_permute2f128_ps(a, b, 0x31));
}
template <bool kIntegers>
inline __m256 FoldTwo(__m256 a, __m256 b) {
  return AddLanes<kIntegers>(_mm256_shuffle_ps(a, b, 0x44), _mm256_shuffle_ps(a, b, 0xee));
}
template <bool kIntegers>
inline __m256 FoldOne(__m256 a, __m256 b) {
  return AddLanes<kIntegers>(_mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(a, b, 0xdd));
}

// Sets lane i of out[n] to Tree16(s[n]), for the kCount sums that sums(i, s) sets. Sixteen trees
// are added in parallel while they are transposed. kIntegers: adds 32-bit integers.
template <int kCount, bool kIntegers = false, typename Sums>
inline void Tree16OfEach(const Sums& sums, Lanes* out) {
  struct Folded {
    __m256 of[kCount];
  };
  const auto pair = [&sums](int i) __attribute__((always_inline)) {
    Lanes a[kCount];
    Lanes b[kCount];
    sums(i, a);
    sums(i + 4, b);
    Folded folded;  // lanes: four of each of sums i and i + 4
    for (int n = 0; n < kCount; ++n) {
      folded.of[n] = FoldFour<kIntegers>(AddLanes<kIntegers>(a[n].lo, a[n].hi),
                                         AddLanes<kIntegers>(b[n].lo, b[n].hi));
    }
    return folded;
  };
  const auto two = [&pair](int i) __attribute__((always_inline)) {
    const Folded a = pair(i);
    const Folded b = pair(i + 1);
    Folded folded;
    for (int n = 0; n < kCount; ++n) folded.of[n] = FoldTwo<kIntegers>(a.of[n], b.of[n]);
    return folded;
  };
  const auto eight = [&two](int i) __attribute__((always_inline)) {
    const Folded a = two(i);
    const Folded b = two(i + 2);
    Folded folded;
    for (int n = 0; n < kCount; ++n) folded.of[n] = FoldOne<kIntegers>(a.of[n], b.of[n]);
    return folded;
  };
  const Folded low = eight(0);
  const Folded high = eight(8);
  for (int n = 0; n < kCount; ++n) out[n] = {low.of[n], high.of[n]};
}

}  // namespace
}  // namespace baton
