// What a run plays: the cluster, the requests and the faults. Drawn from a seed, or the small one
// of the exhaustive sweep.
//
// Nodes: 0 is all clients, 1 the router, workers follow.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "router/router_core.h"
#include "tests/sim/fault_plan.h"
#include "tests/sim/sim_router.h"
#include "tests/sim/sim_worker.h"

namespace baton {

inline constexpr int32_t kClientNode = 0;
inline constexpr int32_t kRouterNode = 1;
inline constexpr int32_t kFirstWorkerNode = 2;

struct ScenarioRequest {
  SimGenerateRequest request;
  int64_t start_us = 0;
  int64_t deadline_us = 0;            // from the start
  int64_t cancel_after_us = 0;        // from the start; 0: never
  int32_t cancel_after_messages = 0;  // responses; 0: never
  int64_t read_us = 0;                // what taking one message costs the client
  int32_t max_unread = 1000;          // what the router keeps for a client that does not read
};

// A worker's pool grows or shrinks.
struct ScenarioResize {
  int64_t at_us = 0;
  int32_t node = 0;
  int32_t blocks = 0;
};

struct Scenario {
  std::vector<SimWorker::Options> workers;
  RouterOptions router;
  uint64_t pulls = 0;  // who pulls from whom is drawn from it; 0: nobody does
  std::vector<ScenarioRequest> requests;
  std::vector<Fault> faults;
  std::vector<ScenarioResize> resizes;  // excuse nothing: every request still fits

  int32_t decode_workers() const;
};

Scenario DrawScenario(uint64_t seed);
// Workers, requests and faults, a line each.
std::string Describe(const Scenario& scenario);
// One prefill and two decode workers, two requests that share a prefix, no faults.
Scenario SmallScenario();

}  // namespace baton
