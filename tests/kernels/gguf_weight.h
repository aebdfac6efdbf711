// Reads one weight of a matrix in GGUF's row-major blocks. This is the tests' own implementation of
// GGUF's block types, one value at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/half.h"
#include "tests/kernels/random_inputs.h"

namespace baton {

// w = factor · scale · q (+ minimum).
struct GgufWeight {
  float factor = 1;  // for Q4_K and Q5_K it includes the six-bit scale
  int scale = 1;     // Q6_K only
  int q = 1;
  float minimum = 0;
  bool has_minimum = false;
};

inline float GgufF16(const std::byte* at) {
  uint16_t bits;
  std::memcpy(&bits, at, 2);
  return F16ToF32(bits);
}

// Returns the six-bit scale (which = 0) or minimum (1) of group g from the twelve bytes at `p`.
inline int GgufSixBits(const uint8_t* p, int g, int which) {
  if (g < 4) return p[4 * which + g] & 63;
  const int low = which == 0 ? p[8 + g - 4] & 15 : p[8 + g - 4] >> 4;
  return low | (p[4 * which + g - 4] >> 6) << 4;
}

inline GgufWeight ReadGgufWeight(WeightFormat format, int64_t cols,
                                 const std::vector<std::byte>& source, int64_t row, int64_t col) {
  const int64_t block_columns = BlockColumns(format);
  const std::byte* block = source.data() + (row * cols + col) / block_columns *
                                               static_cast<int64_t>(GgufBlockOf(format).bytes);
  const auto* b = reinterpret_cast<const uint8_t*>(block);
  const int i = static_cast<int>(col % block_columns);
  const auto nibble = [&](int at) { return i < 16 ? b[at + i] & 15 : b[at + i - 16] >> 4; };
  const auto fifth = [&](int at) { return (b[at + i / 8] >> i % 8 & 1) * 16; };
  const int g = i / 32;  // group in a K block
  const auto k_nibble = [&](int at) { return b[at + g / 2 * 32 + i % 32] >> g % 2 * 4 & 15; };
  GgufWeight w;
  switch (format) {
    case WeightFormat::kF32:
      std::memcpy(&w.factor, block, 4);
      return w;
    case WeightFormat::kF16:
      w.factor = GgufF16(block);
      return w;
    case WeightFormat::kBF16: {
      uint16_t bits;
      std::memcpy(&bits, block, 2);
      w.factor = BF16ToF32(bits);
      return w;
    }
    case WeightFormat::kQ8_0:
      return {.factor = GgufF16(block), .q = static_cast<int8_t>(b[2 + i])};
    case WeightFormat::kQ4_0:
      return {.factor = GgufF16(block), .q = nibble(2) - 8};
    case WeightFormat::kQ4_1:
      return {GgufF16(block), 1, nibble(4), GgufF16(block + 2), true};
    case WeightFormat::kQ5_0:
      return {.factor = GgufF16(block), .q = nibble(6) + fifth(2) - 16};
    case WeightFormat::kQ5_1:
      return {GgufF16(block), 1, nibble(8) + fifth(4), GgufF16(block + 2), true};
    case WeightFormat::kQ4_K:
    case WeightFormat::kQ5_K: {
      w.factor = GgufF16(block) * static_cast<float>(GgufSixBits(b + 4, g, 0));
      w.minimum = -(GgufF16(block + 2) * static_cast<float>(GgufSixBits(b + 4, g, 1)));
      w.has_minimum = true;
      w.q = format == WeightFormat::kQ4_K ? k_nibble(16)
                                          : k_nibble(48) + (b[16 + i % 32] >> g & 1) * 16;
      return w;
    }
    case WeightFormat::kQ6_K: {
      const int half = i / 128;
      const int quarter = i % 128 / 32;
      const int low = b[half * 64 + i % 64] >> quarter / 2 * 4 & 15;
      const int high = b[128 + half * 32 + i % 32] >> quarter * 2 & 3;
      return {.factor = GgufF16(block + 208),
              .scale = static_cast<int8_t>(b[192 + i / 16]),
              .q = (low | high << 4) - 32};
    }
  }
  return w;
}

}  // namespace baton
