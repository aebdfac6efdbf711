// Sixteen float lanes in one AVX-512 register, with the exact arithmetic of NUMERICS.md.
//
// vector_math_avx2.h defines the same names. attention_lanes.h and elementwise_lanes.h are written
// once against both. Only *_avx512.cc and *_avx512_no_vnni.cc files may include this header; it
// needs no VNNI. Everything has internal linkage, so the linker can never give a plain caller code
// that needs AVX-512.
#pragma once

// GCC 12 warns about its own _mm512_undefined_ps (GCC bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#else
#include <immintrin.h>
#endif

#include <cstdint>
#include <cstring>

#include "kernels/cpu/unroll.h"

namespace baton {
namespace {

struct Lanes {
  __m512 v;
};

// Query heads, registers of scores and registers of outputs that an inner loop of attention holds
// at once. The tree of Tree16 keeps five registers for each (query head, register of scores).
inline constexpr int kQueryTile = 3;
inline constexpr int kScoreGroups = 2;
inline constexpr int kOutputTile = 4;
// Registers of exponentials computed at once.
inline constexpr int kExpBatch = 6;
// Query heads that use one row of K or V together.
inline constexpr int kDirectQueries = 4;

inline Lanes Set(float x) { return {_mm512_set1_ps(x)}; }
inline Lanes Load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline void Store(float* p, Lanes a) { _mm512_storeu_ps(p, a.v); }
inline __mmask16 First(int64_t count) { return static_cast<__mmask16>((1u << count) - 1u); }
// Loads the first `count` (0…15) values and sets the other lanes to +0. Reads no further.
inline Lanes LoadFirst(const float* p, int64_t count) {
  return {_mm512_maskz_loadu_ps(First(count), p)};
}
inline void StoreFirst(float* p, Lanes a, int64_t count) {
  _mm512_mask_storeu_ps(p, First(count), a.v);
}

inline Lanes Add(Lanes a, Lanes b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Lanes Subtract(Lanes a, Lanes b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Lanes Multiply(Lanes a, Lanes b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Lanes Divide(Lanes a, Lanes b) { return {_mm512_div_ps(a.v, b.v)}; }
inline Lanes Fma(Lanes a, Lanes b, Lanes c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
// a > b ? a : b in each lane, so a NaN in `a` is skipped.
inline Lanes Maximum(Lanes a, Lanes b) { return {_mm512_max_ps(a.v, b.v)}; }
inline Lanes Negate(Lanes a) { return {_mm512_xor_ps(a.v, _mm512_set1_ps(-0.0f))}; }
inline Lanes Magnitude(Lanes a) { return {_mm512_abs_ps(a.v)}; }
// Takes lane i of `a` where bit i is set, else of `b`.
inline Lanes Select(uint32_t bits, Lanes a, Lanes b) {
  return {_mm512_mask_blend_ps(static_cast<__mmask16>(bits), b.v, a.v)};
}

inline __m256 UpperHalf(__m512 a) { return _mm512_extractf32x8_ps(a, 1); }

// Tree16 of NUMERICS §1.
inline float Tree16(Lanes a) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a.v), UpperHalf(a.v));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// Returns the largest lane. REQUIRES: no NaN.
inline float LargestLane(Lanes a) {
  const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(a.v), UpperHalf(a.v));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

// Keeps the compiler from loading `a` from memory at each use.
[[gnu::always_inline]] inline void KeepInRegister(Lanes& a) { asm("" : "+v"(a.v)); }

inline __m512 LargerEight(__m512 a, __m512 b) {
  return _mm512_max_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
}
inline __m512 LargerFour(__m512 a, __m512 b) {
  return _mm512_max_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
}
// Copies lane 4 n of `a` to every lane of out[n], for n < kCount <= 4.
template <int kCount>
inline void SpreadQuarters(__m512 a, Lanes* out) {
  out[0] = {_mm512_shuffle_f32x4(a, a, 0x00)};
  if constexpr (kCount > 1) out[1] = {_mm512_shuffle_f32x4(a, a, 0x55)};
  if constexpr (kCount > 2) out[2] = {_mm512_shuffle_f32x4(a, a, 0xaa)};
  if constexpr (kCount > 3) out[3] = {_mm512_shuffle_f32x4(a, a, 0xff)};
}
// Sets every lane of quarter n to the largest lane of a[n]. kCount <= 4. REQUIRES: no NaN.
template <int kCount>
inline __m512 LargestQuarters(const Lanes* a) {
  static_assert(kCount <= 4);
  const __m512 low = LargerEight(a[0].v, a[kCount > 1 ? 1 : 0].v);
  const __m512 high =
      kCount > 2 ? LargerEight(a[kCount > 2 ? 2 : 0].v, a[kCount > 3 ? 3 : 0].v) : low;
  __m512 largest = LargerFour(low, high);
  largest = _mm512_max_ps(largest, _mm512_permute_ps(largest, 0x4e));
  return _mm512_max_ps(largest, _mm512_permute_ps(largest, 0xb1));
}
// Sets every lane of out[n] to the largest lane of a[n]. kCount <= 4. REQUIRES: no NaN.
template <int kCount>
inline void LargestOfEach(const Lanes* a, Lanes* out) {
  SpreadQuarters<kCount>(LargestQuarters<kCount>(a), out);
}
inline float FirstLane(Lanes a) { return _mm512_cvtss_f32(a.v); }

// Exp of NUMERICS §2 for kCount registers. Does each step for all registers before the next step,
// so that the steps of different registers overlap in the processor.
template <int kCount>
[[gnu::always_inline]] inline void ExpOfAll(const Lanes* a, Lanes* out) {
  const __m512 magic = _mm512_set1_ps(12582912.0f);
  __m512 t[kCount];
  __m512 r[kCount];
  __m512 p[kCount];
  const auto each = [](const auto& step) __attribute__((always_inline)) { Unroll<kCount>(step); };
  each([&](int i) __attribute__((always_inline)) {
    r[i] = _mm512_min_ps(_mm512_set1_ps(88.3762626647949f), a[i].v);  // keeps NaN
  });
  each([&](int i) __attribute__((always_inline)) {
    t[i] = _mm512_mul_ps(r[i], _mm512_set1_ps(1.44269504088896341f));
  });
  each([&](int i) __attribute__((always_inline)) { t[i] = _mm512_add_ps(t[i], magic); });
  each([&](int i) __attribute__((always_inline)) { p[i] = _mm512_sub_ps(t[i], magic); });
  each([&](int i) __attribute__((always_inline)) {
    r[i] = _mm512_fmadd_ps(p[i], _mm512_set1_ps(-0.693359375f), r[i]);
  });
  each([&](int i) __attribute__((always_inline)) {
    r[i] = _mm512_fmadd_ps(p[i], _mm512_set1_ps(2.12194440e-4f), r[i]);
    p[i] = _mm512_set1_ps(1.9875691500e-4f);
  });
  constexpr float kCoefficients[] = {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f,
                                     1.6666665459e-1f, 5.0000001201e-1f};
  Unroll<5>([&](int k) __attribute__((always_inline)) {
    each([&](int i) __attribute__((always_inline)) {
      p[i] = _mm512_fmadd_ps(p[i], r[i], _mm512_set1_ps(kCoefficients[k]));
    });
  });
  each([&](int i) __attribute__((always_inline)) {
    p[i] = _mm512_fmadd_ps(p[i], _mm512_mul_ps(r[i], r[i]), r[i]);
  });
  each([&](int i)
           __attribute__((always_inline)) { p[i] = _mm512_add_ps(p[i], _mm512_set1_ps(1.0f)); });
  // The low bits of t hold n; the shift removes the upper bits. A NaN has passed through to p.
  each([&](int i) __attribute__((always_inline)) {
    const __mmask16 ordered = _mm512_cmp_ps_mask(a[i].v, a[i].v, _CMP_ORD_Q);
    const __mmask16 kept =
        _mm512_cmp_ps_mask(a[i].v, _mm512_set1_ps(-87.3365478515625f), _CMP_NLT_UQ);  // or NaN
    const __m512i exponent = _mm512_maskz_slli_epi32(ordered, _mm512_castps_si512(t[i]), 23);
    out[i] = {
        _mm512_castsi512_ps(_mm512_maskz_add_epi32(kept, _mm512_castps_si512(p[i]), exponent))};
  });
}
inline Lanes Exp(Lanes a) {
  Lanes out;
  ExpOfAll<1>(&a, &out);
  return out;
}

// Exp of kCount <= 4 numbers. Each number fills every lane of its own register.
template <int kCount>
inline void ExpOfEach(const Lanes* a, Lanes* out) {
  static_assert(kCount <= 4);
  __m512 all = a[0].v;
  if constexpr (kCount > 1) all = _mm512_mask_blend_ps(0x00f0, all, a[1].v);
  if constexpr (kCount > 2) all = _mm512_mask_blend_ps(0x0f00, all, a[2].v);
  if constexpr (kCount > 3) all = _mm512_mask_blend_ps(0xf000, all, a[3].v);
  SpreadQuarters<kCount>(Exp({all}).v, out);
}

// ---- stored types ---------------------------------------------------------------------------

inline Lanes LoadF16(const uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
inline Lanes LoadBF16(const uint16_t* p) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
}
inline void StoreF16(uint16_t* p, Lanes a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
inline void StoreBF16(uint16_t* p, Lanes a) {
  const __m512i bits = _mm512_castps_si512(a.v);
  const __m512i high = _mm512_srli_epi32(bits, 16);
  const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_srli_epi32(
      _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
  const __mmask16 nan = _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q);
  const __m512i kept = _mm512_mask_or_epi32(rounded, nan, high, _mm512_set1_epi32(0x40));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(kept));
}

// e4m3 (kernels/fp8.h).
inline Lanes LoadFp8(const uint8_t* p) {
  const __m512i wide = _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m512i bits = _mm512_and_si512(_mm512_slli_epi32(wide, 20),
                                        _mm512_set1_epi32(static_cast<int>(0x87f00000u)));
  return {_mm512_mul_ps(_mm512_castsi512_ps(bits), _mm512_set1_ps(0x1p120f))};
}
// REQUIRES: the lanes are finite.
inline void StoreFp8(uint8_t* p, Lanes a) {
  const __m512i bits = _mm512_castps_si512(a.v);
  const __m512i magnitude = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff));
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(magnitude, 20), _mm512_set1_epi32(1));
  const __m512i half = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7ffff));
  const __m512i normal = _mm512_sub_epi32(_mm512_srli_epi32(_mm512_add_epi32(magnitude, half), 20),
                                          _mm512_set1_epi32(120 << 3));
  const __m512 magic = _mm512_set1_ps(16384.0f);  // rounds at 2^-9
  const __m512i subnormal =
      _mm512_sub_epi32(_mm512_castps_si512(_mm512_add_ps(_mm512_castsi512_ps(magnitude), magic)),
                       _mm512_castps_si512(magic));
  const __mmask16 is_normal = _mm512_cmpgt_epi32_mask(magnitude, _mm512_set1_epi32(0x3c7fffff));
  const __m512i byte = _mm512_min_epi32(_mm512_mask_blend_epi32(is_normal, subnormal, normal),
                                        _mm512_set1_epi32(0x7e));
  const __m512i sign = _mm512_slli_epi32(_mm512_srli_epi32(bits, 31), 7);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                   _mm512_cvtepi32_epi8(_mm512_or_si512(byte, sign)));
}

