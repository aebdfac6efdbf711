// Vector merging of segments, and the final division (NUMERICS §8), over Lanes.
//
// The attention files of AVX2 and AVX-512 include this header after their vector_math header.
// Values behind head_dim in a state's last register are unspecified. Everything has internal
// linkage.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cpu/cpu_kernels.h"

namespace baton {
namespace {

inline void MergeOverLanes(AttentionState& running, const AttentionState& next, int64_t head_dim) {
  if (!next.any_visible) return;
  if (!running.any_visible) {
    std::memcpy(running.lane_sums, next.lane_sums, sizeof(next.lane_sums));
    std::memcpy(running.output, next.output, static_cast<size_t>(head_dim) * sizeof(float));
    running.maximum = next.maximum;
    running.any_visible = true;
    return;
  }
  const float maximum = next.maximum > running.maximum ? next.maximum : running.maximum;
  const Lanes changes[2] = {Set(running.maximum - maximum), Set(next.maximum - maximum)};
  Lanes by[2];
  ExpOfEach<2>(changes, by);
  const auto add = [&](float* to, const float* from) {
    Store(to, Fma(Load(from), by[1], Multiply(Load(to), by[0])));
  };
  add(running.lane_sums, next.lane_sums);
  for (int64_t d = 0; d < head_dim; d += kLanes) add(running.output + d, next.output + d);
  running.maximum = maximum;
}

inline void FinishOverLanes(const AttentionState& state, int64_t head_dim, float* out) {
  if (!state.any_visible) {
    std::memset(out, 0, static_cast<size_t>(head_dim) * sizeof(float));
    return;
  }
  const Lanes sum = Set(Tree16(Load(state.lane_sums)));
  int64_t d = 0;
  for (; d + kLanes <= head_dim; d += kLanes) Store(out + d, Divide(Load(state.output + d), sum));
  if (d < head_dim) StoreFirst(out + d, Divide(Load(state.output + d), sum), head_dim - d);
}

}  // namespace
}  // namespace baton
