// Forked sequences share their KV until one of them writes.

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/cache/kv_cache_manager_fixture.h"

namespace baton {
namespace {

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

// kB is a fork of kA and has a pending copy of its last block. kC is a fork of kB.
class ForkOfAFork : public KvCacheManagerTest {
 protected:
  ForkOfAFork() : cache_(Options(16), &clock_) {
    Run(cache_, kA, Units(10));
    first_ = cache_.BlockTable(kA)[2];
    EXPECT_TRUE(cache_.Fork(kA, kB).ok());
    EXPECT_TRUE(cache_.Reserve(kB, 11).ok());
    second_ = cache_.BlockTable(kB)[2];
    EXPECT_TRUE(cache_.Fork(kB, kC).ok());
  }

  const SequenceId kC{3};
  KvCacheManager cache_;
  BlockId first_{0};
  BlockId second_{0};
};

TEST_F(ForkOfAFork, ACopyIsMadeWhileAnotherForkHoldsItsTarget) {
  cache_.Release(kB, false);
  EXPECT_EQ(cache_.BlockTable(kC)[2], second_);
  EXPECT_EQ(cache_.TakeCopies(),
            (std::vector<BlockCopy>{{.from = first_, .to = second_, .tokens = 2}}));
}

TEST_F(ForkOfAFork, ACopyOfACopyIsMadeAlthoughTheForkBetweenReleasedItsBlock) {
  ASSERT_TRUE(cache_.Reserve(kC, 11).ok());
  cache_.Release(kB, false);
  EXPECT_EQ(
      cache_.TakeCopies(),
      (std::vector<BlockCopy>{{.from = first_, .to = second_, .tokens = 2},
                              {.from = second_, .to = cache_.BlockTable(kC)[2], .tokens = 2}}));
}

TEST_F(KvCacheManagerTest, AForksFirstWriteFailsCleanlyWhenNoBlockIsLeft) {
  KvCacheManager cache(Options(3), &clock_);
  Run(cache, kA, Units(10));
  ASSERT_TRUE(cache.Fork(kA, kB).ok());
  EXPECT_EQ(cache.Reserve(kB, 11).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(std::ranges::equal(cache.BlockTable(kA), cache.BlockTable(kB)));
  cache.Release(kA, false);
  EXPECT_TRUE(cache.Reserve(kB, 11).ok()) << "no other sequence holds the block now";
}

TEST_F(KvCacheManagerTest, AContiguousSequenceCannotFork) {
  KvCacheOptions options = Options(8);
  options.paged = false;
  options.kind = CacheKind::kNaive;
  KvCacheManager cache(options, &clock_);
  Run(cache, kA, Units(6));
  EXPECT_EQ(cache.Fork(kA, kB).code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace baton
