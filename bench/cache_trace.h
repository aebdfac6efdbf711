// Workload of a global index: the match, stored and removed operations that a fleet of workers with
// LRU caches causes for a trace of requests. The trace is read in Mooncake's format or synthetic.
//
// An id of a trace names a prefix block; equal ids mean equal blocks. One trace block is one unit
// here.
#pragma once

#include <xxhash.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <fstream>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "cache/cache_key.h"
#include "common/status_macros.h"
#include "common/str_cat.h"
#include "loadtest/mooncake_trace.h"

namespace baton {

using TraceRequest = std::vector<uint64_t>;  // ids of the request's blocks

// Reads a file in Mooncake's format. Errors name the file, the line and the field.
inline absl::StatusOr<std::vector<TracedRequest>> ReadMooncakeTrace(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(StrCat("cannot read trace ", path));
  std::vector<TracedRequest> requests;
  std::string line;
  while (std::getline(file, line)) {
    absl::StatusOr<TracedRequest> request =
        ParseMooncakeLine(line, static_cast<int64_t>(requests.size()) + 1);
    if (!request.ok()) {
      return absl::InvalidArgumentError(
          StrCat("trace ", path, ", ", std::string(request.status().message())));
    }
    requests.push_back(*std::move(request));
  }
  if (requests.empty()) return absl::InvalidArgumentError(StrCat("trace ", path, " is empty"));
  return requests;
}

inline absl::StatusOr<std::vector<TraceRequest>> ReadTrace(const std::string& path) {
  ASSIGN_OR_RETURN(std::vector<TracedRequest> traced, ReadMooncakeTrace(path));
  std::vector<TraceRequest> requests;
  for (TracedRequest& request : traced) requests.push_back(std::move(request.hash_ids));
  return requests;
}

// Makes synthetic conversations that resemble Mooncake's conversation trace. All start with the
// same block. A first turn has about 12 blocks, with a long tail. Each later turn repeats all
// blocks of the turns before it and adds a few.
inline std::vector<TraceRequest> MakeTrace(size_t requests, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::exponential_distribution<double> first_turn(1 / 14.0);
  std::exponential_distribution<double> next_turn(1 / 7.0);
  std::vector<TraceRequest> trace;
  std::deque<TraceRequest> open;
  uint64_t next_id = 1;
  while (trace.size() < requests) {
    TraceRequest request = {0};
    double more = 1 + first_turn(random);
    if (!open.empty() && random() % 100 < 45) {
      std::swap(open[random() % open.size()], open.front());
      request = std::move(open.front());
      open.pop_front();
      more = 1 + next_turn(random);
    }
    if (random() % 50 == 0) more *= 8;
    for (int i = 0; i < static_cast<int>(more); ++i) request.push_back(next_id++);
    trace.push_back(request);
    if (request.size() < 240) open.push_back(std::move(request));
    if (open.size() > 400) open.pop_front();
  }
  return trace;
}

// One operation on the index.
struct IndexOperation {
  enum class Kind : uint8_t { kMatch, kStored, kRemoved };
  static constexpr uint32_t kNoParent = UINT32_MAX;
  Kind kind;
  uint32_t worker = 0;
  uint32_t first = 0;  // position in IndexWorkload::hashes
  uint32_t count = 0;
  uint32_t parent = kNoParent;  // position in IndexWorkload::hashes
};

struct IndexWorkload {
  std::vector<Hash128> hashes;
  std::vector<IndexOperation> operations;
  uint64_t blocks_of[3] = {};  // by kind
  uint64_t count_of[3] = {};

  std::span<const Hash128> HashesOf(const IndexOperation& op) const {
    return std::span(hashes).subspan(op.first, op.count);
  }
  uint64_t blocks() const { return blocks_of[0] + blocks_of[1] + blocks_of[2]; }
};

// LRU cache of blocks. The last blocks of a request count as older than its first ones, because
// engines evict leaves of the prefix tree first.
class LruCache {
 public:
  explicit LruCache(size_t capacity) : capacity_(capacity) {}

  size_t Leading(std::span<const uint32_t> blocks) const {
    size_t count = 0;
    while (count < blocks.size() && places_.contains(blocks[count])) ++count;
    return count;
  }
  bool Has(uint32_t block) const { return places_.contains(block); }
  // Adds `blocks` or marks them as used. Returns the evicted blocks.
  std::vector<uint32_t> Use(std::span<const uint32_t> blocks) {
    for (size_t i = blocks.size(); i-- > 0;) {
      const auto [it, is_new] = places_.try_emplace(blocks[i]);
      if (!is_new) by_use_[it->second - gone_] = kNothing;
      it->second = gone_ + by_use_.size();
      by_use_.push_back(blocks[i]);
    }
    std::vector<uint32_t> evicted;
    while (places_.size() > capacity_) {
      if (const uint32_t block = by_use_.front(); block != kNothing) {
        evicted.push_back(block);
        places_.erase(block);
      }
      by_use_.pop_front();
      ++gone_;
    }
    return evicted;
  }