// ---- integers -------------------------------------------------------------------------------

// RoundInt of NUMERICS §2.
inline __m512i RoundInt(Lanes a) {
  const __m512 magic = _mm512_set1_ps(12582912.0f);
  return _mm512_sub_epi32(_mm512_castps_si512(_mm512_add_ps(a.v, magic)),
                          _mm512_castps_si512(magic));
}
// Store the low 16 or 8 bits of RoundInt.
inline void StoreRounded16(int16_t* p, Lanes a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(RoundInt(a)));
}
inline void StoreRounded8(int8_t* p, Lanes a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(RoundInt(a)));
}

// Quantises one group of 32 values (NUMERICS §3).
inline void QuantizeGroup(Lanes a, Lanes b, int8_t* q, float* scale, float* scaled_sum) {
  const __m512 magnitude_a = _mm512_abs_ps(a.v);
  const __m512 magnitude_b = _mm512_abs_ps(b.v);
  const __m512 largest =
      _mm512_max_ps(magnitude_b, _mm512_max_ps(magnitude_a, _mm512_setzero_ps()));
  const float amax = LargestLane({largest});
  const float group_scale = amax / 127.0f;
  const __m512 inverse = _mm512_set1_ps(amax > 0.0f ? 127.0f / amax : 0.0f);
  const __m512i qa = RoundInt({_mm512_mul_ps(a.v, inverse)});
  const __m512i qb = RoundInt({_mm512_mul_ps(b.v, inverse)});
  const __m256i bytes =
      _mm256_set_m128i(_mm512_cvtepi32_epi8(qb), _mm512_cvtepi32_epi8(qa));  // the low bytes
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), bytes);
  const __m256i biased = _mm256_xor_si256(bytes, _mm256_set1_epi8(-128));
  const __m256i sums = _mm256_sad_epu8(biased, _mm256_setzero_si256());
  const __m128i two =
      _mm_add_epi64(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
  const int sum = _mm_cvtsi128_si32(two) + _mm_extract_epi32(two, 2) - 32 * 128;
  *scale = group_scale;
  *scaled_sum = group_scale * static_cast<float>(sum);
}

