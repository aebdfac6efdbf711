// One incarnation of a simulated worker's engine. It runs production's EngineMachines and transfer
// sessions over a simulated device. The event queue replaces the loop thread.
//
// A step takes simulated time. On an inline device, new work waits for the next turn, but
// cancellations are seen between two ops. An asynchronous device computes a submitted step late in
// the step's time, reports its layers and then ends it. Turns continue meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cache/kv_cache_manager.h"
#include "engine/engine_machines.h"
#include "engine/engine_options.h"
#include "engine/engine_requests.h"
#include "kvtransfer/protocol/fingerprint.h"
#include "tests/model/deferred_runner.h"
#include "tests/sim/hasty_runner.h"
#include "tests/sim/mutant_transport.h"
#include "tests/sim/mutants.h"
#include "tests/sim/sim_chunk_mover.h"
#include "tests/sim/sim_device.h"
#include "tests/sim/sim_pool.h"
#include "tests/sim/sim_transport.h"

namespace baton {

// Settings of a simulated worker: those of production's engine, with small values, and those of the
// simulated model, pool and device.
struct SimEngineOptions : EngineOptions {
  SimEngineOptions() {
    kv_blocks = 64;
    block_size = 4;
    context_length = 96;
    kv_type = KvType::kF32;
    eviction_policy = EvictionPolicy::kLru;
    high_water = 1.0;
    low_water = 1.0;
    token_budget = 32;
    max_chunk_tokens = 16;
    max_running = 8;
    max_waiting = 64;
    steps_in_flight = 1;
    layer_pieces = 1;
    hash_logits = true;
  }

  SimModel model;
  int32_t max_blocks = 0;  // largest size of the pool; 0: it cannot grow
  // Blocks of the window's group while group 0 has kv_blocks. The number grows and shrinks in
  // proportion, but not below least_window_blocks.
  int32_t window_blocks = 0;
  int32_t least_window_blocks = 0;
  bool unreadable_pool = false;  // transports cannot read its memory
  int64_t kept_event_bytes = 0;  // KV events kept for readers; 0: publishes none
  int64_t step_us = 300;         // plus the same for every 16 tokens
  bool asynchronous = false;     // the device is asynchronous; steps_in_flight 2 needs it
  // Chunked prompts. With 0 slots a step takes none of them; else this is the largest number of
  // slots of a sequence with its frame.
  int32_t chunk_slots = 0;
  int32_t chunk_entries = 500;   // of the chunk cache
  int64_t chunk_host_bytes = 0;  // of sleeping chunks; 0: none sleeps
  int64_t chunk_sleep_after_us = 0;
  int32_t shifted_queries = 1000;  // of a step
  int32_t repair_runs = 1000;      // of a step
  // The default disables idle turns, so the loop never sees an event that does not wake it.
  int64_t idle_turn_us = INT64_MAX;
};

class SimEngine final : public EngineRequests {
 public:
  struct Environment {
    SimNode* node;
    SimStreams* streams;
    Mutant mutant = Mutant::kNone;
    uint64_t seed = 0;                  // for this incarnation's random numbers
    std::function<void()> after_event;  // runs the checks, in a consistent state
  };

  SimEngine(const SimEngineOptions& options, Environment environment, Epoch epoch,
            const std::string& transfer_address);
  // REQUIRES: idle(), or Abandon was called.
  ~SimEngine() override = default;

