#include "cache/pool_resize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace baton {
namespace {

using ::testing::ElementsAre;

constexpr CacheNamespace kSpace{1};

class PoolResizeTest : public testing::Test {
 protected:
  // Caches four blocks of one unit, with ids 0 to 3, and keeps the lock.
  RadixLock Cache() {
    RadixMatch match = tree_.Match(kSpace, {}, 0);
    std::vector<BlockId> own;
    EXPECT_TRUE(blocks_.Allocate(4, BlockHolder::kSequence, own));
    const std::vector<CacheUnit> units = {1, 2, 3, 4};
    tree_.Insert(match.lock, units, own);
    blocks_.ReleaseHolds(own, BlockHolder::kSequence);
    return std::move(match.lock);
  }

  BlockAllocator blocks_{8};
  RadixTree tree_{1, &blocks_};
  int cleared_ = 0;
  PoolResize resize_{&blocks_, &tree_, [this] { ++cleared_; }};
};

TEST_F(PoolResizeTest, UnlockedBlocksAboveTheLimitAreFreeAtOnce) {
  Cache().Drop();
  resize_.Resize(2, {});
  EXPECT_EQ(blocks_.retiring(), 0);
  EXPECT_THAT(RetiredBlocks(blocks_), ElementsAre(BlockRange{2, 8}));
  EXPECT_TRUE(tree_.Contains(kSpace, std::vector<CacheUnit>{1, 2}));
  EXPECT_EQ(cleared_, 0);
}

TEST_F(PoolResizeTest, LockedBlocksRetireWithTheLastEarlierSequenceAndTheCacheIsForgotten) {
  RadixLock lock = Cache();
  resize_.Resize(2, {SequenceId(1)});
  resize_.Forked(SequenceId(1), SequenceId(2));
  EXPECT_EQ(blocks_.retiring(), 2);
  resize_.Ended(SequenceId(1));
  EXPECT_TRUE(tree_.Contains(kSpace, std::vector<CacheUnit>{1, 2, 3, 4}))
      << "the fork counts as earlier";
  EXPECT_EQ(cleared_, 0);
  resize_.Ended(SequenceId(2));
  EXPECT_FALSE(tree_.Contains(kSpace, std::vector<CacheUnit>{1}))
      << "new sequences cannot match it";
  EXPECT_EQ(cleared_, 1);
  EXPECT_THAT(RetiredBlocks(blocks_), ElementsAre(BlockRange{4, 8}));
  lock.Drop();
  resize_.Retire();
  EXPECT_EQ(blocks_.retiring(), 0);
}

}  // namespace
}  // namespace baton
