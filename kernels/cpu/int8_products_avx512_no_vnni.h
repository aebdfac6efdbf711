// The two integer products of int8 attention (NUMERICS §8) on AVX-512 without VNNI:
// int8_pair_products.h with AVX-512 lanes.
//
// Only int8_attention_lanes.h may use this header. Everything has internal linkage.
#pragma once

#include "kernels/cpu/int16_pairs_avx512.h"
#include "kernels/cpu/vector_math_avx512.h"

namespace baton {
namespace {

// Adds a[2i] b[2i] + a[2i+1] b[2i+1] to lane i of the sum.
inline Lanes AddPairProducts(Lanes sum, Pairs a, Pairs b) {
  return {AddLanes<true>(sum.v, _mm512_castsi512_ps(_mm512_madd_epi16(a.v, b.v)))};
}

// Registers of keys or values that a product takes at once. With three queries, twelve products and
// additions need two words and three operands from memory.
inline constexpr int kInt8Registers = 2;

}  // namespace
}  // namespace baton

// This must come after AddPairProducts.
#include "kernels/cpu/int8_pair_products.h"
