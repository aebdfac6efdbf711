#include "kernels/cpu/attention_merge.h"

#include <algorithm>

#include "kernels/cpu/plain_math.h"

namespace baton {
namespace {

// a[i] = fma(b[i], scale_b, a[i] · scale_a). The same source twice: where the processor has fma,
// the compiler may use it (std::fma rounds once either way), and the loop becomes vectors.
[[gnu::always_inline]] inline void ScaleAddLoop(float* a, float scale_a, const float* b,
                                                float scale_b, int64_t count) {
  for (int64_t i = 0; i < count; ++i) a[i] = __builtin_fmaf(b[i], scale_b, a[i] * scale_a);
}

void ScaleAddPlain(float* a, float scale_a, const float* b, float scale_b, int64_t count) {
  ScaleAddLoop(a, scale_a, b, scale_b, count);
}

#if defined(__x86_64__)
[[gnu::target("avx2,fma")]] void ScaleAddFma(float* a, float scale_a, const float* b, float scale_b,
                                             int64_t count) {
  ScaleAddLoop(a, scale_a, b, scale_b, count);
}
#endif

void ScaleAdd(float* a, float scale_a, const float* b, float scale_b, int64_t count) {
#if defined(__x86_64__)
  static const bool has_fma = IsSupported(InstructionSet::kAvx2);
  if (has_fma) return ScaleAddFma(a, scale_a, b, scale_b, count);
#endif
  ScaleAddPlain(a, scale_a, b, scale_b, count);
}

}  // namespace

void MergeAttentionState(AttentionState& running, const AttentionState& next, int64_t head_dim) {
  if (!next.any_visible) return;
  if (!running.any_visible) {
    running.maximum = next.maximum;
    std::copy_n(next.lane_sums, kLanes, running.lane_sums);
    std::copy_n(next.output, head_dim, running.output);
    running.any_visible = true;
    return;
  }
  const float maximum = next.maximum > running.maximum ? next.maximum : running.maximum;
  const float a = plain::Exp(running.maximum - maximum);
  const float b = plain::Exp(next.maximum - maximum);
  ScaleAdd(running.lane_sums, a, next.lane_sums, b, kLanes);
  ScaleAdd(running.output, a, next.output, b, head_dim);
  running.maximum = maximum;
}

void FinishAttention(const AttentionState& state, int64_t head_dim, float* out) {
  if (!state.any_visible) {
    std::fill_n(out, head_dim, 0.0f);
    return;
  }
  const float sum = plain::Tree16(state.lane_sums);
  for (int64_t d = 0; d < head_dim; ++d) out[d] = state.output[d] / sum;
}

}  // namespace baton
