// e4m3 by its definition, for tests: a table of all numbers, and rounding by search (NUMERICS §7).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace baton {

// Returns the number that a byte stands for.
inline double NaiveFp8Value(uint8_t byte) {
  const int exponent = (byte >> 3) & 15;
  const int mantissa = byte & 7;
  const double sign = (byte & 0x80) != 0 ? -1.0 : 1.0;
  if (exponent == 0) return sign * std::ldexp(mantissa, -9);
  return sign * std::ldexp(8 + mantissa, exponent - 10);
}

// Returns the byte of magnitude up to 448 that is nearest to `value`; of two, the even one.
inline uint8_t NaiveFp8(float value) {
  const double magnitude = std::fabs(double{value});
  int nearest = 0;
  for (int byte = 1; byte <= 0x7e; ++byte) {
    const double old = std::fabs(magnitude - NaiveFp8Value(static_cast<uint8_t>(nearest)));
    const double now = std::fabs(magnitude - NaiveFp8Value(static_cast<uint8_t>(byte)));
    if (now < old || (now == old && byte % 2 == 0)) nearest = byte;
  }
  return static_cast<uint8_t>(nearest | (std::signbit(value) ? 0x80 : 0));
}

// Stores a row as fp8: sets `bytes` and returns the scale.
inline float NaiveFp8Row(const float* x, int64_t count, uint8_t* bytes) {
  float amax = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(x[i])) {
      std::fill_n(bytes, count, uint8_t{0});
      return std::numeric_limits<float>::quiet_NaN();
    }
    amax = std::max(amax, std::fabs(x[i]));
  }
  const float most = std::numeric_limits<float>::max();
  const float inverse = amax > 0 ? std::min(448.0f / amax, most) : 0.0f;
  for (int64_t i = 0; i < count; ++i) bytes[i] = NaiveFp8(x[i] * inverse);
  return amax / 448.0f;
}

}  // namespace baton
