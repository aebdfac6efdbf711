// One request of a recorded trace, and the speed of playing a trace.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace baton {

// Limit for the lengths and for the number of hash ids of one traced request.
inline constexpr int64_t kMaxTracedTokens = 16 << 20;

struct TracedRequest {
  int64_t at_us = 0;               // from an arbitrary start
  int32_t prompt_tokens = 1;       // >= 1
  int32_t output_tokens = 1;       // >= 1
  std::vector<uint64_t> hash_ids;  // empty if the trace does not say which prefixes are equal
};

// Returns how many times as fast as recorded a trace must be played for a mean of `rate_per_s`.
inline double TraceSpeedFor(const std::vector<TracedRequest>& trace, double rate_per_s) {
  if (trace.size() < 2) return 1;
  const auto [first, last] = std::minmax_element(
      trace.begin(), trace.end(), [](const auto& a, const auto& b) { return a.at_us < b.at_us; });
  const double span_s = static_cast<double>(last->at_us - first->at_us) / 1e6;
  return span_s > 0 ? rate_per_s * span_s / static_cast<double>(trace.size() - 1) : 1;
}

}  // namespace baton
