// What the simple policies share: each picks a decode worker from those that may be chosen, then a
// prefill worker from those that fit it. They look at nothing but load or keys; whether the prefill
// worker helps is a matter of time as for every policy. A worker of both roles prefills for itself.
//
// Thread safety: the host's lock.
#pragma once

#include <span>
#include <vector>

#include "routing/routing_policy.h"

namespace baton {

enum class WorkerPool : uint8_t { kDecode, kPrefill };
using Candidates = std::span<const WorkerRecord* const>;

class PickingPolicy : public RoutingPolicy {
 public:
  explicit PickingPolicy(const RoutingOptions& options) : options_(options) {}
  absl::StatusOr<RoutePlan> Choose(const RoutingInput& input, const FleetView& fleet) final;

 protected:
  // `candidates` is not empty and ordered as the fleet is.
  virtual const WorkerRecord& Pick(WorkerPool pool, Candidates candidates,
                                   const RoutingInput& input) = 0;
  const RoutingOptions& options() const { return options_; }

 private:
  const RoutingOptions options_;
  std::vector<const WorkerRecord*> candidates_;  // kept for its memory
};

// The fewest requests, then the least to compute, then the fewest so far, then the first.
const WorkerRecord& LeastLoaded(Candidates candidates);
bool LessLoaded(const WorkerRecord& a, const WorkerRecord& b);

}  // namespace baton
