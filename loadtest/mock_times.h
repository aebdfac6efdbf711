// Times of the mock server: when each token of an answer comes. They are known, so a load test
// against the server proves the load generator.
//
// Thread safety: plain data; pure function.
#pragma once

#include <cstdint>
#include <vector>

namespace baton {

struct MockTimes {
  int64_t ttft_us = 100'000;
  int64_t itl_us = 5'000;
  // Every `stall_every_us`, the server does nothing for the last `stall_us` of the interval. What
  // was due then comes at the end of the stall. 0: no stalls.
  int64_t stall_us = 0;
  int64_t stall_every_us = 0;
};

// Returns the times of `tokens` tokens for a request that arrived at `arrival_us`, on the scale of
// the arguments. The first stall interval begins at 0.
std::vector<int64_t> TokenTimes(const MockTimes& times, int64_t arrival_us, int32_t tokens);

}  // namespace baton
