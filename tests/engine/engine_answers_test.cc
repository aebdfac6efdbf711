// A whole engine: the answers do not depend on its options, on its cache or on other requests.
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <optional>
#include <vector>

#include "engine/engine.h"
#include "tests/engine/tiny_engine.h"

namespace baton {
namespace {

TEST(Engine, AnswersAreTheSameOnEveryPath) {
  const auto plain = MakeEngine(TinyOptions());
  EngineOptions options = TinyOptions();
  options.paged = false;
  options.graph = false;
  options.block_size = 8;
  options.max_chunk_tokens = 5;
  options.threads = 3;
  const auto other = MakeEngine(options);
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const GenerateRequest request = TinyRequest(20 + seed, 12, seed);
    const SinkRecord one = Ask(*plain, request);
    ASSERT_TRUE(one.finish.has_value()) << *one.error;
    EXPECT_EQ(one.tokens.size(), 12u);
    EXPECT_NE(one.finish->logits_hash, 0u);
    const SinkRecord again = Ask(*plain, request);  // from the prefix cache
    EXPECT_EQ(again.finish->ledger.cached_tokens, 16);
    const SinkRecord two = Ask(*other, request);
    for (const SinkRecord* record : {&again, &two}) {
      EXPECT_EQ(record->tokens, one.tokens);
      EXPECT_EQ(record->text, one.text);
      EXPECT_EQ(record->finish->logits_hash, one.finish->logits_hash);
    }
  }
}

TEST(Engine, AClearedCacheIsRecomputedAndRunningRequestsContinue) {
  const auto engine = MakeEngine(TinyOptions());
  const auto cached = [&](GenerateRequest request, CacheNamespace space) {
    request.cache_namespace = space;
    return Ask(*engine, request).finish->ledger.cached_tokens;
  };
  const CacheNamespace ours(1), theirs(2);
  const GenerateRequest request = TinyRequest(40, 8, 0);
  EXPECT_EQ(cached(request, ours), 0);
  EXPECT_EQ(cached(request, theirs), 0);

  GenerateRequest longer = TinyRequest(40, 60, 0);
  longer.cache_namespace = ours;
  const SinkRecord alone = Ask(*engine, longer);
  auto sink = std::make_shared<WaitingSink>();
  engine->Generate(longer, sink);
  const auto freed = engine->ClearCache(ours);  // before, during or after the request
  ASSERT_TRUE(freed.ok()) << freed.status();
  const SinkRecord running = sink->WaitForEnd();
  ASSERT_TRUE(running.finish.has_value());
  EXPECT_EQ(running.tokens, alone.tokens);
  EXPECT_EQ(running.finish->logits_hash, alone.finish->logits_hash);

  ASSERT_TRUE(engine->ClearCache(ours).ok());
  EXPECT_EQ(cached(request, ours), 0);
  EXPECT_EQ(cached(request, theirs), 32) << "the other namespace keeps its cache";
  ASSERT_TRUE(engine->ClearCache(std::nullopt).ok());
  EXPECT_EQ(cached(request, theirs), 0);
}

TEST(Engine, TwoStepsInFlightGiveTheSameAnswers) {
  EngineOptions options = TinyOptions();
  const auto reference = MakeEngine(options);
  options.device = "cpu-async";
  options.steps_in_flight = 2;
  options.kv_blocks = 12;  // some are preempted
  const auto engine = MakeEngine(options);
  std::vector<std::shared_ptr<WaitingSink>> sinks;
  const auto request = [](uint64_t seed) {
    GenerateRequest request = TinyRequest(20, 40, seed);
    if (seed % 4 == 3) request.sampling.repetition_penalty = 1.2f;
    if (seed % 4 == 1) request.sampling.logprobs = 2;
    return request;
  };
  for (uint64_t i = 0; i < 8; ++i) {
    sinks.push_back(std::make_shared<WaitingSink>());
    engine->Generate(request(i), sinks.back());
  }
  engine->Cancel(engine->Generate(request(9), std::make_shared<WaitingSink>()));
  for (uint64_t i = 0; i < 8; ++i) {
    const SinkRecord record = sinks[i]->WaitForEnd();
    const SinkRecord alone = Ask(*reference, request(i));
    ASSERT_TRUE(record.finish.has_value());
    EXPECT_EQ(record.tokens, alone.tokens);
    EXPECT_EQ(record.finish->logits_hash, alone.finish->logits_hash);
  }
  while (engine->Inspect().status.running > 0) {
  }
  const KvCacheStats cache = engine->Inspect().status.cache;
  EXPECT_EQ(cache.blocks.owned + cache.blocks.in_transfer, 0);
}

TEST(Engine, ConcurrentRequestsFromManyThreadsAllEnd) {
  EngineOptions options = TinyOptions();
  options.kv_blocks = 12;  // some are preempted
  const auto engine = MakeEngine(options);
  std::vector<SinkRecord> alone;
  for (uint64_t i = 0; i < 8; ++i) alone.push_back(Ask(*engine, TinyRequest(20, 40, i)));
  std::vector<std::future<SinkRecord>> records;
  for (uint64_t i = 0; i < 8; ++i) {
    records.push_back(std::async(std::launch::async,
                                 [&engine, i] { return Ask(*engine, TinyRequest(20, 40, i)); }));
  }
  for (size_t i = 0; i < records.size(); ++i) {
    const SinkRecord record = records[i].get();
    ASSERT_TRUE(record.finish.has_value());
    EXPECT_EQ(record.tokens, alone[i].tokens);
    EXPECT_EQ(record.finish->logits_hash, alone[i].finish->logits_hash);
  }
  const EngineStatus status = engine->Inspect().status;
  EXPECT_EQ(status.requests, 16);
  EXPECT_EQ(status.failures, 0);
  EXPECT_EQ(status.cache.blocks.owned + status.cache.blocks.in_transfer, 0);
}

TEST(Engine, ChoicesAreTheAnswersOfRequestsWithTheNextSeeds) {
  const auto plain = MakeEngine(TinyOptions());
  GenerateRequest request = TinyRequest(21, 14, 7);
  request.sampling.seed = 7;
  const std::vector<SinkRecord> alone = AskForSeeds(*plain, request, 4);
  request.n = 4;
  for (const KvLayoutKind layout : {KvLayoutKind::kBlockMajor, KvLayoutKind::kLayerMajor}) {
    for (const int32_t blocks : {100, 6}) {
      EngineOptions options = TinyOptions();
      options.layout = layout;
      options.block_size = 8;
      options.kv_blocks = blocks;
      const auto engine = MakeEngine(options);
      const SinkRecord record = Ask(*engine, request);
      ASSERT_TRUE(record.last_finished) << *record.error;
      for (int32_t i = 0; i < 4; ++i) {
        const SinkRecord& choice = i == 0 ? record : record.others.at(i);
        EXPECT_EQ(choice.tokens, alone[i].tokens);
        EXPECT_EQ(choice.finish->logits_hash, alone[i].finish->logits_hash);
      }
      const EngineStatus status = engine->Inspect().status;
      EXPECT_EQ(status.cache.blocks.owned, 0);
      EXPECT_EQ(status.preemptions > 0, blocks == 6);
      EXPECT_EQ(status.prefill_tokens == 21, blocks == 100);
    }
  }
}

}  // namespace
}  // namespace baton
