// Attention of t1 over f16, bf16, int8 and fp8 pools (NUMERICS_T1 §5). This is the definition
// that kernels are compared with. It is not fast.
//
// TensorCoreAttention computes whole tokens. The other functions compute and merge pieces of a
// token, as the thread blocks of a GPU do. `model` is that of the numerics.
//
// Thread safety: pure functions, safe together on disjoint outputs.
#pragma once

#include <cstdint>
#include <limits>

#include "kernels/numerics.h"
#include "kernels/ops.h"
#include "kernels/tensor_core/fused_dot.h"

namespace baton {

// Returns true for the pools that t1 reads with tensor cores. Others are read as in r1.
constexpr bool IsTensorCorePool(KvType type) { return type != KvType::kF32; }

// State of one (token, query head) over some of its slots.
struct TensorCoreState {
  // An integer; −inf: no slot was visible; NaN: the result is NaN.
  float reference = -std::numeric_limits<float>::infinity();
  float sum = 0;
  float output[kMaxHeadDim] = {};  // head_dim values are used

  bool saw_nothing() const { return reference == -std::numeric_limits<float>::infinity(); }
};

// Returns the number of segments of all runs of a token. Segments have numbers from 0 on.
int64_t TensorCoreSegments(const PagedAttentionArgs& args, int64_t token);

// Computes segment `number` of a token for the query heads of one kv head. `states` are
// [query_heads / kv_heads] fresh states.
void ComputeTensorCoreSegment(const PagedAttentionArgs& args, int64_t token, int64_t kv_head,
                              int64_t number, TensorCoreState* states,
                              const DotModel& model = kHopperDot);

// Merges the state of later slots into `running`.
void MergeTensorCoreState(TensorCoreState& running, const TensorCoreState& next, int64_t head_dim);

// Writes the attention output of one (token, query head) to out[head_dim].
void FinishTensorCoreState(const TensorCoreState& state, int64_t head_dim, float* out);

// Computes tokens [token_begin, token_end).
void TensorCoreAttention(const PagedAttentionArgs& args, int64_t token_begin, int64_t token_end,
                         const DotModel& model = kHopperDot);

}  // namespace baton
