#include "engine/engine_options.h"

#include <algorithm>

#include "common/str_cat.h"
#include "kernels/communicator.h"
#include "kernels/create_device.h"
#include "kernels/device.h"
#include "kernels/numerics.h"
#include "scheduler/scheduler.h"

namespace baton {
namespace {

constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kLargestDefaultMiB = 1024;
constexpr int64_t kSmallestDefaultMiB = 64;
constexpr int32_t kCpuBlockSize = 16;
constexpr int32_t kCpuMixedPromptTokens = 128;
constexpr int32_t kGpuBlockSize = 64;

}  // namespace

absl::Status SettleCacheOptions(EngineOptions& options) {
  if (options.low_water > options.high_water) {
    return absl::InvalidArgumentError(StrCat("cache-low-water ", options.low_water,
                                             " is above cache-high-water ", options.high_water));
  }
  if (options.prompt_chunk_tokens % kAttentionSegment != 0) {
    return absl::InvalidArgumentError(StrCat("prompt-chunk-tokens is ", options.prompt_chunk_tokens,
                                             "; it must be a multiple of ", kAttentionSegment));
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
                                           "; the largest context of this model is ", models));
}

int32_t MaxStepTokens(const EngineOptions& options) {
  CHECK_GE(options.steps_in_flight, 1) << "SettleForDevice comes first";
  return MaxStepTokens(SchedulerOptions{.token_budget = options.token_budget,
                                        .max_chunk_tokens = options.max_chunk_tokens},
                       options.steps_in_flight);
}

int64_t DefaultKvCacheMiB(int64_t available_bytes) {
  if (available_bytes < 0) return kLargestDefaultMiB;
  return std::clamp(available_bytes / 4 / kMiB, kSmallestDefaultMiB, kLargestDefaultMiB);
}

int64_t DefaultGpuKvCacheMiB(int64_t available_bytes) {
  return std::max<int64_t>(available_bytes / 10 * 9 / kMiB, 1);
}

void SettleForDevice(EngineOptions& options, const Device& device) {
  if (options.block_size == 0) {
    options.block_size = device.host_accessible() ? kCpuBlockSize : kGpuBlockSize;
  }
  if (options.mixed_prompt_tokens == 0) {
    options.mixed_prompt_tokens =
        device.host_accessible() ? kCpuMixedPromptTokens : options.token_budget;
  }
  if (options.steps_in_flight == 0) options.steps_in_flight = device.host_accessible() ? 1 : 2;
}

