// Metrics of workers. A worker's series do not grow.
//
// Thread safety: constants.
#pragma once

#include "metrics/metric_row.h"

namespace baton::metric_row {

inline constexpr MetricDeclaration kWorkerMetrics[] = {
    Counter(kWorkerRequests, "baton_worker_requests_total", "requests",
            "Requests of this engine that have ended, by kind and status code. generate: answers. "
            "prefill: prompts for another worker. resource_exhausted: there was no room.",
            Labels{MetricLabel{"kind", kWorkKindNames}, kCode}),
    Gauge(kWorkerRequestsWaiting, "baton_worker_requests_waiting", "requests",
          "Sequences in the queue.", Labels{},
          {.vllm = "vllm:num_requests_waiting",
           .sglang = "sglang:num_queue_reqs",
           .gateway = "TotalQueuedRequests"}),
    Gauge(kWorkerRequestsRunning, "baton_worker_requests_running", "requests",
          "Sequences in the batch.", Labels{},
          {.vllm = "vllm:num_requests_running",
           .sglang = "sglang:num_running_reqs",
           .gateway = "TotalRunningRequests"}),
    Gauge(kWorkerRequestsWaitingForKv, "baton_worker_requests_waiting_for_kv", "requests",
          "Sequences that wait for KV from another worker."),
    Gauge(
        kWorkerBacklogSeconds, "baton_worker_backlog_seconds", "seconds",
        "Expected time to compute all prompt tokens that are queued or begun: their number times "
        "the mean time of a prompt token in recent steps. 0 until the first prompt was computed."),
    Gauge(kWorkerBacklogTokens, "baton_worker_backlog_tokens", "tokens",
          "Tokens that are known but not computed yet, in all sequences that do not wait for KV."),
    Histogram(kWorkerQueueSeconds, "baton_worker_queue_seconds", "seconds",
              "Time from the arrival of a request at this engine to its first step. Of a hand-off "
              "that waited for room: until it had blocks; other hand-offs do not count.",
              kLatencies, Labels{MetricLabel{"kind", kWorkKindNames}},
              {.vllm = "vllm:request_queue_time_seconds", .sglang = "sglang:queue_time_seconds"}),
    Histogram(kWorkerCancelSeconds, "baton_worker_cancel_seconds", "seconds",
              "Time from the arrival of a cancellation at this engine until the blocks of its "
              "request were free. Blocks that a transfer still uses are freed when it has ended.",
              kLatencies),
    Counter(
        kWorkerFailures, "baton_worker_failures_total", "requests",
        "Requests of this engine that ended with an error, cancellations and refusals included. A "
        "hand-off that finds the KV pool full is refused first, and then asked for again."),
    Counter(kWorkerPreemptions, "baton_worker_preemptions_total", "preemptions",
            "How often a sequence lost its blocks to another one and had to be recomputed.",
            Labels{}, {.vllm = "vllm:num_preemptions_total"}),
    Counter(kWorkerSteps, "baton_worker_steps_total", "steps",
            "Steps: runs of the model over a batch."),
    Histogram(
        kWorkerStepSeconds, "baton_worker_step_seconds", "seconds",
        "Time of a step, from its submission or from the end of the step before it, to its end. "
        "prefill: only chunks of prompts. decode: only rows of one token. mixed: both.",
        kStepTimes, Labels{MetricLabel{"work", kStepWorkNames}}),
    Counter(
        kWorkerPromptTokens, "baton_worker_prompt_tokens_total", "tokens",
        "Prompt tokens whose KV this worker got, by source. computed: by this worker; tokens that "
        "are recomputed after a preemption count again. cached: found in its prefix cache. "
        "transferred: received from a prefill worker. pulled: from another worker's cache.",
        Labels{MetricLabel{"source", kPromptSourceNames}}),
    Counter(kWorkerDecodeTokens, "baton_worker_decode_tokens_total", "tokens",
            "Tokens computed in decode rows."),
    Counter(kWorkerOutputTokens, "baton_worker_output_tokens_total", "tokens",
            "Tokens of answers that this worker generated. The first token of an answer may come "
            "from the prefill worker."),
    Gauge(kCacheConfigInfo, "baton_cache_config_info", "",
          "Always 1. The labels give the size of a block in tokens and the number of blocks that "
          "requests can have.",
          Labels{MetricLabel{"block_size"}, MetricLabel{"num_blocks"}},
          {.vllm = "vllm:cache_config_info",
           .sglang = "sglang:cache_config_info",
           .gateway = "cache_config_info"}),
    Gauge(kKvUsedRatio, "baton_kv_used_ratio", "ratio",
          "Share of the KV pool's blocks that are neither free nor evictable, in the fullest KV "
          "group. Cached blocks that no request uses count as free.",
          Labels{},
          {.vllm = "vllm:kv_cache_usage_perc",
           .sglang = "sglang:token_usage",
           .gateway = "KVCacheUtilization"}),
    Gauge(kKvBlocks, "baton_kv_blocks", "blocks",
          "Blocks of KV group 0 by state. owned: by sequences. in_flight: held by transfers. step: "
          "held by a running step alone.",
          Labels{MetricLabel{"state", kBlockStateNames}}),
    Gauge(kKvEvictableBlocks, "baton_kv_evictable_blocks", "blocks",
          "Cached blocks that no sequence or transfer uses."),
    Counter(kKvEvictedBlocks, "baton_kv_evicted_blocks_total", "blocks",
            "Cached blocks that were evicted."),
    Counter(kKvEvictedTokens, "baton_kv_evicted_tokens_total", "tokens",
            "Cached tokens that were evicted."),
    Counter(kPrefixLookups, "baton_prefix_cache_lookups_total", "lookups",
            "Prompts looked up in the prefix cache."),
    Counter(kPrefixHits, "baton_prefix_cache_hits_total", "lookups",
            "Prompts for which the prefix cache had at least one block."),
    Counter(kPrefixLookupTokens, "baton_prefix_cache_lookup_tokens_total", "tokens",
            "Tokens of the prompts that were looked up.", Labels{},
            {.vllm = "vllm:prefix_cache_queries_total"}),
    Counter(kPrefixHitTokens, "baton_prefix_cache_hit_tokens_total", "tokens",
            "Tokens that the prefix cache had.", Labels{},
            {.vllm = "vllm:prefix_cache_hits_total", .sglang = "sglang:cached_tokens_total"}),
    Gauge(kPrefixNodes, "baton_prefix_cache_nodes", "nodes", "Nodes of the prefix tree."),
    Counter(kChunkLookups, "baton_chunk_cache_lookups_total", "lookups",
            "Prompt chunks looked up in the chunk cache."),
    Counter(kChunkHits, "baton_chunk_cache_hits_total", "lookups",
            "Prompt chunks that the chunk cache had."),
    Counter(kChunkMisses, "baton_chunk_cache_misses_total", "lookups",
            "Prompt chunks that the chunk cache lacked."),
    Counter(kChunkBypasses, "baton_chunk_cache_bypasses_total", "chunks",
            "Prompt chunks for which the chunk cache had no room. Their blocks were freed with "
            "their requests."),
    Counter(kChunkEvictions, "baton_chunk_cache_evictions_total", "chunks",
            "Prompt chunks that were evicted."),
    Gauge(kChunkEntries, "baton_chunk_cache_entries", "chunks", "Prompt chunks in the cache."),
    Gauge(kChunkUsedBlocks, "baton_chunk_cache_used_blocks", "blocks",
          "Blocks of cached prompt chunks. They also count as cached in baton_kv_blocks."),
    Gauge(kChunkBudgetBlocks, "baton_chunk_cache_budget_blocks", "blocks",
          "Largest number of blocks that cached prompt chunks may take."),
    Gauge(kSleepingChunks, "baton_sleeping_chunks", "chunks",
          "Prompt chunks that sleep in host memory. They are not among "
          "baton_chunk_cache_entries."),
    Gauge(kSleepingChunkBytes, "baton_sleeping_chunk_bytes", "bytes",
          "Host memory of sleeping prompt chunks."),
    Gauge(kSleepingChunkLimitBytes, "baton_sleeping_chunk_limit_bytes", "bytes",
          "Largest amount of host memory for sleeping prompt chunks; 0: no chunk sleeps."),
    Counter(kChunkSleeps, "baton_chunk_sleeps_total", "chunks",
            "Prompt chunks that were copied to host memory."),
    Counter(kChunkWakes, "baton_chunk_wakes_total", "chunks",
            "Sleeping prompt chunks that were copied back for a request. "
            "baton_chunk_cache_hits_total counts them too."),
    Histogram(kChunkWakeSeconds, "baton_chunk_wake_seconds", "seconds",
              "Time from a request's demand for a sleeping prompt chunk until the pool had it.",
              kStepTimes),
    Counter(kSleepingChunksDamaged, "baton_sleeping_chunks_damaged_total", "chunks",
            "Sleeping prompt chunks whose checksum was wrong when they were copied back. They are "
            "computed again."),
    Counter(kSleepingChunksDropped, "baton_sleeping_chunks_dropped_total", "chunks",
            "Sleeping prompt chunks that left host memory to make room."),
    Counter(kKvTransferBytes, "baton_kv_transfer_bytes_total", "bytes",
            "KV received from other workers and verified, by transport.", Labels{kTransport}),
    Counter(kKvTransferSentBytes, "baton_kv_transfer_sent_bytes_total", "bytes",
            "KV sent to other workers, by transport. Summed over all workers, it exceeds "
            "baton_kv_transfer_bytes_total by the KV that was lost on the way.",
            Labels{kTransport}),
    Counter(kKvTransfers, "baton_kv_transfers_total", "transfers",
            "Completed KV transfers. A prompt with chunks has one for each part.",
            Labels{MetricLabel{"direction", kDirectionNames}}),
    Counter(kKvTransferFailures, "baton_kv_transfer_failures_total", "transfers",
            "KV transfers that failed. cancelled: the request ended first. timeout: the deadline "
            "passed. peer_lost: the connection or the other worker is gone. corrupt: a checksum "
            "differs, or a message is malformed. refused: the other worker did not expect it, or "
            "stopped.",
            Labels{MetricLabel{"direction", kDirectionNames},
                   MetricLabel{"kind", kTransferFailureNames}}),
    Gauge(kKvTransfersActive, "baton_kv_transfers_active", "transfers", "KV transfers in flight."),
    Histogram(kKvTransferSeconds, "baton_kv_transfer_seconds", "seconds",
              "Time that a completed transfer was busy, without waiting for computation.",
              kStepTimes, Labels{MetricLabel{"direction", kDirectionNames}}),
    Histogram(kKvExposedSeconds, "baton_kv_transfer_exposed_seconds", "seconds",
              "Part of a sent transfer that computation did not hide: from the end of the prompt's "
              "computation until the receiver had everything.",
              kStepTimes),
    Counter(kKvPulls, "baton_kv_pulls_total", "pulls",
            "Pulls of prefixes or prompt chunks from other workers' caches to this one.",
            Labels{MetricLabel{"outcome", kPullOutcomeNames}}),
    Counter(kKvBytesThroughHost, "baton_kv_through_host_bytes_total", "bytes",
            "KV that transfers have copied between a GPU and host memory."),
    Counter(kWorkerHeartbeats, "baton_worker_heartbeats_total", "heartbeats",
            "Heartbeats to routers. refused: the router does not accept this worker. failed: no "
            "answer came. leaving: the last one.",
            Labels{MetricLabel{"outcome", kHeartbeatOutcomeNames}}),
    Gauge(kWorkerRouters, "baton_worker_routers", "routers",
          "Routers that the worker must register with."),
    Gauge(kWorkerRoutersRegistered, "baton_worker_routers_registered", "routers",
          "Routers that accepted the worker's last heartbeat."),
    Gauge(kWorkerDraining, "baton_worker_draining", "",
          "1 while the worker takes no more requests, else 0."),
    Gauge(kWorkerIntegrityError, "baton_worker_integrity_error", "",
          "1 if the integrity check of the KV blocks has failed, else 0. The worker then drains."),
    Gauge(kWorkerEngineHung, "baton_worker_engine_hung", "",
          "1 while the watchdog finds that the engine makes no progress, else 0. /livez then "
          "answers 503."),
};

}  // namespace baton::metric_row
