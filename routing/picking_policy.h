// Base of the simple policies. Each selects a decode worker among the candidates, then a prefill
// worker that fits it, by load or keys only. As in every policy, estimated time decides whether the
// prefill worker is used. A worker of both roles prefills for itself.
//
// Thread safety: the host locks.
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
  // `candidates` is not empty and has the fleet's order.
  virtual const WorkerRecord& Pick(WorkerPool pool, Candidates candidates,
                                   const RoutingInput& input) = 0;
  const RoutingOptions& options() const { return options_; }

 private:
  const RoutingOptions options_;
  std::vector<const WorkerRecord*> candidates_;  // reused for its memory
};

// Fewest requests, then least pending prefill time, then fewest requests so far, then the lower
// number.
const WorkerRecord& LeastLoaded(Candidates candidates);
bool LessLoaded(const WorkerRecord& a, const WorkerRecord& b);

}  // namespace baton
