// Attention over float pools on AVX-512, and merging of segments: instantiates attention_lanes.h
// with AVX-512 lanes. VNNI would not help, so this file serves both AVX-512 sets.
#include "kernels/cpu/vector_kernels.h"
#include "kernels/cpu/vector_math_avx512.h"
// These must come after the headers that define Lanes.
#include "kernels/cpu/attention_lanes.h"
#include "kernels/cpu/attention_merge_lanes.h"

namespace baton::avx512_no_vnni {

void FloatAttentionSegment(const PagedAttentionArgs& args, const AttentionUnit& unit,
                           AttentionState* states) {
  SegmentOverLanes(args, unit, states);
}

void MergeAttention(AttentionState& running, const AttentionState& next, int64_t head_dim) {
  MergeOverLanes(running, next, head_dim);
}

void FinishAttention(const AttentionState& state, int64_t head_dim, float* out) {
  FinishOverLanes(state, head_dim, out);
}

}  // namespace baton::avx512_no_vnni
