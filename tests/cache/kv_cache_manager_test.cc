#include "cache/kv_cache_manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <utility>
#include <vector>

#include "tests/cache/kv_cache_manager_fixture.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

TEST_F(KvCacheManagerTest, AReleasedSequenceIsMatchedUpToItsLastFullBlock) {
  KvCacheManager cache(Options(16), &clock_);
  EXPECT_EQ(Run(cache, kA, Units(10)), 0);
  cache.Release(kA, true);
  EXPECT_EQ(cache.PeekMatch(kSpace, Units(12)), 8);
  EXPECT_EQ(Run(cache, kA, Units(12)), 8);
  cache.Release(kA, false);
  EXPECT_EQ(cache.available_blocks(), 16);
}

TEST_F(KvCacheManagerTest, AMatchLeavesAtLeastOneTokenToCompute) {
  for (const int32_t block_size : {1, 4, 16}) {
    KvCacheManager cache(Options(64, block_size), &clock_);
    Run(cache, kA, Units(64));
    cache.Release(kA, true);
    for (const int32_t blocks : {1, 2, 3}) {
      const int32_t exact = blocks * block_size;
      EXPECT_EQ(cache.PeekMatch(kSpace, Units(exact)), exact - block_size);
      EXPECT_EQ(cache.PeekMatch(kSpace, Units(exact + 1)), exact);
      EXPECT_EQ(Run(cache, kB, Units(exact)), exact - block_size);
      cache.Release(kB, true);
    }
  }
}

TEST_F(KvCacheManagerTest, OnlyCommittedTokensAreCached) {
  KvCacheManager cache(Options(16), &clock_);
  ASSERT_TRUE(cache.Begin(kA, kSpace, Units(16), 16).ok());
  ASSERT_TRUE(cache.Reserve(kA, 16).ok());
  cache.Commit(kA, Units(7));
  cache.Release(kA, true);
  EXPECT_EQ(cache.PeekMatch(kSpace, Units(16)), 4);
}

TEST_F(KvCacheManagerTest, NamespacesNeverShare) {
  KvCacheManager cache(Options(16), &clock_);
  Run(cache, kA, Units(12));
  cache.Release(kA, true);
  EXPECT_EQ(cache.PeekMatch(CacheNamespace(2), Units(12)), 0);
  EXPECT_EQ(Run(cache, kB, Units(12), CacheNamespace(2)), 0);
}

TEST_F(KvCacheManagerTest, DuplicatesAreSwappedForTheTreesBlocksAndFreed) {
  KvCacheManager cache(Options(16), &clock_);
  Run(cache, kA, Units(9));
  Run(cache, kB, Units(9));  // in parallel: nothing was cached yet
  cache.InsertCommitted(kA);
  EXPECT_EQ(cache.Stats().blocks.free, 10);
  cache.InsertCommitted(kB);
  EXPECT_EQ(cache.Stats().blocks.free, 12);
  EXPECT_EQ(cache.shared_tokens(kB), 8);
  for (const int i : {0, 1}) EXPECT_EQ(cache.BlockTable(kA)[i], cache.BlockTable(kB)[i]);
  EXPECT_NE(cache.BlockTable(kA)[2], cache.BlockTable(kB)[2]);
  EXPECT_TRUE(cache.CheckConservation().ok()) << cache.CheckConservation();
}

TEST_F(KvCacheManagerTest, ATransferKeepsASwappedBlockUntilItEnds) {
  KvCacheManager cache(Options(16), &clock_);
  Run(cache, kA, Units(8));
  Run(cache, kB, Units(8));
  const std::vector<BlockId> own(cache.BlockTable(kB).begin(), cache.BlockTable(kB).end());
  cache.HoldForTransfer(own);
  cache.InsertCommitted(kA);
  cache.InsertCommitted(kB);
  EXPECT_EQ(cache.Stats().blocks.in_transfer, 2);
  EXPECT_EQ(cache.blocks_in_transfer(), 2);
  EXPECT_EQ(cache.Stats().blocks.free, 12);
  cache.ReleaseTransferHold(own);
  EXPECT_EQ(cache.Stats().blocks.free, 14);
}

