// The default policy: the pair of workers with the least estimated time (route_cost.h), over all
// pairs, with a prefill worker or without.
//
// A prompt goes to its cached prefix while waiting there takes less than computing it elsewhere;
// then it goes elsewhere, and its prefix is cached twice: a hot prefix replicates by itself, sooner
// the more prompts wait for it (route_cost.h). What was just sent to a worker counts as its backlog
// at once, so a burst of cold prompts spreads. A next turn leaves the decode worker that holds the
// turns before only because of what waits there, never because another one is thought to be faster:
// what is known of equal workers' speeds differs by chance, and every move copies KV. Among equals
// the worker with fewest requests so far wins, then the smaller number.
//
// Cost is the sum of a prefill worker's part and a decode worker's part, so the best pair needs one
// pass over each pool and not their product.
//
// Thread safety: the host's lock.
#pragma once

#include "routing/routing_policy.h"

namespace baton {

class KvAwarePolicy final : public RoutingPolicy {
 public:
  explicit KvAwarePolicy(const RoutingOptions& options) : options_(options) {}
  absl::StatusOr<RoutePlan> Choose(const RoutingInput& input, const FleetView& fleet) override;

 private:
  const RoutingOptions options_;
};

}  // namespace baton
