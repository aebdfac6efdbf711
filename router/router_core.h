// The router's state that all requests share: the registry, the fleet's index, the served model,
// counters. It is a thread-safe shell around the pure parts and does not know gRPC.
//
// Thread safety: every function, from any thread. No function blocks for longer than a look-up,
// except Tick, which may wait until a batch of KV events is applied. The lock is never held while
// the index is asked.
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
#include "metrics/metric_set.h"
#include "router/chunked_request.h"
#include "router/fleet_index.h"
#include "router/load_shedder.h"
#include "router/predicted_prefixes.h"
#include "router/prompt_lookup.h"
#include "router/router_options.h"
#include "router/served_model.h"
#include "routing/role_planner.h"
#include "routing/routing_policy.h"
#include "routing/throughput_model.h"
#include "routing/worker_candidates.h"
#include "routing/worker_registry.h"

namespace baton {

// A plan, with the addresses and ids needed to carry it out.
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
  int32_t decode_batch = 0;  // sequences on the decode worker, including this one
  int64_t room = 0;  // tokens that the whole sequence can have: where the answer ends at the latest
  std::string pull_source_id;  // empty unless the plan has a pull
  std::string pull_source_address;
  Epoch pull_source_epoch{0};
  std::vector<int32_t> pulled_chunks;  // of a chunked prompt with a pull

  const std::string& prefiller_address() const {
    return plan.prefill ? prefill_address : decode_address;
  }
  Epoch prefiller_epoch() const { return plan.prefill ? prefill_epoch : decode_epoch; }
};

struct RouteQuestion {
  static constexpr int64_t kLeastAnswerTokens = 256;

  std::span<const Hash128> prompt_hashes;  // of a chunked prompt: of its question
  int32_t prompt_tokens = 0;               // of all parts, if there are several
  // Tokens of the prompt and the longest possible answer. Only decode workers with enough room are
  // chosen. If least_room is 0, "enough" is as much of the sequence as any worker can hold;
  // otherwise it is least_room. The reason: where a promised answer ends must not depend on the
  // worker that resumes it.
  int64_t sequence_tokens = 0;
  int64_t least_room = 0;
  // The client set no max_tokens. If least_room is 0, "enough" then is the most room of any worker
  // below its limit on running sequences. It is at least the prompt and kLeastAnswerTokens of an
  // answer, as far as any worker has so much room.
  bool open_ended = false;
  Placement placement = Placement::kAutomatic;
  absl::flat_hash_set<WorkerNumber> excluded = {};
  std::string fingerprint = {};  // fingerprint the decode worker must have; empty: any
  std::string backend = {};      // together with `fingerprint`
  std::string model = {};        // model that the prompt was tokenised for; empty: any
  uint64_t affinity_key = 0;
  const ChunkedRequest* chunked = nullptr;  // null: an ordinary prompt
  bool asked_before = false;                // RequestFlow::asked_before
  // The decode worker may queue the request until it has room for KV from elsewhere. Until then no
  // prefill worker has the prompt.
  bool queues_for_kv = false;
};

struct RouterCounters {
  int32_t active_requests = 0;
  int64_t requests_total = 0;
  int64_t requests_failed = 0;    // by the fleet's fault
  int64_t requests_rejected = 0;  // by the client's fault
  int64_t requests_cancelled = 0;
};

class RouterCore {
 public:
  // Workers find a router that begins anew one by one: each tries every second, and an attempt may
  // take a second.
  static constexpr int64_t kRegistrationUs = 3'000'000;

  // `clock` must outlive this. Use random key_seeds if clients may be hostile.
  RouterCore(const RouterOptions& options, const Clock* clock, KeySeeds key_seeds = {});

  // Replaces the policy of the options, for simulations. Call it before the first ChooseRoute.
  void set_policy(std::unique_ptr<RoutingPolicy> policy) { policy_ = std::move(policy); }
  // Counts the time of decisions. Call it before the first ChooseRoute. `metrics` must outlive
  // this.
  void set_metrics(MetricSet* metrics) { metrics_ = metrics; }

  // Errors as WorkerRegistry::Heartbeat.
  absl::Status Heartbeat(WorkerReport report);
  void Leave(const std::string& id, Epoch epoch);
  // Forgets workers whose heartbeats stopped, and tells the index which workers joined and left.
  // Call it several times a second.
  void Tick();
  std::vector<WorkerRecord> Workers() const;
  // As WorkerRegistry::TakeChanges.
  std::vector<FleetChange> TakeChanges();

  // Returns a worker to ask for the fleet's model; each `turn` gives another one. Returns nullopt
  // if the model is known or no worker is registered.
  std::optional<WorkerRecord> ModelSource(uint64_t turn) const;
  // FailedPrecondition if the fleet serves another model by now.
  absl::Status SetModel(std::shared_ptr<const ServedModel> model);
  // Unavailable until a worker has sent the model.
  absl::StatusOr<std::shared_ptr<const ServedModel>> model() const;

  // Returns true if a request would succeed now. The first time, every worker must also have
  // settled in the index (FleetIndex). Workers that join later do not make the router unready:
  // their caches are empty at first, and the index follows them soon. Neither do workers that
  // change their roles.
  bool ready();

  // The size of pieces that chunks have on most workers.
  int32_t PieceTokens() const;

