// Scalar implementation of NUMERICS §1–§3. The plain kernels, the attention merge and the tests of
// the fast kernels use it. CUDA kernels share kernels/elementary.h.
//
// Thread safety: pure functions, safe from any thread. std::fma rounds once even on a processor
// without fma.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/elementary.h"
#include "kernels/numerics.h"

namespace baton::plain {

using r1::Exp;
using r1::Rounded;
using r1::RoundInt;
using r1::Silu;

inline float Tree16(const float lanes[kLanes]) {
  float p[8];
  for (int i = 0; i < 8; ++i) p[i] = lanes[i] + lanes[i + 8];
  for (int i = 0; i < 4; ++i) p[i] += p[i + 4];
  for (int i = 0; i < 2; ++i) p[i] += p[i + 2];
  return p[0] + p[1];
}

inline float Dot16(const float* a, const float* b, int64_t n) {
  float lanes[kLanes] = {};
  for (int64_t i = 0; i < n; ++i) lanes[i % kLanes] = std::fma(a[i], b[i], lanes[i % kLanes]);
  return Tree16(lanes);
}

// Converts one group of kQuantGroup activations to int8 (NUMERICS §3).
inline void QuantizeGroup(const float* x, int8_t* q, float* scale, float* scaled_sum) {
  float amax = 0;
  for (int i = 0; i < kQuantGroup; ++i) {
    const float magnitude = std::bit_cast<float>(std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu);
    amax = magnitude > amax ? magnitude : amax;
  }
  const float inverse = amax > 0 ? 127.0f / amax : 0.0f;
  int32_t sum = 0;
  for (int i = 0; i < kQuantGroup; ++i) {
    q[i] = static_cast<int8_t>(RoundInt(x[i] * inverse).integer & 0xff);
    sum += q[i];
  }
  *scale = amax / 127.0f;
  *scaled_sum = *scale * static_cast<float>(sum);
}

struct Int16Row {
  int16_t values[kMaxHeadDim];  // the first `count` are set
  float scale;
};

// Rounds a row to integers of magnitude up to `most`. `amax` is the largest magnitude of the row.
inline Int16Row QuantizeBy(const float* x, int64_t count, float amax, float most) {
  const float inverse = amax > 0 ? most / amax : 0.0f;
  Int16Row row;
  for (int64_t i = 0; i < count; ++i) {
    row.values[i] = static_cast<int16_t>(RoundInt(x[i] * inverse).integer & 0xffff);
  }
  row.scale = amax / most;
  return row;
}

// Quantises a row of at most kMaxHeadDim values (NUMERICS §7). `most` is 127 or 32767.
inline Int16Row QuantizeRow(const float* x, int64_t count, float most) {
  float amax = 0;
  for (int64_t i = 0; i < count; ++i) {
    const float magnitude = std::bit_cast<float>(std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu);
    amax = magnitude > amax ? magnitude : amax;
  }
  return QuantizeBy(x, count, amax, most);
}

// Quantises the attention weights of a tile (NUMERICS §8, int8 pools).
inline Int16Row QuantizeWeights(const float* w, int64_t count) {
  float largest = 0;
  for (int64_t i = 0; i < count; ++i) largest = w[i] > largest ? w[i] : largest;
  return QuantizeBy(w, count, largest, 32767.0f);
}

}  // namespace baton::plain
