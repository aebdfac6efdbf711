// Scenario of a run: the cluster, the requests and the faults. It is drawn from a seed, or is the
// small scenario of the exhaustive sweep.
//
// Nodes: 0 stands for all clients, 1 is the router, and workers follow.
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
  int64_t read_us = 0;                // time that the client needs to read one message
  int32_t max_unread = 1000;          // the router's limit of unread messages of a client
};

// Resize of a worker's pool to `blocks`.
struct ScenarioResize {
  int64_t at_us = 0;
  int32_t node = 0;
  int32_t blocks = 0;
};

struct Scenario {
  std::vector<SimWorker::Options> workers;
  RouterOptions router;
  uint64_t pulls = 0;  // seed of the drawn prefix pulls; 0: no pulls
  std::vector<ScenarioRequest> requests;
  std::vector<Fault> faults;
  std::vector<ScenarioResize> resizes;  // they excuse no failure: every request still fits

  int32_t decode_workers() const;
};

Scenario DrawScenario(uint64_t seed);
// Returns one line for each worker, request and fault.
std::string Describe(const Scenario& scenario);
// One prefill and two decode workers, two requests that share a prefix, no faults.
Scenario SmallScenario();

}  // namespace baton
