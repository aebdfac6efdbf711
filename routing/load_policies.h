// Policies that look at nothing of a request: round robin, random, least loaded, power of two.
//
// Thread safety: the host's lock.
#pragma once

#include <array>
#include <random>

#include "routing/picking_policy.h"

namespace baton {

// In the order of their numbers, each pool for itself. Who joins or leaves disturbs nobody's turn.
class RoundRobinPolicy final : public PickingPolicy {
 public:
  using PickingPolicy::PickingPolicy;

 protected:
  const WorkerRecord& Pick(WorkerPool pool, Candidates candidates, const RoutingInput&) override;

 private:
  std::array<WorkerNumber, 2> last_ = {};  // by pool
};

class RandomPolicy final : public PickingPolicy {
 public:
  explicit RandomPolicy(const RoutingOptions& options)
      : PickingPolicy(options), random_(static_cast<uint64_t>(options.seed)) {}

 protected:
  const WorkerRecord& Pick(WorkerPool, Candidates candidates, const RoutingInput&) override;

 private:
  std::mt19937_64 random_;
};

class LeastLoadedPolicy final : public PickingPolicy {
 public:
  using PickingPolicy::PickingPolicy;

 protected:
  const WorkerRecord& Pick(WorkerPool, Candidates candidates, const RoutingInput&) override {
    return LeastLoaded(candidates);
  }
};

// The less loaded of two drawn at random (Mitzenmacher, "The Power of Two Choices in Randomized
// Load Balancing"): nearly as even as the least loaded, and routers that know little of each other
// do not all run to the same worker.
class PowerOfTwoPolicy final : public PickingPolicy {
 public:
  explicit PowerOfTwoPolicy(const RoutingOptions& options)
      : PickingPolicy(options), random_(static_cast<uint64_t>(options.seed)) {}

 protected:
  const WorkerRecord& Pick(WorkerPool, Candidates candidates, const RoutingInput&) override;

 private:
  std::mt19937_64 random_;
};

}  // namespace baton
