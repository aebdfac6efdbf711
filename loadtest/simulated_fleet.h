// A fleet in simulated time: the production routers (RouterCore with its registry, index and
// policy, and GenerateSession with its retries) over simulated workers (simulated_worker.h). It
// plays a load test's requests, and fills their records as a real run would.
//
// Several routers share the fleet as in production: each gets an equal part of the requests, the
// events of all caches, and heartbeats. So it knows of the others' requests only what heartbeats
// tell. Workers send them also when their backlog changes (common/backlog_news.h).
//
// With `roles`, the first router's role planner changes workers' roles, as RoleChanger does in
// production: its calls take `call_us`, and the worker then sends a heartbeat at once. The other
// routers do not plan. In production, only the router with the lease changes roles.
//
// What passes between processes takes time: `call_us` for a hand-off or a pull, `event_us` for KV
// events, and the bytes of KV at `bytes_per_us`. Hand-offs travel while the prompt is computed. A
// worker serves any number of transfers at full bandwidth, and its own work is not slowed down.
// Nothing fails. Requests and tokens between clients and routers take no time.
//
// The result depends only on the options and the requests, except for the wall-clock times in
// FleetFigures.
//
// Thread safety: belongs to one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <queue>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "cache/cache_key.h"
#include "common/backlog_news.h"
#include "common/clock.h"
#include "loadtest/load_run.h"
#include "loadtest/request_record.h"
#include "loadtest/simulated_worker.h"
#include "loadtest/step_times.h"
#include "router/failure_detector.h"
#include "router/role_planning.h"
#include "router/router_core.h"

namespace baton {

// From `at_us` on, the first `prefill_workers` workers prefill and the others decode.
struct RoleSplit {
  int64_t at_us = 0;
  int32_t prefill_workers = 0;
};

struct SimulatedFleetOptions {
  static constexpr int32_t kMostWorkers = 10'000;
  static constexpr int32_t kMostRouters = 64;

  int32_t workers = 16;
  // So many of `workers` only prefill, and the others only decode. With 0, all have both roles; or,
  // with `separate_roles`, all only decode. The same holds for `role_splits`.
  int32_t prefill_workers = 0;
  bool separate_roles = false;
  int32_t routers = 1;
  SimulatedWorkerOptions worker;
  RoutingOptions routing;
  double bytes_per_us = 10'000;
  int64_t call_us = 1000;
  int64_t event_us = 1000;
  int64_t heartbeat_us = 1'000'000;
  RolePlanningOptions roles = {.mode = RolePlannerMode::kOff};
  std::vector<RoleSplit> role_splits;  // by time; for oracles of roles
  bool keeps_least_work = false;       // fill FleetFigures::least_work
};

// What one request needs at least, if every prefix that any earlier request had is cached.
struct LeastWork {
  int64_t at_us = 0;
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;
  int32_t output_tokens = 0;
};

// A change of a worker's role by the planner.
struct RoleChange {
  int64_t at_us = 0;
  int32_t worker = 0;
};

struct FleetFigures {
  int64_t requests = 0;
  int64_t decisions = 0;  // a request that is refused needs several
  int64_t cached_tokens = 0;
  int64_t computed_tokens = 0;
  int64_t local_prefills = 0;  // on the worker that decodes
  int64_t pulls = 0;
  int64_t pulled_tokens = 0;
  int64_t preemptions = 0;
  double max_over_mean_load = 0;         // of the work in the whole run
  double window_max_over_mean_load = 0;  // mean over windows of one minute
  std::vector<RoleChange> role_changes;  // by the role planner, in order
  int32_t wanted_prefill_workers = -1;   // of its last look; -1: it knows too little, or is off
  std::vector<int32_t> prefilled_by;     // by order of sending; -1: not computed
  std::vector<LeastWork> least_work;     // in order of sending
  // The simulator's own work.
  int64_t events = 0;
  double deciding_s = 0;  // wall-clock time in routing decisions
  double running_s = 0;   // wall-clock time of the whole run

