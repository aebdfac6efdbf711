#include "cache/radix_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "tests/cache/radix_shape.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr CacheNamespace kSpace{1};

// A tree with its allocator. Each sequence begins and ends in one call.
class RadixTreeTest : public testing::Test {
 protected:
  void TearDown() override {
    EXPECT_TRUE(tree_.CheckInvariants().ok()) << tree_.CheckInvariants();
    EXPECT_TRUE(allocator_.CheckConservation().ok());
  }

  std::vector<BlockId> NewBlocks(int32_t count) {
    std::vector<BlockId> blocks;
    EXPECT_TRUE(allocator_.Allocate(count, BlockHolder::kSequence, blocks));
    return blocks;
  }

  // Inserts whole blocks of `units` after their cached prefix. Returns the number of blocks already
  // present.
  int32_t Cache(CacheNamespace space, const std::vector<CacheUnit>& units) {
    RadixLock root = tree_.Match(space, units, 0).lock;
    const int32_t count = static_cast<int32_t>(units.size()) / kBlockSize;
    std::vector<BlockId> blocks = NewBlocks(count);
    const std::vector<BlockId> own = blocks;
    const int32_t present = tree_.Insert(root, std::span(units).first(count * kBlockSize), blocks);
    allocator_.ReleaseHolds(own, BlockHolder::kSequence);
    return present;
  }

  int32_t Cached(CacheNamespace space, const std::vector<CacheUnit>& units) const {
    return tree_.Peek(space, units, INT32_MAX).blocks;
  }

  static constexpr int32_t kBlockSize = 2;
  BlockAllocator allocator_{64};
  RadixTree tree_{kBlockSize, &allocator_};
};

TEST_F(RadixTreeTest, InsertReturnsTheNumberOfCachedBlocks) {
  EXPECT_EQ(Cache(kSpace, {1, 2, 3, 4, 5, 6}), 0);
  EXPECT_EQ(Cache(kSpace, {1, 2, 3, 4, 5, 6}), 3);
  EXPECT_EQ(Cache(kSpace, {1, 2, 3, 4, 7, 8, 9, 10}), 2);
  EXPECT_EQ(tree_.Stats().inserted_blocks, 5);
  EXPECT_EQ(tree_.Stats().duplicate_blocks, 5);
  EXPECT_EQ(allocator_.free_count(), 64 - 5) << "duplicates were freed";
}

