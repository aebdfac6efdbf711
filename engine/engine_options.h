// The settings of an engine. Names, ranges and help texts are in engine_options.cc
// (RegisterSettings), one for each field.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cache/eviction_policy.h"
#include "cache/kv_cache_manager.h"
#include "cache/kv_cache_spec.h"
#include "common/kv_type.h"
#include "common/settings.h"
#include "kvtransfer/transport.h"
#include "model/architectures.h"

namespace baton {

inline constexpr int32_t kMaxEngineThreads = 256;
inline constexpr int32_t kMaxKvCacheMib = 1 << 24;
inline constexpr int32_t kMaxKvBlocks = 1 << 30;

struct EngineOptions {
  std::string model;                     // path of a GGUF file; empty: the default model
  std::string device = "cpu";            // kernels/create_device.h
  int32_t threads = 0;                   // 0: all CPUs this process may use
  std::string instruction_set = "auto";  // auto, plain, avx2, avx512

  // KV pool
  int32_t block_size = 16;   // tokens
  int64_t kv_cache_mib = 0;  // 0: 1 GiB, or less where memory is short
  // Exact pool size in blocks; 0: from kv_cache_mib. With sliding windows: blocks of the
  // full-attention group, beside which windows get theirs (kv_pool_division.h).
  int32_t kv_blocks = 0;
  int64_t kv_cache_max_mib = 0;  // how far Engine::Resize may grow it; 0: it keeps its size
  KvType kv_type = KvType::kF16;
  KvLayoutKind layout = KvLayoutKind::kBlockMajor;
  bool paged = true;         // false: one contiguous run a sequence (layer-major, no prefix cache)
  bool prefix_cache = true;  // false: cache_kind is naive
  CacheKind cache_kind = CacheKind::kRadix;
  EvictionPolicy eviction_policy = EvictionPolicy::kPriority;  // LRU among equals
  double high_water = 0.9;                                     // shares of the pool; KvCacheOptions
  double low_water = 0.8;
  int32_t min_prefix_tokens = 0;

  // Scheduling
  int32_t token_budget = 512;      // tokens a step
  int32_t max_chunk_tokens = 512;  // tokens of one sequence a step
  int32_t max_running = 64;        // sequences a step
  int32_t max_waiting = 1024;      // queue bound
  int32_t steps_in_flight = 1;     // 2: a step is planned and submitted while one runs
  int32_t context_length = 0;      // 0: the model's
  bool hash_logits = false;        // report a hash of all sampled logits with every answer
  bool graph = true;               // replay decode steps from a captured graph

  bool kv_events = false;  // tell of what the prefix cache holds; set by the worker's main

  // Transfer; set by the worker's main
  std::string transfer_listen;  // "HOST:PORT" for TCP; empty: none
  bool transfer_shm = false;  // over shared memory with peers on this host; the pool lies in a file
  bool transfer_nccl = false;      // payload over NCCL beside TCP, where both sides can
  std::string transfer_advertise;  // HOST or HOST:PORT that peers dial; empty: as it listens
  // Opens the way to other workers in place of what these four name. Null: they count.
  std::function<absl::StatusOr<std::unique_ptr<KvTransport>>(TransportOptions transport)>
      open_transport = nullptr;
  int64_t transfer_timeout_ms = 120'000;
  int64_t op_stall_ms = 30'000;  // an operation of a step that takes longer hangs (loop_watchdog.h)
  int32_t layer_pieces = 0;      // of a prompt's last chunk (layer_pieces.h)

  // How transports see the memory that kernels have at `pool`. Empty: as host memory. Tests give a
  // pool that transports cannot read.
  std::function<std::unique_ptr<TransferPool>(std::byte* pool, const KvPoolLayout& layout)>
      lend_pool = nullptr;
  // That a model may have; tests add theirs.
  ArchitectureList architectures = Architectures();
  // Asked beside the engine's own recount (idle_integrity_check.h): how a test breaks the
  // accounting.
  std::function<absl::Status()> also_check = [] { return absl::OkStatus(); };
};

// Makes layout, prefix_cache and cache_kind say what is in effect: contiguous sequences exclude
// caching, prefix_cache off makes the radix kind naive, and is on for that kind alone.
// InvalidArgument when the water marks are the wrong way round.
absl::Status SettleCacheOptions(EngineOptions& options);

// Makes context_length say what is in effect: 0 is what the model was made for, its RoPE scaling
// included. InvalidArgument above that: its positions would be rotated as none was in training, and
// routers count with the model's own.
absl::Status SettleContextLength(EngineOptions& options, int32_t models);

// How many tokens of one sequence steps may hold that are not committed: the longest chunk in each
// step in flight.
int32_t MaxStepTokens(const EngineOptions& options);

// What kv_cache_mib 0 stands for: 1024, or a quarter of the memory that is available if less
// (DeviceMemory::available).
int64_t DefaultKvCacheMiB(int64_t available_bytes);

// Adds every user-facing field to `settings` under its command-line name.
void RegisterSettings(EngineOptions& options, SettingList& settings);

}  // namespace baton
