// The router's state that requests share: registry, the fleet's index, the served model, counters.
// Thread-safe shell around the pure parts; knows nothing of gRPC.
//
// Thread safety: every function, from any thread; none blocks for longer than a look-up, but Tick,
// which may wait until a batch of KV events is taken in. The index is never asked under the lock.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cache/cache_key.h"
#include "common/clock.h"
#include "router/fleet_index.h"
#include "router/load_shedder.h"
#include "router/predicted_prefixes.h"
#include "router/router_options.h"
#include "router/served_model.h"
#include "routing/routing_policy.h"
#include "routing/throughput_model.h"
#include "routing/worker_registry.h"

namespace baton {

// A plan with what it takes to carry it out.
struct Route {
  RoutePlan plan;
  std::string decode_id;
  std::string decode_fingerprint;
  std::string decode_backend;
  std::string decode_address;
  Epoch decode_epoch{0};
  std::string prefill_id;  // empty when the decode worker prefills
  std::string prefill_address;
  Epoch prefill_epoch{0};
  int32_t decode_batch = 0;    // sequences on the decode worker, this one included
  int64_t room = 0;            // tokens of the sequence: where the answer ends at the latest
  std::string pull_source_id;  // empty unless the plan has a pull
  std::string pull_source_address;
  Epoch pull_source_epoch{0};

  const std::string& prefiller_address() const {
    return plan.prefill ? prefill_address : decode_address;
  }
  Epoch prefiller_epoch() const { return plan.prefill ? prefill_epoch : decode_epoch; }
};

struct RouteQuestion {
  static constexpr int64_t kLeastAnswerTokens = 256;

  std::span<const Hash128> prompt_hashes;
  int32_t prompt_tokens = 0;
  // The sequence with the whole answer, at most. Only those decode workers are chosen that can hold
  // as much of it as any can, or at least `least_room` when that is not 0: where an answer that was
  // promised ends must not depend on the worker that goes on with it.
  int64_t sequence_tokens = 0;
  int64_t least_room = 0;
  // The client asked for no length. Then only those count that are not at their limits; where all
  // are, whoever can hold the prompt and kLeastAnswerTokens of an answer may be chosen.
  bool open_ended = false;
  Placement placement = Placement::kAutomatic;
  absl::flat_hash_set<WorkerNumber> excluded = {};
  std::string fingerprint = {};  // of the decode worker; empty: any
  std::string backend = {};      // with `fingerprint`
  std::string model = {};        // whose tokens the prompt's are; empty: of whoever is there
  uint64_t affinity_key = 0;
};

struct RouterCounters {
  int32_t active_requests = 0;
  int64_t requests_total = 0;
  int64_t requests_failed = 0;    // by the fleet
  int64_t requests_rejected = 0;  // for the client's own errors
  int64_t requests_cancelled = 0;
};

class RouterCore {
 public:
  // `clock` must outlive this. The key_seeds are random where clients may be hostile.
  RouterCore(const RouterOptions& options, const Clock* clock, KeySeeds key_seeds = {});

  // Errors as of WorkerRegistry::Heartbeat.
  absl::Status Heartbeat(WorkerReport report);
  void Leave(const std::string& id, Epoch epoch);
  // Forgets silent workers, and tells the index who came and who went; call several times a second.
  void Tick();
  std::vector<WorkerRecord> Workers() const;
  // As of WorkerRegistry.
  std::vector<FleetChange> TakeChanges();

  // A worker to ask for the fleet's model, another one for the next `turn`; nullopt when it is
  // known or nobody is there.
  std::optional<WorkerRecord> ModelSource(uint64_t turn) const;
  // FailedPrecondition when the fleet serves another one by now.
  absl::Status SetModel(std::shared_ptr<const ServedModel> model);
  // Unavailable until a worker has told.
  absl::StatusOr<std::shared_ptr<const ServedModel>> model() const;

  // A request would succeed now, and, when this is asked for the first time, every worker has
  // settled in the index (FleetIndex). Workers that come later do not make a router unready: they
  // begin empty, and are followed within a moment.
  bool ready();

  // Counts the request as active on both workers until WorkerDone, and its prompt as to be computed
  // until PrefillDone. Unavailable when there is no such pair.
  absl::StatusOr<Route> ChooseRoute(const RouteQuestion& question);
  // The plan's prompt is to be computed after all, by its decode worker: the plan names no other.
  void PrefillMoved(const RoutePlan& plan);
  // The plan's prompt was computed, or never will be.
  void PrefillDone(const RoutePlan& plan);
  // Routing reckons with the speeds that it shows.
  void Learn(const FinishedRequest& request);
  void Learn(const FinishedPull& pull);
  void WorkerDone(WorkerNumber number);
  void MarkUnreachable(WorkerNumber number);
  void MarkReachable(WorkerNumber number);
  // As WorkerRegistry::SetSilent.
  std::vector<WorkerNumber> SetSilent(const absl::flat_hash_set<WorkerNumber>& silent);
  // The worker has just cached the prefix with these hashes: counts until its events say so, for a
  // moment. Ignored when its events are not followed.
  void Remember(WorkerNumber number, std::span<const Hash128> hashes);

  // Whether a request with `left_us` to its deadline has a chance: LoadShedder::MayJoin.
  absl::Status MayWait(int64_t left_us, int32_t priority) const;
  // It waits for its first token from now on; returns what WaitsNoMore is told, with whether it has
  // got it.
  LoadShedder::Place Waits(int32_t priority);
  void WaitsNoMore(const LoadShedder::Place& place, bool served);

  void RequestStarted();
  void RequestEnded(const absl::Status& status);
  RouterCounters counters() const;

  FleetIndex& index() { return index_; }
  const FleetIndex& index() const { return index_; }
  size_t predicted_units() const;

 private:
  bool HasFleetLocked() const;
  // The most of the sequence that any decode worker can hold; 0: there is none.
  int64_t MostRoom(const RouteQuestion& question, const RoutingInput& input) const;
  // How much the one that is chosen must hold.
  int64_t LeastRoom(const RouteQuestion& question, const RoutingInput& input, int64_t most) const;
  // Excludes workers as of RouteQuestion::sequence_tokens.
  absl::Status ExcludeTooSmall(const RouteQuestion& question, RoutingInput& input) const;

  const RouterOptions options_;
  const Clock* const clock_;
  FleetIndex index_;
  mutable std::mutex mutex_;
  WorkerRegistry registry_;
  WorkerNumber newest_in_index_{0};
  bool has_recovered_ = false;
  std::optional<int64_t> recovering_since_us_;  // when the fleet was first large enough
  PredictedPrefixes predicted_;
  const std::unique_ptr<RoutingPolicy> policy_;
  ThroughputModel speeds_;
  std::shared_ptr<const ServedModel> model_;
  LoadShedder waiting_;
  RouterCounters counters_;
};

}  // namespace baton