TEST_F(RadixTreeTest, MatchStopsInsideAnEdgeAtABlockBoundary) {
  Cache(kSpace, {1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_EQ(Cached(kSpace, {1, 2, 3, 4, 5, 9}), 2) << "half a block does not match";
  const RadixMatch match = tree_.Match(kSpace, std::vector<CacheUnit>{1, 2, 3, 4, 5, 9}, 9);
  EXPECT_EQ(match.blocks.size(), 2u);
  EXPECT_EQ(tree_.Stats().splits, 1);
  EXPECT_EQ(tree_.protected_blocks(), 2) << "the lock covers exactly the match";
  EXPECT_EQ(tree_.evictable_blocks(), 2);
}

TEST_F(RadixTreeTest, MatchHonoursItsLargestAndSmallestLength) {
  const std::vector<CacheUnit> units = {1, 2, 3, 4, 5, 6};
  Cache(kSpace, units);
  EXPECT_EQ(tree_.Match(kSpace, units, 2).blocks.size(), 2u);
  EXPECT_EQ(tree_.Match(kSpace, units, 3, 3).blocks.size(), 3u);
  EXPECT_THAT(tree_.Match(kSpace, units, 3, 4).blocks, IsEmpty());
  EXPECT_EQ(tree_.protected_blocks(), 0);
}

// Namespaces that differ in the upper or the lower half, with tags of 8 bits and of no bit.
TEST(RadixTreeNamespaces, NeverMatchEachOtherEvenIfHashesCollide) {
  constexpr int32_t kBlock = 2;
  for (const uint32_t mask : {0xFFu, 0u}) {
    SCOPED_TRACE(testing::Message() << "mask " << mask);
    BlockAllocator allocator(4096);
    RadixTree tree(kBlock, &allocator, EvictionPolicy::kLru, /*hash_seed=*/5, mask);
    const auto units = [](uint64_t space, uint64_t prompt) {
      return std::vector<CacheUnit>{prompt, prompt + 1, space % 3, 7};
    };
    const auto space_of = [](uint64_t i) { return CacheNamespace(i % 8, i / 8); };
    for (uint64_t space = 0; space < 64; ++space) {
      for (uint64_t prompt = 0; prompt < 16; ++prompt) {
        const std::vector<CacheUnit> added = units(space, prompt);
        EXPECT_EQ(tree.Peek(space_of(space), added, INT32_MAX).blocks, 0)
            << "namespace " << space << ", prompt " << prompt << ": blocks of another namespace";
        RadixLock root = tree.Match(space_of(space), added, 0).lock;
        std::vector<BlockId> blocks;
        ASSERT_TRUE(allocator.Allocate(2, BlockHolder::kSequence, blocks));
        const std::vector<BlockId> own = blocks;
        EXPECT_EQ(tree.Insert(root, added, blocks), 0);
        EXPECT_EQ(tree.Match(space_of(space), added, INT32_MAX).blocks, own);
        allocator.ReleaseHolds(own, BlockHolder::kSequence);
      }
    }
    EXPECT_EQ(tree.Stats().namespaces, 64);
    EXPECT_TRUE(tree.CheckInvariants().ok()) << tree.CheckInvariants();
  }
}

TEST_F(RadixTreeTest, NamespacesNeverMatchEachOther) {
  const std::vector<CacheUnit> units = {1, 2, 3, 4};
  Cache(kSpace, units);
  EXPECT_EQ(Cached(CacheNamespace(2), units), 0);
  EXPECT_EQ(Cache(CacheNamespace(2), units), 0);
  EXPECT_EQ(tree_.Stats().namespaces, 2);
  EXPECT_EQ(tree_.Evict(4), 4);
  EXPECT_EQ(tree_.Stats().namespaces, 0) << "an empty namespace is removed";
}

TEST_F(RadixTreeTest, ALockedPathIsNeverEvictedNotEvenByASplit) {
  const std::vector<CacheUnit> units = {1, 2, 3, 4, 5, 6, 7, 8};
  Cache(kSpace, units);
  RadixMatch held = tree_.Match(kSpace, units, 9);
  Cache(kSpace, {1, 2, 3, 4, 9, 9});
  EXPECT_EQ(tree_.protected_blocks(), 4);
  EXPECT_EQ(tree_.Evict(64), 1) << "only the side branch is evictable";
  EXPECT_EQ(Cached(kSpace, units), 4);
  held.lock.Drop();
  EXPECT_EQ(tree_.Evict(64), 4);
}

TEST_F(RadixTreeTest, EvictionTakesTheLeastRecentlyUsedLeafFromItsEnd) {
  Cache(kSpace, {1, 1, 2, 2, 3, 3});
  Cache(kSpace, {1, 1, 7, 7, 8, 8});
  tree_.Match(kSpace, std::vector<CacheUnit>{1, 1, 2, 2, 3, 3}, 9).lock.Drop();
  EXPECT_EQ(tree_.Evict(1), 1);
  EXPECT_EQ(Cached(kSpace, {1, 1, 7, 7, 8, 8}), 2) << "one block of the older branch is evicted";
  EXPECT_EQ(tree_.Evict(2), 2);
  EXPECT_EQ(Cached(kSpace, {1, 1, 7, 7}), 1);
  EXPECT_EQ(Cached(kSpace, {1, 1, 2, 2, 3, 3}), 2);
  EXPECT_EQ(tree_.Evict(9), 2);
}

TEST_F(RadixTreeTest, InsertingChunkByChunkMakesOneNode) {
  RadixLock lock = tree_.Match(kSpace, {}, 0).lock;
  for (CacheUnit i = 0; i < 10; ++i) {
    std::vector<BlockId> block = NewBlocks(1);
    EXPECT_EQ(tree_.Insert(lock, std::vector<CacheUnit>{i, i}, block), 0);
    allocator_.ReleaseHolds(block, BlockHolder::kSequence);
  }
  EXPECT_EQ(tree_.Stats().nodes, 1);
  EXPECT_EQ(tree_.protected_blocks(), 10);
}

TEST_F(RadixTreeTest, ANodeThatAnotherHoldsDoesNotGrow) {
  Cache(kSpace, {1, 1});
  RadixMatch other = tree_.Match(kSpace, std::vector<CacheUnit>{1, 1}, 9);
  RadixMatch ours = tree_.Match(kSpace, std::vector<CacheUnit>{1, 1}, 9);
  std::vector<BlockId> block = NewBlocks(1);
  tree_.Insert(ours.lock, std::vector<CacheUnit>{2, 2}, block);
  allocator_.ReleaseHolds(block, BlockHolder::kSequence);
  ours.lock.Drop();
  EXPECT_EQ(tree_.protected_blocks(), 1) << "the other lock covers only its own prefix";
  EXPECT_EQ(tree_.Evict(9), 1);
}

TEST_F(RadixTreeTest, InsertSwapsInTheTreesOwnBlocks) {
  Cache(kSpace, {1, 1, 2, 2});
  RadixMatch match = tree_.Match(kSpace, {}, 0);
  std::vector<BlockId> blocks = NewBlocks(3);
  const std::vector<BlockId> own = blocks;
  EXPECT_EQ(tree_.Insert(match.lock, std::vector<CacheUnit>{1, 1, 2, 2, 3, 3}, blocks), 2);
  const std::vector<CacheUnit> all = {1, 1, 2, 2, 3, 3};
  EXPECT_EQ(tree_.Match(kSpace, all, 9).blocks, blocks);
  EXPECT_NE(blocks[0], own[0]);
  EXPECT_EQ(blocks[2], own[2]);
  allocator_.ReleaseHolds(own, BlockHolder::kSequence);
}

TEST_F(RadixTreeTest, ATransferKeepsItsBlocksFromEviction) {
  const std::vector<CacheUnit> units = {1, 1, 2, 2, 3, 3};
  Cache(kSpace, units);
  const BlockId middle = tree_.Match(kSpace, units, 9).blocks[1];
  allocator_.AddHold(middle, BlockHolder::kTransfer);
  tree_.PinBlock(middle);
  EXPECT_EQ(tree_.evictable_blocks(), 0);
  EXPECT_EQ(tree_.Evict(9), 0);
  Cache(kSpace, {1, 1, 9, 9});  // splits the pinned edge
  EXPECT_TRUE(tree_.CheckInvariants().ok()) << tree_.CheckInvariants();
  allocator_.ReleaseHold(middle, BlockHolder::kTransfer);
  tree_.UnpinBlock(middle);
  EXPECT_EQ(tree_.Evict(9), 4);
}

TEST_F(RadixTreeTest, ABlockThatATransferHeldBeforeItWasInsertedIsPinnedToo) {
  RadixLock lock = tree_.Match(kSpace, {}, 0).lock;
  std::vector<BlockId> blocks = NewBlocks(2);
  allocator_.AddHold(blocks[1], BlockHolder::kTransfer);
  tree_.PinBlock(blocks[1]);  // not in the tree yet
  tree_.Insert(lock, std::vector<CacheUnit>{1, 1, 2, 2}, blocks);
  allocator_.ReleaseHolds(blocks, BlockHolder::kSequence);
  lock.Drop();
  EXPECT_EQ(tree_.Evict(9), 0);
  allocator_.ReleaseHold(blocks[1], BlockHolder::kTransfer);
  tree_.UnpinBlock(blocks[1]);
  EXPECT_EQ(tree_.Evict(9), 2);
}

TEST(RadixTreeDepth, AHundredThousandNodesDeepNeedsNoStack) {
  constexpr int32_t kDepth = 100'000;
  BlockAllocator allocator(kDepth + 1);
  RadixTree tree(1, &allocator);
  std::vector<CacheUnit> units(kDepth);
  std::iota(units.begin(), units.end(), 0);
  // Two sequences in parallel: neither may extend a node that the other also locks.
  RadixLock locks[2] = {tree.Match(kSpace, {}, 0).lock, tree.Match(kSpace, {}, 0).lock};
  for (const CacheUnit& unit : units) {
    for (RadixLock& lock : locks) {
      std::vector<BlockId> own;
      ASSERT_TRUE(allocator.Allocate(1, BlockHolder::kSequence, own));
      std::vector<BlockId> block = own;
      tree.Insert(lock, std::span(&unit, 1), block);
      allocator.ReleaseHolds(own, BlockHolder::kSequence);
    }
  }
  EXPECT_EQ(tree.Stats().nodes, kDepth);
  EXPECT_EQ(tree.Match(kSpace, units, kDepth).blocks.size(), kDepth);
  for (RadixLock& lock : locks) lock.Drop();
  EXPECT_TRUE(tree.CheckInvariants().ok());
  EXPECT_EQ(tree.Evict(kDepth / 2), kDepth / 2);
  EXPECT_EQ(tree.Peek(kSpace, units, INT32_MAX).blocks, kDepth / 2);
}

// ---- worked examples from the sources, with a block size of one token ---------------------------

class WorkedExamples : public testing::Test {
 protected:
  void Cache(const std::vector<CacheUnit>& units) {
    RadixLock lock = tree_.Match(kSpace, units, 0).lock;
    std::vector<BlockId> blocks;
    ASSERT_TRUE(allocator_.Allocate(units.size(), BlockHolder::kSequence, blocks));
    const std::vector<BlockId> own = blocks;
    tree_.Insert(lock, units, blocks);
    allocator_.ReleaseHolds(own, BlockHolder::kSequence);
  }
  int32_t Matched(const std::vector<CacheUnit>& units) {
    return static_cast<int32_t>(tree_.Match(kSpace, units, INT32_MAX).blocks.size());
  }

  std::string Shape() const { return RadixShape(tree_.nodes()); }

  BlockAllocator allocator_{4096};
  RadixTree tree_{1, &allocator_};
};

std::vector<CacheUnit> Join(std::initializer_list<std::vector<CacheUnit>> parts) {
  std::vector<CacheUnit> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

std::vector<CacheUnit> Range(CacheUnit first, int32_t count) {
  std::vector<CacheUnit> units(count);
  std::iota(units.begin(), units.end(), first);
  return units;
}

TEST_F(WorkedExamples, TheSecondTurnReuses31Of42Tokens) {
  const auto turn1_prompt = Join({{151644, 8948, 198, 100, 101, 102, 151645, 198},
                                  {151644, 872, 198, 1, 2, 3, 151645, 198},
                                  {151644, 77091, 198}});
  const auto turn1_full = Join({turn1_prompt, Range(200, 10), {151645, 198}});
  const auto turn2_prompt =
      Join({turn1_full, {151644, 872, 198, 4, 5, 6, 151645, 198}, {151644, 77091, 198}});
  ASSERT_EQ(turn1_full.size(), 31u);
  ASSERT_EQ(turn2_prompt.size(), 42u);
  Cache(turn1_prompt);
  Cache(turn1_full);
  EXPECT_EQ(Matched(turn2_prompt), 31);
}

TEST_F(WorkedExamples, ThreeRequestsHitTwiceAndReuse22Of36Tokens) {
  const std::vector<CacheUnit> first = {1, 2, 3, 4, 5, 10, 11, 12};
  const auto second = Join({first, {20, 21, 22, 30, 31, 32}});
  int32_t hits = 0, reused = 0, tokens = 0;
  for (const auto& request : {first, second, second}) {
    const int32_t matched = Matched(request);
    hits += matched > 0;
    reused += matched;
    tokens += static_cast<int32_t>(request.size());
    Cache(request);
  }
  EXPECT_EQ(hits, 2);
  EXPECT_NEAR(100.0 * hits / 3, 66.7, 0.05);
  EXPECT_EQ(reused, 22);
  EXPECT_NEAR(100.0 * reused / tokens, 61.1, 0.05);
}

TEST_F(WorkedExamples, TheThirdUsers25TokensMatchInsideTheEdgeOf69) {
  // The source's own tree finds none of them, because no sequence ended there.
  Cache(Range(1000, 69));
  EXPECT_EQ(Matched(Join({Range(1000, 25), {12345, 67890}, Range(5000, 8)})), 25);
}

TEST_F(WorkedExamples, TheSecondTurnReuses69Of80Tokens) {
  const auto turn1 = Join({Range(1000, 42), Range(2000, 25), {151645, 198}});
  const auto turn2 = Join({turn1, {151644, 872, 198}, Range(3000, 8)});
  ASSERT_EQ(turn1.size(), 69u);
  ASSERT_EQ(turn2.size(), 80u);
  Cache(turn1);
  EXPECT_EQ(Matched(turn2), 69);
  EXPECT_DOUBLE_EQ(69.0 / turn2.size(), 0.8625);
  // The source also caches the end of the message, although its KV was never written. The last
  // sampled token was never fed to the model, and the line break comes from the template.
  tree_.Clear();
  Cache({turn1.begin(), turn1.end() - 2});
  EXPECT_EQ(Matched(turn2), 67);
}

TEST_F(WorkedExamples, ThreeSequencesSplitTheirEdgesTwice) {
  Cache({1, 2, 3, 4, 5});
  EXPECT_EQ(Shape(), "  5 blocks [1 2 3 4 ...]\n");
  Cache({1, 2, 3, 6, 7});
  EXPECT_EQ(Shape(),
            "  3 blocks [1 2 3]\n"
            "    2 blocks [4 5]\n"
            "    2 blocks [6 7]\n");
  Cache({1, 2, 8, 9, 10});
  EXPECT_EQ(Shape(),
            "  2 blocks [1 2]\n"
            "    1 blocks [3]\n"
            "      2 blocks [4 5]\n"
            "      2 blocks [6 7]\n"
            "    3 blocks [8 9 10]\n");
  EXPECT_EQ(tree_.Stats().splits, 2);
  EXPECT_EQ(Matched({1, 2, 3, 4, 5, 6}), 5);
  EXPECT_EQ(Matched({1, 2, 8, 9, 10, 100}), 5);
  EXPECT_EQ(Matched({1, 2, 3}), 3) << "the source finds none: it has no node that ends there";
}

// A prompt of 100 text tokens and two images, then one with a different second image, chunk by
// chunk.
TEST_F(WorkedExamples, ChunksOf512HitUntilTheImagesPartAt1124) {
  const auto text_and_image = Join({Range(1, 100), Range(10'000, 1024)});
  const auto first = Join({text_and_image, Range(20'000, 768)});
  const auto second = Join({text_and_image, Range(30'000, 896)});
  Cache(first);
  const auto matched_of_chunk = [&](int32_t end) {
    return Matched({second.begin(), second.begin() + end});
  };
  EXPECT_EQ(matched_of_chunk(512), 512);
  EXPECT_EQ(matched_of_chunk(1024), 1024);
  EXPECT_EQ(matched_of_chunk(1536), 1124);
  Cache(second);
  EXPECT_EQ(Shape(),
            "  512 blocks [1 2 3 4 ...]\n"
            "    512 blocks [10412 10413 10414 10415 ...]\n"
            "      100 blocks [10924 10925 10926 10927 ...]\n"
            "        768 blocks [20000 20001 20002 20003 ...]\n"
            "        896 blocks [30000 30001 30002 30003 ...]\n")
      << "the end of each chunk's lock is the end of a node";
}

TEST(WorkedExamplesInBlocks, AMatchOf1124IsOf1120InBlocksOf16) {
  BlockAllocator allocator(256);
  RadixTree tree(16, &allocator);
  const auto text_and_image = Join({Range(1, 100), Range(10'000, 1024)});
  const auto first = Join({text_and_image, Range(20'000, 768)});
  const auto second = Join({text_and_image, Range(30'000, 896)});
  const auto whole = std::span(first).first(first.size() / 16 * 16);
  std::vector<BlockId> own;
  ASSERT_TRUE(allocator.Allocate(whole.size() / 16, BlockHolder::kSequence, own));
  std::vector<BlockId> blocks = own;
  RadixLock lock = tree.Match(kSpace, whole, 0).lock;
  tree.Insert(lock, whole, blocks);
  allocator.ReleaseHolds(own, BlockHolder::kSequence);
  EXPECT_EQ(tree.Match(kSpace, std::span(second).first(512), INT32_MAX).blocks.size() * 16, 512);
  EXPECT_EQ(tree.Match(kSpace, std::span(second).first(1024), INT32_MAX).blocks.size() * 16, 1024);
  EXPECT_EQ(tree.Match(kSpace, std::span(second).first(1536), INT32_MAX).blocks.size() * 16, 1120);
}

TEST(BigramKeys, LocksCountPairs) {
  constexpr int32_t kPairs = 4;  // in a block
  BlockAllocator allocator(8);
  RadixTree tree(kPairs, &allocator);
  const std::vector<TokenId> tokens = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  const auto pairs_of = [&tokens](size_t count) {
    return BigramUnitsFromTokens(std::span(tokens).first(count));
  };
  const std::vector<CacheUnit> all = pairs_of(9);
  ASSERT_EQ(all.size(), 8u) << "nine tokens are eight pairs, which fill two blocks";
  std::vector<BlockId> own;
  ASSERT_TRUE(allocator.Allocate(2, BlockHolder::kSequence, own));
  std::vector<BlockId> blocks = own;
  RadixLock inserted = tree.Match(kSpace, all, 0).lock;
  EXPECT_EQ(tree.Insert(inserted, all, blocks), 0);
  allocator.ReleaseHolds(own, BlockHolder::kSequence);
  EXPECT_EQ(tree.protected_blocks(), 2);
  inserted.Drop();
  // Eight tokens fill both blocks, but the second block lacks its last pair.
  const RadixMatch match = tree.Match(kSpace, pairs_of(8), INT32_MAX);
  EXPECT_EQ(match.blocks.size(), 1u);
  EXPECT_EQ(tree.protected_blocks(), 1);
  EXPECT_EQ(tree.Evict(2), 1) << "the pairs after the lock";
  EXPECT_EQ(tree.Peek(kSpace, all, INT32_MAX).blocks, 1);
  EXPECT_TRUE(tree.CheckInvariants().ok()) << tree.CheckInvariants();
}

}  // namespace
}  // namespace baton
