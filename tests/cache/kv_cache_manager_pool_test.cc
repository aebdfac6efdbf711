#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/cache/kv_cache_manager_fixture.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

TEST_F(KvCacheManagerTest, BlocksReadByATransferAreNeitherAvailableNorEvicted) {
  KvCacheManager cache(Options(4), &clock_);
  Run(cache, kA, Units(12));
  cache.InsertCommitted(kA);
  const std::vector<BlockId> read(cache.BlockTable(kA).begin(), cache.BlockTable(kA).begin() + 1);
  cache.HoldForTransfer(read);
  cache.HoldForTransfer(read);
  cache.Release(kA, true);
  EXPECT_EQ(cache.available_blocks(), 1) << "the pin protects the block's whole node";
  cache.ReleaseTransferHold(read);
  EXPECT_EQ(cache.available_blocks(), 1) << "the second hold remains";
  cache.ReleaseTransferHold(read);
  EXPECT_EQ(cache.available_blocks(), 4);
  EXPECT_EQ(cache.ClearCache(), 3);
}

TEST_F(KvCacheManagerTest, ClearingAlsoDropsBlocksInUseOnceTheirUsersEnd) {
  KvCacheManager cache(Options(16), &clock_);
  Run(cache, kA, Units(9));
  cache.InsertCommitted(kA);
  EXPECT_EQ(cache.ClearCache(), 0);
  EXPECT_EQ(cache.PeekMatch(kSpace, Units(9)), 0);
  cache.Release(kA, true);
  EXPECT_EQ(cache.Stats().blocks.free, 16);
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
  EXPECT_EQ(cache.retiring_blocks(), 4) << "kB's blocks except the first";
  EXPECT_EQ(cache.available_blocks(), 0);
  cache.Release(kB, true);
  EXPECT_EQ(cache.retiring_blocks(), 0) << "no block above the limit stays cached";
  EXPECT_EQ(cache.PeekMatch(kSpace, Units(20, 100)), 4);
  EXPECT_EQ(cache.num_blocks(), 5);
  EXPECT_TRUE(cache.CheckConservation().ok()) << cache.CheckConservation();
}

TEST_F(KvCacheManagerTest, RetiredBlocksAreThoseAboveTheLimitWithoutHolders) {
  KvCacheOptions options = Options(10);
  options.max_blocks = 12;
  KvCacheManager cache(options, &clock_);
  EXPECT_THAT(cache.RetiredBlocks(), testing::ElementsAre(BlockRange{10, 12}));
  Run(cache, kA, Units(16));
  Run(cache, kB, Units(8, 100));
  const std::vector<BlockId> read(cache.BlockTable(kA).begin() + 2, cache.BlockTable(kA).end());
  cache.HoldForTransfer(read);
  ASSERT_TRUE(cache.Resize(1).ok());
  EXPECT_THAT(cache.RetiredBlocks(), testing::ElementsAre(BlockRange{6, 12}));
  cache.Release(kA, false);
  EXPECT_THAT(cache.RetiredBlocks(), testing::ElementsAre(BlockRange{1, 2}, BlockRange{6, 12}))
      << "a transfer holds 2 and 3, kB holds 4 and 5";
  cache.ReleaseTransferHold(read);
  cache.Release(kB, true);
  EXPECT_THAT(cache.RetiredBlocks(), testing::ElementsAre(BlockRange{1, 12}));
  EXPECT_EQ(cache.retiring_blocks(), 0);
  ASSERT_TRUE(cache.Resize(12).ok());
  EXPECT_THAT(cache.RetiredBlocks(), testing::IsEmpty());
}

TEST_F(KvCacheManagerTest, APopularPrefixDoesNotKeepItsBlocksFromRetiring) {
  KvCacheManager cache(Options(40), &clock_);
  const SequenceId filler(99);
  Run(cache, filler, Units(80, 1000));  // the popular prefix is above the filler's 20 blocks
  Run(cache, kA, Units(9));
  cache.InsertCommitted(kA);
  cache.Release(filler, false);
  ASSERT_TRUE(cache.Resize(20).ok());
  EXPECT_EQ(cache.retiring_blocks(), 3);
  // Each user begins before the previous one ends.
  int64_t id = 2;
  for (; cache.retiring_blocks() > 0; ++id) {
    ASSERT_LT(id, 10) << "the prefix's blocks never retire";
    Run(cache, SequenceId(id), Units(9));
    cache.Release(SequenceId(id - 1), true);
    ASSERT_TRUE(cache.CheckConservation().ok()) << cache.CheckConservation();
  }
  EXPECT_THAT(cache.RetiredBlocks(), testing::ElementsAre(BlockRange{20, 40}));
  cache.Release(SequenceId(id - 1), true);
  EXPECT_EQ(cache.PeekMatch(kSpace, Units(9)), 8) << "recomputed below the limit";
}

}  // namespace
}  // namespace baton
