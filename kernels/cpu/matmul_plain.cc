// NUMERICS §4, one group of 16 rows and one token at a time.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cpu/packed_weights.h"
#include "kernels/cpu/plain_kernels.h"
#include "kernels/half.h"

namespace baton::plain {
namespace {

float F16At(const std::byte* bytes, int64_t index) {
  uint16_t bits;
  std::memcpy(&bits, bytes + 2 * index, sizeof(bits));
  return F16ToF32(bits);
}

// isum[row] = Σ q·a over 32 columns of int8 weights.
void SumInt8(const std::byte* words, const int8_t* a, int32_t isum[kRowGroup]) {
  std::fill_n(isum, kRowGroup, 0);
  const auto* q = reinterpret_cast<const int8_t*>(words);
  for (int j = 0; j < 8; ++j) {
    for (int row = 0; row < kRowGroup; ++row) {
      for (int i = 0; i < 4; ++i) isum[row] += q[(j * kRowGroup + row) * 4 + i] * a[4 * j + i];
    }
  }
}

// isum[row] = Σ (q − bias)·a over 32 columns of 4-bit weights.
void SumNibbles(const std::byte* words, const int8_t* a, int bias, int32_t isum[kRowGroup]) {
  std::fill_n(isum, kRowGroup, 0);
  const auto* q = reinterpret_cast<const uint8_t*>(words);
  for (int j = 0; j < 4; ++j) {
    for (int row = 0; row < kRowGroup; ++row) {
      for (int i = 0; i < 4; ++i) {
        const int byte = q[(j * kRowGroup + row) * 4 + i];
        isum[row] += ((byte & 15) - bias) * a[4 * j + i];
        isum[row] += ((byte >> 4) - bias) * a[16 + 4 * j + i];
      }
    }
  }
}

void QuantizedGroup(const PackedMatrix& weight, const std::byte* group, const int8_t* a,
                    const float* scale, const float* scaled_sum, float acc[kRowGroup]) {
  const bool has_minimum = weight.format == WeightFormat::kQ4_1;
  const int64_t headers = has_minimum ? 2 : 1;
  const int64_t block_bytes = RowGroupBytes(weight.format, kQuantGroup);
  for (int64_t g = 0; g < weight.cols / kQuantGroup; ++g) {
    const std::byte* words = group + 2 * kRowGroup * headers;
    int32_t isum[kRowGroup];
    if (weight.format == WeightFormat::kQ8_0) {
      SumInt8(words, a + g * kQuantGroup, isum);
    } else {
      SumNibbles(words, a + g * kQuantGroup, has_minimum ? 0 : 8, isum);
    }
    for (int row = 0; row < kRowGroup; ++row) {
      const float product = F16At(group, row) * scale[g];
      acc[row] = std::fma(product, static_cast<float>(isum[row]), acc[row]);
      if (has_minimum) {
        acc[row] = std::fma(F16At(group, kRowGroup + row), scaled_sum[g], acc[row]);
      }
    }
    group += block_bytes;
  }
}

float WeightAt(WeightFormat format, const std::byte* group, int64_t index) {
  if (format == WeightFormat::kF32) {
    float value;
    std::memcpy(&value, group + 4 * index, sizeof(value));
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, group + 2 * index, sizeof(bits));
  return format == WeightFormat::kF16 ? F16ToF32(bits) : BF16ToF32(bits);
}

void FloatGroup(const PackedMatrix& weight, const std::byte* group, const float* x,
                float acc[kRowGroup]) {
  for (int64_t k = 0; k < weight.cols; ++k) {
    for (int row = 0; row < kRowGroup; ++row) {
      acc[row] = std::fma(WeightAt(weight.format, group, k * kRowGroup + row), x[k], acc[row]);
    }
  }
}

}  // namespace

void MatMul(const MatMulArgs& args, int64_t row_begin, int64_t row_end, int64_t token_begin,
            int64_t token_end) {
  const PackedMatrix& weight = args.weight;
  const int64_t cols = weight.cols;
  const int64_t groups = cols / kQuantGroup;
  const int64_t group_bytes = RowGroupBytes(weight.format, cols);
  for (int64_t first = row_begin; first < row_end; first += kRowGroup) {
    const std::byte* group = weight.data + first / kRowGroup * group_bytes;
    const int64_t rows = std::min(kRowGroup, row_end - first);
    for (int64_t token = token_begin; token < token_end; ++token) {
      float acc[kRowGroup] = {};
      if (IsQuantized(weight.format)) {
        QuantizedGroup(weight, group, args.x.q8 + token * cols, args.x.scale + token * groups,
                       args.x.scaled_sum + token * groups, acc);
      } else {
        FloatGroup(weight, group, args.x.f32 + token * cols, acc);
      }
      float* out = args.out + token * args.out_stride + first;
      for (int64_t row = 0; row < rows; ++row) {
        out[row] = args.accumulate ? out[row] + acc[row] : acc[row];
      }
    }
  }
}

}  // namespace baton::plain
