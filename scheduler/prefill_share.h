// Divides the token budget of one step among its prefills.
//
// The first prefill in line gets at least half of the budget, so every prefill makes progress in
// turn. The other half goes to prefills of the same priority that have fewer tokens left than the
// first, shortest first. So a short prompt does not wait for a long one. The rest is given out in
// line, up to the chunk limit of each prefill. So prompts of equal length run one after the other.
// On average they finish sooner that way than all at once, and later prompts find the earlier ones'
// prefix in the cache.
//
// Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace baton {

struct PrefillDemand {
  int32_t priority = 0;
  int32_t remaining = 0;  // tokens to compute
};

// Returns the tokens for each prefill of `line`, which is in the order of service. Each gets at
// most its remaining tokens and at most max_chunk. The sum is at most `budget`, and no usable token
// is left over.
std::vector<int32_t> SharePrefillBudget(std::span<const PrefillDemand> line, int32_t budget,
                                        int32_t max_chunk);

}  // namespace baton
