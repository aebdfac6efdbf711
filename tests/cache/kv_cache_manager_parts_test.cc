// Parts of chunked prompts: sequences that share no prefix, locks on whole cached prefixes, and
// holds of the chunk cache.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "cache/kv_cache_manager.h"
#include "tests/cache/kv_cache_manager_fixture.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

constexpr SequenceId kPart{9};

class KvCacheManagerParts : public KvCacheManagerTest {
 protected:
  void RunPart(KvCacheManager& cache, int32_t tokens) {
    ASSERT_TRUE(cache.BeginPart(kPart, tokens).ok());
    ASSERT_TRUE(cache.Reserve(kPart, tokens).ok());
    cache.Commit(kPart, Units(tokens));
    ASSERT_TRUE(cache.CheckConservation().ok()) << cache.CheckConservation();
  }
};

TEST_F(KvCacheManagerParts, APartMatchesNothingAndCountsNoLookup) {
  KvCacheManager cache(Options(10), &clock_);
  Run(cache, kA, Units(8));
  cache.Release(kA, /*keep=*/true);
  RunPart(cache, 8);
  EXPECT_EQ(cache.matched(kPart), 0);
  EXPECT_EQ(cache.Stats().lookups, 1);
  cache.Release(kPart, /*keep=*/false);
  EXPECT_EQ(cache.Stats().radix_nodes, 1);
}

TEST_F(KvCacheManagerParts, APartInContiguousModeTakesARun) {
  KvCacheOptions options = Options(4);
  options.paged = false;
  options.kind = CacheKind::kNaive;
  KvCacheManager cache(options, &clock_);
  RunPart(cache, 8);
  EXPECT_EQ(cache.BlockTable(kPart).size(), 2u);
  const absl::Status status = cache.BeginPart(kA, 12);
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_THAT(status.message(), HasSubstr("no run of 3 free blocks"));
  EXPECT_FALSE(cache.Contains(kA));
}

TEST_F(KvCacheManagerParts, BeginCachedLocksWholeBlocksOrTakesNothing) {
  KvCacheManager cache(Options(4), &clock_);
  Run(cache, kA, Units(8));
  cache.Release(kA, /*keep=*/true);
  EXPECT_FALSE(cache.BeginCached(kPart, kSpace, Units(12)));
  EXPECT_FALSE(cache.BeginCached(kPart, CacheNamespace(2), Units(8)));
  EXPECT_FALSE(cache.Contains(kPart));
  EXPECT_EQ(cache.PeekBlocks(kSpace, Units(8)).evictable_blocks, 2);
  ASSERT_TRUE(cache.BeginCached(kPart, kSpace, Units(8)));
  EXPECT_EQ(cache.PeekBlocks(kSpace, Units(8)).evictable_blocks, 0);
  EXPECT_EQ(cache.committed(kPart), 8);
  EXPECT_EQ(cache.BlockTable(kPart).size(), 2u);
  EXPECT_EQ(cache.available_blocks(), 2);
  EXPECT_EQ(cache.Stats().lookups, 1);
  EXPECT_TRUE(cache.CheckConservation().ok()) << cache.CheckConservation();
  cache.Release(kPart, /*keep=*/false);
  EXPECT_EQ(cache.available_blocks(), 4);
  EXPECT_EQ(cache.PeekBlocks(kSpace, Units(8)).blocks, 2);
}

TEST_F(KvCacheManagerParts, BeginCachedNeedsSharedPrefixes) {
  KvCacheOptions options = Options(4);
  options.kind = CacheKind::kChunkOnly;
  KvCacheManager cache(options, &clock_);
  EXPECT_FALSE(cache.BeginCached(kPart, kSpace, {}));
}

