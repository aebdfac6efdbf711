// Prompt chunks that sleep in host memory, through a whole engine with the small model. A woken
// chunk gives the tokens and logits of the cold path.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/str_cat.h"
#include "engine/engine.h"
#include "engine/in_process_pair.h"
#include "tests/engine/tiny_chunks.h"
#include "tests/engine/unreadable_view.h"

namespace baton {
namespace {

// Every chunk sleeps as soon as no request uses it.
EngineOptions Sleepy(EngineOptions options) {
  options.chunk_host_mib = 64;
  options.chunk_sleep_after_s = 0;
  options.chunk_sleep_uses = 1000;
  return options;
}

SleepingChunkStats WaitForSleepers(Engine& engine, int32_t count) {
  while (true) {
    const SleepingChunkStats stats = engine.Status().sleeping_chunks;
    if (stats.entries == count) return stats;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

bool KeepsChunks(const EngineOptions& options) {
  return options.paged && options.chunk_cache_share > 0 && options.kv_blocks >= 100;
}

std::vector<EngineOptions> Ways() {
  std::vector<EngineOptions> ways = OtherWays();
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kInt8}) {
    for (const bool compress : {false, true}) {
      ways.push_back(TinyOptions());
      ways.back().kv_type = type;
      ways.back().chunk_compress = compress;
    }
  }
  ways.push_back(TinyOptions());
  ways.back().lend_pool = [](std::byte* pool, const KvPoolLayout& layout) {
    return std::make_unique<UnreadableView>(pool, layout);
  };
  return ways;
}

TEST(EngineSleep, WokenChunksGiveTheBitsOfTheColdPathInEveryModeAndWay) {
  for (const ChunkOptions mode : EveryMode()) {
    const ChunkedPrompt prompt = PromptOf(mode, 11, {37, 20, 16}, 9);
    int way = 0;
    for (const EngineOptions& options : Ways()) {
      SCOPED_TRACE(StrCat(ChunkPositionsName(mode.positions), " ", ChunkScopeName(mode.scope),
                          ", way ", way++));
      const auto plain = MakeEngine(options);
      const SinkRecord cold = Ask(*plain, RequestOf(prompt));
      const auto engine = MakeEngine(Sleepy(options));
      ExpectSame(Ask(*engine, RequestOf(prompt)), cold);
      if (!KeepsChunks(options)) {
        ExpectSame(Ask(*engine, RequestOf(prompt)), cold);
        if (!options.paged) {
          EXPECT_EQ(engine->Status().sleeping_chunks.sleeps, 0) << "every chunk is bypassed";
        }
        continue;
      }
      WaitForSleepers(*engine, 3);
      EXPECT_EQ(engine->Status().chunk_cache.entries, 1) << "the end of the system part";
      const SinkRecord woken = Ask(*engine, RequestOf(prompt));
      ExpectSame(woken, cold);
      EXPECT_EQ(woken.finish->ledger.chunk.hits, 3);
      EXPECT_GT(woken.finish->ledger.chunk.wake_us, 0);
      EXPECT_LE(woken.finish->ledger.computed_tokens, 9);
      WaitForSleepers(*engine, 3);
      ExpectSameBesideOthers(*engine, prompt, cold);
      const SleepingChunkStats stats = WaitForSleepers(*engine, 3);
      EXPECT_GE(stats.wakes, 3);
      EXPECT_EQ(stats.damaged, 0);
      EXPECT_EQ(engine->Status().conservation_error, "");
    }
  }
}

TEST(EngineSleep, ChunksWithoutRoomInTheChunkCacheSleepInsteadOfBeingLost) {
  EngineOptions options = TinyOptions();
  options.kv_blocks = 200;
  options.chunk_cache_share = 0.03;  // 6 blocks of 16 tokens
  const auto plain = MakeEngine(options);
  options.chunk_host_mib = 64;
  const auto engine = MakeEngine(options);
  const ChunkedPrompt first = PromptOf({}, 16, {60}, 9);
  ChunkedPrompt second = first;
  second.chunks = {TinyText(60, 77)};
  const SinkRecord cold = Ask(*plain, RequestOf(first));
  ExpectSame(Ask(*engine, RequestOf(first)), cold);
  Ask(*engine, RequestOf(second));
  WaitForSleepers(*engine, 1);
  const SinkRecord woken = Ask(*engine, RequestOf(first));
  ExpectSame(woken, cold);
  EXPECT_EQ(woken.finish->ledger.computed_tokens, 9);
  EXPECT_EQ(woken.finish->ledger.chunk.hits, 1);
  WaitForSleepers(*engine, 1);  // now the second one
}

TEST(EngineSleep, SleepersAreListedAndCleared) {
  const auto engine = MakeEngine(Sleepy(TinyOptions()));
  const ChunkedPrompt prompt = PromptOf({}, 16, {37, 20}, 9);
  const SinkRecord cold = Ask(*engine, RequestOf(prompt));
  WaitForSleepers(*engine, 2);
  const std::vector<ChunkCache::EntryInfo> entries = engine->ListChunks();
  ASSERT_EQ(entries.size(), 2u);
  for (const ChunkCache::EntryInfo& entry : entries) {
    EXPECT_EQ(entry.tier, CacheTier::kHost);
    EXPECT_GT(entry.host_bytes, 0);
    EXPECT_EQ(entry.position, 16);
  }
  ASSERT_TRUE(engine->ClearChunks(CacheNamespace{99}).ok());
  EXPECT_EQ(engine->Status().sleeping_chunks.entries, 2) << "another tenant's";
  ASSERT_TRUE(engine->ClearChunks(CacheNamespace{0}).ok());
  EXPECT_EQ(engine->Status().sleeping_chunks.entries, 0);
  const SinkRecord again = Ask(*engine, RequestOf(prompt));
  EXPECT_EQ(again.finish->ledger.chunk.hits, 0);
  ExpectSame(again, cold);
}

TEST(EngineSleep, SleepersOutliveAResizeOfThePool) {
  MetricSet metrics(MetricPrograms::kWorkers);
  EngineOptions options = Sleepy(TinyOptions());
  options.kv_cache_max_mib = 64;
  options.metrics = &metrics;
  const auto engine = MakeEngine(options);
  const ChunkedPrompt prompt = PromptOf({}, 16, {37, 20}, 9);
  const SinkRecord cold = Ask(*engine, RequestOf(prompt));
  WaitForSleepers(*engine, 2);
  for (const int32_t blocks : {60, 150}) {
    ASSERT_TRUE(engine->Resize(blocks).ok());
    WaitForSleepers(*engine, 2);
    const SinkRecord woken = Ask(*engine, RequestOf(prompt));
    EXPECT_EQ(woken.finish->ledger.chunk.hits, 2);
    ExpectSame(woken, cold);
  }
  for (const MetricFamily& family : metrics.Read()) {
    if (family.declaration->id != Metric::kChunkWakeSeconds) continue;
    EXPECT_EQ(family.samples.front().cumulative.back(), 4) << "each wake counts";
  }
}

// The decode worker wakes what it has, and the prefill worker what it needs.
TEST(EngineSleep, AHandOffUsesChunksThatSleepOnBothSides) {
  const ChunkedPrompt prompt = PromptOf({}, 11, {37, 20, 16}, 9);
  const SinkRecord cold = Ask(*MakeEngine(TinyOptions()), RequestOf(prompt));
  const auto pair = InProcessPair::Create(Sleepy(TinyOptions()), PairTransport::kTcp);
  ASSERT_TRUE(pair.ok()) << pair.status();
  for (int round = 0; round < 3; ++round) {
    const auto sink = std::make_shared<WaitingSink>();
    (*pair)->Generate(RequestOf(prompt), sink);
    const SinkRecord record = sink->WaitForEnd();
    ExpectSame(record, cold);
    EXPECT_EQ(record.finish->ledger.chunk.hits, round == 0 ? 0 : 3) << "of the prefill worker";
    WaitForSleepers((*pair)->prefill(), 3);
    WaitForSleepers((*pair)->decode(), 3);
  }
}

}  // namespace
}  // namespace baton
