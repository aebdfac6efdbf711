// The two integer products of int8 attention (NUMERICS §8) on AVX2: int8_pair_products.h with AVX2
// lanes.
//
// Only int8_attention_lanes.h may use this header. Everything has internal linkage.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cpu/vector_math_avx2.h"

namespace baton {
namespace {

// 32 numbers of 16 bits. Sums of products of adjacent numbers are kept in Lanes, as integers.
struct Pairs {
  __m256i lo;
  __m256i hi;
};
inline Pairs LoadPairs(const void* p) {
  const auto* halves = static_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(halves), _mm256_loadu_si256(halves + 1)};
}
// Returns the register's bits, to move or to store them.
inline Lanes BitsOf(Pairs a) { return {_mm256_castsi256_ps(a.lo), _mm256_castsi256_ps(a.hi)}; }
inline Pairs WidenToPairs(const int8_t* p) {
  return {_mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16)))};
}
// Repeats the same two numbers sixteen times.
inline Pairs SetPair(const int16_t* p) {
  int32_t pair;
  std::memcpy(&pair, p, sizeof(pair));
  const __m256i repeated = _mm256_set1_epi32(pair);
  return {repeated, repeated};
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

// Registers of keys or values that a product takes at once. A Lanes is two AVX2 registers.
inline constexpr int kInt8Registers = 1;

}  // namespace
}  // namespace baton

// This must come after Pairs.
#include "kernels/cpu/int8_pair_products.h"
