// How the prefills of one step share its tokens.
//
// The first in line is promised half, so that every prefill in turn goes through. The other half
// goes to prefills of the same priority that have less left than the first, shortest first, so that
// a short prompt does not wait for a long one. What is then left goes out in line, up to each one's
// chunk limit: prompts of equal length run one after the other, which serves them sooner on average
// than all at once, and lets the later ones find the earlier ones' prefix in the cache.
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

// Tokens for each of `line` (which is in order of service): at most its remaining, at most
// max_chunk, at most `budget` in sum, and no token left over that somebody could use.
std::vector<int32_t> SharePrefillBudget(std::span<const PrefillDemand> line, int32_t budget,
                                        int32_t max_chunk);

}  // namespace baton
