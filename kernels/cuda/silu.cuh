// Silu of NUMERICS §2 without branches. It is for kernels whose threads compute many columns, so
// that the instructions for different columns can overlap.
//
// The bits are those of r1::Silu. Its branches are replaced as follows:
// - The clamps of Exp are selections.
// - The quotient x / d is computed by Newton's method for 1 / d, then two corrections of x / d by
// its
//   exact remainder (P. Markstein, "Computation of elementary functions on the IBM RISC System/6000
//   processor", 1990). This needs a quotient and a remainder without underflow. So d > 2^64 is
//   scaled. For |x| < 2^-60, d is 2, so x / 2 is exact, or the instruction itself rounds it.
//
// Thread safety: pure functions.
#pragma once

#include "kernels/cuda/ptx.cuh"
#include "kernels/elementary.h"

namespace baton {

// r1::Exp(x) for an x that is not a NaN. Otherwise the result is undefined.
__device__ __forceinline__ float ExpWithoutBranches(float x) {
  constexpr float kHighest = 88.3762626647949f;
  constexpr float kLowest = -87.3365478515625f;
  const float y = x > kHighest ? kHighest : x;
  const r1::Rounded n = r1::RoundInt(r1::Multiply(y, 1.44269504088896341f));
  float r = r1::Fma(n.value, -0.693359375f, y);
  r = r1::Fma(n.value, 2.12194440e-4f, r);
  float p = 1.9875691500e-4f;
  p = r1::Fma(p, r, 1.3981999507e-3f);
  p = r1::Fma(p, r, 8.3334519073e-3f);
  p = r1::Fma(p, r, 4.1665795894e-2f);
  p = r1::Fma(p, r, 1.6666665459e-1f);
  p = r1::Fma(p, r, 5.0000001201e-1f);
  p = r1::Add(r1::Fma(p, r1::Multiply(r, r), r), 1.0f);
  const float e = __uint_as_float(__float_as_uint(p) + (n.integer << 23));
  return x < kLowest ? 0.0f : e;
}

__device__ __forceinline__ float SiluWithoutBranches(float x) {
  const float denominator = r1::Add(1.0f, ExpWithoutBranches(-x));
  const float scale = denominator > 0x1p64f ? 0x1p-64f : 1.0f;
  const float d = r1::Multiply(denominator, scale);  // exact
  float inverse = ApproximateReciprocal(d);
  inverse = r1::Fma(r1::Fma(-d, inverse, 1.0f), inverse, inverse);
  float q = r1::Multiply(x, inverse);
  q = r1::Fma(r1::Fma(-d, q, x), inverse, q);
  q = r1::Fma(r1::Fma(-d, q, x), inverse, q);
  q = r1::Multiply(q, scale);  // exact
  const float magnitude = fabsf(x);
  q = magnitude < 0x1p-60f ? r1::Multiply(x, 0.5f) : q;
  q = magnitude < __uint_as_float(0x7f800000u) ? q : x;  // infinities stay
  return x == x ? q : r1::Add(x, x);
}

}  // namespace baton
