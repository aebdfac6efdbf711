// Owners of namespaces and their shares. radix_tree_check_test.cc compares evictions with a
// reference model.
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "cache/radix_tree.h"

namespace baton {
namespace {

constexpr CacheNamespace kA{1}, kB{2}, kAlsoB{3};
constexpr CacheOwner kOwnerB{.id = 22, .share = 0.5};

class RadixTreeOwnersTest : public testing::Test {
 protected:
  ~RadixTreeOwnersTest() override {
    EXPECT_TRUE(tree_.CheckInvariants().ok()) << tree_.CheckInvariants();
  }
  // Caches a path of `blocks` blocks that starts with this unit, like one request.
  void Put(CacheNamespace space, CacheUnit first, int32_t blocks,
           std::optional<CacheOwner> owner = {}) {
    RadixLock lock = tree_.Match(space, {}, 0, 0, 0, owner).lock;
    std::vector<BlockId> own;
    if (allocator_.free_count() < blocks) tree_.Evict(blocks - allocator_.free_count());
    ASSERT_TRUE(allocator_.Allocate(blocks, BlockHolder::kSequence, own));
    std::vector<BlockId> cached = own;
    tree_.Insert(lock, Units(first, blocks), cached);
    allocator_.ReleaseHolds(own, BlockHolder::kSequence);
  }
  static std::vector<CacheUnit> Units(CacheUnit first, int32_t blocks) {
    std::vector<CacheUnit> units(blocks, 0);
    units[0] = first;
    return units;
  }
  int32_t Cached(CacheNamespace space, CacheUnit first, int32_t blocks) const {
    return tree_.Peek(space, Units(first, blocks), blocks).blocks;
  }
  OwnerSlot SlotOf(CacheNamespace space) const {
    return tree_.nodes()[tree_.nodes().FindRoot(space)].owner;
  }

