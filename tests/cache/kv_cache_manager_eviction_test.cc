// Eviction under memory pressure: what is evicted and what stays.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <tuple>
#include <vector>

#include "tests/cache/kv_cache_manager_fixture.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

TEST_F(KvCacheManagerTest, ReserveEvictsBeforeItFailsAndFailsWithBothNumbers) {
  KvCacheManager cache(Options(8), &clock_);
  Run(cache, kA, Units(16));
  cache.Release(kA, true);
  ASSERT_TRUE(cache.Begin(kB, kSpace, Units(8, 100), 100).ok());
  ASSERT_TRUE(cache.Reserve(kB, 24).ok());
  EXPECT_EQ(cache.Stats().evicted_blocks, 2);
  const absl::Status status = cache.Reserve(kB, 36);
  EXPECT_THAT(status.ToString(), AllOf(HasSubstr("RESOURCE_EXHAUSTED"), HasSubstr("3 more blocks"),
                                       HasSubstr("2 of 8")));
  EXPECT_EQ(cache.capacity(kB), 24);
  EXPECT_EQ(cache.Stats().evictable, 2) << "a failed call evicts nothing";
}

TEST_F(KvCacheManagerTest, AboveTheHighWaterMarkCachedBlocksAreEvictedDownToTheLowOne) {
  KvCacheOptions options = Options(20);
  options.high_water = 0.9;
  options.low_water = 0.8;
  KvCacheManager cache(options, &clock_);
  Run(cache, kA, Units(40));  // 10 blocks
  cache.Release(kA, true);
  Run(cache, kB, Units(32, 100));  // 8 more: 18 of 20 is exactly the mark
  EXPECT_EQ(cache.Stats().evicted_blocks, 0);
  ASSERT_TRUE(cache.Reserve(kB, 36).ok());
  EXPECT_EQ(cache.Stats().blocks.free, 4);
  EXPECT_EQ(cache.Stats().evicted_blocks, 3);
  EXPECT_EQ(cache.Stats().evicted_tokens, 12);
  EXPECT_EQ(cache.Stats().evictions, 1);
  ASSERT_TRUE(cache.Reserve(kB, 80).ok()) << "the marks do not limit reservations";
  EXPECT_EQ(cache.Stats().blocks.free, 0);
}

TEST_F(KvCacheManagerTest, PrioritiesReachEviction) {
  KvCacheOptions options = Options(8);
  options.eviction_policy = EvictionPolicy::kPriority;
  KvCacheManager cache(options, &clock_);
  for (const auto& [id, first, priority] : {std::tuple{kA, 0, 1}, {kB, 100, 0}}) {
    ASSERT_TRUE(cache.Begin(id, kSpace, Units(8, first), 8, priority).ok());
    ASSERT_TRUE(cache.Reserve(id, 8).ok());
    cache.Commit(id, Units(8, first));
    cache.Release(id, true);
  }
  const SequenceId id(3);
  Run(cache, id, Units(24, 200));
  EXPECT_EQ(cache.PeekMatch(kSpace, Units(9)), 8) << "older, but of higher priority";
  EXPECT_EQ(cache.PeekMatch(kSpace, Units(9, 100)), 0);
}