// Returns the low bytes of 64 integers, in order.
inline __m512i LowBytes(const __m512i* a) {
  const __m512i low = _mm512_set1_epi32(255);
  const __m512i bytes = _mm512_packus_epi16(
      _mm512_packus_epi32(_mm512_and_si512(a[0], low), _mm512_and_si512(a[1], low)),
      _mm512_packus_epi32(_mm512_and_si512(a[2], low), _mm512_and_si512(a[3], low)));
  return _mm512_permutexvar_epi32(
      _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), bytes);
}

// Quantises two adjacent groups with one reduction, and with two divisions instead of four.
inline void QuantizeTwoGroups(const Lanes* a, int8_t* q, float* scale, float* scaled_sum) {
  Lanes largest[2];
  for (int g = 0; g < 2; ++g) {
    largest[g] = {_mm512_max_ps(_mm512_abs_ps(a[2 * g + 1].v),
                                _mm512_max_ps(_mm512_abs_ps(a[2 * g].v), _mm512_setzero_ps()))};
  }
  // From here on, lanes 0 and 1 are the two groups.
  const __m512 quarters = LargestQuarters<2>(largest);
  const __m128 amax =
      _mm_unpacklo_ps(_mm512_castps512_ps128(quarters), _mm512_extractf32x4_ps(quarters, 1));
  const __m128 most = _mm_set1_ps(127.0f);
  const __m128 scales = _mm_div_ps(amax, most);
  const __mmask8 some = _mm_cmp_ps_mask(amax, _mm_setzero_ps(), _CMP_GT_OQ);
  const __m512 inverses = _mm512_castps128_ps512(_mm_maskz_div_ps(some, most, amax));
  __m512i rounded[4];
  for (int i = 0; i < 4; ++i) {
    const __m512 inverse = _mm512_permutexvar_ps(_mm512_set1_epi32(i / 2), inverses);
    rounded[i] = RoundInt({_mm512_mul_ps(a[i].v, inverse)});
  }
  const __m512i bytes = LowBytes(rounded);
  _mm512_storeu_si512(q, bytes);
  // VPSADBW adds eight unsigned bytes. Each byte is 128 more than its value.
  const __m512i biased = _mm512_xor_si512(bytes, _mm512_set1_epi8(-128));
  __m512i sums = _mm512_sad_epu8(biased, _mm512_setzero_si512());
  sums = _mm512_add_epi32(sums, _mm512_shuffle_epi32(sums, _MM_PERM_BADC));
  sums = _mm512_add_epi32(sums, _mm512_shuffle_i32x4(sums, sums, 0xb1));
  const __m128i sum = _mm_sub_epi32(
      _mm_unpacklo_epi32(_mm512_castsi512_si128(sums), _mm512_extracti32x4_epi32(sums, 2)),
      _mm_set1_epi32(32 * 128));
  _mm_storel_pi(reinterpret_cast<__m64*>(scale), scales);
  _mm_storel_pi(reinterpret_cast<__m64*>(scaled_sum), _mm_mul_ps(scales, _mm_cvtepi32_ps(sum)));
}