void RegisterSettings(EngineOptions& options, SettingList& settings) {
  settings.Add(
      "model", &options.model,
      "GGUF file of the Llama architecture. Empty: the default model in the model directory",
      "FILE");
  settings.Add("device", &options.device,
               StrCat("device to compute on: ", KnownDevices(),
                      ". cpu-async runs steps on a separate thread"),
               "NAME");
  settings.Add("threads", &options.threads, 0, kMaxEngineThreads,
               "compute threads. 0: one for each CPU that this process may use, within the CPU "
               "quotas of its control groups");
  settings.Add(
      "instruction-set", &options.instruction_set,
      "kernels to use: auto, plain, avx2, avx512-no-vnni or avx512. All give the same bits",
      "NAME");
  settings.Add("numerics", &options.numerics,
               "rules that define every bit of a result. r1: every device. t1-sm80, t1-sm90: "
               "tensor cores of GPUs with compute capability 8.0 or 9.0; on a CPU they are slow "
               "and only serve to check a GPU's answers. auto: t1 on such GPUs, otherwise r1. "
               "Workers with different numerics do not work together. CPUs and GPUs do not work "
               "together either, until a GPU has confirmed that their bits are equal",
               "NAME");
  settings.Add(
      "tensor-parallel", &options.tensor_parallel, 1, kMaxTensorParallel,
      "number of ranks that compute the model together, each with its share of the heads and "
      "weights. It must divide the number of the model's KV heads. On CPUs, each rank is a thread "
      "with its share of --threads. On GPUs, each rank has its own GPU, counted from --device, and "
      "NCCL connects the GPUs. Answers do not depend on this number");
  settings.Add("block-size", &options.block_size, 0, kMaxBlockSize,
               "tokens in a KV block, a power of two. 0: 16 on a CPU, 64 on a GPU");
  settings.Add("kv-cache-mib", &options.kv_cache_mib, 0, kMaxKvCacheMib,
               "size of the KV pool in MiB. 0: on a CPU 1024, or a quarter of the available memory "
               "if that is less; on a GPU 90 % of the memory that weights and steps leave. With "
               "tensor parallelism, the pool is divided evenly among the GPUs");
  settings.Add("kv-blocks", &options.kv_blocks, 0, kMaxKvBlocks,
               "size of the KV pool in blocks. 0: --kv-cache-mib gives the size. For a model with "
               "sliding windows, this counts only blocks of the layers with full attention");
  settings.Add("kv-cache-max-mib", &options.kv_cache_max_mib, 0, kMaxKvCacheMib,
               "largest size in MiB to which `baton resize` can grow the KV pool while it serves. "
               "This address range is reserved at the start. 0: the pool has a fixed size");
  settings.AddChoice<KvType>("kv-type", &options.kv_type,
                             {{"f16", KvType::kF16},
                              {"bf16", KvType::kBF16},
                              {"f32", KvType::kF32},
                              {"int8", KvType::kInt8},
                              {"fp8", KvType::kFp8}},
                             "element type of cached K and V");
  settings.AddChoice<KvLayoutKind>(
      "kv-layout", &options.layout,
      {{"block-major", KvLayoutKind::kBlockMajor}, {"layer-major", KvLayoutKind::kLayerMajor}},
      "which bytes are contiguous in the pool: those of a block, or those of a layer");
  settings.Add("paged", &options.paged,
               "divide the KV cache into blocks. Off: each sequence has one contiguous run, the "
               "layout is layer-major, and there is no prefix cache");
  settings.Add("prefix-cache", &options.prefix_cache,
               "keep the KV of finished sequences for requests with the same prefix");
  settings.AddChoice<CacheKind>(
      "cache-kind", &options.cache_kind, CacheKindNames(),
      "which requests may reuse a sequence's KV. radix: those with the same prefix. chunk-only: "
      "only the sequence itself, after a preemption. naive: none");
  settings.AddChoice<EvictionPolicy>(
      "eviction-policy", &options.eviction_policy,
      {{"lru", EvictionPolicy::kLru},
       {"lfu", EvictionPolicy::kLfu},
       {"fifo", EvictionPolicy::kFifo},
       {"mru", EvictionPolicy::kMru},
       {"filo", EvictionPolicy::kFilo},
       {"priority", EvictionPolicy::kPriority},
       {"slru", EvictionPolicy::kSlru}},
      "which cached prefix is evicted first when blocks are needed. priority: the one with the "
      "lowest priority, then the least recently used one. A prefix has the highest priority of all "
      "requests that used it");
  settings.Add("cache-high-water", &options.high_water, 0.01, 1,
               "share of the pool in use above which cached prefixes are evicted in advance");
  settings.Add("cache-low-water", &options.low_water, 0.01, 1,
               "share of the pool in use at which this eviction stops. At most --cache-high-water");
  settings.Add("min-prefix-tokens", &options.min_prefix_tokens, 0, 1 << 20,
               "shortest cached prefix that is reused, in tokens");
  settings.Add("chunk-cache-share", &options.chunk_cache_share, 0.0, 1.0,
               "largest share of the KV pool that keeps prompt chunks for later requests. 0: "
               "prompt chunks are not kept");
  settings.Add("prompt-chunk-tokens", &options.prompt_chunk_tokens, 256, 1 << 20,
               "a prompt chunk with more tokens is divided into pieces of this length, which are "
               "cached one by one. A multiple of 256. Answers do not depend on it");
  settings.Add("chunk-host-mib", &options.chunk_host_mib, 0, 1 << 24,
               "host memory, in MiB, for prompt chunks that sleep: cold chunks, and chunks for "
               "which the chunk cache has no room. A request that needs a sleeping chunk copies it "
               "back. 0: no chunk sleeps");
  settings.Add("chunk-sleep-after-s", &options.chunk_sleep_after_s, 0, 1 << 30,
               "seconds after which a prompt chunk may be cold. See --chunk-sleep-uses");
  settings.Add("chunk-sleep-uses", &options.chunk_sleep_uses, 0, 1000,
               "a prompt chunk with fewer uses in the last --chunk-sleep-after-s seconds is cold "
               "and sleeps in host memory. 0: no chunk is ever cold");
  settings.Add("chunk-compress", &options.chunk_compress,
               "compress sleeping prompt chunks without loss. This takes less host memory, and "
               "waking takes longer");
  settings.Add("token-budget", &options.token_budget, 1, 1 << 16,
               "largest number of tokens in a step");
  settings.Add("max-chunk-tokens", &options.max_chunk_tokens, 1, 1 << 16,
               "largest number of tokens of one prompt in a step");
  settings.Add(
      "mixed-prompt-tokens", &options.mixed_prompt_tokens, 0, 1 << 16,
      "largest number of prompt tokens in a step that also decodes. A smaller "
      "number shortens the wait of running answers and lengthens that of prompts. 0: 128 on "
      "a CPU, --token-budget on a GPU. The value of --token-budget means no limit");
  settings.Add("max-running", &options.max_running, 1, 1024,
               "largest number of sequences in a step");
  settings.Add("max-waiting", &options.max_waiting, 1, 1 << 20,
               "largest number of queued requests. Further requests are refused");
  settings.Add(
      "steps-in-flight", &options.steps_in_flight, 0, 2,
      "number of steps that may be submitted to the device at the same time. 2: the engine plans a "
      "step while another one runs; this needs an asynchronous device (cpu-async or a GPU). 0: 2 "
      "on a GPU, 1 elsewhere");
  settings.Add("context-length", &options.context_length, 0, 1 << 24,
               "largest number of tokens of prompt and answer together. 0: the length that the "
               "model was made for, which is also the maximum");
  settings.Add("graph", &options.graph, "replay decode steps from captured graphs");
  settings.Add("hash-logits", &options.hash_logits,
               "report a hash of all sampled logits with every answer. Runs with equal hashes have "
               "equal logits");
  settings.Add("transfer-timeout-ms", &options.transfer_timeout_ms, 1, 86'400'000,
               "how long a request waits for KV from another worker before this worker computes "
               "it, in milliseconds");
  settings.Add("op-stall-ms", &options.op_stall_ms, 100, 86'400'000,
               "longest time for one operation of a step, on a GPU for a whole step, in "
               "milliseconds. A worker that exceeds it counts as hung: it fails probes and health "
               "checks, and routers use other workers");
  settings.Add("layer-pieces", &options.layer_pieces, 0, 1024,
               "number of groups of layers into which a prompt's last chunk is divided. Early "
               "groups are sent to the decode worker while later ones are computed. 0: chosen by "
               "size and measured bandwidth. 1: the chunk is sent when all of it is computed");
}

}  // namespace baton
