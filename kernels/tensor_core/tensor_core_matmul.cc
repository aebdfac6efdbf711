#include "kernels/tensor_core/tensor_core_matmul.h"

#include <cstring>
#include <vector>

#include "kernels/cpu/packed_weights.h"
#include "kernels/tensor_core/half_operands.h"

namespace baton {

void TensorCoreMatMul(const MatMulArgs& args, int64_t row_begin, int64_t row_end,
                      int64_t token_begin, int64_t token_end, const DotModel& model) {
  const PackedMatrix& weight = args.weight;
  const HalfType type = weight.format == WeightFormat::kBF16 ? HalfType::kBF16 : HalfType::kF16;
  const int64_t cols = weight.cols;
  const int64_t tokens = token_end - token_begin;
  std::vector<uint16_t> x(static_cast<size_t>(tokens * cols));  // [tokens, cols]
  for (int64_t i = 0; i < tokens * cols; ++i) {
    x[i] = RoundToHalf(type, args.x.f32[token_begin * cols + i]);
  }
  std::vector<uint16_t> row_weights(static_cast<size_t>(cols));
  for (int64_t row = row_begin; row < row_end; ++row) {
    const std::byte* group =
        weight.data + row / kRowGroup * RowGroupBytes(weight.format, cols) + row % kRowGroup * 2;
    for (int64_t k = 0; k < cols; ++k) {
      std::memcpy(&row_weights[k], group + k * kRowGroup * 2, sizeof(uint16_t));
    }
    for (int64_t t = 0; t < tokens; ++t) {
      const float sum = FusedDot(model, type, row_weights.data(), x.data() + t * cols, cols, 0.0f);
      float& out = args.out[(token_begin + t) * args.out_stride + row];
      out = args.accumulate ? out + sum : sum;
    }
  }
}

}  // namespace baton
