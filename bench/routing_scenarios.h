// Synthetic scenarios for routing policies: many requests with the same prompt or prefix at the
// same time. Each starts with a minute of other prompts, from which the router learns throughputs.
//
//   cold burst   In a tenth of a second, four equal prompts per worker arrive that no worker has
//                cached. They should spread over the workers and not all follow the first one.
//   hot prefix   All prompts share a prefix of 16,384 tokens and end with 512 tokens of their own.
//                The first arrives alone, so one worker holds the prefix. For 20 seconds the others
//                arrive at twice the rate that one worker can compute. The holder saturates, so
//                several workers should come to hold the prefix.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <string_view>
#include <vector>

#include "bench/timed_trace.h"

namespace baton {

struct RoutingScenario {
  std::vector<TracedRequest> requests;
  size_t first = 0;           // first measured request; all behind it are measured too
  int32_t cached_tokens = 0;  // cached tokens of each measured request in the best case
  size_t shared_blocks = 0;   // blocks that all measured requests start with
};

inline TraceRequest RandomBlocks(size_t count, std::mt19937_64& random) {
  TraceRequest ids(count);
  std::generate(ids.begin(), ids.end(), std::ref(random));
  return ids;
}

inline RoutingScenario LearningMinute(int32_t workers, std::mt19937_64& random) {
  constexpr int32_t kBlocks = 8;
  RoutingScenario scenario;
  const int32_t count = 6 * workers;
  for (int32_t i = 0; i < count; ++i) {
    scenario.requests.push_back({.at_us = int64_t{60'000'000} * i / count,
                                 .prompt_tokens = kBlocks * kMooncakeBlockTokens,
                                 .output_tokens = 100,
                                 .hash_ids = RandomBlocks(kBlocks, random)});
  }
  scenario.first = scenario.requests.size();
  return scenario;
}

inline RoutingScenario ColdBurst(int32_t workers, uint64_t seed) {
  std::mt19937_64 random(seed);
  RoutingScenario scenario = LearningMinute(workers, random);
  const TraceRequest prompt = RandomBlocks(16, random);
  for (int32_t i = 0; i < 4 * workers; ++i) {
    scenario.requests.push_back({.at_us = 90'000'000 + int64_t{100'000} * i / (4 * workers),
                                 .prompt_tokens = 16 * kMooncakeBlockTokens,
                                 .output_tokens = 100,
                                 .hash_ids = prompt});
  }
  scenario.shared_blocks = prompt.size();
  return scenario;
}

inline RoutingScenario HotPrefix(int32_t workers, uint64_t seed) {
  constexpr double kRequestsPerUs = 64e-6;  // one worker computes about 32 such requests a second
  std::mt19937_64 random(seed);
  std::exponential_distribution<double> gap_us(kRequestsPerUs);
  RoutingScenario scenario = LearningMinute(workers, random);
  const TraceRequest prefix = RandomBlocks(32, random);
  const auto add = [&](double us) {
    TracedRequest request{.at_us = static_cast<int64_t>(us),
                          .prompt_tokens = 33 * kMooncakeBlockTokens,
                          .output_tokens = 50,
                          .hash_ids = prefix};
    request.hash_ids.push_back(random());
    scenario.requests.push_back(std::move(request));
  };
  add(80e6);
  scenario.first = scenario.requests.size();
  for (double us = 90e6; us < 110e6; us += gap_us(random)) add(us);
  scenario.cached_tokens = 32 * kMooncakeBlockTokens;
  scenario.shared_blocks = prefix.size();
  return scenario;
}

// Returns nullopt if there is no scenario of that name.
inline std::optional<RoutingScenario> MakeScenario(std::string_view name, int32_t workers,
                                                   uint64_t seed) {
  if (name == "cold-burst") return ColdBurst(workers, seed);
  if (name == "hot-prefix") return HotPrefix(workers, seed);
  return std::nullopt;
}

}  // namespace baton
