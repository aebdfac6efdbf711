#include "worker_rpc/worker_metrics.h"

#include <algorithm>
#include <string>

namespace baton {
namespace {

using Status = v1::WorkerStatus;

template <typename Label>
constexpr int32_t Number(Label label) {
  return static_cast<int32_t>(label);
}

constexpr StatusFigure kFigures[] = {
    {Metric::kWorkerRequestsWaiting, [](const Status& s) -> int64_t { return s.waiting(); }},
    {Metric::kWorkerRequestsRunning, [](const Status& s) -> int64_t { return s.running(); }},
    {Metric::kWorkerRequestsWaitingForKv,
     [](const Status& s) -> int64_t { return s.waiting_for_kv(); }},
    {Metric::kKvTransfersActive, [](const Status& s) -> int64_t { return s.active_transfers(); }},
    {Metric::kWorkerSteps, [](const Status& s) -> int64_t { return s.steps(); }},
    {Metric::kWorkerPromptTokens, [](const Status& s) -> int64_t { return s.prefill_tokens(); },
     Number(PromptSource::kComputed)},
    {Metric::kWorkerPromptTokens, [](const Status& s) -> int64_t { return s.pool().hit_tokens(); },
     Number(PromptSource::kCached)},
    {Metric::kWorkerDecodeTokens, [](const Status& s) -> int64_t { return s.decode_tokens(); }},
    {Metric::kWorkerPreemptions, [](const Status& s) -> int64_t { return s.preemptions(); }},
    {Metric::kWorkerFailures, [](const Status& s) -> int64_t { return s.failures(); }},
    {Metric::kWorkerDraining, [](const Status& s) -> int64_t { return s.draining() ? 1 : 0; }},
    {Metric::kWorkerIntegrityError,
     [](const Status& s) -> int64_t { return s.conservation_error().empty() ? 0 : 1; }},
    {Metric::kKvBytesThroughHost,
     [](const Status& s) -> int64_t { return s.kv_bytes_through_host(); }},
    {Metric::kKvBlocks, [](const Status& s) -> int64_t { return s.pool().free_blocks(); },
     Number(BlockState::kFree)},
    {Metric::kKvBlocks, [](const Status& s) -> int64_t { return s.pool().cached_blocks(); },
     Number(BlockState::kCached)},
    {Metric::kKvBlocks, [](const Status& s) -> int64_t { return s.pool().owned_blocks(); },
     Number(BlockState::kOwned)},
    {Metric::kKvBlocks, [](const Status& s) -> int64_t { return s.pool().in_flight_blocks(); },
     Number(BlockState::kInFlight)},
    {Metric::kKvBlocks, [](const Status& s) -> int64_t { return s.pool().step_blocks(); },
     Number(BlockState::kStep)},
    {Metric::kKvEvictableBlocks,
     [](const Status& s) -> int64_t { return s.pool().evictable_blocks(); }},
    {Metric::kKvEvictedBlocks,
     [](const Status& s) -> int64_t { return s.pool().evicted_blocks(); }},
    {Metric::kKvEvictedTokens,
     [](const Status& s) -> int64_t { return s.pool().evicted_tokens(); }},
    {Metric::kPrefixLookups, [](const Status& s) -> int64_t { return s.pool().lookups(); }},
    {Metric::kPrefixHits, [](const Status& s) -> int64_t { return s.pool().hits(); }},
    {Metric::kPrefixLookupTokens,
     [](const Status& s) -> int64_t { return s.pool().lookup_tokens(); }},
    {Metric::kPrefixHitTokens, [](const Status& s) -> int64_t { return s.pool().hit_tokens(); }},
    {Metric::kPrefixNodes, [](const Status& s) -> int64_t { return s.pool().radix_nodes(); }},
    {Metric::kChunkLookups,
     [](const Status& s) -> int64_t { return s.pool().chunk_cache().lookups(); }},
    {Metric::kChunkHits, [](const Status& s) -> int64_t { return s.pool().chunk_cache().hits(); }},
    {Metric::kChunkMisses,
     [](const Status& s) -> int64_t { return s.pool().chunk_cache().misses(); }},
    {Metric::kChunkBypasses,
     [](const Status& s) -> int64_t { return s.pool().chunk_cache().bypasses(); }},
    {Metric::kChunkEvictions,
     [](const Status& s) -> int64_t { return s.pool().chunk_cache().evictions(); }},
    {Metric::kChunkEntries,
     [](const Status& s) -> int64_t { return s.pool().chunk_cache().entries(); }},
    {Metric::kChunkUsedBlocks,
     [](const Status& s) -> int64_t { return s.pool().chunk_cache().used_blocks(); }},
    {Metric::kChunkBudgetBlocks,
     [](const Status& s) -> int64_t { return s.pool().chunk_cache().budget_blocks(); }},
    {Metric::kSleepingChunks,
     [](const Status& s) -> int64_t { return s.pool().chunk_cache().sleeping_entries(); }},
    {Metric::kSleepingChunkBytes,
     [](const Status& s) -> int64_t { return s.pool().chunk_cache().sleeping_bytes(); }},
    {Metric::kSleepingChunkLimitBytes,
     [](const Status& s) -> int64_t { return s.pool().chunk_cache().sleeping_limit_bytes(); }},
    {Metric::kChunkSleeps,
     [](const Status& s) -> int64_t { return s.pool().chunk_cache().sleeps(); }},
    {Metric::kChunkWakes,
     [](const Status& s) -> int64_t { return s.pool().chunk_cache().wakes(); }},
    {Metric::kSleepingChunksDamaged,
     [](const Status& s) -> int64_t { return s.pool().chunk_cache().damaged(); }},
    {Metric::kSleepingChunksDropped,
     [](const Status& s) -> int64_t { return s.pool().chunk_cache().sleepers_dropped(); }},
};

int64_t Used(int64_t total, int64_t free, int64_t evictable) {
  if (total <= 0) return 0;
  return std::clamp<int64_t>(total - free - evictable, 0, total) * 1'000'000 / total;
}

}  // namespace

std::span<const StatusFigure> StatusFigures() { return kFigures; }

int64_t UsedMillionths(const v1::PoolStatus& pool) {
  int64_t most = Used(pool.total_blocks(), pool.free_blocks(), pool.evictable_blocks());
  for (const v1::KvGroupStatus& group : pool.groups()) {
    most =
        std::max(most, Used(group.total_blocks(), group.free_blocks(), group.evictable_blocks()));
  }
  return most;
}

void SetWorkerMetrics(const v1::WorkerStatus& status, const EngineStatus& engine,
                      MetricSet& metrics) {
  for (const StatusFigure& figure : StatusFigures()) {
    if (figure.label.has_value()) {
      metrics.Set(figure.metric, figure.of(status), *figure.label);
    } else {
      metrics.Set(figure.metric, figure.of(status));
    }
  }
  metrics.Set(Metric::kKvUsedRatio, UsedMillionths(status.pool()));
  metrics.SetInfo(Metric::kCacheConfigInfo, {std::to_string(status.pool().block_size()),
                                             std::to_string(status.pool().limit_blocks())});
  metrics.Set(Metric::kWorkerBacklogTokens, engine.backlog_tokens);
  metrics.Set(Metric::kWorkerBacklogSeconds, engine.backlog_us);
  for (size_t medium = 0; medium < kKvMedia; ++medium) {
    metrics.Set(Metric::kKvTransferBytes, engine.moved_kv.received[medium], medium);
    metrics.Set(Metric::kKvTransferSentBytes, engine.moved_kv.sent[medium], medium);
  }
}

}  // namespace baton
