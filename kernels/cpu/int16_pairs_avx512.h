// Pairs of 16-bit numbers in one AVX-512 register.
//
// int8_products_avx2.h defines the same names. The two int8_products headers for AVX-512 include
// this header and add AddPairProducts, which has one instruction with VNNI. Everything has internal
// linkage.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cpu/vector_math_avx512.h"

namespace baton {
namespace {

// 32 numbers of 16 bits. Sums of products of adjacent numbers are kept in Lanes, as integers.
struct Pairs {
  __m512i v;
};
inline Pairs LoadPairs(const void* p) { return {_mm512_loadu_si512(p)}; }
// Returns the register's bits, to move or to store them.
inline Lanes BitsOf(Pairs a) { return {_mm512_castsi512_ps(a.v)}; }
inline Pairs WidenToPairs(const int8_t* p) {
  return {_mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
// Repeats the same two numbers sixteen times.
inline Pairs SetPair(const int16_t* p) {
  int32_t pair;
  std::memcpy(&pair, p, sizeof(pair));
  return {_mm512_set1_epi32(pair)};
}
inline Lanes FloatsOfIntegers(Lanes a) { return {_mm512_cvtepi32_ps(_mm512_castps_si512(a.v))}; }
// Pairs up the numbers a[i] and b[i]. Lane 4l + i of out[k] holds number 8l + 4k + i (i < 4).
inline void PairUp(Pairs a, Pairs b, Pairs (&out)[2]) {
  out[0] = {_mm512_unpacklo_epi16(a.v, b.v)};
  out[1] = {_mm512_unpackhi_epi16(a.v, b.v)};
}
// Restores the natural order from the order that PairUp leaves.
inline void SortPairedUp(Lanes (&a)[2]) {
  const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
  const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(8));
  const __m512 low = a[0].v;
  a[0].v = _mm512_permutex2var_ps(low, first, a[1].v);
  a[1].v = _mm512_permutex2var_ps(low, second, a[1].v);
}

}  // namespace
}  // namespace baton
