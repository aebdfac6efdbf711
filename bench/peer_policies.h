// Routing rules of other projects, for comparison with Baton's default policy. They implement what
// those projects' documents say, on Baton's snapshot of the fleet. They do not use their code.
#pragma once

#include <algorithm>
#include <cstdint>

#include "loadtest/simulated_fleet.h"
#include "routing/picking_policy.h"

namespace baton {

// NVIDIA Dynamo's KV router. It picks the worker with the smallest overlap_weight × blocks to
// prefill + blocks in decoding, here with a weight of 1 and no temperature. The blocks to prefill
// are those waiting at the worker plus this request's own.
class OverlapAndBlocksPolicy final : public PickingPolicy {
 public:
  OverlapAndBlocksPolicy(const RoutingOptions& options, const FleetTruth* truth)
      : PickingPolicy(options), truth_(truth) {}

 protected:
  const WorkerRecord& Pick(WorkerPool, Candidates candidates, const RoutingInput& input) override {
    const WorkerRecord* best = nullptr;
    int64_t least = 0;
    for (const WorkerRecord* worker : candidates) {
      const auto cached = input.cached_tokens.find(worker->number);
      const int64_t own =
          input.prompt_tokens - (cached == input.cached_tokens.end() ? 0 : cached->second);
      const SimulatedWorker& there = *(*truth_->workers)[worker->number.value() - 1];
      const int64_t cost = worker->pending.tokens + own + there.context_tokens();
      if (best != nullptr && cost >= least) continue;
      best = worker;
      least = cost;
    }
    return *best;
  }

 private:
  const FleetTruth* const truth_;
};

// SGLang's cache-aware router. The load is unbalanced if the most loaded worker has over 64
// requests more than the least loaded one, and over 1.5 times as many. Then it picks the least
// loaded worker. Otherwise it picks the worker that holds most of the prompt, provided that it
// holds over 30 % of it; else the least loaded worker.
class MatchOrBalancePolicy final : public PickingPolicy {
 public:
  using PickingPolicy::PickingPolicy;

 protected:
  const WorkerRecord& Pick(WorkerPool, Candidates candidates, const RoutingInput& input) override {
    constexpr int32_t kLoadGap = 64;
    constexpr double kLoadRatio = 1.5;
    constexpr double kLeastMatch = 0.3;
    const WorkerRecord& idlest = LeastLoaded(candidates);
    int32_t most = 0;
    const WorkerRecord* holder = &idlest;
    int32_t held = 0;
    for (const WorkerRecord* worker : candidates) {
      most = std::max(most, worker->Load());
      const auto cached = input.cached_tokens.find(worker->number);
      if (cached == input.cached_tokens.end() || cached->second <= held) continue;
      held = cached->second;
      holder = worker;
    }
    if (most - idlest.Load() > kLoadGap && most > kLoadRatio * idlest.Load()) return idlest;
    return held > kLeastMatch * input.prompt_tokens ? *holder : idlest;
  }
};

}  // namespace baton
