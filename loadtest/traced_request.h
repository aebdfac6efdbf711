// One request of a recorded trace.
#pragma once

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

}  // namespace baton
