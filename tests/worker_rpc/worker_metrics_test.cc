#include "worker_rpc/worker_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "worker_rpc/wire_conversion.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

// Each metric, with each label, gets its own number from the status.
TEST(WorkerMetrics, EveryFigureOfTheStatusHasItsOwnSeries) {
  std::set<std::pair<Metric, int32_t>> series;
  for (const StatusFigure& figure : StatusFigures()) {
    EXPECT_TRUE(series.emplace(figure.metric, figure.label.value_or(-1)).second)
        << DeclarationOf(figure.metric).name;
    EXPECT_NE(DeclarationOf(figure.metric).type, MetricType::kHistogram);
    EXPECT_EQ(figure.of(v1::WorkerStatus()), 0) << "zero from the start";
  }
}

TEST(WorkerMetrics, ShowTheNumbersOfTheStatus) {
  EngineStatus engine;
  engine.block_size = 16;
  engine.pool.limit = 500;
  engine.cache.blocks = {.total = 500, .free = 300, .in_transfer = 20, .owned = 60, .cached = 120};
  engine.cache.evictable = 100;
  engine.cache.lookups = 11;
  engine.cache.hits = 7;
  engine.cache.lookup_tokens = 1100;
  engine.cache.hit_tokens = 700;
  engine.cache.evicted_blocks = 3;
  engine.chunk_cache.lookups = 9;
  engine.chunk_cache.hits = 4;
  engine.sleeping_chunks = {.entries = 21,
                            .bytes = 22,
                            .limit_bytes = 23,
                            .sleeps = 24,
                            .wakes = 25,
                            .damaged = 26,
                            .dropped = 27};
  engine.waiting = 5;
  engine.running = 6;
  engine.waiting_for_kv = 7;
  engine.steps = 1000;
  engine.prefill_tokens = 2000;
  engine.decode_tokens = 3000;
  engine.preemptions = 8;
  engine.failures = 9;
  engine.backlog_tokens = 640;
  engine.backlog_us = 1'250'000;
  engine.moved_kv.received = {1, 2, 3, 4};
  engine.moved_kv.sent = {5, 6, 7, 8};
  const v1::WorkerStatus status =
      WorkerStatusToWire({.worker_id = "w", .address = "a:1"}, Epoch(1), engine, /*draining=*/true);
  MetricSet metrics(MetricPrograms::kWorkers);
  SetWorkerMetrics(status, engine, metrics);
  EXPECT_EQ(metrics.Cells(Metric::kWorkerRequestsWaiting), 5);
  EXPECT_EQ(metrics.Cells(Metric::kWorkerRequestsRunning), 6);
  EXPECT_EQ(metrics.Cells(Metric::kWorkerRequestsWaitingForKv), 7);
  EXPECT_EQ(metrics.Cells(Metric::kWorkerSteps), 1000);
  EXPECT_EQ(metrics.Cells(Metric::kWorkerPromptTokens, PromptSource::kComputed), 2000);
  EXPECT_EQ(metrics.Cells(Metric::kWorkerPromptTokens, PromptSource::kCached), 700);
  EXPECT_EQ(metrics.Cells(Metric::kWorkerDecodeTokens), 3000);
  EXPECT_EQ(metrics.Cells(Metric::kWorkerPreemptions), 8);
  EXPECT_EQ(metrics.Cells(Metric::kWorkerFailures), 9);
  EXPECT_EQ(metrics.Cells(Metric::kWorkerDraining), 1);
  EXPECT_EQ(metrics.Cells(Metric::kWorkerIntegrityError), 0);
  EXPECT_EQ(metrics.Cells(Metric::kWorkerBacklogTokens), 640);
  EXPECT_EQ(metrics.Cells(Metric::kWorkerBacklogSeconds), 1'250'000);
  EXPECT_EQ(metrics.Cells(Metric::kKvBlocks, BlockState::kFree), 300);
  EXPECT_EQ(metrics.Cells(Metric::kKvBlocks, BlockState::kCached), 120);
  EXPECT_EQ(metrics.Cells(Metric::kKvBlocks, BlockState::kOwned), 60);
  EXPECT_EQ(metrics.Cells(Metric::kKvBlocks, BlockState::kInFlight), 20);
  EXPECT_EQ(metrics.Cells(Metric::kKvUsedRatio), 200'000);  // (500 - 300 - 100) / 500
  EXPECT_EQ(metrics.Cells(Metric::kPrefixLookups), 11);
  EXPECT_EQ(metrics.Cells(Metric::kPrefixHits), 7);
  EXPECT_EQ(metrics.Cells(Metric::kChunkLookups), 9);
  EXPECT_EQ(metrics.Cells(Metric::kChunkMisses), 5);
  EXPECT_EQ(metrics.Cells(Metric::kSleepingChunks), 21);
  EXPECT_EQ(metrics.Cells(Metric::kSleepingChunkBytes), 22);
  EXPECT_EQ(metrics.Cells(Metric::kSleepingChunkLimitBytes), 23);
  EXPECT_EQ(metrics.Cells(Metric::kChunkSleeps), 24);
  EXPECT_EQ(metrics.Cells(Metric::kChunkWakes), 25);
  EXPECT_EQ(metrics.Cells(Metric::kSleepingChunksDamaged), 26);
  EXPECT_EQ(metrics.Cells(Metric::kSleepingChunksDropped), 27);
  EXPECT_EQ(metrics.Cells(Metric::kKvTransferBytes, KvMedium::kShm), 2);
  EXPECT_EQ(metrics.Cells(Metric::kKvTransferBytes, KvMedium::kNccl), 4);
  EXPECT_EQ(metrics.Cells(Metric::kKvTransferSentBytes, KvMedium::kTcp), 7);
  for (const MetricFamily& family : metrics.Read()) {
    if (family.declaration->id != Metric::kCacheConfigInfo) continue;
    EXPECT_THAT(family.samples.at(0).labels,
                ElementsAre(Pair("block_size", "16"), Pair("num_blocks", "500")));
  }
}

TEST(WorkerMetrics, TheUsedShareIsThatOfTheFullestGroupAndNeverNaN) {
  v1::PoolStatus pool;
  EXPECT_EQ(UsedMillionths(pool), 0) << "a pool without blocks";
  pool.set_total_blocks(100);
  pool.set_free_blocks(90);
  pool.set_evictable_blocks(10);
  EXPECT_EQ(UsedMillionths(pool), 0) << "evictable blocks count as free";
  v1::KvGroupStatus& window = *pool.add_groups();
  window.set_total_blocks(10);
  window.set_free_blocks(4);
  window.set_evictable_blocks(1);
  EXPECT_EQ(UsedMillionths(pool), 500'000);
  window.set_free_blocks(20);  // of another moment
  EXPECT_EQ(UsedMillionths(pool), 0);
}

TEST(WorkerMetrics, TransportsHaveTheNamesOfTheMedia) {
  EXPECT_EQ(kTransportNames.size(), kKvMedia);
  EXPECT_EQ(kTransportNames[static_cast<size_t>(KvMedium::kLoopback)], "loopback");
  EXPECT_EQ(kTransportNames[static_cast<size_t>(KvMedium::kShm)], "shm");
  EXPECT_EQ(kTransportNames[static_cast<size_t>(KvMedium::kTcp)], "tcp");
  EXPECT_EQ(kTransportNames[static_cast<size_t>(KvMedium::kNccl)], "nccl");
}

}  // namespace
}  // namespace baton
