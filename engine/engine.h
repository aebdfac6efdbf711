// A worker's engine: loads a model, owns the pool, runs ONE loop thread that owns all scheduling,
// cache and sequence state.
//
// Callers post (Generate, Prefill, Cancel, …) from any thread; answers come through sinks on the
// loop thread. What role a worker plays is which calls it gets: the same engine prefills for
// others, decodes what others prefilled, or does both.
//
// Thread safety: every public function, from any thread.
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
  PoolSize pool;  // `before` is as `limit`; of the full-attention group, as all without a group
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
  std::string conservation_error;  // IdleIntegrityCheck; empty while all is well
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
  // Loads the model and starts the loop. Errors name the file, the field or the setting.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(const EngineOptions& options);
  // Cancels what runs (sinks see Cancelled), waits for the transport, joins the loop.
  virtual ~Engine() = default;

  // Validation errors and refusals reach the sink (OnError), never throw, never block. Unavailable
  // for good, as for prefills, pulls and sends, once a recount of the blocks has failed.
  virtual RequestHandle Generate(GenerateRequest request, std::shared_ptr<RequestSink> sink) = 0;
  virtual RequestHandle Prefill(PrefillRequest request, std::shared_ptr<PrefillSink> sink) = 0;
  // Ends a request and frees its blocks at once; its sink sees Cancelled. Unknown or ended handles
  // are ignored.
  virtual void Cancel(RequestHandle handle) = 0;
  // No KV will come for this transfer: prefill here. Does not wait for the loop: `done` runs once,
  // on the loop thread, or before this returns when the inbox is full (ResourceExhausted) or the
  // engine stops (Unavailable); it must not block. NotFound: the transfer is not waiting for KV.
  virtual void PrefillLocally(uint64_t transfer_id, Epoch receiver_epoch,
                              std::function<void(absl::Status)> done) = 0;

  // Brings a prefix from another worker's cache into this one's. Refusals reach the sink; Cancel
  // ends it.
  virtual RequestHandle PullPrefix(PullRequest request, std::shared_ptr<PullSink> sink) = 0;
  // Sends what is cached here of a prefix to who asked for it, and goes on with that on its own.
  // `done` runs as PrefillLocally's, with the tokens that the receiver will have
  // (PrefixPulls::Send).
  virtual void SendPrefix(SendPrefixRequest request,
                          std::function<void(absl::StatusOr<int32_t>)> done) = 0;
  // Grows or shrinks the KV pool while it serves, between two steps. Cached prefixes behind the new
  // end are forgotten, what is in use there retires with its last user, and memory goes back to the
  // system with it. Requests that wait and can never fit any more are refused (ResourceExhausted);
  // those that run give way or end as in a pool that runs dry. Waits for the step that runs.
  // Status() has the new size when this returns.
  // FailedPrecondition: the pool keeps its size (EngineOptions::kv_cache_max_mib is 0).
  // InvalidArgument, with the range: outside [1, reserved]. ResourceExhausted: no memory.
  virtual absl::StatusOr<PoolSize> Resize(int32_t blocks) = 0;
  // The most blocks for Resize with which the pool, all KV groups together, fits in `bytes`.
  virtual int64_t BlocksIn(int64_t bytes) const = 0;

  // Forgets everything cached, or one namespace (KvCacheManager::ClearCache), between two steps.
  // What runs goes on as it is. Returns the blocks that were freed at once. Waits for the step that
  // runs.
  virtual absl::StatusOr<int32_t> ClearCache(std::optional<CacheNamespace> only) = 0;

  // What comes into and goes from this engine's prefix cache; null when it keeps none, or tells of
  // none (EngineOptions::kv_events). An event is published at the latest with the step in which it
  // happened.
  virtual KvEventFeed* kv_events() = 0;
  // All that is there now. `done` runs as PrefillLocally's. FailedPrecondition where kv_events() is
  // null.
  using KvEventSnapshotDone =
      std::function<void(absl::StatusOr<std::shared_ptr<const KvEventSnapshot>>)>;
  virtual void SnapshotKvEvents(KvEventSnapshotDone done) = 0;

  // What the loop last published: it does so before and after every step, and at least every 50 ms
  // while idle. Never waits for the loop, so while a step runs (seconds, for a long chunk on a slow
  // machine) this is the state before that step, also for a sink that is called within it.
  virtual EngineStatus Status() = 0;
  // Asks the loop, so it waits for the step that runs. Empty when the engine is shutting down.
  virtual EngineInspection Inspect() = 0;

  // Unavailable, with the reason, while the loop hangs: one operation of a step has taken longer
  // than any does (EngineOptions::op_stall_ms). Never waits for the loop.
  virtual absl::Status CheckWatchdog() const = 0;

  // As created, with what every automatic value came to: file, threads, instruction set, pool.
  virtual const EngineOptions& options() const = 0;
  virtual const KvFingerprint& fingerprint() const = 0;
  virtual Epoch epoch() const = 0;
  virtual const ModelInfo& model_info()
      const = 0;  // hyper-parameters, tokenizer specification, chat template
  virtual const Tokenizer& tokenizer() const = 0;
  // What this engine runs: model and file, device, pool; a line each, for the start of a log.
  virtual std::string StartupReport() const = 0;
};

}  // namespace baton
