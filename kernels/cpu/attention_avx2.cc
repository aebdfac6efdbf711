// Attention on AVX2: instantiates attention_lanes.h and int8_attention_lanes.h with AVX2 lanes.
#include "kernels/cpu/int8_products_avx2.h"
#include "kernels/cpu/vector_kernels.h"
#include "kernels/cpu/vector_math_avx2.h"
// These must come after the headers that define Lanes.
#include "kernels/cpu/attention_lanes.h"
#include "kernels/cpu/attention_merge_lanes.h"
#include "kernels/cpu/int8_attention_lanes.h"

namespace baton::avx2 {

void AttentionSegment(const PagedAttentionArgs& args, const AttentionUnit& unit,
                      AttentionState* states) {
  const bool is_int8 = args.kv.type == KvType::kInt8;
  (is_int8 ? Int8SegmentOverLanes : SegmentOverLanes)(args, unit, states);
}

void MergeAttention(AttentionState& running, const AttentionState& next, int64_t head_dim) {
  MergeOverLanes(running, next, head_dim);
}

void FinishAttention(const AttentionState& state, int64_t head_dim, float* out) {
  FinishOverLanes(state, head_dim, out);
}

}  // namespace baton::avx2
