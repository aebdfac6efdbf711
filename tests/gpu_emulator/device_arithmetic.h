// CUDA's arithmetic intrinsics. Part of device_language.h.
//
// Sums, products, fused products, quotients and roots of f32 and f64 give the GPU's NaN. This file
// has only functions for which CUDA defines every bit of the result. So it does not have __expf and
// similar functions.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace baton::gpu_emulator {

inline float WithDeviceNan(float x) { return x == x ? x : std::bit_cast<float>(0x7fffffffu); }
inline double WithDeviceNan(double x) {
  return x == x ? x : std::bit_cast<double>(uint64_t{0x7fffffffffffffff});
}

// Clamps. NaN becomes 0 from f32 to 32 bits, else the bit pattern 1000… (PTX ISA, "cvt").
template <typename Integer, typename Real>
Integer ToInteger(Real rounded) {
  using Limits = std::numeric_limits<Integer>;
  if (rounded != rounded) {
    if (sizeof(Real) == 4 && sizeof(Integer) == 4) return 0;
    return static_cast<Integer>(std::make_unsigned_t<Integer>{1} << (8 * sizeof(Integer) - 1));
  }
  if (rounded <= static_cast<Real>(Limits::min())) return Limits::min();
  // The largest value is one less than a power of two, which Real has exactly.
  if (rounded >= std::ldexp(Real{1}, Limits::digits)) return Limits::max();
  return static_cast<Integer>(rounded);
}

}  // namespace baton::gpu_emulator

// ---- floating point --------------------------------------------------------------------------

inline float __fmaf_rn(float a, float b, float c) {
  return baton::gpu_emulator::WithDeviceNan(__builtin_fmaf(a, b, c));
}
inline float __fadd_rn(float a, float b) { return baton::gpu_emulator::WithDeviceNan(a + b); }
inline float __fsub_rn(float a, float b) { return baton::gpu_emulator::WithDeviceNan(a - b); }
inline float __fmul_rn(float a, float b) { return baton::gpu_emulator::WithDeviceNan(a * b); }
inline float __fdiv_rn(float a, float b) { return baton::gpu_emulator::WithDeviceNan(a / b); }
inline float __frcp_rn(float a) { return baton::gpu_emulator::WithDeviceNan(1.0f / a); }
inline float __fsqrt_rn(float a) { return baton::gpu_emulator::WithDeviceNan(__builtin_sqrtf(a)); }
inline double __fma_rn(double a, double b, double c) {
  return baton::gpu_emulator::WithDeviceNan(__builtin_fma(a, b, c));
}
inline double __dadd_rn(double a, double b) { return baton::gpu_emulator::WithDeviceNan(a + b); }
inline double __dsub_rn(double a, double b) { return baton::gpu_emulator::WithDeviceNan(a - b); }
inline double __dmul_rn(double a, double b) { return baton::gpu_emulator::WithDeviceNan(a * b); }
inline double __ddiv_rn(double a, double b) { return baton::gpu_emulator::WithDeviceNan(a / b); }
inline double __drcp_rn(double a) { return baton::gpu_emulator::WithDeviceNan(1.0 / a); }
inline double __dsqrt_rn(double a) { return baton::gpu_emulator::WithDeviceNan(__builtin_sqrt(a)); }

// ---- conversions -----------------------------------------------------------------------------

inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
inline float __ll2float_rn(long long x) { return static_cast<float>(x); }
inline float __ull2float_rn(unsigned long long x) { return static_cast<float>(x); }
inline double __int2double_rn(int x) { return x; }
inline double __uint2double_rn(unsigned x) { return x; }
inline double __ll2double_rn(long long x) { return static_cast<double>(x); }
inline double __ull2double_rn(unsigned long long x) { return static_cast<double>(x); }
inline float __double2float_rn(double x) { return static_cast<float>(x); }
inline int __float2int_rn(float x) {
  return baton::gpu_emulator::ToInteger<int>(__builtin_rintf(x));
}
inline int __float2int_rz(float x) {
  return baton::gpu_emulator::ToInteger<int>(__builtin_truncf(x));
}
inline int __float2int_rd(float x) {
  return baton::gpu_emulator::ToInteger<int>(__builtin_floorf(x));
}
inline unsigned __float2uint_rn(float x) {
  return baton::gpu_emulator::ToInteger<unsigned>(__builtin_rintf(x));
}
inline unsigned __float2uint_rz(float x) {
  return baton::gpu_emulator::ToInteger<unsigned>(__builtin_truncf(x));
}
inline long long __float2ll_rn(float x) {
  return baton::gpu_emulator::ToInteger<long long>(__builtin_rintf(x));
}
inline int __double2int_rn(double x) {
  return baton::gpu_emulator::ToInteger<int>(__builtin_rint(x));
}
inline int __double2int_rz(double x) {
  return baton::gpu_emulator::ToInteger<int>(__builtin_trunc(x));
}
inline long long __double2ll_rn(double x) {
  return baton::gpu_emulator::ToInteger<long long>(__builtin_rint(x));
}
inline long long __double2ll_rz(double x) {
  return baton::gpu_emulator::ToInteger<long long>(__builtin_trunc(x));
}

// ---- integers --------------------------------------------------------------------------------

inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return std::countl_zero(static_cast<unsigned long long>(x)); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }
inline int __ffsll(long long x) {
  return x == 0 ? 0 : std::countr_zero(static_cast<unsigned long long>(x)) + 1;
}
inline unsigned __brev(unsigned x) {
  unsigned reversed = 0;
  for (int i = 0; i < 32; ++i) reversed |= ((x >> i) & 1) << (31 - i);
  return reversed;
}
inline int __mulhi(int a, int b) { return static_cast<int>((int64_t{a} * b) >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((uint64_t{a} * b) >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<unsigned long long>((Wide{a} * b) >> 64);
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>(((uint64_t{high} << 32 | low) << (shift & 31)) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((uint64_t{high} << 32 | low) >> (shift & 31));
}
// Each of the four nibbles of `selector` picks a byte of {b, a} by its low three bits.
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const uint64_t bytes = uint64_t{b} << 32 | a;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned pick = (selector >> (4 * i)) & 7;
    result |= static_cast<unsigned>((bytes >> (8 * pick)) & 0xff) << (8 * i);
  }
  return result;
}
inline int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 4; ++i) {
    c = static_cast<int>(static_cast<unsigned>(c) +
                         static_cast<unsigned>(int{static_cast<int8_t>(a >> (8 * i))} *
                                               int{static_cast<int8_t>(b >> (8 * i))}));
  }
  return c;
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  for (int i = 0; i < 4; ++i) c += ((a >> (8 * i)) & 0xff) * ((b >> (8 * i)) & 0xff);
  return c;
}
// Four bytes at a time, each modulo 256.
inline unsigned __vadd4(unsigned a, unsigned b) {
  return ((a & 0x7f7f7f7f) + (b & 0x7f7f7f7f)) ^ ((a ^ b) & 0x80808080);
}
inline unsigned __vsub4(unsigned a, unsigned b) {
  return ((a | 0x80808080) - (b & 0x7f7f7f7f)) ^ ((a ^ ~b) & 0x80808080);
}

inline int min(int a, int b) { return b < a ? b : a; }
inline unsigned min(unsigned a, unsigned b) { return b < a ? b : a; }
inline long min(long a, long b) { return b < a ? b : a; }
inline unsigned long min(unsigned long a, unsigned long b) { return b < a ? b : a; }
inline long long min(long long a, long long b) { return b < a ? b : a; }
inline unsigned long long min(unsigned long long a, unsigned long long b) { return b < a ? b : a; }
inline int max(int a, int b) { return a < b ? b : a; }
inline unsigned max(unsigned a, unsigned b) { return a < b ? b : a; }
inline long max(long a, long b) { return a < b ? b : a; }
inline unsigned long max(unsigned long a, unsigned long b) { return a < b ? b : a; }
inline long long max(long long a, long long b) { return a < b ? b : a; }
inline unsigned long long max(unsigned long long a, unsigned long long b) { return a < b ? b : a; }