// Groups of a row that are quantised at once.
inline constexpr int kGroupsAtOnce = 2;
template <int kGroups>
inline void QuantizeGroups(const Lanes* a, int8_t* q, float* scale, float* scaled_sum) {
  if constexpr (kGroups == 1) {
    QuantizeGroup(a[0], a[1], q, scale, scaled_sum);
  } else {
    QuantizeTwoGroups(a, q, scale, scaled_sum);
  }
}

// ---- rotary pairs ---------------------------------------------------------------------------

struct PairCoefficients {
  Lanes of_first;   // cos, sin, …
  Lanes of_second;  // −sin, cos, …
};

// Loads the coefficients of the eight neighbour pairs in a register.
inline PairCoefficients LoadPairCoefficients(const float* cosines, const float* sines) {
  const __m512i even_then_odd =
      _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const __m512 c = _mm512_zextps256_ps512(_mm256_loadu_ps(cosines));
  const __m512 s = _mm512_zextps256_ps512(_mm256_loadu_ps(sines));
  const __m512 minus_s = _mm512_xor_ps(s, _mm512_set1_ps(-0.0f));
  return {{_mm512_permutex2var_ps(c, even_then_odd, s)},
          {_mm512_permutex2var_ps(minus_s, even_then_odd, c)}};
}
inline Lanes RotatePairs(Lanes x, const PairCoefficients& by) {
  const __m512 first = _mm512_moveldup_ps(x.v);
  const __m512 second = _mm512_movehdup_ps(x.v);
  return {_mm512_fmadd_ps(first, by.of_first.v, _mm512_mul_ps(second, by.of_second.v))};
}

