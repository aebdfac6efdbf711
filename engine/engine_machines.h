// The state machines of an engine: cache, scheduler, core, inbox and loop. This class creates them
// from one set of options and connects them. It has no model, memory, transport or thread.
//
// Production runs the loop on its own thread with a loaded model. The simulation runs it from its
// event queue with a simulated device.
//
// Thread safety: any thread may call inbox(), kv_events() and SnapshotKvEvents of loop(), and
// error() of integrity_check(). All other functions belong to the engine thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cache/kv_cache_manager.h"
#include "cache/kv_pool_layout.h"
#include "common/clock.h"
#include "engine/chunk_mover.h"
#include "engine/engine_inbox.h"
#include "engine/engine_loop.h"
#include "engine/engine_options.h"
#include "engine/engine_status.h"
#include "engine/idle_integrity_check.h"
#include "engine/kv_event_feed.h"
#include "engine/layer_pieces.h"
#include "engine/loop_watchdog.h"
#include "engine/pending_cancellations.h"
#include "engine/pool_resizer.h"
#include "engine/worker_core.h"
#include "kvtransfer/transport.h"
#include "model/model_runner.h"
#include "scheduler/scheduler.h"
#include "text/tokenizer.h"

namespace baton {

struct EngineMachinesOptions {
  KvCacheOptions cache;        // max_step_tokens is derived from the other options
  SchedulerOptions scheduler;  // insert_chunks is derived from the cache's kind
  int32_t vocabulary = 0;
  int32_t context_length = 0;
  bool hash_logits = false;
  int32_t steps_in_flight = 1;
  int64_t transfer_timeout_ms = WorkerCoreOptions().transfer_timeout_ms;
  int32_t layer_pieces = 1;  // of a prompt's last chunk
  PromptPartsOptions prompt_parts = {};
  int64_t chunk_host_bytes = 0;  // of sleeping chunks
  std::string kv_type;           // for the status
  size_t kept_event_bytes = KvEventFeed::kKeptBytes;
  int64_t idle_turn_us = EngineLoop::kIdleTurnUs;
};

// Returns the options for an engine with these settings, which must be settled (engine_options.h).
// `max_blocks` is the largest size of group 0's pool. `windows` are the pools of the other groups.
EngineMachinesOptions MachinesOptionsOf(const EngineOptions& options, int32_t vocabulary,
                                        int32_t max_blocks, std::vector<WindowPoolOptions> windows);

// Every pointer must outlive the machines.
struct EngineEnvironment {
  const Clock* clock;
  KvPoolLayout layout;
  ResizablePool* pool;
  ModelRunner* runner;
  KvTransport* transport;  // null: nothing is sent or received
  const Tokenizer* tokenizer;
  // The runner's threads read these two.
  PendingCancellations* cancellations;
  LoopWatchdog* watchdog;
  std::function<uint64_t()> random_bits;     // names transfers (WorkerCore)
  std::function<absl::Status()> also_check;  // part of every integrity check
  std::function<void()> wake;                // an event waits for the loop; from any thread
  std::function<void()> publish;             // the state changed; on the engine thread
  ChunkMover* chunk_mover = nullptr;         // null: no prompt chunk sleeps
  MetricSet* metrics = nullptr;              // null: only the status is counted
};

class EngineMachines {
 public:
  EngineMachines(const EngineMachinesOptions& options, EngineEnvironment environment);

  EngineInbox& inbox() { return inbox_; }
  EngineLoop& loop() { return loop_; }
  const EngineLoop& loop() const { return loop_; }
  KvCacheManager& cache() { return cache_; }
  const KvCacheManager& cache() const { return cache_; }
  Scheduler& scheduler() { return scheduler_; }
  const Scheduler& scheduler() const { return scheduler_; }
  WorkerCore& core() { return core_; }
  const WorkerCore& core() const { return core_; }
  const IdleIntegrityCheck& integrity_check() const { return integrity_check_; }

  // Engine::Resize in two parts. PrepareResize may take seconds and runs on the caller's thread.
  // Resize runs between two steps, or AbandonResize if PrepareResize failed.
  absl::Status PrepareResize(int32_t blocks) { return resizer_.Prepare(blocks); }
  absl::StatusOr<PoolSize> Resize(int32_t blocks) { return resizer_.Resize(core_, blocks); }
  void AbandonResize(int32_t blocks) { resizer_.Abandon(blocks); }

  EngineStatus Status() const;

 private:
  // Interval between two counts of the tokens that are left to compute.
  static constexpr int64_t kBacklogUs = 100'000;

  absl::Status CheckIntegrity() const;
  struct Backlog {
    int64_t tokens = 0;         // Scheduler::UncomputedTokens
    int64_t prompt_tokens = 0;  // Scheduler::PromptTokensLeft
  };
  Backlog CountBacklog() const;
  void Publish();

  const EngineMachinesOptions options_;
  const EngineEnvironment environment_;
  KvCacheManager cache_;
  PoolResizer resizer_;
  Scheduler scheduler_;
  KvEventFeed kv_events_;
  IdleIntegrityCheck integrity_check_;
  EngineInbox inbox_;
  WorkerCore core_;
  EngineLoop loop_;
  const std::shared_ptr<const PromptChunkSupport> chunk_support_;
  mutable Backlog backlog_;  // when it was counted last
  mutable int64_t backlog_counted_us_ = 0;
};

}  // namespace baton
