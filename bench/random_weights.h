// Random weights in GGUF's row-major layout, for benchmarks: the decoded values have mean 0 and a
// standard deviation of about kWeightDeviation, as those of trained models do. Zeros or small
// positive numbers would let a GPU run at higher clocks than real weights do.
//
// Thread safety: pure functions; a generator belongs to its caller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "common/check.h"
#include "kernels/half.h"
#include "kernels/weight_format.h"

namespace baton {

inline constexpr float kWeightDeviation = 0.02f;

// Returns `rows` rows of `cols` weights. REQUIRES: F32, F16, BF16, Q8_0, Q4_0 or Q4_K.
inline std::vector<std::byte> RandomWeights(WeightFormat format, int64_t rows, int64_t cols,
                                            std::mt19937_64& random) {
  std::normal_distribution<float> normal(0, kWeightDeviation);
  const int64_t count = rows * cols;
  std::vector<std::byte> bytes;
  if (format == WeightFormat::kF32) {
    bytes.resize(count * 4);
    for (int64_t i = 0; i < count; ++i) {
      const float value = normal(random);
      std::memcpy(&bytes[i * 4], &value, 4);
    }
    return bytes;
  }
  if (format == WeightFormat::kF16 || format == WeightFormat::kBF16) {
    bytes.resize(count * 2);
    for (int64_t i = 0; i < count; ++i) {
      const float value = normal(random);
      const uint16_t half = format == WeightFormat::kF16 ? F32ToF16(value) : F32ToBF16(value);
      std::memcpy(&bytes[i * 2], &half, 2);
    }
    return bytes;
  }
  // Blocks of random bytes, with scales for the wanted deviation.
  struct Block {
    int64_t columns, bytes;
    float scale, offset;  // as f16 at the start; an offset of 0 has no place
  };
  const Block block = [format]() -> Block {
    switch (format) {
      case WeightFormat::kQ8_0:  // q is uniform in -128…127
        return {32, 34, kWeightDeviation / 73.9f, 0};
      case WeightFormat::kQ4_0:  // q - 8 is uniform in -8…7
        return {32, 18, kWeightDeviation / 4.6f, 0};
      default:  // scales and offsets of groups are uniform in 0…63; q in 0…15 has the mean 7.5
        CHECK(format == WeightFormat::kQ4_K) << "no random weights of this format";
        return {256, 144, kWeightDeviation / 250, kWeightDeviation / 250 * 7.5f};
    }
  }();
  bytes.resize(count / block.columns * block.bytes);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  for (size_t at = 0; at < bytes.size(); at += block.bytes) {
    const uint16_t scale = F32ToF16(block.scale);
    const uint16_t offset = F32ToF16(block.offset);
    std::memcpy(&bytes[at], &scale, 2);
    if (block.offset != 0) std::memcpy(&bytes[at + 2], &offset, 2);
  }
  return bytes;
}

}  // namespace baton
