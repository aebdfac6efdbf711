// Bit model of a tensor core's dot product: bf16 or f16 operands, f32 accumulator.
//
// One step adds `DotModel::step` products to an accumulator c:
//  1. Products are exact. The exponent of a product is the sum of its operands' exponents, without
//     normalisation. A subnormal number has the least exponent of its type. Zeros take no part.
//  2. Let e be the largest exponent of all products and c. Every term is cut off, towards zero, to
//     a multiple of 2^(e − fraction_bits).
//  3. The terms are summed exactly. So their order does not matter.
//  4. The sum is cut off, towards zero, to f32. Subnormal results are kept, a zero result is +0,
//     and a result of 2^128 or more is an infinity.
//  5. A NaN operand, infinity times zero, and infinities of both signs give the NaN 0x7fffffff.
//     Otherwise an infinite operand gives an infinity.
//
// Longer dot products are a chain of steps, with k rising. Each step starts from the result of the
// step before.
//
// Source: arXiv 2511.10909 and arXiv 2512.07004, which compared their models with GPUs. No GPU has
// confirmed this code yet. Least certain: results below 2^-101, where the papers' models differ in
// the exponent that a zero takes part with, and the sign of zero results.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>

#include "kernels/numerics.h"

namespace baton {

// Type of both operands. A tensor core does not mix the two.
enum class HalfType : uint8_t { kBF16, kF16 };

struct DotModel {
  int fraction_bits;
  int step;  // products in one sum: 8 or 16

  bool operator==(const DotModel&) const = default;
};
// mma.sync m16n8k16 and wgmma k16 of compute capability 9.0.
inline constexpr DotModel kHopperDot{.fraction_bits = 25, .step = 16};
// mma.sync m16n8k16 of compute capability 8.0: two sums of eight, one after the other.
inline constexpr DotModel kAmpereDot{.fraction_bits = 24, .step = 8};
// Returns the model of the tensor cores that `numerics` describe. REQUIRES: IsT1(numerics).
constexpr const DotModel& DotModelOf(Numerics numerics) {
  return numerics == Numerics::kT1Sm80 ? kAmpereDot : kHopperDot;
}

// Returns c + Σ a[i]·b[i] for i < count. The last step is filled up with zeros, which changes no
// bit. Uses AVX2 for the two models above where the processor has it; the bits are the same.
float FusedDot(const DotModel& model, HalfType type, const uint16_t* a, const uint16_t* b,
               int64_t count, float c);

// The same, in plain C++ on every processor. This is the definition.
float PlainFusedDot(const DotModel& model, HalfType type, const uint16_t* a, const uint16_t* b,
                    int64_t count, float c);

}  // namespace baton