TEST_F(KvCacheManagerTest, AStepKeepsTheBlocksOfAnEndedSequenceUntilItEnds) {
  KvCacheManager cache(Options(16), &clock_);
  Run(cache, kA, Units(9));
  const std::vector<BlockId> table(cache.BlockTable(kA).begin(), cache.BlockTable(kA).end());
  cache.HoldForStep(table);
  EXPECT_EQ(cache.step_blocks(), 0) << "the sequence holds them too";
  cache.Release(kA, /*keep=*/true);
  EXPECT_EQ(cache.step_blocks(), 1) << "two full blocks are cached";
  EXPECT_EQ(cache.Stats().blocks.cached, 2);
  EXPECT_EQ(cache.available_blocks(), 13) << "pinned blocks cannot be evicted";
  EXPECT_TRUE(cache.CheckConservation().ok()) << cache.CheckConservation();
  EXPECT_TRUE(cache.CheckStepHolds(table).ok()) << cache.CheckStepHolds(table);
  EXPECT_EQ(cache.CheckStepHolds({}).message(), "block 0 has 1 step holds, but steps claim 0");
  cache.ReleaseStepHold(table);
  EXPECT_EQ(cache.available_blocks(), 16);
  EXPECT_EQ(cache.step_blocks(), 0);
}

TEST_F(KvCacheManagerTest, AMatchShorterThanTheSmallestUsefulOneCountsAsNone) {
  KvCacheOptions options = Options(16);
  options.min_prefix_tokens = 6;
  KvCacheManager cache(options, &clock_);
  Run(cache, kA, Units(12));
  cache.Release(kA, true);
  EXPECT_EQ(cache.PeekMatch(kSpace, Units(8)), 0) << "4 tokens are cached, less than the minimum";
  EXPECT_EQ(cache.PeekMatch(kSpace, Units(9)), 8);
  EXPECT_EQ(Run(cache, kB, Units(8)), 0);
  cache.Release(kB, true);
  EXPECT_EQ(Run(cache, kB, Units(9)), 8);
}

TEST_F(KvCacheManagerTest, BlocksToAdmitEqualsTheBlocksThatAdmissionTakes) {
  KvCacheManager cache(Options(16), &clock_);
  Run(cache, kA, Units(16));
  cache.Release(kA, true);
  for (const int32_t length : {3, 9, 17, 30}) {
    const int32_t before = cache.available_blocks();
    const int32_t expected = cache.BlocksToAdmit(kSpace, Units(length), length).full();
    Run(cache, kB, Units(length));
    EXPECT_EQ(before - cache.available_blocks(), expected);
    EXPECT_EQ(cache.BlocksToAdmit(kSpace, Units(17), 17).full(), length < 9    ? 5
                                                                 : length < 17 ? 3
                                                                               : 1);
    cache.Release(kB, false);
  }
}

TEST_F(KvCacheManagerTest, AContiguousSequenceHasOneRunFromTheStart) {
  KvCacheOptions options = Options(8);
  options.paged = false;
  options.kind = CacheKind::kNaive;
  KvCacheManager cache(options, &clock_);
  ASSERT_EQ(cache.Begin(kA, kSpace, Units(6), 14).value(), 0);
  const auto table = cache.BlockTable(kA);
  ASSERT_EQ(table.size(), 4u);
  for (int i = 1; i < 4; ++i) EXPECT_EQ(table[i].value(), table[0].value() + i);
  EXPECT_TRUE(cache.Reserve(kA, 14).ok());
  EXPECT_FALSE(cache.Reserve(kA, 17).ok());
  EXPECT_THAT(cache.Begin(kB, kSpace, Units(6), 20).status().ToString(),
              AllOf(HasSubstr("RESOURCE_EXHAUSTED"), HasSubstr("run of 5"), HasSubstr("4 of 8")));
  EXPECT_FALSE(cache.Contains(kB));
  cache.Commit(kA, Units(6));
  cache.Release(kA, true);
  EXPECT_EQ(cache.PeekMatch(kSpace, Units(6)), 0);
  EXPECT_EQ(cache.available_blocks(), 8);
}

