// Traces of requests with arrival times and lengths, for simulations of a fleet. They are read in
// Mooncake's format or synthetic. A trace block has 512 tokens; equal hashes mean equal prefixes.
#pragma once

#include <xxhash.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "bench/cache_trace.h"
#include "cache/cache_key.h"
#include "common/status_macros.h"

namespace baton {

inline constexpr int32_t kTraceBlockTokens = 512;

struct TimedRequest {
  int64_t at_us = 0;
  int32_t prompt_tokens = 1;
  int32_t output_tokens = 1;
  TraceRequest ids;
};

inline absl::StatusOr<std::vector<TimedRequest>> ReadTimedTrace(const std::string& path) {
  ASSIGN_OR_RETURN(std::vector<TracedRequest> traced, ReadMooncakeTrace(path));
  std::vector<TimedRequest> requests;
  for (TracedRequest& request : traced) {
    requests.push_back({.at_us = request.at_us,
                        .prompt_tokens = request.prompt_tokens,
                        .output_tokens = request.output_tokens,
                        .ids = std::move(request.hash_ids)});
  }
  return requests;
}

// Makes a trace like Mooncake's conversation trace: 3.4 requests a second, answers of 350 tokens.
inline std::vector<TimedRequest> MakeTimedTrace(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::exponential_distribution<double> gap_us(3.4e-6);
  std::exponential_distribution<double> answer(1 / 350.0);
  std::vector<TimedRequest> requests;
  double now_us = 0;
  for (TraceRequest& ids : MakeTrace(count, seed)) {
    now_us += gap_us(random);
    const auto prompt = static_cast<int32_t>(ids.size()) * kTraceBlockTokens -
                        static_cast<int32_t>(random() % kTraceBlockTokens);
    requests.push_back({.at_us = static_cast<int64_t>(now_us),
                        .prompt_tokens = prompt,
                        .output_tokens = 1 + static_cast<int32_t>(answer(random)),
                        .ids = std::move(ids)});
  }
  return requests;
}

// A trace prepared for simulation: requests with the numbers and hashes of their blocks.
class SimulatedTrace {
 public:
  struct Request {
    int64_t at_us;
    int32_t prompt_tokens;
    int32_t output_tokens;
    int32_t infinite_cache_tokens;  // prompt tokens that one cache without eviction would have
    uint32_t first;
    uint32_t count;
  };

  // Plays `copies` copies of the trace at the same time, each with its own blocks. Each copy starts
  // up to a minute later, so that their bursts do not coincide. All is `speedup` times as fast.
  SimulatedTrace(std::span<const TimedRequest> trace, int copies, double speedup, uint64_t seed) {
    std::mt19937_64 random(seed);
    for (int copy = 0; copy < copies; ++copy) {
      const int64_t offset_us = copy == 0 ? 0 : static_cast<int64_t>(random() % 60'000'000);
      for (const TimedRequest& request : trace) Add(request, copy, offset_us, speedup);
    }
    std::stable_sort(requests_.begin(), requests_.end(),
                     [](const Request& a, const Request& b) { return a.at_us < b.at_us; });
    FillInfiniteCache();
  }

  const std::vector<Request>& requests() const { return requests_; }
  std::span<const uint32_t> Blocks(const Request& request) const {
    return std::span(blocks_).subspan(request.first, request.count);
  }
  std::span<const Hash128> Hashes(const Request& request) const {
    return std::span(hashes_).subspan(request.first, request.count);
  }
  const Hash128& HashOf(uint32_t block) const { return hashes_[block]; }
  size_t distinct_blocks() const { return numbers_.size(); }

 private:
  void Add(const TimedRequest& request, int copy, int64_t offset_us, double speedup) {
    const auto first = static_cast<uint32_t>(hashes_.size());
    Hash128 hash{.low = 1, .high = static_cast<uint64_t>(copy)};
    for (const uint64_t id : request.ids) {
      const uint64_t input[] = {hash.low, hash.high, id};
      const XXH128_hash_t next = XXH3_128bits(input, sizeof(input));
      hash = {.low = next.low64, .high = next.high64};
      const auto place = static_cast<uint32_t>(hashes_.size());
      hashes_.push_back(hash);
      blocks_.push_back(numbers_.try_emplace(hash, place).first->second);
    }
    requests_.push_back(
        {.at_us = static_cast<int64_t>(static_cast<double>(request.at_us + offset_us) / speedup),
         .prompt_tokens = request.prompt_tokens,
         .output_tokens = request.output_tokens,
         .infinite_cache_tokens = 0,
         .first = first,
         .count = static_cast<uint32_t>(request.ids.size())});
  }

  void FillInfiniteCache() {
    std::vector<bool> seen(hashes_.size());
    for (Request& request : requests_) {
      const auto blocks = Blocks(request);
      size_t found = 0;
      while (found < blocks.size() && seen[blocks[found]]) ++found;
      for (const uint32_t block : blocks) seen[block] = true;
      request.infinite_cache_tokens = static_cast<int32_t>(std::min<int64_t>(
          static_cast<int64_t>(found) * kTraceBlockTokens, request.prompt_tokens - 1));
    }
  }

  std::vector<Request> requests_;
  std::vector<uint32_t> blocks_;
  std::vector<Hash128> hashes_;
  absl::flat_hash_map<Hash128, uint32_t> numbers_;
};

}  // namespace baton
