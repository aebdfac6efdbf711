// An oracle for routing: how many requests could have been good if the router had known everything.
//
// The oracle knows the fleet's true state (what each worker must still compute, and how fast), the
// lengths of answers, and the whole run: it plays it again and again. Each search is a whole run of
// the simulated fleet under a clairvoyant rule with parameters drawn from the seed. The first is
// the production policy itself. The next quarter of the searches draw their parameters freely, the
// rest change those of the best search so far. The best run counts.
//
// No search is exhaustive, so the true optimum lies between the best run and RelaxedBound. The
// bound lets all workers share one cache that never forgets, splits work freely among workers, and
// counts only prompts.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "loadtest/request_record.h"
#include "loadtest/seeded_random.h"
#include "loadtest/service_objectives.h"
#include "loadtest/simulated_fleet.h"
#include "routing/routing_policy.h"

namespace baton {

// Parameters of a clairvoyant rule. A worker's cost for a request is
//   wait + compute_weight × computing + decode_weight × output tokens that it must still make
// where wait is the true time until the request's first token there, without decoding. A request
// that would miss the objective for its first token everywhere is hopeless.
struct PlacementRule {
  double compute_weight = 1;
  double decode_weight_us = 0;  // for an output token
  double noise = 0;             // costs are multiplied by a number from 1 - noise to 1 + noise
  // A hopeless request goes to one of the last `sacrificed` workers, which wait longest. 0: to the
  // worker of the least cost.
  int32_t sacrificed = 0;
  // Prompts with more tokens to compute than this stay on the last `long_workers` workers.
  int32_t long_tokens = 1 << 30;
  int32_t long_workers = 0;
  uint64_t seed = 0;
};

struct OracleOptions {
  int32_t searches = 1000;
  uint64_t seed = 0;
  ServiceObjectives objectives;
  int32_t workers = 1;
};

struct OracleResult {
  int64_t good = 0;                   // requests of the best search
  int32_t best_search = 0;            // its number
  int64_t policy_good = 0;            // of search 0, the production policy
  std::optional<PlacementRule> rule;  // of the best search; nullopt: the production policy
};

// Plays the run under the policy that it gets; empty: the production policy.
using PlayRun = std::function<std::vector<RequestRecord>(const SimulatedFleet::MakePolicy&)>;

OracleResult SearchPlacements(const OracleOptions& options, const PlayRun& play,
                              const std::function<void(int32_t done, int64_t best)>& on_progress);

// Makes the clairvoyant policy of a rule.
std::unique_ptr<RoutingPolicy> MakeClairvoyantPolicy(const PlacementRule& rule,
                                                     const ServiceObjectives& objectives,
                                                     const RoutingOptions& routing,
                                                     const FleetTruth& truth);

// No placement makes more requests good than this.
int64_t RelaxedBound(std::span<const LeastWork> requests, const ServiceObjectives& objectives,
                     const StepTimes& times, int32_t workers);

}  // namespace baton
