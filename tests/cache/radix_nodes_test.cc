#include "cache/radix_nodes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "tests/cache/radix_shape.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Index = RadixNodeIndex;

constexpr CacheNamespace kSpace{1};
constexpr int32_t kBlockSize = 2;

// Returns the blocks `first`, `first` + 1, ...
std::vector<BlockId> Blocks(int32_t first, int32_t count) {
  std::vector<BlockId> blocks;
  for (int32_t i = 0; i < count; ++i) blocks.push_back(BlockId(first + i));
  return blocks;
}

class RadixNodesTest : public testing::Test {
 protected:
  void TearDown() override { EXPECT_TRUE(nodes_.CheckInvariants().ok()) << Broken(); }
  std::string Broken() const { return nodes_.CheckInvariants().ToString(); }

  // Adds a child with whole blocks of `units`; block ids start at `first`.
  Index Add(Index parent, const std::vector<CacheUnit>& units, int32_t first) {
    const Index child = nodes_.AddChild(parent, std::span(units).first(kBlockSize));
    nodes_.Append(child, units, Blocks(first, static_cast<int32_t>(units.size()) / kBlockSize));
    return child;
  }
  RadixNodes::Position Walk(const std::vector<CacheUnit>& units, int32_t max_blocks = INT32_MAX) {
    return nodes_.Walk(nodes_.FindRoot(kSpace), units, max_blocks,
                       [](const RadixNode&, int32_t) {});
  }
  void RemoveWithBlocks(Index node) {
    while (nodes_[node].size() > 0) nodes_.PopBlock(node);
    nodes_.Remove(node);
  }

  RadixNodes nodes_{kBlockSize, 64, /*hash_seed=*/0, UINT32_MAX};
};

TEST_F(RadixNodesTest, AWalkEndsWhereUnitsDifferOrItsLimitIs) {
  const Index root = nodes_.FindOrAddRoot(kSpace);
  const Index upper = Add(root, {1, 2, 3, 4}, 0);
  const Index lower = Add(upper, {5, 6, 7, 8, 9, 10}, 8);
  const auto end = Walk({1, 2, 3, 4, 5, 6, 7, 8, 0, 0});
  EXPECT_EQ(end.node, lower);
  EXPECT_EQ(end.in_node, 2);
  EXPECT_EQ(end.blocks, 4);
  EXPECT_EQ(Walk({1, 2, 3, 4, 5, 6}, 2).node, upper);
  EXPECT_EQ(Walk({1, 2, 3, 4, 5}).blocks, 2) << "half a block does not count";
  EXPECT_EQ(Walk({2, 1}).node, root);
  std::vector<std::pair<int32_t, int32_t>> passed;
  nodes_.Walk(
      root, std::vector<CacheUnit>{1, 2, 3, 4, 5, 6}, 9,
      [&](const RadixNode& node, int32_t blocks) { passed.emplace_back(node.begin, blocks); });
  EXPECT_THAT(passed, ElementsAre(std::pair(0, 2), std::pair(2, 1)));
}

TEST_F(RadixNodesTest, ASplitLeavesTheLowerPartItsIndexAndCopiesCountsToTheUpper) {
  const Index root = nodes_.FindOrAddRoot(kSpace);
  const Index node = Add(root, {1, 2, 3, 4, 5, 6}, 0);
  nodes_[node].locks = nodes_[node].own_locks = 2;
  nodes_[node].use = {.created = 3, .last_used = 4, .uses = 5, .priority = 6};
  const Index upper = nodes_.Split(node, 1);
  EXPECT_EQ(nodes_[node].parent, upper);
  EXPECT_EQ(nodes_[upper].parent, root);
  EXPECT_EQ(nodes_[upper].use, nodes_[node].use);
  EXPECT_EQ(nodes_[upper].locks, 2);
  EXPECT_EQ(nodes_[upper].own_locks, 0) << "the lower part keeps them";
  EXPECT_EQ(nodes_.node_of(BlockId(0)), upper);
  EXPECT_EQ(nodes_.node_of(BlockId(1)), node);
  EXPECT_EQ(nodes_[node].begin, 1);
  EXPECT_EQ(Walk({1, 2, 3, 4, 5, 6}).node, node);
  EXPECT_EQ(RadixShape(nodes_),
            "  1 blocks [1 2]\n"
            "    2 blocks [3 4 5 6]\n");
}

TEST_F(RadixNodesTest, HashesThatCollideConfuseNoLookUp) {
  RadixNodes colliding(kBlockSize, 64, /*hash_seed=*/0, /*hash_mask=*/0);
  const Index first = colliding.FindOrAddRoot(kSpace);
  const Index second = colliding.FindOrAddRoot(CacheNamespace(2));
  std::vector<Index> children;
  for (int32_t i = 0; i < 20; ++i) {
    const std::vector<CacheUnit> units = {CacheUnit(i / 2), 7};
    children.push_back(colliding.AddChild(i % 2 == 0 ? first : second, units));
    colliding.Append(children.back(), units, Blocks(i, 1));
  }
  for (int32_t i = 0; i < 20; ++i) {
    const std::vector<CacheUnit> units = {CacheUnit(i / 2), 7};
    const auto end =
        colliding.Walk(i % 2 == 0 ? first : second, units, 1, [](const RadixNode&, int32_t) {});
    EXPECT_EQ(end.node, children[i]);
  }
  EXPECT_TRUE(colliding.CheckInvariants().ok()) << colliding.CheckInvariants();
}

