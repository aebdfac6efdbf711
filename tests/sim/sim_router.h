// Simulated router: production's RouterCore (registry, index, policy) and GenerateSession, without
// gRPC and tokenization.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "common/prompt_chunks.h"
#include "router/failure_detector.h"
#include "router/generate_session.h"
#include "router/probe_rounds.h"
#include "router/router_core.h"
#include "tests/sim/sim_call.h"
#include "tests/sim/sim_kv_event_subscriber.h"
#include "tests/sim/sim_worker.h"

namespace baton {

struct SimStarted {};
// Message of a Generate call's stream.
using SimResponse = std::variant<SimStarted, TokenOutput, FinishInfo>;

struct SimGenerateRequest {
  uint64_t number = 0;          // identifies the request in the history
  std::vector<TokenId> prompt;  // of a chunked prompt: the tokens of all parts
  std::optional<ChunkedPrompt> chunked = {};
  int32_t n = 1;  // choices
  SamplingParams sampling;
  CacheNamespace cache_namespace{0};
  int32_t priority = 0;
  Placement placement = Placement::kAutomatic;
};

// How a client reads its messages.
struct SimReader {
  std::function<void(SimResponse)> on_response;
  // Number of messages that were sent and that the client has not read. Both sides share it.
  std::shared_ptr<int32_t> unread = std::make_shared<int32_t>(0);
  int32_t max_unread = 1000;  // more unread messages end the stream
};

class SimRouter {
 public:
  struct Environment {
    SimNetwork* network;
    SimNode* node;
    uint64_t pulls = 0;  // Scenario::pulls
    Mutant mutant = Mutant::kNone;
    std::function<SimWorker*(const std::string& address)> worker_at;
    // Runs when the index refuses an event that the worker itself sent.
    std::function<void(const std::string& worker_id, const absl::Status& why)> refused;
    std::function<void(const std::string&)> violation;  // the router broke a rule
  };

  SimRouter(const RouterOptions& options, Environment environment);
  ~SimRouter();

  void Start();
  void Kill();
  SimNode& node() { return *environment_.node; }

  // Serves a call, in this process.
  void Generate(const std::shared_ptr<SimCall>& call, const SimGenerateRequest& request,
                const SimReader& reader);
  const SimRegistry& registry() const { return registry_; }
  int32_t active_requests() const {
    return core_ == nullptr ? 0 : core_->counters().active_requests;
  }
  // Returns the number of requests that the registry counts on its workers. A value other than 0 at
  // rest means that one was counted wrong.
  int32_t active_on_workers() const;
  int32_t usable_workers(bool decode) const;
  std::vector<WorkerRecord> workers() const { return core_->Workers(); }
  const FleetIndex& index() const { return core_->index(); }
  // Returns true if the worker missed so many probes that the failure detector reports it.
  bool FoundSilent(WorkerNumber worker) const {
    return failure_detector_->Silent().contains(worker);
  }
  // Returns true if the request needed more than one attempt, under any router process.
  bool Retried(uint64_t request) const { return retried_.contains(request); }
  // Returns the time between two rounds of probes.
  int64_t probe_interval_us() const { return silence_us() / FailureDetector::kRoundsToSilence; }
  // Returns the time within which a lost worker must be found.
  int64_t silence_us() const { return options_.worker_silence_ms * 1000; }

 private:
  class Generation;

  void Tick();
  // Checks that, with several KV groups, no block goes to a worker with larger blocks.
  void CheckBlockSizes(const Route& route) const;
  // Draws a pull at random, regardless of the index. As far as the router knows, any worker may
  // have any prefix, and hints are often wrong.
  void DrawPull(const SimGenerateRequest& request, int32_t tokens, Route& route) const;
  // Keeps the sources that have cached chunks of this namespace, if there are any.
  void PreferHolders(CacheNamespace cache_namespace,
                     std::vector<const WorkerRecord*>& sources) const;
  void ProbeRound();
  void Probe(const FailureDetector::Target& target);
  void CountMissedRounds();
  void OnProbeAnswered(WorkerNumber worker, const absl::Status& status);

  const RouterOptions options_;
  const Environment environment_;
  SimRegistry registry_;
  std::unique_ptr<RouterCore> core_;
  std::unique_ptr<FailureDetector> failure_detector_;
  std::unique_ptr<ProbeRounds> probe_rounds_;
  std::unique_ptr<SimKvEventSubscriber> subscriber_;
  // Only for Mutant::kSilentForTooLong: rounds that a worker missed and has not made up for.
  struct Missed {
    int64_t rounds = 0;
    bool answered = false;  // since the last round
  };
  std::map<WorkerNumber, Missed> missed_;
  std::set<uint64_t> retried_;
};

}  // namespace baton
