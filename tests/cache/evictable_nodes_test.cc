#include "cache/evictable_nodes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Index = RadixNodeIndex;

// Adds a root and, below it, nodes with the given numbers of blocks.
class EvictableNodesTest : public testing::Test {
 protected:
  // Each node has different units. Its block ids follow those of the previous node.
  Index Add(Index parent, int32_t blocks) {
    std::vector<CacheUnit> units;
    std::vector<BlockId> ids;
    for (int32_t i = 0; i < blocks; ++i) {
      units.push_back(next_);
      ids.push_back(BlockId(next_++));
    }
    const Index node = nodes_.AddChild(parent, std::span(units).first(1));
    nodes_.Append(node, units, ids);
    evictable_.Added(nodes_[node], blocks);
    return node;
  }
  void Lock(Index node) {
    if (nodes_[node].is_queued) evictable_.Unqueue(node);
    ++nodes_[node].locks;
    evictable_.Locked(nodes_[node]);
  }
  void Unlock(Index node) {
    nodes_[node].use.last_used = nodes_.Tick();
    --nodes_[node].locks;
    evictable_.Unlocked(node);
  }
  std::vector<Index> Order() const {
    std::array<Index, 8> out;
    const size_t count = evictable_.First(kCommonSlot, out);
    return {out.begin(), out.begin() + count};
  }

  int32_t next_ = 0;
  RadixNodes nodes_{1, 64, /*hash_seed=*/0, UINT32_MAX};
  CacheOwners owners_;
  EvictableNodes evictable_{EvictionPolicy::kLru, &nodes_, &owners_};
  Index root_ = nodes_.FindOrAddRoot(CacheNamespace(1));
};

TEST_F(EvictableNodesTest, BlocksAreEvictableOrProtectedByTheirNodesLock) {
  const Index node = Add(root_, 3);
  EXPECT_EQ(evictable_.evictable_blocks(), 3);
  Lock(node);
  EXPECT_EQ(evictable_.evictable_blocks(), 0);
  EXPECT_EQ(evictable_.protected_blocks(), 3);
  evictable_.Added(nodes_[node], 2);
  EXPECT_EQ(evictable_.protected_blocks(), 5);
}

TEST_F(EvictableNodesTest, LeavesAreQueuedInTheOrderOfTheirLastUse) {
  const Index first = Add(root_, 1), second = Add(root_, 1);
  for (const Index node : {first, second}) Lock(node);
  EXPECT_TRUE(evictable_.empty());
  Unlock(second);
  Unlock(first);
  EXPECT_THAT(Order(), ElementsAre(second, first));
  Lock(second);
  EXPECT_EQ(evictable_.First(64).entry, first);
  Unlock(second);
  EXPECT_THAT(Order(), ElementsAre(first, second));
  EXPECT_TRUE(evictable_.CheckInvariants().ok()) << evictable_.CheckInvariants();
}

TEST_F(EvictableNodesTest, AParentIsQueuedOnceItIsALeaf) {
  const Index parent = Add(root_, 2), child = Add(parent, 1);
  Lock(parent);
  Lock(child);
  Unlock(child);
  Unlock(parent);
  EXPECT_THAT(Order(), ElementsAre(child)) << "the parent has a child";
  evictable_.QueueIfLeaf(parent);
  EXPECT_THAT(Order(), ElementsAre(child));
  evictable_.Dropped(nodes_[child], 1);
  evictable_.Unqueue(child);
  nodes_.PopBlock(child);
  nodes_.Remove(child);
  evictable_.QueueIfLeaf(parent);
  EXPECT_THAT(Order(), ElementsAre(parent));
  EXPECT_EQ(evictable_.evictable_blocks(), 2);
  EXPECT_TRUE(evictable_.CheckInvariants().ok()) << evictable_.CheckInvariants();
}

TEST_F(EvictableNodesTest, NotesWhetherWatchedBlocksWereUnlocked) {
  const Index low = Add(root_, 2), high = Add(root_, 2);
  Lock(low);
  Lock(high);
  Unlock(high);
  EXPECT_FALSE(evictable_.has_unlocked_behind()) << "nothing is watched yet";
  Lock(high);
  evictable_.WatchFrom(BlockId(3));
  Unlock(low);
  EXPECT_FALSE(evictable_.has_unlocked_behind());
  Unlock(high);
  EXPECT_TRUE(evictable_.has_unlocked_behind());
  evictable_.WatchFrom(BlockId(4));
  EXPECT_FALSE(evictable_.has_unlocked_behind());
}

TEST_F(EvictableNodesTest, InvariantChecksNameTheViolation) {
  const Index node = Add(root_, 2);
  EXPECT_THAT(evictable_.CheckInvariants().ToString(), HasSubstr("queued wrongly"));
  evictable_.QueueIfLeaf(node);
  EXPECT_TRUE(evictable_.CheckInvariants().ok()) << evictable_.CheckInvariants();
  nodes_[node].use.last_used = 9;
  EXPECT_THAT(evictable_.CheckInvariants().ToString(), HasSubstr("eviction queue differs"));
  nodes_[node].use.last_used = 0;
  evictable_.Dropped(nodes_[node], 1);
  EXPECT_THAT(evictable_.CheckInvariants().ToString(),
              HasSubstr("counts 1 blocks of owner slot 0, recount finds 2"));
  evictable_.Added(nodes_[node], 1);
  evictable_.WatchFrom(BlockId(1));
  EXPECT_THAT(evictable_.CheckInvariants().ToString(), HasSubstr("is not noted"));
}

TEST_F(EvictableNodesTest, AnotherOwnerGetsTheNodeItsBlocksAndItsPlaceInTheQueue) {
  const Index node = Add(root_, 2), other = Add(root_, 1);
  for (const Index leaf : {node, other}) evictable_.QueueIfLeaf(leaf);
  const OwnerSlot slot = owners_.SlotOf({.id = 7, .share = 0.5});
  owners_.AddNamespace(slot);
  evictable_.Reown(node, slot);
  EXPECT_EQ(nodes_[node].owner, slot);
  EXPECT_EQ(evictable_.cached_blocks(slot), 2);
  EXPECT_EQ(evictable_.cached_blocks(kCommonSlot), 1);
  EXPECT_THAT(Order(), ElementsAre(other));
  EXPECT_EQ(evictable_.First(/*pool_blocks=*/4).entry, other) << "the owner is not over its share";
  EXPECT_EQ(evictable_.First(/*pool_blocks=*/2).entry, node);
  EXPECT_TRUE(evictable_.CheckInvariants().ok()) << evictable_.CheckInvariants();
}

}  // namespace
}  // namespace baton
