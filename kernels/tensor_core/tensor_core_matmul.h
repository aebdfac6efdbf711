// Matrix products of t1: BF16 and F16 weights on a tensor core (NUMERICS_T1 §3). This is the
// definition that kernels are compared with. It is not fast.
//
// Thread safety: a pure function, safe together on disjoint outputs.
#pragma once

#include <cstdint>

#include "kernels/ops.h"
#include "kernels/tensor_core/fused_dot.h"

namespace baton {

// Returns true for the weight formats that TensorCoreMatMul multiplies.
constexpr bool IsTensorCoreFormat(WeightFormat format) {
  return format == WeightFormat::kBF16 || format == WeightFormat::kF16;
}

// Computes rows [row_begin, row_end) for tokens [token_begin, token_end). The weight is packed as
// in cpu/packed_weights.h. `model` is that of the numerics. REQUIRES:
// IsTensorCoreFormat(args.weight.format).
void TensorCoreMatMul(const MatMulArgs& args, int64_t row_begin, int64_t row_end,
                      int64_t token_begin, int64_t token_end, const DotModel& model = kHopperDot);

}  // namespace baton