  // Chooses workers. Counts the request as active on both until WorkerDone, and its prompt as one
  // to compute until PrefillDone. With queues_for_kv, the prefill worker counts only from
  // PrefillAdded on. Unavailable if no such pair exists. FailedPrecondition, with a reason: no
  // worker of the fleet takes this chunked prompt. For kRegistrationUs after the router got its
  // first worker, this error is Unavailable too, with RetryAfterMs.
  absl::StatusOr<Route> ChooseRoute(const RouteQuestion& question);
  // Counts the plan's prompt as one that its prefiller() has to compute, and the request as active
  // on the prefill worker, if the plan has one. REQUIRES: neither is counted.
  void PrefillAdded(const RoutePlan& plan);
  // The plan's prompt was computed or never will be.
  void PrefillDone(const RoutePlan& plan);
  // Updates the throughput model that routing uses.
  void Learn(const FinishedRequest& request);
  void Learn(const FinishedPull& pull);
  // Returns the load since the last call, for the role planner.
  RoleLoad TakeRoleLoad();
  void WorkerDone(WorkerNumber number);
  void MarkUnreachable(WorkerNumber number);
  void MarkReachable(WorkerNumber number);
  // As WorkerRegistry::SetSilent.
  std::vector<WorkerNumber> SetSilent(const absl::flat_hash_set<WorkerNumber>& silent);
  // The worker has just cached the prefix with these hashes. Routing counts it for a short time,
  // until the worker's events report it. Ignored if the index does not follow the worker.
  void Remember(WorkerNumber number, std::span<const Hash128> hashes);

  // Returns an error if a request with `left_us` to its deadline would probably miss it
  // (LoadShedder::MayJoin). At most `most_ahead` requests are ahead of it (MostAhead).
  absl::Status MayWait(int64_t left_us, int32_t priority, size_t most_ahead) const;
  // Adds a request to the queue for first tokens, before it waits for its tenant's turn. The caller
  // passes its place to WaitsNoMore when the request leaves the queue; `served` says if it got its
  // first token.
  LoadShedder::Place Waits(int32_t priority);
  void WaitsNoMore(const LoadShedder::Place& place, bool served);

  void RequestStarted();
  void RequestEnded(const absl::Status& status);
  RouterCounters counters() const;

  FleetIndex& index() { return index_; }
  const FleetIndex& index() const { return index_; }
  size_t predicted_units() const;
  // Requests that wait for their first token.
  size_t waiting() const;

 private:
  absl::StatusOr<Route> Choose(const RouteQuestion& question);
  // Workers that a decision looks at even if they have cached nothing of the prompt.
  struct Drawn {
    std::vector<WorkerNumber> workers;
    uint64_t turn;  // number of the decision
  };
  // Of RoutingOptions::candidates, this share is drawn. The rest have most of the prompt cached.
  static constexpr int32_t kDrawnEighths = 5;
  // True if decisions look at candidates only.
  bool IsLarge() const;
  size_t HoldingCandidates() const;
  // nullopt: look at all workers.
  std::optional<Drawn> DrawCandidates(const RouteQuestion& question);
  absl::StatusOr<Route> ChooseAmong(const RouteQuestion& question,
                                    const std::optional<Drawn>& drawn);
  // Places of the drawn workers and of those that have some of the prompt, rising. Fills
  // candidate_at_ with their inverse.
  std::vector<int32_t> PlacesOf(std::span<const WorkerNumber> drawn, const RoutingInput& input);
  // Counts the request on the workers of the plan.
  Route Count(const RouteQuestion& question, const RoutingInput& input, const RoutePlan& plan);
  bool HasFleetLocked() const;
  // As CheckTaken, but Unavailable for kRegistrationUs after the router got its first worker.
  absl::Status CheckTakenLocked(const RoutingInput& input) const;
  double AnswerTokenUs() const;
  RoutingInput InputOf(const RouteQuestion& question, PromptLookup& lookup);
  // Returns the most tokens of the sequence that any decode worker can hold; 0: there is no worker.
  int64_t MostRoom(const RoutingInput& input) const;
  // Returns how many tokens the chosen worker must hold.
  int64_t LeastRoom(const RouteQuestion& question, const RoutingInput& input, int64_t most) const;
  // Demands room of the chosen worker, as RouteQuestion::sequence_tokens says.
  absl::Status DemandRoom(const RouteQuestion& question, RoutingInput& input) const;
  // The tokens of the sequence that every decode worker can hold, if it is the same for all.
  std::optional<int64_t> EqualRoom(const RoutingInput& input) const;

  const RouterOptions options_;
  const Clock* const clock_;
  MetricSet* metrics_ = nullptr;
  FleetIndex index_;
  mutable std::mutex mutex_;
  WorkerRegistry registry_;
  WorkerNumber newest_in_index_{0};
  int64_t first_registered_us_ = 0;  // when the router, without workers until then, got one
  bool has_recovered_ = false;
  std::optional<int64_t> recovering_since_us_;  // when the fleet first had enough workers
  PredictedPrefixes predicted_;
  std::unique_ptr<RoutingPolicy> policy_;
  ThroughputModel speeds_;
  WorkerCandidates candidates_;
  uint64_t decisions_ = 0;             // among candidates
  std::vector<int32_t> candidate_at_;  // FleetView::candidate_at of the running decision
  std::shared_ptr<const ServedModel> model_;
  LoadShedder waiting_;
  RouterCounters counters_;
  RoleLoad role_load_;
};

}  // namespace baton
