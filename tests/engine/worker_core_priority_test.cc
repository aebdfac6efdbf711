// Priorities in the queue, in preemption and in the prefix cache.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/worker_core.h"
#include "tests/engine/worker_bench.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

GenerateRequest Request(std::string_view prompt, int32_t max_tokens, int32_t priority) {
  GenerateRequest request = WorkerBench::Request(Bytes(prompt), max_tokens);
  request.priority = priority;
  return request;
}

TEST(WorkerCorePriority, OvertakesAQueueAndEndsFirst) {
  WorkerBench bench({.max_running = 1});
  const auto running = bench.Generate(Request("running", 6, 0));
  bench.Turn();
  std::vector<std::shared_ptr<SinkRecord>> low;
  for (int i = 0; i < 5; ++i) low.push_back(bench.Generate(Request("low", 3, 0)));
  const auto high = bench.Generate(Request("high", 3, 1));
  while (!high->ended()) ASSERT_TRUE(bench.Turn());
  EXPECT_TRUE(running->ended()) << "a running request is not displaced";
  for (const auto& record : low) EXPECT_TRUE(record->tokens.empty());
  bench.Run();
  for (const auto& record : low) EXPECT_EQ(record->tokens.size(), 3u);
  bench.ExpectAllBlocksHome();
}

TEST(WorkerCorePriority, AFullQueueDropsItsLastRequestForAHigherPriority) {
  WorkerBench bench({.max_running = 1, .max_waiting = 2});
  const auto running = bench.Generate(Request("running", 6, 0));
  bench.Turn();
  const auto first = bench.Generate(Request("first", 2, -1));
  const auto last = bench.Generate(Request("last", 2, -1));
  const auto equal = bench.Generate(Request("equal", 2, -1));
  EXPECT_EQ(equal->error->code(), absl::StatusCode::kResourceExhausted);
  const auto high = bench.Generate(Request("high", 2, 7));
  ASSERT_TRUE(last->error.has_value());
  EXPECT_EQ(last->error->code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(last->error->message()),
              HasSubstr("a request of priority 7 displaced this one of priority -1"));
  bench.Run();
  for (const auto& record : {running, first, high}) EXPECT_TRUE(record->finish.has_value());
  bench.ExpectAllBlocksHome();
}

TEST(WorkerCorePriority, AFullPoolPreemptsTheLowestPriority) {
  WorkerBench bench({.num_blocks = 12});
  const auto early_low = bench.Generate(Request("lowlowlo", 16, 0));
  const auto late_high = bench.Generate(Request("highhigh", 16, 1));
  const auto late_low = bench.Generate(Request("othersss", 16, 0));
  bench.Run();
  EXPECT_GT(bench.scheduler.preemption_count(), 0);
  for (const auto& record : {early_low, late_high, late_low}) {
    ASSERT_TRUE(record->finish.has_value());
    EXPECT_EQ(record->tokens.size(), 16u);
  }
  EXPECT_EQ(late_high->finish->ledger.preemptions, 0) << "the higher priority came later";
  EXPECT_GT(late_low->finish->ledger.preemptions, 0);
  bench.ExpectAllBlocksHome();
}

TEST(WorkerCorePriority, ItsPrefixesStayCachedUnderThatPolicyAndNotUnderLru) {
  for (const EvictionPolicy policy : {EvictionPolicy::kPriority, EvictionPolicy::kLru}) {
    WorkerBench bench({.num_blocks = 16, .eviction_policy = policy});
    bench.Generate(Request("an important beginning, and", 1, 5));
    bench.Run();
    for (int i = 0; i < 12; ++i) {  // three times the size of the pool
      bench.Generate(Request(std::string(16, static_cast<char>('A' + i)), 1, 0));
      bench.Run();
    }
    const auto again = bench.Generate(Request("an important beginning, and so on", 1, 0));
    bench.Run();
    ASSERT_TRUE(again->finish.has_value());
    EXPECT_EQ(again->finish->ledger.cached_tokens, policy == EvictionPolicy::kPriority ? 24 : 0);
    bench.ExpectAllBlocksHome();
  }
}

}  // namespace
}  // namespace baton