 private:
  static constexpr uint32_t kNothing = UINT32_MAX;
  const size_t capacity_;
  std::deque<uint32_t> by_use_;  // oldest first; kNothing if the block was used again later
  size_t gone_ = 0;
  absl::flat_hash_map<uint32_t, size_t> places_;  // position in by_use_ plus gone_
};

// Plays a trace through a fleet. Every lap repeats the trace with other blocks.
class FleetReplay {
 public:
  struct Options {
    uint32_t workers = 16;
    size_t capacity = 16'384;  // blocks of each worker's cache
    uint32_t laps = 1;
    size_t delay = 32;  // requests between a match and the events of its request
    uint64_t seed = 0;
  };

  explicit FleetReplay(const Options& options)
      : options_(options),
        caches_(options.workers, LruCache(options.capacity)),
        backlog_(options.workers) {}

  IndexWorkload Run(std::span<const TraceRequest> trace) {
    for (uint32_t lap = 0; lap < options_.laps; ++lap) {
      for (const TraceRequest& request : trace) Play(request, lap);
    }
    while (!waiting_.empty()) TakeEvents();
    return std::move(workload_);
  }

 private:
  using Operations = std::vector<IndexOperation>;

  // Chains hashes as cache_key.h does: equal hashes mean equal prefixes.
  uint32_t AddHashes(const TraceRequest& request, uint32_t lap) {
    const auto first = static_cast<uint32_t>(workload_.hashes.size());
    Hash128 hash{.low = options_.seed, .high = lap};
    for (const uint64_t id : request) {
      const uint64_t input[] = {hash.low, hash.high, id};
      const XXH128_hash_t next = XXH3_128bits(input, sizeof(input));
      hash = {.low = next.low64, .high = next.high64};
      workload_.hashes.push_back(hash);
    }
    return first;
  }

  // Picks the worker that would start decoding first: the fewest blocks to compute, including those
  // that already wait there.
  uint32_t Route(std::span<const uint32_t> blocks) {
    uint32_t best = 0;
    double best_cost = 1e300;
    for (uint32_t worker = 0; worker < options_.workers; ++worker) {
      const double cost =
          static_cast<double>(blocks.size() - caches_[worker].Leading(blocks)) + backlog_[worker];
      if (cost < best_cost) {
        best_cost = cost;
        best = worker;
      }
    }
    const auto computed = static_cast<double>(blocks.size() - caches_[best].Leading(blocks));
    backlog_[best] += computed;
    mean_computed_ += (computed - mean_computed_) / 256;
    for (double& backlog : backlog_) {
      backlog = std::max(0.0, backlog - mean_computed_ / options_.workers);
    }
    return best;
  }

  void Play(const TraceRequest& request, uint32_t lap) {
    const uint32_t first = AddHashes(request, lap);
    const auto count = static_cast<uint32_t>(request.size());
    std::vector<uint32_t> blocks(count);
    for (uint32_t i = 0; i < count; ++i) {
      blocks[i] = numbers_.try_emplace(workload_.hashes[first + i], first + i).first->second;
    }
    Emit({.kind = IndexOperation::Kind::kMatch, .first = first, .count = count});
    const uint32_t worker = Route(blocks);
    Operations stored;
    for (uint32_t i = 0; i < count; ++i) {
      if (caches_[worker].Has(blocks[i])) continue;
      const uint32_t parent = i > 0 ? first + i - 1 : IndexOperation::kNoParent;
      if (!stored.empty() && stored.back().first + stored.back().count == first + i) {
        ++stored.back().count;
      } else {
        stored.push_back({IndexOperation::Kind::kStored, worker, first + i, 1, parent});
      }
    }
    Operations events;
    if (const auto evicted = caches_[worker].Use(blocks); !evicted.empty()) {
      events.push_back({IndexOperation::Kind::kRemoved, worker,
                        static_cast<uint32_t>(workload_.hashes.size()),
                        static_cast<uint32_t>(evicted.size()), IndexOperation::kNoParent});
      for (const uint32_t block : evicted) workload_.hashes.push_back(workload_.hashes[block]);
    }
    events.insert(events.end(), stored.begin(), stored.end());
    waiting_.push_back(std::move(events));
    if (waiting_.size() > options_.delay) TakeEvents();
  }

  void TakeEvents() {
    for (const IndexOperation& event : waiting_.front()) Emit(event);
    waiting_.pop_front();
  }

  void Emit(const IndexOperation& operation) {
    workload_.operations.push_back(operation);
    workload_.blocks_of[static_cast<int>(operation.kind)] += operation.count;
    ++workload_.count_of[static_cast<int>(operation.kind)];
  }

  const Options options_;
  IndexWorkload workload_;
  absl::flat_hash_map<Hash128, uint32_t> numbers_;  // first position of a hash in the workload
  std::vector<LruCache> caches_;
  std::vector<double> backlog_;  // blocks that each worker still has to compute
  double mean_computed_ = 0;
  std::deque<Operations> waiting_;
};

}  // namespace baton
