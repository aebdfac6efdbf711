// Elementary functions of NUMERICS §1–§3, shared by the plain CPU kernels and the CUDA kernels.
//
// Both give the same bits for every input that is not a NaN. rounded_arithmetic.h says what differs
// for a NaN.
//
// Thread safety: pure functions. std::fma rounds once even on a processor without fma.
#pragma once

#include <cstdint>

#include "kernels/host_device.h"
#include "kernels/rounded_arithmetic.h"

namespace baton::r1 {

struct Rounded {
  uint32_t integer;  // two's complement
  float value;
};

// Rounds to nearest even for |x| < 2^22. For any other x the result is defined, and equal on every
// instruction set of a CPU.
BATON_HOST_DEVICE inline Rounded RoundInt(float x) {
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23
  const float t = Add(x, kMagic);
  return {BitCast<uint32_t>(t) - BitCast<uint32_t>(kMagic), Subtract(t, kMagic)};
}

// e^x with an error below 1.5 ulp (Cephes expf coefficients). Gives +0 below -87.33… and at most
// 2.4e38.
BATON_HOST_DEVICE inline float Exp(float x) {
  constexpr float kHighest = 88.3762626647949f;
  constexpr float kLowest = -87.3365478515625f;
  if (x != x) return BitCast<float>(BitCast<uint32_t>(x) | 0x400000u);
  if (x < kLowest) return 0.0f;
  if (x > kHighest) x = kHighest;
  const Rounded n = RoundInt(Multiply(x, 1.44269504088896341f));
  float r = Fma(n.value, -0.693359375f, x);
  r = Fma(n.value, 2.12194440e-4f, r);
  float p = 1.9875691500e-4f;
  p = Fma(p, r, 1.3981999507e-3f);
  p = Fma(p, r, 8.3334519073e-3f);
  p = Fma(p, r, 4.1665795894e-2f);
  p = Fma(p, r, 1.6666665459e-1f);
  p = Fma(p, r, 5.0000001201e-1f);
  p = Add(Fma(p, Multiply(r, r), r), 1.0f);
  return BitCast<float>(BitCast<uint32_t>(p) + (n.integer << 23));
}

BATON_HOST_DEVICE inline float Silu(float x) { return Divide(x, Add(1.0f, Exp(-x))); }

// Magnitude of x, as a bit pattern that compares like the value. 0 for a NaN, which a largest
// magnitude ignores (NUMERICS §3).
BATON_HOST_DEVICE inline uint32_t MagnitudeBits(float x) {
  const uint32_t bits = BitCast<uint32_t>(x) & 0x7fffffffu;
  return bits > 0x7f800000u ? 0u : bits;
}

// Low byte of the integer that stands for x, if `inverse` is 127 / amax (NUMERICS §3). Equals the
// CPU's byte also for a NaN:
// - A NaN that a device operation made has the bits 0x7fffffff. The CPU's has a payload of zeros.
// - A NaN with another payload came from memory, and the CPU keeps its low byte.
// - infinity · 0 makes a NaN on the CPU, with a payload of zeros.
BATON_HOST_DEVICE inline int8_t QuantizedByte(float x, float inverse) {
  const float product = Multiply(x, inverse);
  uint32_t integer = RoundInt(product).integer;
  if (product != product) {
    const uint32_t bits = BitCast<uint32_t>(x);
    integer = x == x || bits == 0x7fffffffu ? 0 : bits;
  }
  return static_cast<int8_t>(integer & 0xffu);
}

}  // namespace baton::r1
