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
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cache/cache_key.h"
#include "cache/kv_cache_manager.h"
#include "engine/engine_options.h"
#include "engine/engine_requests.h"
#include "engine/engine_status.h"
#include "engine/model_info.h"
#include "engine/pool_size.h"
#include "engine/sequence_inspection.h"
#include "kvtransfer/protocol/fingerprint.h"
#include "text/tokenizer.h"

namespace baton {

struct EngineInspection {
  std::string op_path;
  EngineStatus status;
  int64_t resident_pool_bytes = 0;
  int32_t cache_depth = 0;  // nodes on the prefix tree's longest path
  std::vector<SequenceInspection> sequences;
  std::vector<AllocationEvent> trace;
};

class Engine : public EngineRequests {
 public:
  // Loads the model and starts the loop. Errors name the file, the field or the setting.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(const EngineOptions& options);
  // Cancels what runs (sinks see Cancelled), waits for the transport, joins the loop.
  ~Engine() override = default;

  // Grows or shrinks the KV pool while it serves, between two steps. Cached prefixes behind the new
  // end are forgotten, what is in use there retires with its last user, and memory goes back to the
  // system with it. Requests that wait and can never fit any more are refused (ResourceExhausted);
  // those that run give way or end as in a pool that runs dry. Waits for the step that runs.
  // FailedPrecondition: the pool keeps its size (EngineOptions::kv_cache_max_mib is 0).
  // InvalidArgument, with the range: outside [1, reserved]. ResourceExhausted: no memory.
  virtual absl::StatusOr<PoolSize> Resize(int32_t blocks) = 0;
  // The most blocks for Resize with which the pool, all KV groups together, fits in `bytes`.
  virtual int64_t BlocksIn(int64_t bytes) const = 0;

  // Forgets everything cached, or one namespace (KvCacheManager::ClearCache), between two steps.
  // What runs goes on as it is. Returns the blocks that were freed at once. Waits for the step that
  // runs.
  virtual absl::StatusOr<int32_t> ClearCache(std::optional<CacheNamespace> only) = 0;

  // What the loop last published: it does so before and after every step, and at least every 50 ms
  // while idle. Never waits for the loop, so while a step runs (seconds, for a long chunk on a slow
  // machine) this is the state before that step, also for a sink that is called within it.
  virtual EngineStatus Status() = 0;
  // Asks the loop, so it waits for the step that runs. Empty when the engine is shutting down.
  virtual EngineInspection Inspect() = 0;

  // As created, with what every automatic value came to: file, threads, instruction set, pool.
  virtual const EngineOptions& options() const = 0;
  virtual const KvFingerprint& fingerprint() const = 0;
  virtual const ModelInfo& model_info()
      const = 0;  // hyper-parameters, tokenizer specification, chat template
  virtual const Tokenizer& tokenizer() const = 0;
  // What this engine runs: model and file, device, pool; a line each, for the start of a log.
  virtual std::string StartupReport() const = 0;
};

}  // namespace baton