  RequestHandle Generate(GenerateRequest request, std::shared_ptr<RequestSink> sink) override {
    return machines_->inbox().Generate(std::move(request), std::move(sink));
  }
  RequestHandle Prefill(PrefillRequest request, std::shared_ptr<PrefillSink> sink) override {
    return machines_->inbox().Prefill(std::move(request), std::move(sink));
  }
  RequestHandle PullPrefix(PullRequest request, std::shared_ptr<PullSink> sink) override {
    return machines_->inbox().PullPrefix(std::move(request), sink);
  }
  void SendPrefix(SendPrefixRequest request,
                  std::function<void(absl::StatusOr<int32_t>)> done) override {
    machines_->inbox().SendPrefix(std::move(request), done);
  }
  void PrefillLocally(uint64_t transfer_id, Epoch receiver_epoch,
                      std::function<void(absl::Status)> done) override {
    machines_->inbox().PrefillLocally(transfer_id, receiver_epoch, done);
  }
  void Cancel(RequestHandle handle) override;
  KvEventFeed* kv_events() override { return machines_->loop().kv_events(); }
  void SnapshotKvEvents(KvEventSnapshotDone done) override {
    machines_->loop().SnapshotKvEvents(done);
  }
  absl::Status CheckWatchdog() const override { return watchdog_.Check(); }
  Epoch epoch() const override { return epoch_; }
  // Grows or shrinks the pool between two steps, as Engine::Resize does.
  void Resize(int32_t blocks);
  // Clears the chunk cache, or with `prefixes` the whole cache, between two steps. `only`: of one
  // namespace.
  void Clear(bool prefixes, std::optional<CacheNamespace> only);

  const EngineLoop& loop() const { return machines_->loop(); }

  // Ends every request. `done` runs once no transfer accesses a block any more.
  void Shutdown(std::function<void()> done);
  // Call this when the process was killed and none of its code runs again. It brings the parts into
  // a state in which they can be destroyed. REQUIRES: the sinks ignore all calls.
  void Abandon();

  bool idle() const { return core().idle() && machines_->inbox().empty(); }
  // Returns the status that the loop published last, as Engine::Status does.
  const EngineStatus& status() const { return status_; }
  int32_t queued() const;
  // Returns the result of the integrity check of the blocks.
  absl::Status integrity_error() const { return machines_->integrity_check().error(); }
  const KvCacheManager& cache() const { return machines_->cache(); }
  const Scheduler& scheduler() const { return machines_->scheduler(); }
  const WorkerCore& core() const { return machines_->core(); }
  const SimTransport& transport() const { return *transport_; }

 private:
  void Wake();
  void Turn();
  void Step();
  void Rest();
  void PublishState();
  void RunDevice();
  void EndDeviceStep();
  void CheckAfterEvent();
  int64_t StepUs() const;
  ModelRunner* Device();
  bool BeginsBehindMatch(const StepChunk& chunk) const;
  void PutCancelsOnBoard(int32_t op, int32_t ops);
  EngineMachinesOptions MachinesOptions() const;
  void Stop();
  void PollUntilIdle();

  const SimEngineOptions options_;
  const Environment environment_;
  const Epoch epoch_;
  SimNode& node_;
  const KvPoolLayout layout_;
  SimPool pool_;
  SimRunner runner_;
  HastyRunner hasty_;
  DeferredRunner deferred_{&runner_};
  SimRandom random_;
  LoopWatchdog watchdog_;
  std::unique_ptr<SimTransport> transport_;
  std::unique_ptr<MutantTransport> mutant_transport_;
  std::unique_ptr<SimChunkMover> chunk_mover_;  // null: no chunk sleeps
  PendingCancellations cancels_;
  std::unique_ptr<EngineMachines> machines_;
  EngineStatus status_;
  struct CancelUnderWay {
    RequestHandle handle;
    int64_t at_us;
  };
  std::vector<CancelUnderWay> cancels_under_way_;  // not in cancels_ yet
  bool turn_posted_ = false;
  bool stepping_ = false;
  bool news_ = false;         // work arrived during a step
  bool device_runs_ = false;  // an asynchronous device computes a step
  std::vector<BlockId> freed_at_stop_;
  int64_t step_begin_us_ = 0;  // start of the last step, by the node's clock
  int64_t step_us_ = 0;        // duration of the last step
  bool stopping_ = false;
  std::function<void()> when_stopped_;
  int64_t rest_timer_us_ = 0;  // by the queue's time; 0: no timer
};

// Returns the number of blocks of every group when group 0 has `full`.
BlockCounts BlocksFor(const SimEngineOptions& options, int32_t full);

// Returns the fingerprint that compatible workers of one scenario share.
KvFingerprint SimFingerprint(const SimEngineOptions& options);

}  // namespace baton
