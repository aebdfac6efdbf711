// Random operands for kernel tests. The same seed gives the same operands.
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

// Positions of the f16 values in a GGUF block.
struct GgufBlock {
  size_t bytes;
  size_t headers_at;
  size_t headers;
};
inline GgufBlock GgufBlockOf(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
      return {4, 0, 0};
    case WeightFormat::kF16:
      return {2, 0, 1};
    case WeightFormat::kBF16:
      return {2, 0, 0};
    case WeightFormat::kQ8_0:
      return {34, 0, 1};
    case WeightFormat::kQ4_0:
      return {18, 0, 1};
    case WeightFormat::kQ4_1:
      return {20, 0, 2};
    case WeightFormat::kQ5_0:
      return {22, 0, 1};
    case WeightFormat::kQ5_1:
      return {24, 0, 2};
    case WeightFormat::kQ4_K:
      return {144, 0, 2};
    case WeightFormat::kQ5_K:
      return {176, 0, 2};
    case WeightFormat::kQ6_K:
      return {210, 208, 1};
  }
  return {};
}

// Returns a row-major matrix in GGUF's format, with finite scales of mixed sign and size.
inline std::vector<std::byte> RandomGgufMatrix(std::mt19937_64& random, WeightFormat format,
                                               int64_t rows, int64_t cols) {
  std::vector<std::byte> bytes(RowGroupBytes(format, cols) / kRowGroup * rows);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() & 0xff);
  std::normal_distribution<float> normal(0, 0.05f);
  const auto put_f16 = [&](size_t at) {
    const uint16_t h = F32ToF16(normal(random));
    std::memcpy(bytes.data() + at, &h, 2);
  };
  if (format == WeightFormat::kF32) {
    for (size_t at = 0; at < bytes.size(); at += 4) {
      const float value = normal(random);
      std::memcpy(bytes.data() + at, &value, 4);
    }
    return bytes;
  }
  const GgufBlock block = GgufBlockOf(format);
  for (size_t at = 0; at < bytes.size(); at += block.bytes) {
    if (format == WeightFormat::kBF16) {
      const uint16_t b = F32ToBF16(normal(random));
      std::memcpy(bytes.data() + at, &b, 2);
    } else {
      for (size_t h = 0; h < block.headers; ++h) put_f16(at + block.headers_at + 2 * h);
    }
  }
  return bytes;
}

inline constexpr WeightFormat kFloatFormats[] = {WeightFormat::kF32, WeightFormat::kF16,
                                                 WeightFormat::kBF16};
inline constexpr WeightFormat kQuantizedFormats[] = {
    WeightFormat::kQ8_0, WeightFormat::kQ4_0, WeightFormat::kQ4_1, WeightFormat::kQ5_0,
    WeightFormat::kQ5_1, WeightFormat::kQ4_K, WeightFormat::kQ5_K, WeightFormat::kQ6_K};
inline constexpr WeightFormat kAllWeightFormats[] = {
    WeightFormat::kF32,  WeightFormat::kF16,  WeightFormat::kBF16, WeightFormat::kQ8_0,
    WeightFormat::kQ4_0, WeightFormat::kQ4_1, WeightFormat::kQ5_0, WeightFormat::kQ5_1,
    WeightFormat::kQ4_K, WeightFormat::kQ5_K, WeightFormat::kQ6_K};

// Returns a row length of whole blocks: `cols` rounded up.
inline int64_t WholeBlocks(WeightFormat format, int64_t cols) {
  const int64_t block = BlockColumns(format);
  return (cols + block - 1) / block * block;
}

// Activations that own their memory. The caller fills every form.
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
