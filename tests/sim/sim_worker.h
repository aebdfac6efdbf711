// Simulated worker. It runs incarnations of an engine with production's served calls (worker_rpc)
// over simulated streams. Registration and drain are production code too.
//
// A restart keeps the id and the addresses, but changes the epoch.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>

#include "engine/request.h"
#include "router/fleet_index.h"
#include "router/router_core.h"
#include "rpc/concurrency_limit.h"
#include "tests/sim/sim_call.h"
#include "tests/sim/sim_engine.h"
#include "tests/sim/sim_kv_event_stream.h"
#include "worker_rpc/registration.h"
#include "worker_rpc/worker_drain.h"

namespace baton {

// Message of a Decode call's stream.
using SimDecodeEvent = std::variant<TransferTicket, TokenOutput, FinishInfo>;

// The router's services for worker reports. Both run in the router's process.
struct SimRegistry {
  std::function<absl::Status(WorkerReport)> heartbeat;
  std::function<void(const std::string& id, Epoch epoch)> leave;
};

class SimWorker final : private DrainingWorker {
 public:
  struct Options {
    std::string id;
    WorkerRole role = WorkerRole::kDecode;
    SimEngineOptions engine;
    int32_t max_active_requests = 1024;
    bool knows_chunks = true;  // false: an older build, which announces no chunked prompts
  };
  struct Environment {
    SimNetwork* network;
    SimStreams* streams;
    SimNode* node;
    int32_t router_node;
    const SimRegistry* registry;  // the router's services
    Mutant mutant = Mutant::kNone;
    uint64_t seed = 0;
    std::function<void(SimWorker&)> check;              // runs after every event of the engine
    std::function<void(const std::string&)> violation;  // reports a rule that this process broke
  };

  SimWorker(Options options, Environment environment);
  ~SimWorker() override;

  void Start();
  // Kills the process, as with kill −9.
  void Kill();
  // Drains, then exits, as on SIGTERM.
  void Terminate();
  // Resizes the pool, as an operator does. Has no effect while the worker is down or drains.
  void Resize(int32_t blocks);
  // Changes the worker's role, as an operator does, under the same conditions.
  void SetRole(WorkerRole role);
  WorkerRole role() const { return role_; }
  // Clears the worker's caches (SimEngine::Clear), as an operator does, under the same conditions.
  void ClearCache(bool prefixes, std::optional<CacheNamespace> only);

  const std::string& id() const { return options_.id; }
  Epoch epoch() const { return epoch_; }
  std::string address() const { return options_.id + ":7000"; }
  const Options& options() const { return options_; }
  SimNode& node() { return *environment_.node; }
  // Tokens of chunks that pulls brought here.
  int64_t pulled_chunk_tokens() const { return pulled_chunk_tokens_; }
  // Null while the worker is down.
  const SimEngine* engine() const { return engine_.get(); }
  // Leaks the parts as they are, after a violation or a mutant's run. Their destructors' own checks
  // would hide the cause.
  void LeaveBehind();

  // Serve calls, in this process. `number` identifies the request in the history.
  void Decode(const std::shared_ptr<SimCall>& call, uint64_t number, GenerateRequest request,
              std::function<void(SimDecodeEvent)> on_event);
  void Prefill(const std::shared_ptr<SimCall>& call, uint64_t number, PrefillRequest request);
  void PrefillLocally(const std::shared_ptr<SimCall>& call, uint64_t transfer_id, Epoch epoch);
  void PullPrefix(const std::shared_ptr<SimCall>& call, uint64_t number, PullRequest request,
                  std::function<void(TransferTicket)> on_ticket);
  void SendPrefix(const std::shared_ptr<SimCall>& call, uint64_t number, SendPrefixRequest request);
  void StreamKvEvents(const std::shared_ptr<SimCall>& call, const KvEventPosition& position,
                      SimKvEventStream::OnMessage on_message);
  absl::Status Ping(Epoch meant) const;

 private:
  struct Reply;
  class DecodeSink;
  class AnsweringSink;
  class PullingSink;

  // Reports a call with a chunked prompt to a worker that has announced none. Mutants change the
  // namespace.
  template <typename Request>
  void TakeChunked(Request& request) const;
  void Beat();
  WorkerReport Report() const;
  void OnBeatAnswered(const absl::Status& call, const absl::Status& accepted);
  void ReportDraining() override { draining_ = true; }
  void LeaveRouters(std::function<void()> done) override;
  void AwaitDelay(int64_t, std::function<void()> done) override { done(); }
  void RefuseCalls() override { limit_->Close(); }
  void AwaitCalls(int64_t most_ms, std::function<void()> done) override;
  void AwaitCallsUntil(int64_t until_us, std::function<void()> done);
  void CutOffCalls() override;
  void Exit();
  void EndProcess();

  const Options options_;
  const Environment environment_;
  SimRandom epochs_;
  Epoch epoch_{0};
  std::unique_ptr<ConcurrencyLimit> limit_;
  std::unique_ptr<ConcurrencyLimit> pulls_;
  std::shared_ptr<ConcurrencyLimit> sends_;
  std::unique_ptr<ConcurrencyLimit> event_readers_;
  std::unique_ptr<SimEngine> engine_;
  std::set<std::shared_ptr<SimKvEventStream>> kv_event_streams_;
  std::shared_ptr<bool> alive_;  // tells sinks whether this incarnation is alive
  WorkerRole role_;
  Registration registration_;
  bool pauses_ = false;  // waiting to send the next heartbeat
  int64_t beats_ = 0;
  std::function<void()> when_left_;
  bool draining_ = false;
  int64_t pulled_chunk_tokens_ = 0;
  int64_t pulled_prefix_tokens_ = 0;
};

}  // namespace baton
