#include "cache/prefix_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "cache/index/global_index.h"
#include "cache/index/kv_event.h"
#include "cache/index/kv_event_follower.h"

namespace baton {
namespace {

using ::testing::ElementsAreArray;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr CacheNamespace kSpace{1};

std::vector<CacheUnit> Units(int32_t count, CacheUnit first = 0) {
  std::vector<CacheUnit> units(count);
  std::iota(units.begin(), units.end(), first);
  return units;
}

// Eight blocks of one unit; the pool may grow to ten.
class PrefixCacheTest : public testing::Test {
 protected:
  void TearDown() override {
    EXPECT_TRUE(cache_.CheckConservation().ok()) << cache_.CheckConservation();
  }
  // Caches a prefix without holds. Returns its blocks.
  std::vector<BlockId> Cache(const std::vector<CacheUnit>& units) {
    RadixMatch match = cache_.tree().Match(kSpace, units, 0);
    std::vector<BlockId> own;
    EXPECT_TRUE(
        cache_.blocks().Allocate(static_cast<int32_t>(units.size()), BlockHolder::kSequence, own));
    std::vector<BlockId> blocks = own;
    cache_.tree().Insert(match.lock, units, blocks);
    cache_.blocks().ReleaseHolds(own, BlockHolder::kSequence);
    return blocks;
  }

  PrefixCache cache_{8, 10, /*block_size=*/1, EvictionPolicy::kLru, /*hash_seed=*/0};
};

TEST_F(PrefixCacheTest, UnusedCachedBlocksAreAvailable) {
  const std::vector<BlockId> blocks = Cache(Units(6));
  EXPECT_EQ(cache_.available(), 8);
  cache_.Pin(std::span(blocks).subspan(5), BlockHolder::kTransfer);
  EXPECT_EQ(cache_.available(), 2) << "the pin protects the whole node";
  cache_.Unpin(std::span(blocks).subspan(5), BlockHolder::kTransfer);
  EXPECT_EQ(cache_.available(), 8);
}

TEST_F(PrefixCacheTest, FreesTheRequestedNumberOfBlocks) {
  Cache(Units(3));
  Cache(Units(3, 100));
  EXPECT_EQ(cache_.MakeFree(2), 0) << "two blocks are free already";
  EXPECT_EQ(cache_.MakeFree(6), 4);
  EXPECT_EQ(cache_.blocks().free_count(), 6);
  EXPECT_EQ(cache_.tree().Peek(kSpace, Units(3), 3).blocks, 0);
  EXPECT_EQ(cache_.tree().Peek(kSpace, Units(3, 100), 3).blocks, 2);
}

TEST_F(PrefixCacheTest, ABlockIsPinnedUntilItsLastHoldOfATransferOrStepGoes) {
  const std::vector<BlockId> blocks = Cache(Units(2));
  cache_.Pin(blocks, BlockHolder::kTransfer);
  cache_.Pin(blocks, BlockHolder::kStep);
  cache_.Unpin(blocks, BlockHolder::kTransfer);
  EXPECT_EQ(cache_.tree().protected_blocks(), 2);
  cache_.Unpin(blocks, BlockHolder::kStep);
  EXPECT_EQ(cache_.tree().protected_blocks(), 0);
}

TEST_F(PrefixCacheTest, AStepMayHoldABlockThatIsFree) {
  const std::vector<BlockId> blocks = Cache(Units(2));
  EXPECT_EQ(cache_.tree().Evict(2), 2);
  cache_.Pin(blocks, BlockHolder::kStep);
  EXPECT_EQ(cache_.blocks().free_count(), 6);
  EXPECT_EQ(cache_.blocks().Account().step, 2);
  cache_.Unpin(blocks, BlockHolder::kStep);
  EXPECT_EQ(cache_.blocks().free_count(), 8);
}

TEST_F(PrefixCacheTest, TheEndOfAPinRetiresBlocksOfAShrunkPool) {
  const std::vector<BlockId> blocks = Cache(Units(8));
  cache_.Pin(std::span(blocks).subspan(6), BlockHolder::kTransfer);
  cache_.Resize(4, {});
  EXPECT_GT(cache_.blocks().retiring(), 0);
  cache_.Unpin(std::span(blocks).subspan(6), BlockHolder::kTransfer);
  EXPECT_EQ(cache_.blocks().retiring(), 0);
}

TEST(PrefixCacheEvents, AChunkStaysPublishedWhenAShrinkingPoolClearsTheTree) {
  PrefixCache cache(4, 4, /*block_size=*/16, EvictionPolicy::kLru, /*hash_seed=*/0);
  cache.Publish();
  const Hash128 chunk{7, 8};
  cache.ChunkStored(chunk, CacheTier::kDevice);
  RadixMatch match = cache.tree().Match(kSpace, {}, 0);
  std::vector<BlockId> own;
  ASSERT_TRUE(cache.blocks().Allocate(4, BlockHolder::kSequence, own));
  std::vector<BlockId> blocks = own;
  cache.tree().Insert(match.lock, Units(64), blocks);
  cache.blocks().ReleaseHolds(own, BlockHolder::kSequence);
  // Its lock keeps blocks behind the new end.
  const RadixMatch used = cache.tree().Match(kSpace, Units(64), 4);
  cache.Resize(2, {});
  EXPECT_EQ(cache.tree().Peek(kSpace, Units(64), 4).blocks, 0) << "the tree was cleared";

  GlobalIndex index({.max_blocks = 64, .expected_blocks = 0, .key_seeds = {}});
  for (const std::string& batch : cache.TakeEvents()) {
    const std::vector<KvEvent> events = *DecodeKvEvents(batch);
    for (const KvEvent& event : events) ApplyKvEvent(IndexedWorker{1}, event, index);
  }
  EXPECT_EQ(index.units(IndexedWorker{1}), 1u);
  EXPECT_THAT(index.MatchWorkers({&chunk, 1}), SizeIs(1));
}

TEST(PrefixCacheEvents, ASnapshotContainsAllCachedRuns) {
  PrefixCache cache(8, 8, /*block_size=*/16, EvictionPolicy::kLru, /*hash_seed=*/0);
  cache.Publish();
  EXPECT_THAT(cache.TakeEvents(), IsEmpty());
  ASSERT_THAT(cache.SnapshotEvents(), SizeIs(1)) << "one empty batch means that nothing is cached";
  EXPECT_THAT(*DecodeKvEvents(cache.SnapshotEvents()[0]), IsEmpty());
  RadixMatch match = cache.tree().Match(kSpace, {}, 0);
  std::vector<BlockId> own;
  ASSERT_TRUE(cache.blocks().Allocate(2, BlockHolder::kSequence, own));
  std::vector<BlockId> blocks = own;
  cache.tree().Insert(match.lock, Units(32), blocks);
  cache.blocks().ReleaseHolds(own, BlockHolder::kSequence);
  EXPECT_EQ(cache.TakeEvents(), cache.SnapshotEvents());
  EXPECT_THAT((*DecodeKvEvents(cache.SnapshotEvents()[0]))[0].hashes,
              ElementsAreArray(ChainedHashes(kSpace, Units(32))));
}

}  // namespace
}  // namespace baton
