// Scenario of a run: the cluster, the requests and the faults. It is drawn from a seed, or is the
// small scenario of the exhaustive sweep.
//
// Nodes: 0 stands for all clients, 1 is the router, and workers follow.
#pragma once

#include <cstdint>
#include <optional>
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

// Clearing of a worker's caches.
struct ScenarioClear {
  int64_t at_us = 0;
  int32_t node = 0;
  bool prefixes = false;  // the prefix cache too, not only the chunks
  std::optional<CacheNamespace> only = {};
};

// Change of a worker's role.
struct ScenarioFlip {
  int64_t at_us = 0;
  int32_t node = 0;
  WorkerRole role = WorkerRole::kBoth;
};

struct Scenario {
  std::vector<SimWorker::Options> workers;
  RouterOptions router;
  uint64_t pulls = 0;  // seed of the drawn prefix pulls; 0: no pulls
  std::vector<ScenarioRequest> requests;
  std::vector<Fault> faults;
  std::vector<ScenarioResize> resizes;  // they excuse no failure: every request still fits
  std::vector<ScenarioClear> clears;    // they excuse nothing either
  std::vector<ScenarioFlip> flips;      // nor do these; one worker keeps both roles
  bool has_chunks = false;              // some prompts have chunks; they are the last requests
};

// Returns true if this worker's kind takes the request's prompt: chunked prompts need a worker that
// knows them and a model without windows.
bool TakesPrompt(const SimWorker::Options& worker, const ScenarioRequest& request);
// Returns true if the fleet can serve the request when all workers are up. Otherwise it must be
// refused with FAILED_PRECONDITION.
bool Takes(const Scenario& scenario, const ScenarioRequest& request);

// Which scenarios have chunked prompts.
enum class Traffic : uint8_t { kMixed, kChunked };  // one in four, or all

// Which scenarios have only workers with both roles and small pools.
enum class Fleets : uint8_t { kMixed, kBoth };  // one in ten, or all

Scenario DrawScenario(uint64_t seed, Traffic traffic = Traffic::kMixed,
                      Fleets fleets = Fleets::kMixed);
// Draws an ordinary request with a prompt of `length` tokens, which starts within `span_us` of the
// first possible time.
ScenarioRequest DrawRequest(SimRandom& random, uint64_t number, int32_t length, int64_t span_us);
inline constexpr int64_t kMs = 1000;           // in microseconds
inline constexpr int32_t kLongestPrompt = 33;  // of an ordinary request
inline constexpr int32_t kLongestAnswer = 14;
inline constexpr int64_t kFirstRequestUs = 120'000;  // by then the router follows all workers
// Returns a pool size in which the longest ordinary request always fits alone. No answer then ends
// early because of missing memory.
int32_t LeastBlocks(const SimEngineOptions& engine);
// Turns the prompts of the small scenario into chunked ones.
void DivideSmallPrompts(Scenario& scenario);
// Gives all workers both roles and small pools. Call it before anything that depends on the pools.
void GiveBothRoles(uint64_t seed, Scenario& scenario);
// Adds requests that fill such pools (scenario_both.cc).
void AddRequestsForBoth(uint64_t seed, Scenario& scenario);
// Lets workers change their roles, if nothing else excuses a failure.
void DrawFlips(uint64_t seed, Scenario& scenario);
std::string DescribeFlips(const Scenario& scenario);
// Adds chunked prompts to a scenario, and what they need (scenario_chunks.cc). The rest keeps its
// meaning.
void DrawChunks(uint64_t seed, Scenario& scenario);
std::string DescribeChunks(const Scenario& scenario);
// Returns one line for each worker, request and fault.
std::string Describe(const Scenario& scenario);
// One prefill and two decode workers, two requests that share a prefix, no faults. kChunked: the
// two share a chunk instead, which stands at different places.
Scenario SmallScenario(Traffic traffic = Traffic::kMixed);

}  // namespace baton
