// Joins the states of attention segments in rising order (NUMERICS §8); one definition for all
// instruction sets.
//
// Pure functions on disjoint states, safe together.
#pragma once

#include <cstdint>

#include "kernels/cpu/cpu_kernels.h"

namespace baton {

// Takes the state of a later segment into `running`. A state without a visible slot changes
// nothing.
void MergeAttentionState(AttentionState& running, const AttentionState& next, int64_t head_dim);

// The attention output of one (token, head): out[head_dim]; zeros where nothing was visible.
void FinishAttention(const AttentionState& state, int64_t head_dim, float* out);

}  // namespace baton
