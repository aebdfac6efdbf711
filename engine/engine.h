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
  // Loads the model and starts the loop thread. Errors name the file, the field or the setting.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(const EngineOptions& options);
  // Returns the error that Create would return for these options, except those of weights, memory
  // and transport. Reads only the beginning of the model's file.
  static absl::Status Check(EngineOptions options);
  // Cancels all requests (their sinks get Cancelled), waits until the transport is idle, and joins
  // the loop thread.
  ~Engine() override = default;

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
  // Bytes of the whole KV pool when its full-attention group has `blocks` blocks.
  virtual int64_t BytesOf(int32_t blocks) const = 0;

  // Drops all cached prefixes, or those of one namespace (KvCacheManager::ClearCache), between two
  // steps. Does not disturb running requests. Returns the number of blocks freed at once. Waits for
  // the running step. Status() has the effect when this returns.
  virtual absl::StatusOr<int32_t> ClearCache(std::optional<CacheNamespace> only) = 0;
  // Same for prompt chunks alone (ChunkCache::Clear). Cached prefixes stay.
  virtual absl::StatusOr<int32_t> ClearChunks(std::optional<CacheNamespace> only) = 0;
  // Lists the cached prompt chunks, the least recently used first. Waits for the running step.
  // Empty if the engine is shutting down.
  virtual std::vector<ChunkCache::EntryInfo> ListChunks() = 0;

  // Returns the status that the loop published last. The loop publishes before and after every
  // step, and at least every 50 ms while idle. Never waits for the loop. While a step runs, this is
  // the state before that step, also for a sink that the step calls. A long chunk on a slow machine
  // takes seconds.
  virtual EngineStatus Status() = 0;
  // Asks the loop, so it waits for the running step. Empty if the engine is shutting down.
  virtual EngineInspection Inspect() = 0;

  // Options of this engine, with the effective value of every automatic one: model file, threads,
  // instruction set, pool.
  virtual const EngineOptions& options() const = 0;
  virtual const KvFingerprint& fingerprint() const = 0;
  // Hyper-parameters, tokenizer specification and chat template.
  virtual const ModelInfo& model_info() const = 0;
  virtual const Tokenizer& tokenizer() const = 0;
  // Describes model and file, device and pool, one line each, for the start of a log.
  virtual std::string StartupReport() const = 0;
};

}  // namespace baton