TEST_F(KvCacheManagerParts, InsertIfNewNeverExchangesABlock) {
  KvCacheManager cache(Options(10), &clock_);
  for (const SequenceId id : {kA, kB}) {
    ASSERT_TRUE(cache.Begin(id, kSpace, Units(9), 9).ok());
    ASSERT_TRUE(cache.Reserve(id, 9).ok());
  }
  cache.Commit(kA, Units(4));
  cache.InsertIfNew(kA);
  EXPECT_EQ(cache.shared_tokens(kA), 4);
  cache.Commit(kB, Units(9));
  const std::vector<BlockId> before(cache.BlockTable(kB).begin(), cache.BlockTable(kB).end());
  cache.InsertIfNew(kB);
  EXPECT_EQ(cache.shared_tokens(kB), 0);
  EXPECT_TRUE(std::equal(before.begin(), before.end(), cache.BlockTable(kB).begin()));
  EXPECT_TRUE(cache.CheckConservation().ok()) << cache.CheckConservation();
  cache.Commit(kA, Units(5, 4));
  cache.InsertIfNew(kA);
  EXPECT_EQ(cache.shared_tokens(kA), 8);
  EXPECT_TRUE(cache.CheckConservation().ok()) << cache.CheckConservation();
}

// A cleared namespace is still there for the sequences that run. Its blocks must not be exchanged
// either.
TEST_F(KvCacheManagerParts, InsertIfNewNeverExchangesABlockOfAClearedNamespace) {
  KvCacheManager cache(Options(10), &clock_);
  for (const SequenceId id : {kA, kB}) {
    ASSERT_TRUE(cache.Begin(id, kSpace, Units(9), 9).ok());
    ASSERT_TRUE(cache.Reserve(id, 9).ok());
  }
  cache.ClearCache();
  cache.Commit(kA, Units(9));
  cache.InsertCommitted(kA);
  cache.Commit(kB, Units(9));
  const std::vector<BlockId> before(cache.BlockTable(kB).begin(), cache.BlockTable(kB).end());
  cache.InsertIfNew(kB);
  EXPECT_TRUE(std::equal(before.begin(), before.end(), cache.BlockTable(kB).begin()));
  EXPECT_EQ(cache.shared_tokens(kB), 0);
  EXPECT_TRUE(cache.CheckConservation().ok()) << cache.CheckConservation();
}

TEST_F(KvCacheManagerParts, AChunkHoldKeepsBlocksThatNoSequenceHas) {
  KvCacheManager cache(Options(6), &clock_);
  RunPart(cache, 6);
  const std::vector<BlockId> blocks(cache.BlockTable(kPart).begin(), cache.BlockTable(kPart).end());
  cache.HoldForChunk(blocks);
  EXPECT_EQ(cache.Stats().blocks.owned, 2);
  cache.Release(kPart, /*keep=*/false);
  EXPECT_EQ(cache.Stats().blocks.cached, 2);
  EXPECT_TRUE(cache.CheckConservation().ok()) << cache.CheckConservation();
  EXPECT_TRUE(cache.CheckChunkHolds(blocks).ok());
  EXPECT_THAT(cache.CheckChunkHolds({}).message(), HasSubstr("2 blocks have chunk holds"));
  const std::vector<BlockId> twice = {blocks[0], blocks[0]};
  EXPECT_THAT(cache.CheckChunkHolds(twice).message(), HasSubstr("two chunks claim block"));
  const std::vector<BlockId> wrong = {blocks[0], BlockId(5)};
  EXPECT_THAT(cache.CheckChunkHolds(wrong).message(), HasSubstr("which has no chunk hold"));
  // They are never evicted for a sequence.
  ASSERT_TRUE(cache.Begin(kA, kSpace, Units(20), 20).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(cache.Reserve(kA, 20)));
  EXPECT_TRUE(cache.Reserve(kA, 16).ok());
  cache.ReleaseChunkHold(blocks);
  EXPECT_TRUE(cache.Reserve(kA, 20).ok());
  EXPECT_TRUE(cache.CheckConservation().ok()) << cache.CheckConservation();
}

using KvCacheManagerPartsDeathTest = KvCacheManagerParts;

TEST_F(KvCacheManagerPartsDeathTest, ChunkHoldsAreChecked) {
  KvCacheManager cache(Options(6), &clock_);
  Run(cache, kA, Units(8));
  const std::vector<BlockId> blocks(cache.BlockTable(kA).begin(), cache.BlockTable(kA).end());
  EXPECT_DEATH(cache.HoldForChunk(std::vector{BlockId(5)}), "is not in use");
  EXPECT_DEATH(cache.ReleaseChunkHold(blocks), "has no chunk hold");
  cache.InsertCommitted(kA);
  EXPECT_DEATH(cache.HoldForChunk(blocks), "is in the prefix tree");
  cache.Release(kA, /*keep=*/false);
}

}  // namespace
}  // namespace baton
