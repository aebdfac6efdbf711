// Statistics and the trace of a pool.

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "tests/cache/kv_cache_manager_fixture.h"

namespace baton {
namespace {

TEST_F(KvCacheManagerTest, StatisticsCountRequestsAndTokensApart) {
  KvCacheManager cache(Options(64, 1), &clock_);
  const std::vector<CacheUnit> first = {1, 2, 3, 4, 5, 10, 11, 12};
  std::vector<CacheUnit> second = first;
  second.insert(second.end(), {20, 21, 22, 30, 31, 32});
  for (const auto& request : {first, second, second}) {
    Run(cache, kA, request);
    cache.Release(kA, true);
  }
  const KvCacheStats stats = cache.Stats();
  EXPECT_EQ(stats.lookups, 3);
  EXPECT_EQ(stats.hits, 2);
  EXPECT_EQ(stats.lookup_tokens, 36);
  EXPECT_EQ(stats.hit_tokens, 21) << "8 and 13 tokens: the last token is always computed";
  EXPECT_NEAR(100 * stats.request_hit_rate(), 66.7, 0.05);
  EXPECT_NEAR(100 * stats.token_reuse_rate(), 58.3, 0.05)
      << "the source of this example has 61.1 %: it also reuses the third request's last token";
}

TEST_F(KvCacheManagerTest, TheSecondTurnReuses31Of42Tokens) {
  KvCacheManager cache(Options(64, 1), &clock_);
  // First turn: a prompt of 19 tokens, an answer of 10 tokens, and 2 that end the message.
  Run(cache, kA, Units(31));
  cache.Release(kA, true);
  EXPECT_EQ(Run(cache, kB, Units(42)), 31);
  EXPECT_DOUBLE_EQ(cache.Stats().token_reuse_rate(), 31.0 / 73);
}

TEST_F(KvCacheManagerTest, StatisticsShowInternalFragmentation) {
  KvCacheManager cache(Options(64), &clock_);
  Run(cache, kA, Units(9));
  EXPECT_EQ(cache.Stats().reserved_slots, 12);
  EXPECT_EQ(cache.Stats().committed_slots, 9);
}

TEST_F(KvCacheManagerTest, TheTraceShowsBlocksTakenAtEachCrossingAndIsBounded) {
  KvCacheOptions options = Options(16);
  options.record_trace = true;
  KvCacheManager cache(options, &clock_);
  ASSERT_TRUE(cache.Begin(kA, kSpace, Units(1), 16).ok());
  for (int32_t i = 0; i < 9; ++i) {
    ASSERT_TRUE(cache.Reserve(kA, i + 1).ok());
    cache.Commit(kA, Units(1, i));
    clock_.AdvanceUs(1);
  }
  std::vector<std::pair<int32_t, int32_t>> crossings;  // tokens, free blocks afterwards
  for (const AllocationEvent& event : cache.trace()) {
    if (event.kind != AllocationEvent::Kind::kReserve) continue;
    crossings.emplace_back(event.tokens, event.free_after);
  }
  EXPECT_EQ(crossings, (std::vector<std::pair<int32_t, int32_t>>{{0, 15}, {4, 14}, {8, 13}}));
  cache.Release(kA, false);
  for (int i = 0; i < 10'000; ++i) {
    ASSERT_TRUE(cache.Begin(kA, kSpace, Units(1), 1).ok());
    cache.Release(kA, false);
    ASSERT_LE(cache.trace().size(), 2 * kTraceEvents);
  }
  EXPECT_GE(cache.trace().size(), kTraceEvents);
  EXPECT_EQ(cache.trace().back().kind, AllocationEvent::Kind::kRelease);
}

}  // namespace
}  // namespace baton