// ---- sixteen by sixteen ---------------------------------------------------------------------

// out[column][row] = in[row][column]. Strides count floats.
inline void Transpose16(const float* in, int64_t in_stride, float* out, int64_t out_stride) {
  __m512 a[16];
  __m512 b[16];
  for (int i = 0; i < 16; ++i) a[i] = _mm512_loadu_ps(in + i * in_stride);
  for (int i = 0; i < 16; i += 2) {
    b[i] = _mm512_unpacklo_ps(a[i], a[i + 1]);
    b[i + 1] = _mm512_unpackhi_ps(a[i], a[i + 1]);
  }
  // a[4i + c] holds rows 4i…4i+3 of column c (mod 4) in every 128-bit block.
  for (int i = 0; i < 16; i += 4) {
    a[i] = _mm512_shuffle_ps(b[i], b[i + 2], 0x44);
    a[i + 1] = _mm512_shuffle_ps(b[i], b[i + 2], 0xee);
    a[i + 2] = _mm512_shuffle_ps(b[i + 1], b[i + 3], 0x44);
    a[i + 3] = _mm512_shuffle_ps(b[i + 1], b[i + 3], 0xee);
  }
  for (int c = 0; c < 4; ++c) {
    const __m512 even_01 = _mm512_shuffle_f32x4(a[c], a[c + 4], 0x88);  // blocks 0 and 2
    const __m512 odd_01 = _mm512_shuffle_f32x4(a[c], a[c + 4], 0xdd);
    const __m512 even_23 = _mm512_shuffle_f32x4(a[c + 8], a[c + 12], 0x88);
    const __m512 odd_23 = _mm512_shuffle_f32x4(a[c + 8], a[c + 12], 0xdd);
    _mm512_storeu_ps(out + c * out_stride, _mm512_shuffle_f32x4(even_01, even_23, 0x88));
    _mm512_storeu_ps(out + (c + 4) * out_stride, _mm512_shuffle_f32x4(odd_01, odd_23, 0x88));
    _mm512_storeu_ps(out + (c + 8) * out_stride, _mm512_shuffle_f32x4(even_01, even_23, 0xdd));
    _mm512_storeu_ps(out + (c + 12) * out_stride, _mm512_shuffle_f32x4(odd_01, odd_23, 0xdd));
  }
}