TEST_F(RadixNodesTest, ARemovedNodeIsNotFoundAndItsSlotIsReused) {
  const Index root = nodes_.FindOrAddRoot(kSpace);
  const Index node = Add(root, {1, 2, 3, 4}, 0);
  EXPECT_EQ(nodes_.PopBlock(node), BlockId(1));
  EXPECT_EQ(nodes_.node_of(BlockId(1)), kNoNode);
  EXPECT_EQ(Walk({1, 2, 3, 4}).blocks, 1);
  nodes_.PopBlock(node);
  EXPECT_EQ(nodes_.Remove(node), root);
  EXPECT_EQ(nodes_[root].child_count, 0);
  EXPECT_EQ(Walk({1, 2}).blocks, 0);
  EXPECT_EQ(Add(root, {1, 2}, 1), node);
  RemoveWithBlocks(node);
  EXPECT_EQ(nodes_.Remove(root), kNoNode);
  EXPECT_TRUE(nodes_.empty());
}

TEST_F(RadixNodesTest, ACutOffRootIsFoundUnderNoNamespaceAndLivesOn) {
  const Index root = nodes_.FindOrAddRoot(kSpace);
  const Index node = Add(root, {1, 2}, 0);
  EXPECT_TRUE(nodes_.IsReachable(nodes_[node]));
  nodes_.MakeUnreachable(root);
  nodes_.MakeUnreachable(node);
  nodes_.CutOff(kSpace);
  EXPECT_EQ(nodes_.FindRoot(kSpace), kNoNode);
  EXPECT_FALSE(nodes_.IsReachable(nodes_[node]));
  EXPECT_FALSE(nodes_.empty());
  const Index next = nodes_.FindOrAddRoot(kSpace);
  EXPECT_NE(next, root);
  EXPECT_TRUE(nodes_.IsReachable(nodes_[Add(next, {1, 2}, 1)]))
      << "a new root exists beside the old one";
  EXPECT_TRUE(nodes_.CheckInvariants().ok()) << Broken();
  nodes_.MakeAllUnreachable();
  nodes_.CutOffAll();
  EXPECT_EQ(nodes_.FindRoot(kSpace), kNoNode);
  EXPECT_FALSE(nodes_.IsReachable(nodes_[next]));
  RemoveWithBlocks(node);
  nodes_.Remove(root);
}

TEST_F(RadixNodesTest, BlocksAreFoundBackwardsAlongThePath) {
  const Index root = nodes_.FindOrAddRoot(kSpace);
  const Index upper = Add(root, {1, 2, 3, 4}, 10);
  const Index middle = Add(upper, {5, 6}, 20);
  const Index lower = Add(middle, {7, 8, 9, 10}, 30);
  EXPECT_EQ(nodes_.BlockBefore(lower, 1, 0), BlockId(31));
  EXPECT_EQ(nodes_.BlockBefore(lower, 1, 2), BlockId(20));
  EXPECT_EQ(nodes_.BlockBefore(lower, 1, 4), BlockId(10));
  EXPECT_EQ(nodes_.NamespaceOf(lower), kSpace);
  EXPECT_EQ(nodes_.Depth(), 3);
}

TEST_F(RadixNodesTest, DepthIsTheLengthOfTheLongestPath) {
  EXPECT_EQ(nodes_.Depth(), 0);
  const Index root = nodes_.FindOrAddRoot(kSpace);
  EXPECT_EQ(nodes_.Depth(), 0);
  Add(root, {9, 9}, 9);
  const Index upper = Add(root, {1, 2}, 0);
  Add(upper, {3, 4}, 1);
  EXPECT_EQ(nodes_.Depth(), 2);
}

TEST_F(RadixNodesTest, InvariantChecksNameTheViolation) {
  const Index root = nodes_.FindOrAddRoot(kSpace);
  const Index node = Add(root, {1, 2, 3, 4}, 0);
  nodes_[node].begin = 1;
  EXPECT_THAT(Broken(), HasSubstr("does not begin where its parent ends"));
  nodes_[node].begin = 0;
  nodes_[root].child_count = 2;
  EXPECT_THAT(Broken(), HasSubstr("child count is wrong"));
  nodes_[root].child_count = 1;
  std::swap(nodes_[node].blocks[0], nodes_[node].blocks[1]);
  EXPECT_THAT(Broken(), HasSubstr("not found from its parent"));
  std::swap(nodes_[node].blocks[0], nodes_[node].blocks[1]);
  nodes_[node].generation = 7;
  EXPECT_THAT(Broken(), HasSubstr("generation differs from the parent's"));
  nodes_[node].generation = 0;
  nodes_[node].blocks.push_back(BlockId(40));
  EXPECT_THAT(Broken(), HasSubstr("block belongs to another node"));
  nodes_[node].blocks.pop_back();
  nodes_[root].is_cut_off = true;
  EXPECT_THAT(Broken(), HasSubstr("must be found exactly if it is not cut off"));
  nodes_[root].is_cut_off = false;
}

using RadixNodesDeathTest = RadixNodesTest;

TEST_F(RadixNodesDeathTest, ABlockThatIsInTheTreeAlreadyIsABug) {
  const Index node = Add(nodes_.FindOrAddRoot(kSpace), {1, 2}, 0);
  EXPECT_DEATH(nodes_.Append(node, std::vector<CacheUnit>{3, 4}, Blocks(0, 1)),
               "is already in the tree");
}

}  // namespace
}  // namespace baton
