// The default policy: selects the pair of workers with the least estimated time (route_cost.h). It
// considers all pairs, with and without a prefill worker.
//
// A prompt goes to a worker with its cached prefix while waiting there takes less time than
// computing it elsewhere. Otherwise it goes elsewhere and the prefix is cached twice. So a hot
// prefix replicates by itself, and sooner if more prompts wait for it (route_cost.h). A request
// counts in a worker's backlog as soon as it is routed, so a burst of cold prompts spreads.
//
// A next turn leaves the decode worker that holds the earlier turns only because of work waiting
// there. It does not leave because another worker is estimated to be faster. Estimates for equal
// workers differ by chance, and every move copies KV. Among equals, the worker with the fewest
// requests so far wins, then the smaller number.
//
// The cost is the sum of a prefill part and a decode part. So the best pair needs one pass over
// each pool instead of their product.
//
// Thread safety: the host locks.
#pragma once

#include "routing/routing_policy.h"

namespace baton {

class KvAwarePolicy final : public RoutingPolicy {
 public:
  explicit KvAwarePolicy(const RoutingOptions& options) : options_(options) {}
  absl::StatusOr<RoutePlan> Choose(const RoutingInput& input, const FleetView& fleet) override;
  bool TakesCandidates() const override { return true; }

 private:
  const RoutingOptions options_;
};

}  // namespace baton
