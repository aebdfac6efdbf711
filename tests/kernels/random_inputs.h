// Random operands for kernel tests, replayable from a seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/packed_weights.h"
#include "kernels/half.h"
#include "kernels/ops.h"

namespace baton {

inline std::vector<float> RandomFloats(std::mt19937_64& random, size_t count, float spread = 1) {
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// A row-major matrix as GGUF stores it, with finite scales of mixed sign and size.
inline std::vector<std::byte> RandomGgufMatrix(std::mt19937_64& random, WeightFormat format,
                                               int64_t rows, int64_t cols) {
  std::vector<std::byte> bytes(RowGroupBytes(format, cols) / kRowGroup * rows);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() & 0xff);
  std::normal_distribution<float> normal(0, 0.05f);
  const auto put_f16 = [&](size_t at) {
    const uint16_t h = F32ToF16(normal(random));
    std::memcpy(bytes.data() + at, &h, 2);
  };
  const size_t size = bytes.size();
  switch (format) {
    case WeightFormat::kF32:
      for (size_t at = 0; at < size; at += 4) {
        const float value = normal(random);
        std::memcpy(bytes.data() + at, &value, 4);
      }
      break;
    case WeightFormat::kF16:
      for (size_t at = 0; at < size; at += 2) put_f16(at);
      break;
    case WeightFormat::kBF16:
      for (size_t at = 0; at < size; at += 2) {
        const uint16_t b = F32ToBF16(normal(random));
        std::memcpy(bytes.data() + at, &b, 2);
      }
      break;
    case WeightFormat::kQ8_0:
      for (size_t at = 0; at < size; at += 34) put_f16(at);
      break;
    case WeightFormat::kQ4_0:
      for (size_t at = 0; at < size; at += 18) put_f16(at);
      break;
    case WeightFormat::kQ4_1:
      for (size_t at = 0; at < size; at += 20) {
        put_f16(at);
        put_f16(at + 2);
      }
      break;
  }
  return bytes;
}

inline constexpr WeightFormat kAllWeightFormats[] = {WeightFormat::kF32,  WeightFormat::kF16,
                                                     WeightFormat::kBF16, WeightFormat::kQ8_0,
                                                     WeightFormat::kQ4_0, WeightFormat::kQ4_1};

// Activations that own their memory; every form is filled by the caller's kernel or by hand.
struct OwnedActivations {
  OwnedActivations(int64_t tokens, int64_t cols)
      : f32(tokens * cols),
        q8(tokens * cols),
        scale(tokens * (cols / 32)),
        scaled_sum(tokens * (cols / 32)) {}
  Activations view() { return {f32.data(), q8.data(), scale.data(), scaled_sum.data()}; }
  bool operator==(const OwnedActivations&) const = default;

  std::vector<float> f32;
  std::vector<int8_t> q8;
  std::vector<float> scale;
  std::vector<float> scaled_sum;
};

}  // namespace baton
