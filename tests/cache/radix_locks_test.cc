#include "cache/radix_locks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace baton {
namespace {

using ::testing::HasSubstr;
using Index = RadixNodeIndex;

// A path of three nodes with two blocks each, and a branch after the first node.
class RadixLocksTest : public testing::Test {
 protected:
  Index Add(Index parent, int32_t first) {
    const std::vector<CacheUnit> units = {CacheUnit(first), CacheUnit(first + 1)};
    const Index node = nodes_.AddChild(parent, std::span(units).first(1));
    nodes_.Append(node, units, std::vector<BlockId>{BlockId(first), BlockId(first + 1)});
    evictable_.Added(nodes_[node], 2);
    return node;
  }
  void TearDown() override {
    EXPECT_TRUE(locks_.CheckInvariants().ok()) << locks_.CheckInvariants();
  }

  RadixNodes nodes_{1, 64, /*hash_seed=*/0, UINT32_MAX};
  CacheOwners owners_;
  EvictableNodes evictable_{EvictionPolicy::kLru, &nodes_, &owners_};
  RadixLocks locks_{&nodes_, &evictable_};
  const Index root_ = nodes_.FindOrAddRoot(CacheNamespace(1));
  const Index upper_ = Add(root_, 0);
  const Index middle_ = Add(upper_, 2);
  const Index lower_ = Add(middle_, 4);
  const Index branch_ = Add(upper_, 6);
};

TEST_F(RadixLocksTest, ALockCountsAtEachNodeOfItsPath) {
  locks_.Lock(middle_, 0);
  locks_.Lock(branch_, 0);
  EXPECT_EQ(nodes_[root_].locks, 2);
  EXPECT_EQ(nodes_[upper_].locks, 2);
  EXPECT_EQ(nodes_[middle_].locks, 1);
  EXPECT_EQ(nodes_[lower_].locks, 0);
  EXPECT_EQ(nodes_[upper_].own_locks, 0);
  EXPECT_EQ(evictable_.protected_blocks(), 6);
  EXPECT_EQ(evictable_.evictable_blocks(), 2);
  EXPECT_EQ(locks_.Unlock(branch_), root_);
  EXPECT_EQ(evictable_.protected_blocks(), 4);
  EXPECT_EQ(evictable_.First(64).entry, branch_);
}

TEST_F(RadixLocksTest, ALockThatMovesDownIsAUseOfWhatItNewlyCoversAlone) {
  locks_.Lock(upper_, 3);
  locks_.MoveDown(upper_, lower_, 3);
  EXPECT_EQ(nodes_[upper_].locks, 1);
  EXPECT_EQ(nodes_[upper_].own_locks, 0);
  EXPECT_EQ(nodes_[upper_].use.uses, 1u);
  EXPECT_EQ(nodes_[lower_].own_locks, 1);
  EXPECT_EQ(nodes_[lower_].use.uses, 1u);
  EXPECT_EQ(nodes_[lower_].use.priority, 3);
  EXPECT_EQ(nodes_[branch_].use.uses, 0u);
}

TEST_F(RadixLocksTest, APathKeepsTheHighestPriorityAndTheTimeOfItsLastUse) {
  locks_.Lock(middle_, 5);
  locks_.Lock(lower_, -5);
  locks_.Unlock(middle_);
  const uint64_t first_drop = nodes_[middle_].use.last_used;
  EXPECT_EQ(nodes_[lower_].use.last_used, 0u);
  locks_.Unlock(lower_);
  EXPECT_GT(nodes_[middle_].use.last_used, first_drop);
  EXPECT_EQ(nodes_[middle_].use.last_used, nodes_[lower_].use.last_used);
  EXPECT_EQ(nodes_[middle_].use.priority, 5);
  EXPECT_EQ(nodes_[lower_].use.priority, -5);
}

TEST_F(RadixLocksTest, PinsOfANodeCountAsOneLockAndNotAsUses) {
  locks_.Pin(middle_, BlockId(2));
  locks_.Pin(middle_, BlockId(3));
  EXPECT_EQ(nodes_[middle_].own_locks, 1);
  EXPECT_EQ(nodes_[upper_].locks, 1);
  EXPECT_EQ(nodes_[upper_].use.uses, 0u);
  EXPECT_EQ(nodes_[upper_].use.priority, INT32_MIN);
  EXPECT_EQ(locks_.Unpin(BlockId(3)), kNoNode);
  EXPECT_EQ(locks_.Unpin(BlockId(2)), middle_);
  locks_.Unlock(middle_);
  EXPECT_EQ(evictable_.protected_blocks(), 0);
  EXPECT_EQ(locks_.Unpin(BlockId(0)), kNoNode) << "the block has no pin";
}

TEST_F(RadixLocksTest, APinRemembersItsNodeWhenASplitMovesTheBlock) {
  locks_.Pin(middle_, BlockId(2));
  const Index above = nodes_.Split(middle_, 1);
  ASSERT_EQ(nodes_.node_of(BlockId(2)), above);
  EXPECT_TRUE(locks_.CheckInvariants().ok()) << locks_.CheckInvariants();
  EXPECT_EQ(locks_.Unpin(BlockId(2)), middle_);
  locks_.Unlock(middle_);
  EXPECT_EQ(nodes_[above].locks, 0);
}

TEST_F(RadixLocksTest, InvariantChecksNameTheViolation) {
  locks_.Lock(middle_, 0);
  ++nodes_[upper_].locks;
  EXPECT_THAT(locks_.CheckInvariants().ToString(), HasSubstr("lock count is wrong"));
  --nodes_[upper_].locks;
  ++nodes_[branch_].pinned_blocks;
  EXPECT_THAT(locks_.CheckInvariants().ToString(), HasSubstr("pinned block count is wrong"));
  --nodes_[branch_].pinned_blocks;
}

}  // namespace
}  // namespace baton
