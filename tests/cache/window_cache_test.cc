#include "cache/window_cache.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace baton {
namespace {

// Returns the full blocks 10, 11, ... of a path.
std::vector<BlockId> Path(int32_t blocks) {
  std::vector<BlockId> path;
  for (int32_t i = 0; i < blocks; ++i) path.push_back(BlockId(10 + i));
  return path;
}

WindowCache MakeCache(int32_t window, int32_t blocks = 8,
                      EvictionPolicy policy = EvictionPolicy::kLru) {
  return WindowCache({.window = window, .num_blocks = blocks, .max_blocks = blocks}, 4, 40, policy);
}

// Caches a block beside each block of `full`; a sequence holds it.
std::vector<BlockId> Fill(WindowCache& cache, std::span<const BlockId> full) {
  std::vector<BlockId> own;
  cache.Allocate(static_cast<int32_t>(full.size()), own);
  for (size_t i = 0; i < full.size(); ++i) cache.Put(full[i], own[i], 0);
  return own;
}

void LetGo(WindowCache& cache, std::span<const BlockId> blocks) {
  for (const BlockId block : blocks) cache.ReleaseHold(block, BlockHolder::kSequence);
}

TEST(WindowCache, ABoundaryNeedsTheBlocksOfTheSlotsBeforeItThatItsTokenSees) {
  for (const auto& [window, blocks] :
       {std::pair{1, 0}, {2, 1}, {5, 1}, {6, 2}, {9, 2}, {10, 3}, {INT32_MAX, 1 << 29}}) {
    EXPECT_EQ(MakeCache(window).whole_blocks(), blocks) << window;
  }
}

TEST(WindowCache, BlocksDieWhenNoTokenToComeSeesThem) {
  const WindowCache cache = MakeCache(6);  // the token at p sees slots from p - 5 on
  EXPECT_EQ(cache.DeadBlocks(0), 0);
  EXPECT_EQ(cache.DeadBlocks(8), 0) << "the next token sees slot 3";
  EXPECT_EQ(cache.DeadBlocks(9), 1) << "the next token sees slots from 4 on";
  EXPECT_EQ(cache.DeadBlocks(12), 1);
  EXPECT_EQ(cache.DeadBlocks(13), 2);
}

TEST(WindowCache, TheLongestWholePrefixEndsBeforeATombstoneOrFarBehindIt) {
  WindowCache cache = MakeCache(6, 16);  // the window needs two blocks
  const std::vector<BlockId> path = Path(10);
  const std::vector<BlockId> own = Fill(cache, path);
  EXPECT_EQ(cache.LongestWhole(path), 10);
  cache.Drop(std::span(path).subspan(8, 1));
  EXPECT_EQ(cache.LongestWhole(path), 8);
  EXPECT_EQ(cache.LongestWhole(std::span(path).first(5)), 5);
  cache.Drop(std::span(path).subspan(6, 1));
  EXPECT_EQ(cache.LongestWhole(path), 6) << "block 7 alone does not fill the window";
  cache.Drop(std::span(path).subspan(2, 1));
  cache.Drop(std::span(path).subspan(4, 1));
  EXPECT_EQ(cache.LongestWhole(path), 2) << "a prefix shorter than the window needs all its blocks";
  cache.Drop(std::span(path).first(1));
  EXPECT_EQ(cache.LongestWhole(path), 0);
  LetGo(cache, own);
  EXPECT_TRUE(cache.CheckInvariants().ok()) << cache.CheckInvariants();
}

TEST(WindowCache, ABlockIsEvictableWhileNeitherSequenceNorTransferHoldsIt) {
  WindowCache cache = MakeCache(6);
  const std::vector<BlockId> path = Path(3), own = Fill(cache, path);
  EXPECT_EQ(cache.evictable(), 0);
  cache.AddHold(own[1], BlockHolder::kTransfer);
  LetGo(cache, own);
  EXPECT_EQ(cache.evictable(), 2);
  EXPECT_EQ(cache.pinned_only(), 1);
  EXPECT_EQ(cache.Evict(5), 2);
  EXPECT_EQ(cache.At(path[1]), own[1]);
  EXPECT_EQ(cache.At(path[0]), kNoBlock);
  cache.ReleaseHold(own[1], BlockHolder::kTransfer);
  EXPECT_EQ(cache.evictable(), 1);
  EXPECT_EQ(cache.pinned_only(), 0);
  EXPECT_TRUE(cache.CheckInvariants().ok()) << cache.CheckInvariants();
}

TEST(WindowCache, ADroppedBlockStaysWithItsHolders) {
  WindowCache cache = MakeCache(6);
  const std::vector<BlockId> path = Path(1), own = Fill(cache, path);
  cache.Drop(path);
  EXPECT_FALSE(cache.blocks().is_free(own[0]));
  EXPECT_EQ(cache.FullOf(own[0]), kNoBlock);
  LetGo(cache, own);
  EXPECT_TRUE(cache.blocks().is_free(own[0]));
  EXPECT_EQ(cache.evictable(), 0);
}

TEST(WindowCache, PoliciesRankBlocksByTheirOwnUse) {
  for (const auto& [policy, first] : {std::pair{EvictionPolicy::kLru, 1},
                                      {EvictionPolicy::kMru, 0},
                                      {EvictionPolicy::kFifo, 0},
                                      {EvictionPolicy::kFilo, 2},
                                      {EvictionPolicy::kLfu, 1},
                                      {EvictionPolicy::kPriority, 2}}) {
    WindowCache cache = MakeCache(6, 8, policy);
    const std::vector<BlockId> path = Path(3), own = Fill(cache, path);
    // Released in the order 1, 2, 0; used 3 times, once, twice; priorities 9, 5 and 0.
    cache.AddHold(own[0], BlockHolder::kSequence, 9);
    cache.AddHold(own[0], BlockHolder::kSequence, 1);
    cache.ReleaseHold(own[0], BlockHolder::kSequence);
    cache.ReleaseHold(own[0], BlockHolder::kSequence);
    cache.AddHold(own[2], BlockHolder::kSequence, 0);
    cache.ReleaseHold(own[2], BlockHolder::kSequence);
    if (policy == EvictionPolicy::kPriority) {
      cache.AddHold(own[1], BlockHolder::kSequence, 5);
      cache.ReleaseHold(own[1], BlockHolder::kSequence);
    }
    for (const int i : {1, 2, 0}) cache.ReleaseHold(own[i], BlockHolder::kSequence);
    EXPECT_EQ(cache.Evict(1), 1);
    EXPECT_EQ(cache.At(path[first]), kNoBlock) << "policy " << static_cast<int>(policy);
  }
}

TEST(WindowCache, NoBlockAboveTheLimitStaysOrBecomesCached) {
  WindowCache cache = MakeCache(6, 8);
  const std::vector<BlockId> path = Path(6), own = Fill(cache, std::span(path).first(4));
  std::vector<BlockId> later;
  cache.Allocate(2, later);
  LetGo(cache, std::span(own).first(2));
  cache.Resize(1);
  EXPECT_EQ(cache.evictable(), 1);
  EXPECT_EQ(cache.At(path[1]), kNoBlock);
  EXPECT_EQ(cache.At(path[2]), kNoBlock) << "held, but no longer cached";
  EXPECT_EQ(cache.blocks().retiring(), 4);
  cache.Put(path[5], later[1], 0);
  EXPECT_EQ(cache.At(path[5]), kNoBlock);
  LetGo(cache, std::span(own).subspan(2));
  LetGo(cache, later);
  EXPECT_EQ(cache.blocks().retiring(), 0);
  EXPECT_TRUE(cache.CheckInvariants().ok()) << cache.CheckInvariants();
}

TEST(WindowCache, OwnersOverTheirShareOfThisPoolLoseTheirBlocksFirst) {
  CacheOwners owners;
  const OwnerSlot owner = owners.SlotOf({.id = 1, .share = 0.25});
  owners.AddNamespace(owner);
  WindowCache cache({.window = 6, .num_blocks = 8, .max_blocks = 8}, 4, 40, EvictionPolicy::kLru,
                    &owners);
  const std::vector<BlockId> path = Path(8);
  const std::vector<BlockId> own = Fill(cache, path);
  cache.Reown(std::span(path).first(3), owner);  // while they are held
  LetGo(cache, own);
  cache.Reown(std::span(path).subspan(3, 1), owner);  // while it is queued
  EXPECT_TRUE(cache.CheckInvariants().ok()) << cache.CheckInvariants();
  EXPECT_EQ(cache.OwnerOf(own[3]), owner);
  EXPECT_EQ(cache.EvictOverShares(8), 6);
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(cache.At(path[i]) != kNoBlock, i == 2 || i == 3) << "block " << i;
  }
  EXPECT_EQ(cache.Evict(2), 2) << "then the policy decides";
  EXPECT_TRUE(cache.CheckInvariants().ok()) << cache.CheckInvariants();
}

}  // namespace
}  // namespace baton