// Adds lanes as floats, or as the 32-bit integers in their bits.
template <bool kIntegers>
inline __m512 AddLanes(__m512 a, __m512 b) {
  if constexpr (!kIntegers) return _mm512_add_ps(a, b);
  return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a), _mm512_castps_si512(b)));
}
template <bool kIntegers>
inline __m512 FoldEight(__m512 a, __m512 b) {
  return AddLanes<kIntegers>(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
}
template <bool kIntegers>
inline __m512 FoldFour(__m512 a, __m512 b) {
  return AddLanes<kIntegers>(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
}
template <bool kIntegers>
inline __m512 FoldTwo(__m512 a, __m512 b) {
  return AddLanes<kIntegers>(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee));
}
template <bool kIntegers>
inline __m512 FoldOne(__m512 a, __m512 b) {
  return AddLanes<kIntegers>(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd));
}

// Sets lane i of out[n] to Tree16(s[n]), for the kCount sums that sums(i, s) sets. Sixteen trees
// are added in parallel while they are transposed. kIntegers: adds 32-bit integers.
template <int kCount, bool kIntegers = false, typename Sums>
inline void Tree16OfEach(const Sums& sums, Lanes* out) {
  struct Folded {
    __m512 of[kCount];
  };
  const auto pair = [&sums](int i) __attribute__((always_inline)) {
    Lanes a[kCount];
    Lanes b[kCount];
    sums(i, a);
    sums(i + 4, b);
    Folded folded;
    for (int n = 0; n < kCount; ++n) folded.of[n] = FoldEight<kIntegers>(a[n].v, b[n].v);
    return folded;
  };
  const auto two = [&pair](int i) __attribute__((always_inline)) {
    Folded quads[2];  // lanes: four of each of sums i, i+4, i+8, i+12, and i+1, …
    for (int k = 0; k < 2; ++k) {
      const Folded low = pair(i + k);
      const Folded high = pair(i + k + 8);
      for (int n = 0; n < kCount; ++n) quads[k].of[n] = FoldFour<kIntegers>(low.of[n], high.of[n]);
    }
    Folded folded;
    for (int n = 0; n < kCount; ++n)
      folded.of[n] = FoldTwo<kIntegers>(quads[0].of[n], quads[1].of[n]);
    return folded;
  };
  const Folded first = two(0);
  const Folded second = two(2);
  for (int n = 0; n < kCount; ++n) out[n].v = FoldOne<kIntegers>(first.of[n], second.of[n]);
}

}  // namespace
}  // namespace baton
