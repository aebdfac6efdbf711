// The functions of kernels/exact_math.h, as inline code that the host and CUDA kernels share.
//
// Every operation rounds once. So code that is compiled without contraction gives the same bits on
// both. Thread safety: pure functions.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/host_device.h"
#include "kernels/rounded_arithmetic.h"

namespace baton::exact {

// Adding this to x with |x| < 2^51 leaves the nearest integer (ties to even) in the low bits.
constexpr double kRoundMagic = 0x1.8p52;

// ln 2 in two parts. The first part has 33 bits, so its product with any exponent is exact.
constexpr double kLn2High = 0x1.62e42fef00000p-1;
constexpr double kLn2Low = 0x1.473de6af278edp-34;
constexpr double kLog2E = 0x1.71547652b82fep+0;

// π/2 in three parts. The first two have 33 bits, so x − k·part is exact for |k| < 2^31.
constexpr double kHalfPi1 = 0x1.921fb54400000p+0;
constexpr double kHalfPi2 = 0x1.0b4611a600000p-34;
constexpr double kHalfPi3 = 0x1.3198a2e037073p-69;
constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;

constexpr uint64_t kInfinityBits = 0x7ff0000000000000u;

BATON_HOST_DEVICE inline double Nan() { return BitCast<double>(uint64_t{0x7ff8000000000000}); }
BATON_HOST_DEVICE inline double Infinity() { return BitCast<double>(uint64_t{kInfinityBits}); }

BATON_HOST_DEVICE inline double PowerOfTwo(int exponent) {  // exponent in −1022…1023
  return BitCast<double>(static_cast<uint64_t>(exponent + 1023) << 52);
}

struct ReducedAngle {
  double remainder;   // |remainder| <= π/4, slightly more after rounding
  uint64_t quadrant;  // x = quadrant · π/2 + remainder, modulo 4
};

BATON_HOST_DEVICE inline ReducedAngle ReduceAngle(double x) {
  const double shifted = x * kTwoOverPi + kRoundMagic;
  const double k = shifted - kRoundMagic;
  double r = std::fma(-k, kHalfPi1, x);
  r = std::fma(-k, kHalfPi2, r);
  r = std::fma(-k, kHalfPi3, r);
  return {r, BitCast<uint64_t>(shifted) & 3};
}

// Taylor series up to r^17. The first omitted term is below 1e-19.
BATON_HOST_DEVICE inline double SinSeries(double r) {
  const double square = r * r;
  double sum = 1.0;
  for (int n = 16; n >= 2; n -= 2) sum = 1.0 - square / (n * (n + 1)) * sum;
  return r * sum;
}

// Taylor series up to r^18.
BATON_HOST_DEVICE inline double CosSeries(double r) {
  const double square = r * r;
  double sum = 1.0;
  for (int n = 17; n >= 1; n -= 2) sum = 1.0 - square / (n * (n + 1)) * sum;
  return sum;
}

BATON_HOST_DEVICE inline double Quadrant(uint64_t quadrant, double r) {
  const double value = (quadrant & 1) == 0 ? SinSeries(r) : CosSeries(r);
  return (quadrant & 2) == 0 ? value : -value;
}

BATON_HOST_DEVICE inline bool IsAngle(double x) { return x < 0x1p50 && x > -0x1p50; }

BATON_HOST_DEVICE inline double Exp(double x) {
  if (x != x) return Nan();
  if (x > 709.79) return Infinity();
  if (x < -745.2) return 0.0;
  const double shifted = x * kLog2E + kRoundMagic;
  const double k = shifted - kRoundMagic;
  const double r = (x - k * kLn2High) - k * kLn2Low;  // |r| < 0.35
  double sum = 1.0;
  for (int n = 15; n >= 1; --n) sum = 1.0 + r / n * sum;  // Taylor; omitted terms < 1e-20
  const int exponent = static_cast<int>(k);
  const int half = exponent / 2;  // in two steps: 2^1024 and subnormals have no exponent field
  return sum * PowerOfTwo(half) * PowerOfTwo(exponent - half);
}

BATON_HOST_DEVICE inline double Log(double x) {
  if (x != x || x < 0) return Nan();
  if (x == 0) return -Infinity();
  if (BitCast<uint64_t>(x) == kInfinityBits) return x;
  int exponent = 0;
  if (x < 0x1p-1022) {
    x *= 0x1p54;
    exponent = -54;
  }
  const uint64_t bits = BitCast<uint64_t>(x);
  exponent += static_cast<int>(bits >> 52) - 1023;
  double mantissa = BitCast<double>((bits & 0xfffffffffffffu) | 0x3ff0000000000000u);
  if (mantissa > 0x1.6a09e667f3bcdp+0) {  // √2: keeps |s| below 0.172 for every mantissa
    mantissa *= 0.5;
    ++exponent;
  }
  // ln m = 2·atanh(s) with s = (m − 1)/(m + 1) and |s| < 0.172. Omitted terms are below 1e-20.
  const double s = (mantissa - 1.0) / (mantissa + 1.0);
  const double square = s * s;
  double sum = 0.0;
  for (int n = 25; n >= 3; n -= 2) sum = square * (sum + 1.0 / n);
  const double log_mantissa = 2.0 * s + 2.0 * s * sum;
  return exponent * kLn2High + (log_mantissa + exponent * kLn2Low);
}

BATON_HOST_DEVICE inline double Sin(double x) {
  if (!IsAngle(x)) return Nan();
  const ReducedAngle angle = ReduceAngle(x);
  return Quadrant(angle.quadrant, angle.remainder);
}

BATON_HOST_DEVICE inline double Cos(double x) {
  if (!IsAngle(x)) return Nan();
  const ReducedAngle angle = ReduceAngle(x);
  return Quadrant(angle.quadrant + 1, angle.remainder);
}

}  // namespace baton::exact
