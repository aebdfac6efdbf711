// Traces of requests with arrival times and lengths, for simulations of a fleet. They are read in
// Mooncake's format or synthetic.
//
// Thread safety: pure functions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "bench/cache_trace.h"
#include "loadtest/mooncake_trace.h"
#include "loadtest/seeded_random.h"
#include "loadtest/traced_request.h"

namespace baton {

// Makes a trace like Mooncake's conversation trace: 3.4 requests a second, answers of 350 tokens.
inline std::vector<TracedRequest> MakeTimedTrace(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::exponential_distribution<double> gap_us(3.4e-6);
  std::exponential_distribution<double> answer(1 / 350.0);
  std::vector<TracedRequest> requests;
  double now_us = 0;
  for (TraceRequest& ids : MakeTrace(count, seed)) {
    now_us += gap_us(random);
    const auto prompt = static_cast<int32_t>(ids.size()) * kMooncakeBlockTokens -
                        static_cast<int32_t>(random() % kMooncakeBlockTokens);
    requests.push_back({.at_us = static_cast<int64_t>(now_us),
                        .prompt_tokens = prompt,
                        .output_tokens = 1 + static_cast<int32_t>(answer(random)),
                        .hash_ids = std::move(ids)});
  }
  return requests;
}

// `copies` copies of the trace at the same time, each with its own blocks. Each copy starts up to a
// minute later, so that their bursts do not coincide. Ordered by time.
inline std::vector<TracedRequest> CopiesOf(std::span<const TracedRequest> trace, int copies,
                                           uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<TracedRequest> out;
  for (int copy = 0; copy < copies; ++copy) {
    const int64_t offset_us = copy == 0 ? 0 : static_cast<int64_t>(random() % 60'000'000);
    for (const TracedRequest& request : trace) {
      TracedRequest& copied = out.emplace_back(request);
      copied.at_us += offset_us;
      for (uint64_t& id : copied.hash_ids) id = MixBits(MixBits(id) + static_cast<uint64_t>(copy));
    }
  }
  std::stable_sort(out.begin(), out.end(), [](const TracedRequest& a, const TracedRequest& b) {
    return a.at_us < b.at_us;
  });
  return out;
}

}  // namespace baton
