// Policies that ignore the request: round robin, random, least loaded, power of two.
//
// Thread safety: the host locks.
#pragma once

#include <array>
#include <random>

#include "routing/picking_policy.h"

namespace baton {

// Workers in the order of their numbers, separately for each pool. A worker that joins or leaves
// does not change the order of the others.
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

// The less loaded of two random workers (Mitzenmacher, "The Power of Two Choices in Randomized Load
// Balancing"). The load is nearly as even as with the least loaded worker. Routers that know little
// of each other do not all choose the same worker.
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