TEST_F(KvCacheManagerTest, WithoutPrefixCacheNothingIsKept) {
  KvCacheOptions options = Options(16);
  options.kind = CacheKind::kNaive;
  KvCacheManager cache(options, &clock_);
  Run(cache, kA, Units(12));
  cache.Release(kA, true);
  EXPECT_EQ(Run(cache, kA, Units(12)), 0);
  cache.Release(kA, true);
  EXPECT_EQ(cache.Stats().blocks.free, 16);
  EXPECT_EQ(cache.Stats().hits, 0);
}

TEST_F(KvCacheManagerTest, ChunkOnlyGivesKvBackOnlyToItsOwnPreemptedSequence) {
  KvCacheOptions options = Options(16);
  options.kind = CacheKind::kChunkOnly;
  KvCacheManager cache(options, &clock_);
  Run(cache, kA, Units(10));
  cache.InsertCommitted(kA);
  cache.Preempt(kA);
  EXPECT_EQ(cache.PeekMatch(kSpace, Units(10), kA), 8);
  EXPECT_EQ(cache.PeekMatch(kSpace, Units(10), kB), 0);
  EXPECT_EQ(Run(cache, kB, Units(10)), 0);
  EXPECT_EQ(Run(cache, kA, Units(10)), 8);
  cache.Release(kA, true);
  cache.Release(kB, true);
  EXPECT_EQ(cache.Stats().blocks.free, 16) << "an ended sequence leaves no cached block";
}

TEST_F(KvCacheManagerTest, APreemptedSequenceFindsItsComputedBlocks) {
  for (const auto& [kind, expected] : {std::pair{CacheKind::kNaive, 0}, {CacheKind::kRadix, 8}}) {
    KvCacheOptions options = Options(16);
    options.kind = kind;
    KvCacheManager cache(options, &clock_);
    Run(cache, kA, Units(10));
    cache.Preempt(kA);
    EXPECT_EQ(Run(cache, kA, Units(10)), expected);
  }
}

TEST_F(KvCacheManagerTest, BigramKeysAlignInPairs) {
  KvCacheManager cache(Options(16), &clock_);
  std::vector<TokenId> tokens(9);
  std::iota(tokens.begin(), tokens.end(), 100);
  Run(cache, kA, BigramUnitsFromTokens(tokens));  // 8 pairs: two blocks of four
  cache.Release(kA, true);
  EXPECT_EQ(cache.PeekMatch(kSpace, BigramUnitsFromTokens(tokens)), 4)
      << "one pair must be computed";
  tokens.push_back(7);
  EXPECT_EQ(cache.PeekMatch(kSpace, BigramUnitsFromTokens(tokens)), 8);
  tokens[8] = 7;  // in the last pair of the second block
  EXPECT_EQ(cache.PeekMatch(kSpace, BigramUnitsFromTokens(tokens)), 4);
  EXPECT_EQ(cache.PeekMatch(kSpace, UnitsFromTokens(tokens)), 0) << "no pair equals a token";
}

using KvCacheManagerDeathTest = KvCacheManagerTest;

TEST_F(KvCacheManagerDeathTest, MisuseIsABug) {
  KvCacheManager cache(Options(16), &clock_);
  ASSERT_TRUE(cache.Begin(kA, kSpace, Units(8), 16).ok());
  EXPECT_DEATH((void)cache.Begin(kA, kSpace, Units(8), 16), "already exists");
  EXPECT_DEATH(cache.Commit(kA, Units(1)), "commits more than it reserved");
  EXPECT_DEATH(cache.Release(kB, true), "no KV of sequence 2");
  ASSERT_TRUE(cache.Reserve(kA, 8).ok());
  cache.Commit(kA, Units(8));
}

}  // namespace
}  // namespace baton
