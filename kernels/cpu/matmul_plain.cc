// Plain matrix products (NUMERICS §4), one group of 16 rows and a few tokens at a time.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cpu/packed_weights.h"
#include "kernels/cpu/plain_kernels.h"
#include "kernels/half.h"

namespace baton::plain {
namespace {

constexpr int64_t kTokens = 8;  // tokens that share one reading of the weights

// Returns Σ scale·q·a over the 32 columns of a group. The sum is exact.
float ScaledSum(const RowWeights& row, const int8_t* a) {
  int32_t isum[2] = {0, 0};
  for (int c = 0; c < kQuantGroup; ++c) isum[c / 16] += row.q[c] * a[c];
  if (!row.has_half_scales) return static_cast<float>(isum[0] + isum[1]);
  return std::fma(row.half_scales[1], static_cast<float>(isum[1]),
                  row.half_scales[0] * static_cast<float>(isum[0]));
}

void QuantizedGroup(const MatMulArgs& args, const std::byte* group, int64_t token, int64_t tokens,
                    float acc[][kRowGroup]) {
  const WeightFormat format = args.weight.format;
  const int64_t groups = args.weight.cols / kQuantGroup;
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t lane = 0; lane < kRowGroup; ++lane) {
      const RowWeights row = ReadRowWeights(format, group, g, lane);
      for (int64_t t = 0; t < tokens; ++t) {
        const int64_t at = (token + t) * groups + g;
        const float product = row.factor * args.x.scale[at];
        float& sum = acc[t][lane];
        sum = std::fma(product, ScaledSum(row, args.x.q8 + at * kQuantGroup), sum);
        if (HasMinimum(format)) sum = std::fma(row.minimum, args.x.scaled_sum[at], sum);
      }
    }
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
  const int64_t group_bytes = RowGroupBytes(weight.format, weight.cols);
  for (int64_t first = row_begin; first < row_end; first += kRowGroup) {
    const std::byte* group = weight.data + first / kRowGroup * group_bytes;
    const int64_t rows = std::min(kRowGroup, row_end - first);
    for (int64_t token = token_begin; token < token_end; token += kTokens) {
      const int64_t tokens = std::min(kTokens, token_end - token);
      float acc[kTokens][kRowGroup] = {};
      if (IsQuantized(weight.format)) {
        QuantizedGroup(args, group, token, tokens, acc);
      } else {
        for (int64_t t = 0; t < tokens; ++t) {
          FloatGroup(weight, group, args.x.f32 + (token + t) * weight.cols, acc[t]);
        }
      }
      for (int64_t t = 0; t < tokens; ++t) {
        float* out = args.out + (token + t) * args.out_stride + first;
        for (int64_t row = 0; row < rows; ++row) {
          out[row] = args.accumulate ? out[row] + acc[t][row] : acc[t][row];
        }
      }
    }
  }
}

}  // namespace baton::plain
