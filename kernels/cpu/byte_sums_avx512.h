// Sums of byte products for quantized_matmul_avx512.h, with VNNI. VPDPBUSD multiplies unsigned
// weights with signed activations and adds four products in a 32-bit lane, exactly.
//
// The products, the scaling and the fused additions of a tile share two of the four vector pipes
// (Zen 5), so unpacking in place is cheap. byte_sums_avx512_no_vnni.h defines the same names.
// Everything has internal linkage.
#pragma once

#include <cstdint>

#include "kernels/cpu/matmul_tile.h"
#include "kernels/cpu/vector_math_avx512.h"

namespace baton::avx512 {
namespace {

constexpr ProductKind ProductKindOf(WeightFormat format) { return {SumKindOf(format), 1, 8}; }

// The largest tile of a format.
constexpr int TileRowGroupsOf(WeightFormat) { return 2; }
constexpr int TileTokensOf(WeightFormat format) {
  return SumKindOf(format) == SumKind::kHalves ? 4 : 6;
}
// Returns the most tokens that read the weights in place, a few tokens at a time. For six- and
// eight-bit weights, unpacking a slab costs more than reading the weights again for a few more
// tokens.
constexpr int64_t FewTokensOf(WeightFormat format) {
  return BlockLayoutOf(format).words > 5 ? 24 : 8;
}

// A sum of products in every 32-bit lane: of 32 columns, or of 16 for SumKind::kHalves.
template <ProductKind kKind>
struct ByteSum {
  __m512i total;
};

// Begins a sum at *start, or at 0 if the kind has no bias.
template <ProductKind kKind>
[[gnu::always_inline]] inline void BeginSum(ByteSum<kKind>& sum, const int32_t* start) {
  sum.total = kKind.sums == SumKind::kMinimum ? _mm512_setzero_si512() : _mm512_set1_epi32(*start);
}
// Adds word number kWord of the sum.
template <int kWord, ProductKind kKind>
[[gnu::always_inline]] inline void AddWord(ByteSum<kKind>& sum, const __m512i* word, __m512i a) {
  sum.total = _mm512_dpbusd_epi32(sum.total, *word, a);
}
template <ProductKind kKind>
[[gnu::always_inline]] inline __m512i FinishSum(const ByteSum<kKind>& sum, const int32_t*) {
  return sum.total;
}

// Returns the sum of four signed bytes in every 32-bit lane.
inline __m512i SumOfFour(__m512i bytes) {
  return _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), bytes);
}

}  // namespace
}  // namespace baton::avx512
