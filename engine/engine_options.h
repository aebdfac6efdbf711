// Settings of an engine. RegisterSettings (engine_options.cc) has the name, range and help text of
// each field.
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
#include "metrics/metric_set.h"
#include "model/architectures.h"
#include "security/tls_files.h"

namespace baton {

class Device;

inline constexpr int32_t kMaxEngineThreads = 256;
inline constexpr int32_t kMaxKvCacheMib = 1 << 24;
inline constexpr int32_t kMaxKvBlocks = 1 << 30;

struct EngineOptions {
  std::string model;                     // path of a GGUF file; empty: the default model
  std::string device = "cpu";            // kernels/create_device.h
  int32_t threads = 0;                   // 0: all CPUs this process may use
  std::string instruction_set = "auto";  // auto, plain, avx2, avx512-no-vnni, avx512
  std::string numerics = "auto";         // auto, r1, t1-sm80, t1-sm90
  // Ranks that compute the model together (model/tensor_parallel_runner.h).
  int32_t tensor_parallel = 1;

  // KV pool
  int32_t block_size = 0;    // tokens; 0: see SettleForDevice
  int64_t kv_cache_mib = 0;  // 0: see DefaultKvCacheMiB
  // Exact pool size in blocks; 0: derived from kv_cache_mib. For a model with sliding windows this
  // counts blocks of the full-attention group. The windows' pools come on top of it
  // (kv_pool_division.h).
  int32_t kv_blocks = 0;
  int64_t kv_cache_max_mib = 0;  // upper limit of Engine::Resize; 0: fixed size
  KvType kv_type = KvType::kF16;
  KvLayoutKind layout = KvLayoutKind::kBlockMajor;
  bool paged = true;  // false: one contiguous run per sequence (layer-major, no prefix cache)
  bool prefix_cache = true;  // false: cache_kind becomes kNaive
  CacheKind cache_kind = CacheKind::kRadix;
  EvictionPolicy eviction_policy = EvictionPolicy::kPriority;  // LRU among equals
  double high_water = 0.9;  // shares of the pool (KvCacheOptions)
  double low_water = 0.8;
  int32_t min_prefix_tokens = 0;
  double chunk_cache_share = 0.15;     // of the pool, for prompt chunks; 0: cache none
  int32_t prompt_chunk_tokens = 4096;  // longer prompt chunks are divided; a multiple of 256
  int64_t chunk_host_mib = 0;          // host memory for prompt chunks that sleep; 0: none sleeps
  int32_t chunk_sleep_after_s = 3600;  // when a cached chunk is cold (ChunkCacheOptions)
  int32_t chunk_sleep_uses = 5;
  bool chunk_compress = false;  // sleeping chunks are compressed

  // Scheduling
  int32_t token_budget = 512;       // tokens per step
  int32_t max_chunk_tokens = 512;   // tokens of one sequence per step
  int32_t mixed_prompt_tokens = 0;  // prompt tokens of a step that decodes; 0: SettleForDevice
  int32_t max_running = 64;         // sequences per step
  int32_t max_waiting = 1024;       // queue bound
  int32_t steps_in_flight = 0;      // 2: plan a step while another one runs; 0: SettleForDevice
  int32_t context_length = 0;       // tokens; 0: the model's
  bool hash_logits = false;         // report a hash of all sampled logits with every answer
  bool graph = true;                // replay decode steps from a captured graph

  bool kv_events = false;  // publish changes of the prefix cache; set by the worker's main

  // Transfer; set by the worker's main
  std::string transfer_listen;  // "HOST:PORT" for TCP; empty: none
  // Shared memory with peers on this host: the pool, or the staging buffers of a GPU's pool.
  bool transfer_shm = false;
  bool transfer_nccl = false;  // payload over NCCL where both sides support it
  // The device chooses between the two above: SettleTransfer (peer_transport.h).
  bool transfer_auto = false;
  TlsFiles transfer_tls = {};      // encrypt KV over TCP; no file: off
  bool nccl_plaintext = false;     // with transfer_tls: KV may travel over NCCL without encryption
  std::string transfer_advertise;  // HOST or HOST:PORT that peers dial; empty: as transfer_listen
  // Opens the transport to peers. If set, the four fields above have no effect. Null: they apply.
  std::function<absl::StatusOr<std::unique_ptr<KvTransport>>(TransportOptions transport)>
      open_transport = nullptr;
  int64_t transfer_timeout_ms = 120'000;
  int64_t op_stall_ms = 30'000;  // longest operation of a step; on a GPU longest step
  int32_t layer_pieces = 0;      // pieces of a prompt's last chunk (layer_pieces.h)

  // Makes the TransferPool through which transports access the memory that kernels see at `pool`.
  // Empty: a HostPool, or a StagedPool on a GPU. Tests pass a pool that transports cannot read
  // directly.
  std::function<std::unique_ptr<TransferPool>(std::byte* pool, const KvPoolLayout& layout)>
      lend_pool = nullptr;
  // Architectures that a model file may have. Tests add their own.
  ArchitectureList architectures = Architectures();
  // Runs in addition to the engine's own integrity check (idle_integrity_check.h). Tests use it to
  // simulate broken accounting.
  std::function<absl::Status()> also_check = [] { return absl::OkStatus(); };
  MetricSet* metrics = nullptr;  // of a worker; outlives the engine. Null: only the status counts
};

// Sets layout, prefix_cache and cache_kind to the values in effect:
//  - Contiguous sequences (`paged` false) mean layer-major layout and kNaive.
//  - prefix_cache false turns a kind that shares prefixes into kNaive.
//  - prefix_cache becomes true exactly if the kind shares prefixes.
//
// InvalidArgument if the low-water mark is above the high-water mark, or if prompt_chunk_tokens is
// not a multiple of 256.
absl::Status SettleCacheOptions(EngineOptions& options);

// Sets context_length to the value in effect: 0 becomes `models`, the length that the model was
// made for, including its RoPE scaling. InvalidArgument if it is above `models`. The model was not
// trained on rotations of later positions, and routers count with the model's own length.
absl::Status SettleContextLength(EngineOptions& options, int32_t models);

// Most uncommitted tokens of one sequence in all steps in flight: the longest chunk times the
// number of steps.
int32_t MaxStepTokens(const EngineOptions& options);

// Value of kv_cache_mib 0 on a CPU, in MiB: a quarter of the available memory
// (DeviceMemory::available), but at least 64 and at most 1024. `available_bytes` below 0 means
// unknown and gives 1024.
int64_t DefaultKvCacheMiB(int64_t available_bytes);
// Same for a GPU, whose memory no other program shares: 90 % of the memory that weights and steps
// leave.
int64_t DefaultGpuKvCacheMiB(int64_t available_bytes);

// Sets what depends on the device to the values in effect.
// block_size: 0 becomes 16 on a CPU and 64 on a GPU, where a block is the unit of one asynchronous
// copy of a kernel.
// mixed_prompt_tokens: 0 becomes 128 on a CPU, where the rows of a step are computed almost one
// after the other, and token_budget on a GPU.
// steps_in_flight: 0 becomes 1 on a CPU, and 2 on a GPU, which otherwise waits while the host
// plans.
void SettleForDevice(EngineOptions& options, const Device& device);

// Adds every user-facing field to `settings` under its command-line name.
void RegisterSettings(EngineOptions& options, SettingList& settings);

}  // namespace baton
