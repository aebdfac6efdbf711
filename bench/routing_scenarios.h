// Made-up situations for a fleet, beside traces: what a routing policy does when many want the same
// thing at once. Each begins with a minute of other prompts, from which the router learns speeds.
//
//   cold burst   four prompts a worker, equal and cached nowhere, in a tenth of a second: they
//                should spread, not pile up where the first one went.
//   hot prefix   a prefix of 16,384 tokens with 512 of their own behind it, first once, so that one
//                worker holds it, then twice what a worker can compute, for 20 seconds: its holder
//                saturates, and the prefix should come to be held by several.
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
  std::vector<TimedRequest> requests;
  size_t first = 0;           // of those that are looked at, which are the last
  int32_t cached_tokens = 0;  // of each, where their turn finds its best worker idle
  size_t shared_blocks = 0;   // that all of those begin with
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
                                 .prompt_tokens = kBlocks * kTraceBlockTokens,
                                 .output_tokens = 100,
                                 .ids = RandomBlocks(kBlocks, random)});
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
                                 .prompt_tokens = 16 * kTraceBlockTokens,
                                 .output_tokens = 100,
                                 .ids = prompt});
  }
  scenario.shared_blocks = prompt.size();
  return scenario;
}

inline RoutingScenario HotPrefix(int32_t workers, uint64_t seed) {
  constexpr double kRequestsPerUs = 64e-6;  // one worker computes about 32 such remainders a second
  std::mt19937_64 random(seed);
  std::exponential_distribution<double> gap_us(kRequestsPerUs);
  RoutingScenario scenario = LearningMinute(workers, random);
  const TraceRequest prefix = RandomBlocks(32, random);
  const auto add = [&](double us) {
    TimedRequest request{.at_us = static_cast<int64_t>(us),
                         .prompt_tokens = 33 * kTraceBlockTokens,
                         .output_tokens = 50,
                         .ids = prefix};
    request.ids.push_back(random());
    scenario.requests.push_back(std::move(request));
  };
  add(80e6);
  scenario.first = scenario.requests.size();
  for (double us = 90e6; us < 110e6; us += gap_us(random)) add(us);
  scenario.cached_tokens = 32 * kTraceBlockTokens;
  scenario.shared_blocks = prefix.size();
  return scenario;
}

// None: there is no scenario of that name.
inline std::optional<RoutingScenario> MakeScenario(std::string_view name, int32_t workers,
                                                   uint64_t seed) {
  if (name == "cold-burst") return ColdBurst(workers, seed);
  if (name == "hot-prefix") return HotPrefix(workers, seed);
  return std::nullopt;
}

}  // namespace baton