TEST_F(KvCacheManagerTest, WithEqualPrioritiesPriorityEvictsAsLruDoes) {
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    KvCacheOptions options = Options(24);
    options.high_water = 0.9;
    options.low_water = 0.7;
    options.eviction_policy = EvictionPolicy::kLru;
    KvCacheManager lru(options, &clock_);
    options.eviction_policy = EvictionPolicy::kPriority;
    KvCacheManager priority(options, &clock_);
    const auto all = static_cast<int32_t>(random() % 201) - 100;
    std::vector<SequenceId> live;
    std::vector<BlockId> sent;
    for (uint64_t step = 1; step <= 300; ++step) {
      const SequenceId id(step);
      const size_t ended = live.empty() ? 0 : random() % live.size();
      // The prompts belong to a few families, so that prefixes are shared, split and reused.
      std::vector<CacheUnit> units = Units(4 + random() % 24, 1000 * (random() % 4));
      if (units.size() > 12) units[12] += random() % 3;
      const bool ends = live.size() > 2 || random() % 3 == 0;
      const bool keeps = random() % 8 != 0;
      for (KvCacheManager* cache : {&lru, &priority}) {
        if (ends && !live.empty()) cache->Release(live[ended], keeps);
        const auto matched = cache->Begin(id, kSpace, units, 100, all);
        ASSERT_TRUE(matched.ok());
        if (!cache->Reserve(id, static_cast<int32_t>(units.size())).ok()) continue;
        cache->Commit(id, std::span(units).subspan(*matched));
        if (step % 3 == 0) cache->InsertCommitted(id);
        if (step % 7 == 0) {
          sent = cache->HoldPrefix(kSpace, units, 0).blocks;
          cache->ReleaseTransferHold(sent);
        }
      }
      if (ends && !live.empty()) live.erase(live.begin() + static_cast<std::ptrdiff_t>(ended));
      live.push_back(id);
      // Every possible path.
      for (CacheUnit path = 0; path < 12; ++path) {
        std::vector<CacheUnit> longest = Units(28, 1000 * (path / 3));
        longest[12] += path % 3;
        ASSERT_EQ(lru.PeekMatch(kSpace, longest), priority.PeekMatch(kSpace, longest))
            << "step " << step << " path " << path;
      }
      ASSERT_EQ(lru.Stats().radix_nodes, priority.Stats().radix_nodes) << "step " << step;
      ASSERT_EQ(lru.Stats().evicted_blocks, priority.Stats().evicted_blocks) << "step " << step;
    }
    EXPECT_GT(lru.Stats().evicted_blocks, 50);
    for (const SequenceId id : live) {
      lru.Release(id, false);
      priority.Release(id, false);
    }
  }
}

TEST_F(KvCacheManagerTest, SendingAPrefixDoesNotRaiseItsPriority) {
  KvCacheOptions options = Options(8);
  options.eviction_policy = EvictionPolicy::kPriority;
  KvCacheManager cache(options, &clock_);
  for (const auto& [id, first, priority] : {std::tuple{kA, 0, -5}, {kB, 100, -4}}) {
    ASSERT_TRUE(cache.Begin(id, kSpace, Units(8, first), 8, priority).ok());
    ASSERT_TRUE(cache.Reserve(id, 8).ok());
    cache.Commit(id, Units(8, first));
    cache.Release(id, true);
  }
  cache.ReleaseTransferHold(cache.HoldPrefix(kSpace, Units(8), 0).blocks);
  Run(cache, SequenceId(3), Units(24, 200));
  EXPECT_EQ(cache.PeekMatch(kSpace, Units(9)), 0);
  EXPECT_EQ(cache.PeekMatch(kSpace, Units(9, 100)), 8);
}

TEST_F(KvCacheManagerTest, AnOwnersShareOutlastsAFloodAndBelongsToTheLatestRequest) {
  KvCacheManager cache(Options(8), &clock_);
  const CacheOwner owner{.id = 5, .share = 0.5};
  const auto run = [&](CacheNamespace space, CacheUnit first, int32_t tokens,
                       const CacheOwner& of) {
    EXPECT_TRUE(cache.Begin(kA, space, Units(tokens, first), tokens, 0, of).ok());
    const int32_t matched = cache.committed(kA);
    EXPECT_TRUE(cache.Reserve(kA, tokens).ok());
    cache.Commit(kA, Units(tokens - matched, first + matched));
    cache.Release(kA, /*keep=*/true);
    EXPECT_TRUE(cache.CheckConservation().ok()) << cache.CheckConservation();
  };
  const auto kept = [&] { return cache.PeekMatch(kSpace, Units(25)); };
  const auto flood = [&] {
    for (CacheUnit i = 1; i <= 5; ++i) run(CacheNamespace(2), 1000 * i, 16, {});
  };
  run(kSpace, 0, 24, owner);
  flood();
  EXPECT_EQ(kept(), 16) << "half of 8 blocks of 4 tokens";
  cache.SetOwner(kSpace, {.id = 5, .share = 0.25});
  flood();
  EXPECT_EQ(kept(), 8);
  const HeldBlocks held = cache.HoldPrefix(kSpace, Units(8), 0);
  EXPECT_EQ(held.blocks.size(), 2u);
  cache.ReleaseTransferHold(held.blocks);
  flood();
  EXPECT_EQ(kept(), 8) << "another worker's pull does not change the owner";
  run(kSpace, 0, 8, {});
  flood();
  EXPECT_EQ(kept(), 0) << "a request without a share ends the share";
}

}  // namespace
}  // namespace baton