  BlockAllocator allocator_{10};
  RadixTree tree_{1, &allocator_};
};

TEST_F(RadixTreeOwnersTest, AFloodTakesOnlyWhatIsAboveTheShare) {
  Put(kB, 1, 8, kOwnerB);
  for (CacheUnit i = 0; i < 20; ++i) {
    Put(kA, 100 + i, 3);
    ASSERT_TRUE(tree_.CheckInvariants().ok()) << tree_.CheckInvariants();
  }
  EXPECT_EQ(Cached(kB, 1, 8), 5) << "half of ten blocks";
  Put(kB, 1, 8);
  EXPECT_EQ(Cached(kB, 1, 8), 8) << "a share does not limit its owner";
}

TEST_F(RadixTreeOwnersTest, WithoutAShareAFloodTakesAll) {
  Put(kB, 1, 8, CacheOwner{.id = 22, .share = 0});
  for (CacheUnit i = 0; i < 20; ++i) Put(kA, 100 + i, 3);
  EXPECT_EQ(Cached(kB, 1, 8), 0);
}

TEST_F(RadixTreeOwnersTest, AShareProtectsAllNamespacesOfItsOwnerTogether) {
  Put(kB, 1, 4, kOwnerB);
  Put(kAlsoB, 1, 4, kOwnerB);
  EXPECT_EQ(SlotOf(kB), SlotOf(kAlsoB));
  for (CacheUnit i = 0; i < 20; ++i) Put(kA, 100 + i, 3);
  EXPECT_EQ(Cached(kB, 1, 4) + Cached(kAlsoB, 1, 4), 5);
}

TEST_F(RadixTreeOwnersTest, EvictionInAdvanceStopsAtTheShares) {
  Put(kB, 1, 4, kOwnerB);
  Put(kA, 100, 3);
  EXPECT_EQ(tree_.EvictOverShares(2), 2);
  EXPECT_EQ(tree_.EvictOverShares(100), 1);
  EXPECT_EQ(Cached(kB, 1, 4), 4);
}

TEST_F(RadixTreeOwnersTest, IfAllAreWithinTheirSharesThePolicyDecides) {
  Put(kA, 1, 4, CacheOwner{.id = 11, .share = 1});
  Put(kB, 1, 4, CacheOwner{.id = 22, .share = 1});
  EXPECT_EQ(tree_.EvictOverShares(3), 0);
  EXPECT_EQ(tree_.Evict(3), 3);
  EXPECT_EQ(Cached(kA, 1, 4), 1);
  EXPECT_EQ(Cached(kB, 1, 4), 4);
  EXPECT_EQ(tree_.Evict(100), 5) << "shares never keep blocks that nobody else can get";
}

TEST_F(RadixTreeOwnersTest, AShareThatChangesCountsFromTheNextRequestOn) {
  Put(kB, 1, 8);
  Put(kB, 2, 1);
  EXPECT_EQ(SlotOf(kB), kCommonSlot);
  tree_.Match(kB, {}, 0, 0, 0, kOwnerB);  // the nodes move to the owner
  EXPECT_NE(SlotOf(kB), kCommonSlot);
  EXPECT_EQ(tree_.cached_blocks(SlotOf(kB)), 9);
  Put(kA, 100, 3);
  Put(kA, 101, 3);
  EXPECT_EQ(tree_.cached_blocks(SlotOf(kB)), 5);
  tree_.SetOwner(kB, {.id = 22, .share = 0.2});
  Put(kA, 102, 10 - 2);
  EXPECT_EQ(tree_.cached_blocks(SlotOf(kB)), 2);
  tree_.Match(kB, {}, 0);  // no owner given: it stays
  EXPECT_EQ(tree_.owners().share(SlotOf(kB)), 0.2);
  tree_.SetOwner(kB, {});
  EXPECT_EQ(tree_.owners().share(SlotOf(kB)), 0);
  Put(kA, 103, 10);
  EXPECT_EQ(tree_.nodes().FindRoot(kB), kNoNode);
  EXPECT_FALSE(tree_.owners().any());
}

TEST_F(RadixTreeOwnersTest, TheShareFollowsTheSizeOfThePool) {
  Put(kB, 1, 8, kOwnerB);
  allocator_.Resize(4);
  EXPECT_EQ(tree_.EvictFrom(BlockId(4)), 4);
  EXPECT_EQ(Cached(kB, 1, 8), 4);
  Put(kA, 100, 1);
  Put(kA, 101, 1);
  Put(kA, 102, 2);
  EXPECT_EQ(Cached(kB, 1, 8), 2);
}

TEST_F(RadixTreeOwnersTest, BlocksOfAClearedNamespaceCountForTheirOwnerUntilTheyAreFree) {
  Put(kB, 1, 3, kOwnerB);
  RadixLock lock = tree_.Match(kB, Units(1, 3), 3).lock;
  const OwnerSlot slot = SlotOf(kB);
  tree_.Clear();
  EXPECT_EQ(tree_.cached_blocks(slot), 3);
  Put(kB, 1, 2, kOwnerB);
  EXPECT_EQ(SlotOf(kB), slot);
  EXPECT_EQ(tree_.cached_blocks(slot), 5);
  EXPECT_TRUE(tree_.CheckInvariants().ok()) << tree_.CheckInvariants();
  lock.Drop();
  EXPECT_EQ(tree_.cached_blocks(slot), 2);
  EXPECT_EQ(tree_.Clear(kB), 2);
  EXPECT_FALSE(tree_.owners().any());
}

TEST_F(RadixTreeOwnersTest, OwnersBeyondTheMostAreCommon) {
  std::vector<RadixLock> locks;
  for (uint64_t i = 0; i <= CacheOwners::kMaxOwners; ++i) {
    const CacheOwner owner{.id = i, .share = 0.01};
    locks.push_back(tree_.Match(CacheNamespace(100 + i), {}, 0, 0, 0, owner).lock);
  }
  EXPECT_NE(SlotOf(CacheNamespace(100)), kCommonSlot);
  EXPECT_EQ(SlotOf(CacheNamespace(100 + CacheOwners::kMaxOwners)), kCommonSlot);
}

}  // namespace
}  // namespace baton
