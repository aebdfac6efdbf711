// Plain merging of segments, and the final division (NUMERICS §8).
#include <algorithm>

#include "kernels/cpu/plain_kernels.h"
#include "kernels/cpu/plain_math.h"

namespace baton::plain {

void MergeAttention(AttentionState& running, const AttentionState& next, int64_t head_dim) {
  if (!next.any_visible) return;
  if (!running.any_visible) {
    running.maximum = next.maximum;
    std::copy_n(next.lane_sums, kLanes, running.lane_sums);
    std::copy_n(next.output, head_dim, running.output);
    running.any_visible = true;
    return;
  }
  const float maximum = next.maximum > running.maximum ? next.maximum : running.maximum;
  const float a = Exp(running.maximum - maximum);
  const float b = Exp(next.maximum - maximum);
  const auto add = [=](float* to, const float* from, int64_t count) {
    for (int64_t i = 0; i < count; ++i) to[i] = __builtin_fmaf(from[i], b, to[i] * a);
  };
  add(running.lane_sums, next.lane_sums, kLanes);
  add(running.output, next.output, head_dim);
  running.maximum = maximum;
}

void FinishAttention(const AttentionState& state, int64_t head_dim, float* out) {
  if (!state.any_visible) {
    std::fill_n(out, head_dim, 0.0f);
    return;
  }
  const float sum = Tree16(state.lane_sums);
  for (int64_t d = 0; d < head_dim; ++d) out[d] = state.output[d] / sum;
}

}  // namespace baton::plain
