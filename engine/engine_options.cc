#include "engine/engine_options.h"

#include <algorithm>

#include "common/str_cat.h"
#include "kernels/create_device.h"
#include "scheduler/scheduler.h"

namespace baton {
namespace {

constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kLargestDefaultMiB = 1024;
constexpr int64_t kSmallestDefaultMiB = 64;

}  // namespace

absl::Status SettleCacheOptions(EngineOptions& options) {
  if (options.low_water > options.high_water) {
    return absl::InvalidArgumentError(StrCat("cache-low-water ", options.low_water,
                                             " is above cache-high-water ", options.high_water));
  }
  if (!options.paged) {
    options.layout = KvLayoutKind::kLayerMajor;
    options.cache_kind = CacheKind::kNaive;
  } else if (!options.prefix_cache && RulesOf(options.cache_kind).shares) {
    options.cache_kind = CacheKind::kNaive;
  }
  options.prefix_cache = RulesOf(options.cache_kind).shares;
  return absl::OkStatus();
}

absl::Status SettleContextLength(EngineOptions& options, int32_t models) {
  if (options.context_length == 0) options.context_length = models;
  if (options.context_length <= models) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat("context-length is ", options.context_length,
                                           "; the model was made for at most ", models));
}

int32_t MaxStepTokens(const EngineOptions& options) {
  return MaxStepTokens(SchedulerOptions{.token_budget = options.token_budget,
                                        .max_chunk_tokens = options.max_chunk_tokens},
                       options.steps_in_flight);
}

int64_t DefaultKvCacheMiB(int64_t available_bytes) {
  if (available_bytes < 0) return kLargestDefaultMiB;
  return std::clamp(available_bytes / 4 / kMiB, kSmallestDefaultMiB, kLargestDefaultMiB);
}

void RegisterSettings(EngineOptions& options, SettingList& settings) {
  settings.Add(
      "model", &options.model,
      "GGUF file of the Llama architecture; empty: the default model in the model directory");
  settings.Add("device", &options.device,
               StrCat("the device that computes: ", KnownDevices(),
                      "; cpu-async runs steps on a thread beside the engine's"));
  settings.Add(
      "threads", &options.threads, 0, kMaxEngineThreads,
      "compute threads; 0: one for each CPU this process may use, within the CPU quotas of its "
      "control groups");
  settings.Add("instruction-set", &options.instruction_set,
               "auto, plain, avx2 or avx512: kernels to use; all give the same bits");
  settings.Add("block-size", &options.block_size, kMinBlockSize, kMaxBlockSize,
               "tokens in a KV block, a power of two");
  settings.Add(
      "kv-cache-mib", &options.kv_cache_mib, 0, kMaxKvCacheMib,
      "size of the KV pool; 0: 1024, or a quarter of the memory that is available if less");
  settings.Add("kv-blocks", &options.kv_blocks, 0, kMaxKvBlocks,
               "size of the KV pool in blocks; 0: from --kv-cache-mib. For a model with "
               "sliding windows, this counts blocks of the full-attention layers");
  settings.Add(
      "kv-cache-max-mib", &options.kv_cache_max_mib, 0, kMaxKvCacheMib,
      "address range to reserve, in which `baton resize` grows and shrinks the KV pool while "
      "it serves; 0: the pool keeps its size");
  settings.AddChoice<KvType>("kv-type", &options.kv_type,
                             {{"f16", KvType::kF16},
                              {"bf16", KvType::kBF16},
                              {"f32", KvType::kF32},
                              {"int8", KvType::kInt8}},
                             "element type of cached K and V");
  settings.AddChoice<KvLayoutKind>(
      "kv-layout", &options.layout,
      {{"block-major", KvLayoutKind::kBlockMajor}, {"layer-major", KvLayoutKind::kLayerMajor}},
      "whether a block or a layer is contiguous in the pool");
  settings.Add(
      "paged", &options.paged,
      "page the KV cache; off: one contiguous run a sequence, layer-major, no prefix cache");
  settings.Add("prefix-cache", &options.prefix_cache,
               "keep finished sequences' KV for requests that begin alike");
  settings.AddChoice<CacheKind>(
      "cache-kind", &options.cache_kind, CacheKindNames(),
      "who finds a sequence's KV again: requests that begin alike, the sequence itself after a "
      "preemption, or nobody");
  settings.AddChoice<EvictionPolicy>(
      "eviction-policy", &options.eviction_policy,
      {{"lru", EvictionPolicy::kLru},
       {"lfu", EvictionPolicy::kLfu},
       {"fifo", EvictionPolicy::kFifo},
       {"mru", EvictionPolicy::kMru},
       {"filo", EvictionPolicy::kFilo},
       {"priority", EvictionPolicy::kPriority},
       {"slru", EvictionPolicy::kSlru}},
      "which cached prefix goes first when blocks are needed; priority: the "
      "least important, then the least recently used (a prefix is as "
      "important as the most important request that ever used it)");
  settings.Add("cache-high-water", &options.high_water, 0.01, 1,
               "share of the pool in use above which cached prefixes are evicted ahead of need");
  settings.Add("cache-low-water", &options.low_water, 0.01, 1,
               "share of the pool in use at which that ends; at most the high-water mark");
  settings.Add("min-prefix-tokens", &options.min_prefix_tokens, 0, 1 << 20,
               "shortest cached prefix that counts");
  settings.Add("token-budget", &options.token_budget, 1, 1 << 16, "tokens that a step may compute");
  settings.Add("max-chunk-tokens", &options.max_chunk_tokens, 1, 1 << 16,
               "tokens of one prompt that a step may compute");
  settings.Add("max-running", &options.max_running, 1, 1024, "sequences in a step");
  settings.Add("max-waiting", &options.max_waiting, 1, 1 << 20,
               "requests queued before new ones are refused");
  settings.Add("steps-in-flight", &options.steps_in_flight, 1, 2,
               "steps that may be submitted to the device at once; 2 plans a step while one runs, "
               "which needs an asynchronous device");
  settings.Add("context-length", &options.context_length, 0, 1 << 24,
               "tokens of prompt and answer, at most what the model was made for; 0: that");
  settings.Add("graph", &options.graph, "replay decode steps from captured graphs");
  settings.Add(
      "hash-logits", &options.hash_logits,
      "report a hash of all sampled logits with every answer, to compare runs bit for bit");
  settings.Add("transfer-timeout-ms", &options.transfer_timeout_ms, 1, 86'400'000,
               "how long a request waits for KV from a peer before it is computed here");
  settings.Add(
      "op-stall-ms", &options.op_stall_ms, 100, 86'400'000,
      "an operation of a step that takes longer, in milliseconds, is taken for a hang: the "
      "worker answers no probes, and routers go on elsewhere");
  settings.Add(
      "layer-pieces", &options.layer_pieces, 0, 1024,
      "into how many pieces, each of some layers, the last part of a prompt is cut, whose "
      "first ones travel to the decode worker while the others are computed; 0: as many as "
      "pay, by size and measured bandwidth; 1: it travels when it is computed");
}

}  // namespace baton