  double decisions_per_s() const {
    return deciding_s > 0 ? static_cast<double>(decisions) / deciding_s : 0;
  }
  double events_per_s() const {
    return running_s > 0 ? static_cast<double>(events) / running_s : 0;
  }
};

// What a policy of a simulation may know beyond what routers know.
struct FleetTruth {
  const std::vector<std::unique_ptr<SimulatedWorker>>* workers = nullptr;
  const StepTimes* times = nullptr;
  // Of the request that is being routed.
  uint64_t request = 0;
  int32_t output_tokens = 0;
  int64_t now_us = 0;
};

class SimulatedFleet {
 public:
  // Makes the policy of one router. `truth` outlives it. Empty: the policy of the options.
  using MakePolicy =
      std::function<std::unique_ptr<RoutingPolicy>(const RoutingOptions&, const FleetTruth& truth)>;

  // `times` and `wall` must outlive this. `wall` measures the simulator; null: it is not measured.
  SimulatedFleet(const SimulatedFleetOptions& options, const StepTimes* times,
                 const Clock* wall = nullptr, const MakePolicy& make_policy = {});
  ~SimulatedFleet();
  SimulatedFleet(const SimulatedFleet&) = delete;

  // Plays the requests of `run`. Returns their records in the order of intended sends. Call it
  // once.
  std::vector<RequestRecord> Run(LoadRun& run);

  const FleetFigures& figures() const { return figures_; }
  // Workers that have all of this prompt's whole blocks cached.
  int32_t Holders(std::span<const TokenId> prompt) const;

 private:
  class Call;
  struct Router {
    std::unique_ptr<RouterCore> core;
    FailureDetector failure_detector;
  };
  // What happens at a time. Events of equal times happen in the order in which they were added.
  struct Event {
    int64_t at_us;
    uint64_t order;
    std::function<void()> happen;
    bool operator>(const Event& other) const {
      return at_us != other.at_us ? at_us > other.at_us : order > other.order;
    }
  };

  void Add(int64_t in_us, std::function<void()> happen);
  void StartRouters(const MakePolicy& make_policy);
  void Heartbeat(int32_t worker);
  void TellBacklogs();
  void Tick();
  WorkerReport ReportOf(int32_t worker) const;
  // Tokens that the worker generated in a second, as a mean of the last seconds.
  double DecodeTokensPerS(int32_t worker);
  void SetRole(int32_t worker, WorkerRole role);
  void SetSplit(int32_t prefill_workers);
  void PlanRoles();
  void MakeRoleCall(const RoleCall& call);
  void Send(DueRequest due);
  void Ended(Call& call);
  // Begins a step of an idle worker that has work.
  void Wake(int32_t worker);
  void StepEnded(int32_t worker);
  // Sends the worker's new KV events to all routers.
  void Publish(int32_t worker);
  int64_t ShippingUs(int64_t bytes) const {
    return static_cast<int64_t>(static_cast<double>(bytes) / options_.bytes_per_us);
  }
  static int32_t WorkerOf(WorkerNumber number) { return static_cast<int32_t>(number.value()) - 1; }
  SimulatedWorker& At(int32_t worker) { return *workers_[static_cast<size_t>(worker)]; }
  int64_t NowUs() const { return clock_.NowUs() - start_us_; }
  void FillLoads();
  int32_t KnownTokens(std::span<const Hash128> hashes) const;
  void KeepHashes(std::span<const Hash128> hashes);
  void NoteLeastWork(const DueRequest& due, std::span<const Hash128> hashes, int32_t prompt_tokens);

  const SimulatedFleetOptions options_;
  const StepTimes* const times_;
  const Clock* const wall_;
  ManualClock clock_;
  const int64_t start_us_ = clock_.NowUs();
  std::vector<std::unique_ptr<SimulatedWorker>> workers_;
  std::vector<BacklogNews> backlog_news_;
  std::vector<uint64_t> published_;  // batches of each worker
  std::vector<WorkerRole> roles_;
  // Times and generated tokens at the last heartbeats of each worker.
  std::vector<std::deque<std::pair<int64_t, int64_t>>> generated_;
  RolePlanning planning_;
  std::vector<std::unique_ptr<Router>> routers_;
  FleetTruth truth_;
  LoadRun* run_ = nullptr;
  int64_t last_intended_us_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  uint64_t order_ = 0;
  absl::flat_hash_map<uint64_t, std::shared_ptr<Call>> calls_;
  std::vector<RequestRecord> records_;
  absl::flat_hash_set<Hash128> known_hashes_;  // only with keeps_least_work
  std::vector<std::vector<double>> windows_;   // work by window and worker
  FleetFigures figures_;
};

}  // namespace baton
