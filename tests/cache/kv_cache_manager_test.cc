#include "cache/kv_cache_manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <tuple>

namespace baton {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr CacheNamespace kSpace{1};
constexpr SequenceId kA{1}, kB{2};

KvCacheOptions Options(int32_t blocks, int32_t block_size = 4) {
  KvCacheOptions options;
  options.num_blocks = blocks;
  options.block_size = block_size;
  return options;
}

std::vector<CacheUnit> Units(int32_t count, CacheUnit first = 0) {
  std::vector<CacheUnit> units(count);
  std::iota(units.begin(), units.end(), first);
  return units;
}

class KvCacheManagerTest : public testing::Test {
 protected:
  // A whole life but its end.
  int32_t Run(KvCacheManager& cache, SequenceId id, const std::vector<CacheUnit>& units,
              CacheNamespace space = kSpace) {
    const auto matched = cache.Begin(id, space, units, static_cast<int32_t>(units.size()));
    EXPECT_TRUE(matched.ok()) << matched.status();
    EXPECT_TRUE(cache.Reserve(id, static_cast<int32_t>(units.size())).ok());
    cache.Commit(id, std::span(units).subspan(*matched));
    EXPECT_TRUE(cache.CheckConservation().ok()) << cache.CheckConservation();
    return *matched;
  }
  ManualClock clock_;
};

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
  Run(cache, kB, Units(9));  // side by side: nothing was cached yet
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

TEST_F(KvCacheManagerTest, WhatATransferReadsIsNeitherAvailableNorEvicted) {
  KvCacheManager cache(Options(4), &clock_);
  Run(cache, kA, Units(12));
  cache.InsertCommitted(kA);
  const std::vector<BlockId> read(cache.BlockTable(kA).begin(), cache.BlockTable(kA).begin() + 1);
  cache.HoldForTransfer(read);
  cache.HoldForTransfer(read);
  cache.Release(kA, true);
  EXPECT_EQ(cache.available_blocks(), 1) << "the pin covers the block's node";
  cache.ReleaseTransferHold(read);
  EXPECT_EQ(cache.available_blocks(), 1) << "it was held twice";
  cache.ReleaseTransferHold(read);
  EXPECT_EQ(cache.available_blocks(), 4);
  EXPECT_EQ(cache.ClearCache(), 3);
}

TEST_F(KvCacheManagerTest, AMatchShorterThanTheSmallestUsefulOneCountsAsNone) {
  KvCacheOptions options = Options(16);
  options.min_prefix_tokens = 6;
  KvCacheManager cache(options, &clock_);
  Run(cache, kA, Units(12));
  cache.Release(kA, true);
  EXPECT_EQ(cache.PeekMatch(kSpace, Units(8)), 0) << "4 tokens could be had";
  EXPECT_EQ(cache.PeekMatch(kSpace, Units(9)), 8);
  EXPECT_EQ(Run(cache, kB, Units(8)), 0);
  cache.Release(kB, true);
  EXPECT_EQ(Run(cache, kB, Units(9)), 8);
}

TEST_F(KvCacheManagerTest, BlocksToAdmitIsWhatAdmissionTakes) {
  KvCacheManager cache(Options(16), &clock_);
  Run(cache, kA, Units(16));
  cache.Release(kA, true);
  for (const int32_t length : {3, 9, 17, 30}) {
    const int32_t before = cache.available_blocks();
    const int32_t expected = cache.BlocksToAdmit(kSpace, Units(length), length);
    Run(cache, kB, Units(length));
    EXPECT_EQ(before - cache.available_blocks(), expected);
    EXPECT_EQ(cache.BlocksToAdmit(kSpace, Units(17), 17), length < 9 ? 5 : length < 17 ? 3 : 1);
    cache.Release(kB, false);
  }
}

TEST_F(KvCacheManagerTest, TruncateFreesWholeBlocksBehind) {
  KvCacheManager cache(Options(16), &clock_);
  Run(cache, kA, Units(15));
  cache.Truncate(kA, 6);
  EXPECT_EQ(cache.committed(kA), 6);
  EXPECT_EQ(cache.BlockTable(kA).size(), 2u);
  ASSERT_TRUE(cache.Reserve(kA, 8).ok());
  cache.Commit(kA, Units(2, 50));
  cache.Release(kA, true);
  std::vector<CacheUnit> rewritten = Units(6);
  rewritten.insert(rewritten.end(), {50, 51, 52});
  EXPECT_EQ(cache.PeekMatch(kSpace, rewritten), 8);
  EXPECT_EQ(cache.PeekMatch(kSpace, Units(15)), 4);
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
  EXPECT_EQ(stats.hit_tokens, 21) << "8 and 13: the last token is always computed";
  EXPECT_NEAR(100 * stats.request_hit_rate(), 66.7, 0.05);
  EXPECT_NEAR(100 * stats.token_reuse_rate(), 58.3, 0.05)
      << "the source says 61.1 %, reusing the last token of the third request too";
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
  std::vector<std::pair<int32_t, int32_t>> crossings;  // tokens, free blocks after
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

TEST_F(KvCacheManagerTest, ChunkOnlyGivesAPreemptedSequenceItsOwnKvBackAndNobodyElse) {
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
  EXPECT_EQ(cache.Stats().blocks.free, 16) << "an ended sequence leaves nothing";
}

TEST_F(KvCacheManagerTest, APreemptedSequenceFindsWhatItHadComputed) {
  for (const auto& [kind, expected] : {std::pair{CacheKind::kNaive, 0}, {CacheKind::kRadix, 8}}) {
    KvCacheOptions options = Options(16);
    options.kind = kind;
    KvCacheManager cache(options, &clock_);
    Run(cache, kA, Units(10));
    cache.Preempt(kA);
    EXPECT_EQ(Run(cache, kA, Units(10)), expected);
  }
}

TEST_F(KvCacheManagerTest, PastTheHighWaterMarkCachedBlocksGoUntilTheLowOneIsReached) {
  KvCacheOptions options = Options(20);
  options.high_water = 0.9;
  options.low_water = 0.8;
  KvCacheManager cache(options, &clock_);
  Run(cache, kA, Units(40));  // 10 blocks
  cache.Release(kA, true);
  Run(cache, kB, Units(32, 100));  // 8 more: 18 of 20 is the mark itself
  EXPECT_EQ(cache.Stats().evicted_blocks, 0);
  ASSERT_TRUE(cache.Reserve(kB, 36).ok());
  EXPECT_EQ(cache.Stats().blocks.free, 4);
  EXPECT_EQ(cache.Stats().evicted_blocks, 3);
  EXPECT_EQ(cache.Stats().evicted_tokens, 12);
  EXPECT_EQ(cache.Stats().evictions, 1);
  ASSERT_TRUE(cache.Reserve(kB, 80).ok()) << "the marks limit nobody";
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
  EXPECT_EQ(cache.PeekMatch(kSpace, Units(9)), 8) << "older, but more important";
  EXPECT_EQ(cache.PeekMatch(kSpace, Units(9, 100)), 0);
}

TEST_F(KvCacheManagerTest, AForkSharesEverythingAndCopiesThePartFullBlockWhenItWrites) {
  KvCacheManager cache(Options(16), &clock_);
  Run(cache, kA, Units(10));
  ASSERT_TRUE(cache.Fork(kA, kB).ok());
  EXPECT_EQ(cache.committed(kB), 10);
  EXPECT_EQ(cache.Stats().blocks.free, 13) << "a fork takes no block";
  EXPECT_TRUE(std::ranges::equal(cache.BlockTable(kA), cache.BlockTable(kB)));
  EXPECT_TRUE(cache.TakeCopies().empty());

  const BlockId shared = cache.BlockTable(kB)[2];
  ASSERT_TRUE(cache.Reserve(kB, 11).ok());
  const BlockId own = cache.BlockTable(kB)[2];
  EXPECT_NE(own, shared);
  EXPECT_EQ(cache.TakeCopies(), (std::vector<BlockCopy>{{.from = shared, .to = own, .tokens = 2}}));
  ASSERT_TRUE(cache.Reserve(kA, 11).ok());
  EXPECT_EQ(cache.BlockTable(kA)[2], shared) << "the last holder writes without a copy";
  EXPECT_TRUE(cache.TakeCopies().empty());
  cache.Commit(kA, Units(1, 50));
  cache.Commit(kB, Units(1, 60));
  EXPECT_TRUE(cache.CheckConservation().ok()) << cache.CheckConservation();
}

TEST_F(KvCacheManagerTest, ACopyIntoABlockThatWasGivenBackIsDropped) {
  KvCacheManager cache(Options(16), &clock_);
  Run(cache, kA, Units(10));
  ASSERT_TRUE(cache.Fork(kA, kB).ok());
  ASSERT_TRUE(cache.Reserve(kB, 11).ok());
  cache.Release(kB, true);
  EXPECT_TRUE(cache.TakeCopies().empty());
}

TEST_F(KvCacheManagerTest, AForksFirstWriteFailsCleanlyWhenNoBlockIsLeft) {
  KvCacheManager cache(Options(3), &clock_);
  Run(cache, kA, Units(10));
  ASSERT_TRUE(cache.Fork(kA, kB).ok());
  EXPECT_EQ(cache.Reserve(kB, 11).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(std::ranges::equal(cache.BlockTable(kA), cache.BlockTable(kB)));
  cache.Release(kA, false);
  EXPECT_TRUE(cache.Reserve(kB, 11).ok()) << "it is the only holder now";
}

TEST_F(KvCacheManagerTest, AContiguousSequenceCannotFork) {
  KvCacheOptions options = Options(8);
  options.paged = false;
  options.kind = CacheKind::kNaive;
  KvCacheManager cache(options, &clock_);
  Run(cache, kA, Units(6));
  EXPECT_EQ(cache.Fork(kA, kB).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(KvCacheManagerTest, APoolGrowsAndShrinksWhileSequencesLive) {
  KvCacheOptions options = Options(4);
  options.max_blocks = 10;
  KvCacheManager cache(options, &clock_);
  Run(cache, kA, Units(16));
  EXPECT_FALSE(cache.Reserve(kA, 17).ok());
  ASSERT_TRUE(cache.Resize(10).ok());
  Run(cache, kB, Units(20, 100));
  EXPECT_THAT(cache.Resize(11).ToString(), HasSubstr("11 blocks; [1, 10]"));
  EXPECT_FALSE(cache.Resize(0).ok());

  ASSERT_TRUE(cache.Resize(5).ok());
  EXPECT_EQ(cache.retiring_blocks(), 4) << "kB's, but for its first";
  EXPECT_EQ(cache.available_blocks(), 0);
  cache.Release(kB, true);
  EXPECT_EQ(cache.retiring_blocks(), 0) << "nothing behind the end stays cached";
  EXPECT_EQ(cache.PeekMatch(kSpace, Units(20, 100)), 4);
  EXPECT_EQ(cache.num_blocks(), 5);
  EXPECT_TRUE(cache.CheckConservation().ok()) << cache.CheckConservation();
}

TEST_F(KvCacheManagerTest, ClearingForgetsWhatIsInUseTooOnceItsUsersAreDone) {
  KvCacheManager cache(Options(16), &clock_);
  Run(cache, kA, Units(9));
  cache.InsertCommitted(kA);
  EXPECT_EQ(cache.ClearCache(), 0);
  EXPECT_EQ(cache.PeekMatch(kSpace, Units(9)), 0);
  cache.Release(kA, true);
  EXPECT_EQ(cache.Stats().blocks.free, 16);
}

// ---- the sources' worked examples, each request at a block size of one token --------------------

TEST_F(KvCacheManagerTest, TheSecondTurnReuses31Of42Tokens) {
  KvCacheManager cache(Options(64, 1), &clock_);
  Run(cache, kA, Units(31));  // the first turn: prompt of 19, answer of 10, end of message
  cache.Release(kA, true);
  EXPECT_EQ(Run(cache, kB, Units(42)), 31);
  EXPECT_DOUBLE_EQ(cache.Stats().token_reuse_rate(), 31.0 / 73);
}

TEST_F(KvCacheManagerTest, BigramKeysAlignInPairs) {
  KvCacheManager cache(Options(16), &clock_);
  std::vector<TokenId> tokens(9);
  std::iota(tokens.begin(), tokens.end(), 100);
  Run(cache, kA, BigramUnitsFromTokens(tokens));  // 8 pairs: two blocks of four
  cache.Release(kA, true);
  EXPECT_EQ(cache.PeekMatch(kSpace, BigramUnitsFromTokens(tokens)), 4) << "one pair is computed";
  tokens.push_back(7);
  EXPECT_EQ(cache.PeekMatch(kSpace, BigramUnitsFromTokens(tokens)), 8);
  tokens[8] = 7;  // in the last pair of the second block
  EXPECT_EQ(cache.PeekMatch(kSpace, BigramUnitsFromTokens(tokens)), 4);
  EXPECT_EQ(cache.PeekMatch(kSpace, UnitsFromTokens(tokens)), 0) << "no pair is a token";
}

TEST(KvCacheManagerDeathTest, MisuseIsABug) {
  ManualClock clock;
  KvCacheManager cache(Options(16), &clock);
  ASSERT_TRUE(cache.Begin(kA, kSpace, Units(8), 16).ok());
  EXPECT_DEATH((void)cache.Begin(kA, kSpace, Units(8), 16), "begun already");
  EXPECT_DEATH(cache.Commit(kA, Units(1)), "commits more than it reserved");
  EXPECT_DEATH(cache.Release(kB, true), "no KV of sequence 2");
  ASSERT_TRUE(cache.Reserve(kA, 8).ok());
  cache.Commit(kA, Units(8));
  cache.InsertCommitted(kA);
  EXPECT_DEATH(cache.Truncate(kA, 7), "read-only prefix");
}

}  // namespace
}  // namespace baton
