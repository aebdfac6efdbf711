// Eviction, removal and clearing. radix_tree_check_test.cc compares them with a reference model.
#include <gtest/gtest.h>

#include "cache/radix_tree.h"

namespace baton {
namespace {

constexpr CacheNamespace kSpace{1};
constexpr int32_t kBlockSize = 2;

struct Cache {
  explicit Cache(EvictionPolicy policy = EvictionPolicy::kLru)
      : tree(kBlockSize, &allocator, policy) {}
  ~Cache() { EXPECT_TRUE(tree.CheckInvariants().ok()) << tree.CheckInvariants(); }

  // Inserts `units` after the prefix of `lock`, like one request. Returns the block ids.
  std::vector<BlockId> Extend(RadixLock& lock, const std::vector<CacheUnit>& units) {
    std::vector<BlockId> own;
    EXPECT_TRUE(allocator.Allocate(units.size() / kBlockSize, BlockHolder::kSequence, own));
    std::vector<BlockId> blocks = own;
    tree.Insert(lock, units, blocks);
    allocator.ReleaseHolds(own, BlockHolder::kSequence);
    return blocks;
  }
  std::vector<BlockId> Put(const std::vector<CacheUnit>& units, int32_t priority = 0) {
    RadixLock lock = tree.Match(kSpace, {}, 0, 0, priority).lock;
    return Extend(lock, units);
  }
  void Use(const std::vector<CacheUnit>& units, int32_t priority = 0) {
    tree.Match(kSpace, units, INT32_MAX, 0, priority);
  }
  bool Has(const std::vector<CacheUnit>& units) const { return tree.Contains(kSpace, units); }

