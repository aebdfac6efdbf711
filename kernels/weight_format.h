// Number formats of weight matrices. CUDA kernels include this header, so it is C++17 and needs
// nothing outside the standard library.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/host_device.h"

namespace baton {

enum class WeightFormat : uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ4_K,
  kQ5_K,
  kQ6_K
};
std::string_view WeightFormatName(WeightFormat format);
// Quantised formats multiply int8 activations. Float formats multiply f32 activations.
BATON_HOST_DEVICE constexpr bool IsQuantized(WeightFormat format) {
  return format != WeightFormat::kF32 && format != WeightFormat::kF16 &&
         format != WeightFormat::kBF16;
}
// A row length must be a multiple of this.
BATON_HOST_DEVICE constexpr int64_t BlockColumns(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
    case WeightFormat::kF16:
    case WeightFormat::kBF16:
      return 1;
    case WeightFormat::kQ4_K:
    case WeightFormat::kQ5_K:
    case WeightFormat::kQ6_K:
      return 256;
    default:
      return 32;
  }
}

}  // namespace baton
