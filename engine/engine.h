// A worker's engine. It loads a model, owns the KV pool, and runs one loop thread. The loop thread
// owns all scheduling, cache and sequence state.
//
// Callers post requests (Generate, Prefill, Cancel, …) from any thread. Answers come through sinks
// on the loop thread. An engine has no fixed role: it prefills for peers, decodes what peers
// prefilled, or does both, depending on the calls that it gets.
//
// Thread safety: every public function may be called from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cache/cache_key.h"
#include "cache/kv_cache_manager.h"
#include "engine/engine_options.h"
#include "engine/kv_event_feed.h"
#include "engine/kv_group_status.h"
#include "engine/model_info.h"
#include "engine/pool_size.h"
#include "engine/request.h"
#include "engine/sequence_inspection.h"
#include "kvtransfer/protocol/fingerprint.h"
#include "text/tokenizer.h"

namespace baton {

struct EngineStatus {
  KvCacheStats cache;
  int32_t block_size = 0;
  int32_t context_length = 0;
  int32_t max_running = 0;
  int64_t bytes_per_block = 0;
  std::string layout;
  std::string kv_type;
  bool paged = true;
  bool prefix_cache = true;
  int32_t min_prefix_tokens = 0;
  PoolSize pool;  // `before` equals `limit`; sizes outside `groups` are the full-attention group's
  std::vector<KvGroupStatus> groups;
  int32_t waiting = 0;
  int32_t running = 0;
  int32_t waiting_for_kv = 0;
  int32_t active_transfers = 0;
  int64_t steps = 0;
  int64_t prefill_tokens = 0;
  int64_t decode_tokens = 0;
  int64_t preemptions = 0;
  int64_t requests = 0;
  int64_t failures = 0;
  std::string conservation_error;  // of IdleIntegrityCheck; empty: none found
};

struct EngineInspection {
  std::string op_path;
  EngineStatus status;
  int64_t resident_pool_bytes = 0;
  int32_t cache_depth = 0;  // nodes on the prefix tree's longest path
  std::vector<SequenceInspection> sequences;
  std::vector<AllocationEvent> trace;
};

class Engine {
 public:
  // Loads the model and starts the loop thread. Errors name the file, the field or the setting.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(const EngineOptions& options);
  // Cancels all requests (their sinks get Cancelled), waits until the transport is idle, and joins
  // the loop thread.
  virtual ~Engine() = default;

  // Never throws and never blocks. Validation errors and refusals reach the sink (OnError). Once
  // the integrity check has failed, Generate, Prefill, PullPrefix and SendPrefix answer Unavailable
  // forever.
  virtual RequestHandle Generate(GenerateRequest request, std::shared_ptr<RequestSink> sink) = 0;
  virtual RequestHandle Prefill(PrefillRequest request, std::shared_ptr<PrefillSink> sink) = 0;
  // Ends a request and frees its blocks at once. Its sink gets Cancelled. Ignores unknown and ended
  // handles.
  virtual void Cancel(RequestHandle handle) = 0;
  // Says that no KV will come for this transfer, so the engine must compute the prompt itself. Does
  // not wait for the loop. `done` runs exactly once and must not block. It runs on the loop thread,
  // or before this call returns if the inbox is full (ResourceExhausted) or the engine is stopping
  // (Unavailable). NotFound: the transfer is not waiting for KV.
  virtual void PrefillLocally(uint64_t transfer_id, Epoch receiver_epoch,
                              std::function<void(absl::Status)> done) = 0;

  // Pulls a prefix from another worker's cache into this one's (prefix_pull.h). Refusals reach the
  // sink. Cancel ends the pull.
  virtual RequestHandle PullPrefix(PullRequest request, std::shared_ptr<PullSink> sink) = 0;
  // Sends the cached part of a prefix to the receiver that the ticket names. The transfer continues
  // after `done`. `done` runs as in PrefillLocally, with the number of tokens that the receiver
  // will have (PrefixPulls::Send).
  virtual void SendPrefix(SendPrefixRequest request,
                          std::function<void(absl::StatusOr<int32_t>)> done) = 0;
  // Grows or shrinks the KV pool to `blocks` blocks of the full-attention group, between two steps.
  // When the pool shrinks:
  //  - Cached prefixes beyond the new end are forgotten.
  //  - Blocks in use beyond it are retired when their last user releases them. Their memory then
  //    goes back to the system.
  //  - Waiting requests that can no longer fit are refused (ResourceExhausted).
  //  - Running requests are preempted or end, as in any pool that runs out of blocks.
  //
  // Waits for the running step. Status() has the new size when this returns.
  // FailedPrecondition: the pool has a fixed size
  // (EngineOptions::kv_cache_max_mib is 0). InvalidArgument, with the range: `blocks` is outside
  // [1, reserved]. ResourceExhausted: not enough memory.
  virtual absl::StatusOr<PoolSize> Resize(int32_t blocks) = 0;
  // Largest argument of Resize with which all KV groups together fit in `bytes`.
  virtual int64_t BlocksIn(int64_t bytes) const = 0;

  // Drops all cached prefixes, or those of one namespace (KvCacheManager::ClearCache), between two
  // steps. Does not disturb running requests. Returns the number of blocks freed at once. Waits for
  // the running step.
  virtual absl::StatusOr<int32_t> ClearCache(std::optional<CacheNamespace> only) = 0;

  // Feed of the blocks that enter and leave this engine's prefix cache. Null if the engine keeps no
  // prefix cache or publishes no events (EngineOptions::kv_events). An event is published no later
  // than the end of the step in which it happened.
  virtual KvEventFeed* kv_events() = 0;
  // Passes a snapshot of the prefix cache to `done`, which runs as in PrefillLocally.
  // FailedPrecondition if kv_events() is null.
  using KvEventSnapshotDone =
      std::function<void(absl::StatusOr<std::shared_ptr<const KvEventSnapshot>>)>;
  virtual void SnapshotKvEvents(KvEventSnapshotDone done) = 0;

  // Returns the status that the loop published last. The loop publishes before and after every
  // step, and at least every 50 ms while idle. Never waits for the loop. While a step runs, this is
  // the state before that step, also for a sink that the step calls. A long chunk on a slow machine
  // takes seconds.
  virtual EngineStatus Status() = 0;
  // Asks the loop, so it waits for the running step. Empty if the engine is shutting down.
  virtual EngineInspection Inspect() = 0;

  // Unavailable, with the reason, if the loop hangs: one operation of a step has taken longer than
  // EngineOptions::op_stall_ms. Never waits for the loop.
  virtual absl::Status CheckWatchdog() const = 0;

  // Options of this engine, with the effective value of every automatic one: model file, threads,
  // instruction set, pool.
  virtual const EngineOptions& options() const = 0;
  virtual const KvFingerprint& fingerprint() const = 0;
  virtual Epoch epoch() const = 0;
  // Hyper-parameters, tokenizer specification and chat template.
  virtual const ModelInfo& model_info() const = 0;
  virtual const Tokenizer& tokenizer() const = 0;
  // Describes model and file, device and pool, one line each, for the start of a log.
  virtual std::string StartupReport() const = 0;
};

}  // namespace baton