  BlockAllocator allocator{64};
  RadixTree tree;
};

const std::vector<CacheUnit> kA = {1, 1}, kB = {2, 2}, kC = {3, 3};

TEST(RadixTreeEviction, EveryPolicyTakesItsOwnVictim) {
  const auto victim = [](EvictionPolicy policy) {
    Cache cache(policy);
    cache.Put(kA, /*priority=*/2);
    cache.Put(kB, /*priority=*/1);
    cache.Put(kC, /*priority=*/3);
    cache.Use(kB);
    cache.Use(kA);
    cache.Use(kA);
    cache.Use(kC);
    EXPECT_EQ(cache.tree.Evict(1), 1);
    return !cache.Has(kA) ? 'A' : !cache.Has(kB) ? 'B' : 'C';
  };
  EXPECT_EQ(victim(EvictionPolicy::kLru), 'B');
  EXPECT_EQ(victim(EvictionPolicy::kLfu), 'B') << "used as often as C, but less recently";
  EXPECT_EQ(victim(EvictionPolicy::kFifo), 'A');
  EXPECT_EQ(victim(EvictionPolicy::kMru), 'C');
  EXPECT_EQ(victim(EvictionPolicy::kFilo), 'C');
  EXPECT_EQ(victim(EvictionPolicy::kPriority), 'B');
  EXPECT_EQ(victim(EvictionPolicy::kSlru), 'B');
}

TEST(RadixTreeEviction, SlruKeepsPrefixesUsedTwiceDuringAScanOfNewOnes) {
  Cache cache(EvictionPolicy::kSlru);
  cache.Put(kA);
  cache.Use(kA);
  for (CacheUnit unit = 100; unit < 120; ++unit) cache.Put({unit, unit});
  EXPECT_EQ(cache.tree.Evict(20), 20);
  EXPECT_TRUE(cache.Has(kA));
}

TEST(RadixTreeEviction, AUserOfHighPriorityRaisesTheWholePrefix) {
  Cache cache(EvictionPolicy::kPriority);
  cache.Put({1, 1, 2, 2}, /*priority=*/-1);
  cache.Put(kC, /*priority=*/0);
  cache.Use({1, 1}, /*priority=*/5);
  EXPECT_EQ(cache.tree.Evict(2), 2);
  EXPECT_TRUE(cache.Has(kA)) << "the upper part of the split has priority 5";
  EXPECT_FALSE(cache.Has({1, 1, 2, 2}));
  EXPECT_FALSE(cache.Has(kC));
}

TEST(RadixTreeEviction, ASplitHandsItsHistoryToBothParts) {
  Cache cache(EvictionPolicy::kLfu);
  cache.Put({1, 1, 2, 2});
  for (int i = 0; i < 3; ++i) cache.Use({1, 1, 2, 2});
  cache.Put(kC);
  cache.Use(kC);
  cache.Use({1, 1, 9, 9});  // splits after the first block
  EXPECT_EQ(cache.tree.Stats().splits, 1);
  EXPECT_EQ(cache.tree.Evict(1), 1);
  EXPECT_FALSE(cache.Has(kC)) << "used 2 times; both parts of the split node 4 times";
  EXPECT_TRUE(cache.Has({1, 1, 2, 2}));
}

TEST(RadixTreeEviction, StatisticsCountLeavesAndBlocks) {
  Cache cache;
  cache.Put({1, 1, 2, 2, 3, 3});
  cache.Put(kB);
  EXPECT_EQ(cache.tree.Evict(4), 4);
  EXPECT_EQ(cache.tree.Stats().evictions, 2);
  EXPECT_EQ(cache.tree.Stats().evicted_blocks, 4);
}

TEST(RadixTreeEviction, RemoveForgetsTheUnsharedPartOfASequence) {
  Cache cache;
  cache.Put({1, 1, 2, 2, 3, 3});
  cache.Put({1, 1, 7, 7});
  EXPECT_EQ(cache.tree.Remove(kSpace, std::vector<CacheUnit>{1, 1, 2, 2}), 0)
      << "another sequence continues it";
  EXPECT_EQ(cache.tree.Remove(kSpace, std::vector<CacheUnit>{1, 1, 2, 2, 4, 4}), 0) << "not cached";
  EXPECT_EQ(cache.tree.Remove(CacheNamespace(2), std::vector<CacheUnit>{1, 1}), 0);
  EXPECT_EQ(cache.tree.Remove(kSpace, std::vector<CacheUnit>{1, 1, 2, 2, 3, 3}), 2);
  EXPECT_TRUE(cache.Has({1, 1, 7, 7}));
  EXPECT_EQ(cache.tree.Stats().removed_blocks, 2);
  EXPECT_EQ(cache.tree.Stats().evicted_blocks, 0);
}

TEST(RadixTreeEviction, RemoveLeavesLockedBlocks) {
  Cache cache;
  cache.Put({1, 1, 2, 2, 3, 3});
  const RadixMatch held = cache.tree.Match(kSpace, std::vector<CacheUnit>{1, 1, 2, 2}, 2);
  EXPECT_EQ(cache.tree.Remove(kSpace, std::vector<CacheUnit>{1, 1, 2, 2, 3, 3}), 1);
  EXPECT_TRUE(cache.Has({1, 1, 2, 2}));
}

TEST(RadixTreeEviction, ClearingANamespaceThatIsNotThereFreesNothing) {
  Cache cache;
  cache.Put({1, 1, 2, 2});
  EXPECT_EQ(cache.tree.Clear(CacheNamespace(2)), 0);
  EXPECT_EQ(cache.tree.Clear(kSpace), 2);
  EXPECT_EQ(cache.tree.Clear(kSpace), 0);
  EXPECT_EQ(cache.tree.Stats().namespaces, 0);
  EXPECT_EQ(cache.tree.Stats().removed_blocks, 2);
}

TEST(RadixTreeEviction, ClearFreesLockedBlocksWithTheirLastLock) {
  Cache cache;
  cache.Put({1, 1, 2, 2, 3, 3});
  RadixMatch held = cache.tree.Match(kSpace, std::vector<CacheUnit>{1, 1, 2, 2}, 2);
  RadixLock second = cache.tree.Duplicate(held.lock);
  EXPECT_EQ(cache.tree.Clear(), 1);
  EXPECT_FALSE(cache.Has(kA)) << "no match may find it";
  EXPECT_EQ(cache.tree.protected_blocks(), 2);
  EXPECT_EQ(cache.tree.Evict(9), 0);

  // The holder continues, and the blocks that it adds are freed with its lock.
  cache.Extend(held.lock, {5, 5});
  EXPECT_FALSE(cache.Has({1, 1, 2, 2, 5, 5}));
  cache.Put(kA);  // a new root beside the old one
  EXPECT_TRUE(cache.Has(kA));
  EXPECT_TRUE(cache.tree.CheckInvariants().ok()) << cache.tree.CheckInvariants();
  held.lock.Drop();
  EXPECT_EQ(cache.tree.protected_blocks(), 2) << "the second lock covers them";
  second.Drop();
  EXPECT_EQ(cache.tree.protected_blocks(), 0);
  EXPECT_EQ(cache.allocator.free_count(), 63);
  EXPECT_TRUE(cache.Has(kA));
}

TEST(RadixTreeEviction, ClearWaitsForATransferToo) {
  Cache cache;
  const BlockId read = cache.Put({1, 1, 2, 2})[1];
  cache.allocator.AddHold(read, BlockHolder::kTransfer);
  cache.tree.PinBlock(read);
  EXPECT_EQ(cache.tree.Clear(), 0);
  cache.allocator.ReleaseHold(read, BlockHolder::kTransfer);
  cache.tree.UnpinBlock(read);
  EXPECT_EQ(cache.allocator.free_count(), 64);
  EXPECT_EQ(cache.tree.Stats().namespaces, 0);
}

TEST(RadixTreeEviction, TellsWhetherAnotherEvictFromCouldFindAnything) {
  Cache cache;
  const BlockId low = cache.Put({1, 1})[0];
  const BlockId high = cache.Put({2, 2, 3, 3})[1];
  ASSERT_LT(low, high);
  RadixLock low_lock = cache.tree.Match(kSpace, kA, 1).lock;
  RadixLock high_lock = cache.tree.Match(kSpace, std::vector<CacheUnit>{2, 2, 3, 3}, 2).lock;
  EXPECT_FALSE(cache.tree.HasUnlockedBehind()) << "no EvictFrom call yet";
  EXPECT_EQ(cache.tree.EvictFrom(high), 0) << "the blocks are locked";
  EXPECT_FALSE(cache.tree.HasUnlockedBehind());
  low_lock.Drop();
  EXPECT_FALSE(cache.tree.HasUnlockedBehind()) << "the block is below the watch mark";
  RadixLock second = cache.tree.Duplicate(high_lock);
  high_lock.Drop();
  EXPECT_FALSE(cache.tree.HasUnlockedBehind()) << "the other lock remains";
  second.Drop();
  EXPECT_TRUE(cache.tree.HasUnlockedBehind());
  EXPECT_EQ(cache.tree.EvictFrom(high), 1);
  EXPECT_FALSE(cache.tree.HasUnlockedBehind());
}

// A pinned block's path has other blocks before and after it.
TEST(RadixTreeEviction, ATransferThatEndsUnlocksMoreThanItsBlocks) {
  Cache cache;
  const std::vector<BlockId> blocks = cache.Put({1, 1, 2, 2});
  cache.allocator.AddHold(blocks[0], BlockHolder::kTransfer);
  cache.tree.PinBlock(blocks[0]);
  EXPECT_EQ(cache.tree.EvictFrom(blocks[1]), 0);
  cache.allocator.ReleaseHold(blocks[0], BlockHolder::kTransfer);
  cache.tree.UnpinBlock(blocks[0]);
  EXPECT_TRUE(cache.tree.HasUnlockedBehind());
  EXPECT_EQ(cache.tree.EvictFrom(blocks[1]), 1);
}

TEST(RadixTreeEviction, EvictFromTakesHighBlocksAndTheirContinuations) {
  Cache cache;
  cache.Put({1, 1, 2, 2, 3, 3});  // blocks 0 to 2
  cache.Put({4, 4, 5, 5});        // 3 and 4
  RadixMatch held = cache.tree.Match(kSpace, std::vector<CacheUnit>{4, 4, 5, 5}, 2);
  EXPECT_EQ(cache.tree.EvictFrom(BlockId(1)), 2) << "locked blocks stay";
  EXPECT_TRUE(cache.Has(kA));
  EXPECT_FALSE(cache.Has({1, 1, 2, 2}));
  held.lock.Drop();
  EXPECT_EQ(cache.tree.EvictFrom(BlockId(1)), 2);
  EXPECT_EQ(cache.tree.evictable_blocks(), 1);
}

}  // namespace
}  // namespace baton
