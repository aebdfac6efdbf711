// Sums of byte products for quantized_matmul_avx512.h, without VNNI. VPMADDUBSW multiplies unsigned
// weights with signed activations. Its results are added in 16 bits as far as that is exact
// (RunOf), then in 32 bits by VPMADDWD.
//
// byte_sums_avx512.h defines the same names. Everything has internal linkage.
#pragma once

#include <cstdint>

#include "kernels/cpu/matmul_tile.h"
#include "kernels/cpu/unroll.h"
#include "kernels/cpu/vector_math_avx512.h"

namespace baton::avx512 {
namespace {

constexpr ProductKind ProductKindOf(WeightFormat format) {
  return {SumKindOf(format), PlanesOf(format), RunOf(format)};
}

// The largest tile of a format. Its 16-bit sums, 32-bit sums and accumulators fit the registers.
// Two planes of weights use a broadcast of activations twice, as two row groups do.
constexpr int TileRowGroupsOf(WeightFormat format) { return PlanesOf(format) == 2 ? 1 : 2; }
constexpr int TileTokensOf(WeightFormat format) { return RunOf(format) < 8 ? 4 : 6; }
// Returns the most tokens that read the weights in place, a few tokens at a time.
constexpr int64_t FewTokensOf(WeightFormat) { return 8; }

// A sum of products in every 32-bit lane: of 32 columns, or of 16 for SumKind::kHalves.
template <ProductKind kKind>
struct ByteSum {
  __m512i pairs[kKind.planes];  // 16-bit sums of the present run
  __m512i total;                // of the runs before
};

template <ProductKind kKind>
[[gnu::always_inline]] inline void BeginSum(ByteSum<kKind>&, const int32_t*) {}

// Adds word number kWord of the sum. `word` has kKind.planes registers.
template <int kWord, ProductKind kKind>
[[gnu::always_inline]] inline void AddWord(ByteSum<kKind>& sum, const __m512i* word, __m512i a) {
  Unroll<kKind.planes>([&](auto plane) __attribute__((always_inline)) {
    __m512i& pairs = sum.pairs[plane];
    const __m512i products = _mm512_maddubs_epi16(word[plane], a);
    pairs = kWord % kKind.run == 0 ? products : _mm512_add_epi16(pairs, products);
    // Forces the addition here. GCC delays the additions otherwise and spills the products: a
    // quarter slower.
    asm volatile("" : "+v"(pairs));
  });
  if constexpr (kWord % kKind.run == kKind.run - 1) {
    Unroll<kKind.planes>([&](auto plane) __attribute__((always_inline)) {
      constexpr int16_t kFactor = plane == 0 ? 1 : 16;  // of the plane
      const __m512i widened = _mm512_madd_epi16(sum.pairs[plane], _mm512_set1_epi16(kFactor));
      constexpr bool kFirst = kWord < kKind.run && plane == 0;
      sum.total = kFirst ? widened : _mm512_add_epi32(sum.total, widened);
    });
  }
}

// Returns the sum plus *start, or the sum if the kind has no bias.
template <ProductKind kKind>
[[gnu::always_inline]] inline __m512i FinishSum(const ByteSum<kKind>& sum, const int32_t* start) {
  if constexpr (kKind.sums == SumKind::kMinimum) return sum.total;
  return _mm512_add_epi32(sum.total, _mm512_set1_epi32(*start));
}

// Returns the sum of four signed bytes in every 32-bit lane.
inline __m512i SumOfFour(__m512i bytes) {
  return _mm512_madd_epi16(_mm512_maddubs_epi16(_mm512_set1_epi8(1), bytes), _mm512_set1_epi16(1));
}

}  // namespace
}  // namespace baton::avx512
