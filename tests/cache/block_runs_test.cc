#include "cache/index/block_runs.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <set>
#include <vector>

namespace baton {
namespace {

std::vector<Hash128> Hashes(uint64_t seed, size_t count) {
  std::mt19937_64 random(seed);
  std::vector<Hash128> hashes(count);
  for (Hash128& hash : hashes) hash = {.low = random(), .high = random()};
  return hashes;
}

bool Nobody(HolderId) { return false; }

BlockRuns Small() { return BlockRuns(10'000, 0, {}, Nobody); }

uint32_t LineOf(const BlockRuns& runs, const Hash128& hash) { return runs.Find(hash)->at.line; }

TEST(BlockRuns, BlocksStoredTogetherLieTogether) {
  BlockRuns runs = Small();
  const auto hashes = Hashes(1, 20);
  EXPECT_EQ(runs.AddNew(3, {}, hashes), 20u);
  const auto found = runs.Find(hashes[5]);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->at.offset, 5u);
  EXPECT_EQ(found->head.length(), 20u);
  EXPECT_EQ(runs.Common(*found, std::span(hashes).subspan(5)), 15u);
  auto other = hashes;
  other[9].high ^= 1;
  EXPECT_EQ(runs.Common(*found, std::span(other).subspan(5)), 4u);
  EXPECT_FALSE(runs.Find(other[9]).has_value());
}

TEST(BlockRuns, AGuessEqualsFindForStoredBlocks) {
  BlockRuns runs = Small();
  const auto hashes = Hashes(1, 40);
  ASSERT_EQ(runs.AddNew(3, {}, std::span(hashes).first(20)), 20u);
  for (size_t i = 0; i < 20; ++i) {
    EXPECT_EQ(runs.Guess(hashes[i]), runs.Find(hashes[i])->at);
    EXPECT_EQ(runs.Guess(hashes[20 + i]), std::nullopt);
  }
}

// Hashes chosen by an attacker. A linear mix modulo 2^64 would give them only 2^10 keys, for any
// factors.
TEST(BlockRuns, MultiplesOfALargePowerOfTwoHaveDifferentKeys) {
  const KeySeeds key_seeds;
  std::set<uint64_t> keys;
  for (uint64_t i = 0; i < 1 << 10; ++i) {
    for (uint64_t j = 0; j < 1 << 6; ++j) {
      keys.insert(key_seeds.BitsOf({.low = i << 54, .high = j << 54}));
    }
  }
  EXPECT_EQ(keys.size(), size_t{1} << 16);
}

TEST(BlockRuns, AWrongPredecessorOfNewBlocksLosesNoBlock) {
  BlockRuns runs = Small();
  const auto hashes = Hashes(1, 8);
  for (size_t i = 0; i < hashes.size(); ++i) {
    // Always names the first block as the one before. Only at the start does that block end a run.
    const auto after = i == 0 ? std::nullopt : runs.Guess(hashes[0]);
    ASSERT_EQ(runs.AddNew(3, after, std::span(hashes).subspan(i, 1)), 1u);
  }
  for (const Hash128& hash : hashes) EXPECT_TRUE(runs.Find(hash).has_value());
  EXPECT_EQ(runs.blocks(), hashes.size());
}

TEST(BlockRuns, TakesInNewBlocksUpToTheFirstKnownOne) {
  BlockRuns runs = Small();
  auto hashes = Hashes(1, 200);
  EXPECT_EQ(runs.AddNew(3, {}, std::span(hashes).subspan(6, 2)), 2u);
  const size_t before = runs.store().bytes();
  EXPECT_EQ(runs.AddNew(3, {}, hashes), 6u);
  EXPECT_LE(runs.store().bytes() - runs.store().free_bytes(), before + 128)
      << "the run is in a chunk that fits";
  for (size_t i = 0; i < 8; ++i) EXPECT_TRUE(runs.Find(hashes[i]).has_value());
  hashes[20] = hashes[15];  // the same hash twice in one call
  EXPECT_EQ(runs.AddNew(3, {}, std::span(hashes).subspan(10)), 10u);
}

TEST(BlockRuns, ContinuesARunWithRoom) {
  BlockRuns runs = Small();
  const auto hashes = Hashes(1, 100);
  std::optional<BlockLocation> last;
  for (size_t i = 0; i < hashes.size(); ++i) {
    ASSERT_EQ(runs.AddNew(3, last, std::span(hashes).subspan(i, 1)), 1u);
    last = runs.Find(hashes[i])->at;
  }
  EXPECT_LT(runs.store().bytes(), 100u * 24);
  EXPECT_EQ(runs.Common(*runs.Find(hashes[60]), std::span(hashes).subspan(60)) > 5, true);
}

TEST(BlockRuns, ARunEndsWithABlockThatHasAHolder) {
  BlockRuns runs = Small();
  const auto hashes = Hashes(1, 20);
  uint64_t refused = 0;
  runs.AddNew(3, {}, hashes);
  const uint32_t line = LineOf(runs, hashes[0]);
  EXPECT_EQ(runs.RemoveHolder(line, 3, 14, 20, &refused), 6u);
  EXPECT_EQ(runs.blocks(), 14u);
  EXPECT_FALSE(runs.Find(hashes[14]).has_value());
  EXPECT_EQ(runs.RemoveHolder(line, 3, 12, 13, &refused), 1u);
  EXPECT_EQ(runs.blocks(), 14u) << "a gap keeps its blocks";
  EXPECT_EQ(runs.RemoveHolder(line, 3, 13, 14, &refused), 1u);
  EXPECT_EQ(runs.blocks(), 12u) << "a gap is freed when no later block is held";
  EXPECT_EQ(runs.RemoveHolder(line, 3, 0, 20, &refused), 12u);
  EXPECT_EQ(runs.blocks(), 0u);
  EXPECT_EQ(runs.store().free_bytes(), runs.store().bytes());
}

TEST(BlockRuns, ARunThatIsMostlyGapsIsCutUp) {
  BlockRuns runs = Small();
  const auto hashes = Hashes(1, 200);
  uint64_t refused = 0;
  runs.AddNew(3, {}, hashes);
  // Three of every ten blocks stay.
  for (uint32_t i = 0; i < 200; i += 10) {
    for (uint32_t j = i; j < i + 7; ++j) {
      const auto found = runs.Find(hashes[j]);
      ASSERT_TRUE(found.has_value());
      runs.RemoveHolder(found->at.line, 3, found->at.offset, found->at.offset + 1, &refused);
    }
  }
  EXPECT_LE(runs.blocks(), 120u);
  for (uint32_t i = 0; i < 200; ++i) {
    if (i % 10 < 7) continue;
    ASSERT_TRUE(runs.Find(hashes[i]).has_value()) << i;
  }
  // Removes from the beginning, as some engines evict. The remaining blocks move and memory is
  // freed.
  const auto chain = Hashes(2, 250);
  runs.AddNew(4, {}, chain);
  for (size_t i = 0; i < 240; ++i) {
    const auto found = runs.Find(chain[i]);
    ASSERT_TRUE(found.has_value());
    runs.RemoveHolder(found->at.line, 4, found->at.offset, found->at.offset + 1, &refused);
  }
  EXPECT_LE(runs.blocks(), 120u + 20u);
  EXPECT_EQ(refused, 0u);
}

TEST(BlockRuns, ACrowdedRunIsSplitWhereItsHoldersEnd) {
  BlockRuns runs = Small();
  const auto hashes = Hashes(1, 50);
  uint64_t refused = 0;
  runs.AddNew(0, {}, hashes);
  for (HolderId holder = 1; holder < 60; ++holder) {
    runs.AddHolder(LineOf(runs, hashes[0]), holder, 0,
                   std::min<uint32_t>(10, runs.Find(hashes[0])->head.length()), &refused);
  }
  EXPECT_NE(LineOf(runs, hashes[0]), LineOf(runs, hashes[10]));
  EXPECT_EQ(LineOf(runs, hashes[0]), LineOf(runs, hashes[9]));
  EXPECT_EQ(runs.Find(hashes[0])->head.length(), 10u);
  EXPECT_EQ(runs.Find(hashes[10])->head.length(), 40u);
  EXPECT_EQ(runs.blocks(), 50u);
}

TEST(BlockRuns, StopsAtItsCapacity) {
  BlockRuns runs(30, 0, {}, Nobody);
  const auto hashes = Hashes(1, 50);
  EXPECT_EQ(runs.AddNew(0, {}, hashes), 30u);
  EXPECT_EQ(runs.AddNew(0, {}, std::span(hashes).subspan(30)), 0u);
  EXPECT_EQ(runs.blocks(), 30u);
}

TEST(BlockRuns, RetiredHoldersAreRemovedFromARun) {
  std::set<HolderId> retired;
  BlockRuns runs(10'000, 0, {}, [&](HolderId holder) { return retired.contains(holder); });
  const auto hashes = Hashes(1, 10);
  uint64_t refused = 0;
  runs.AddNew(1, {}, hashes);
  const uint32_t line = LineOf(runs, hashes[0]);
  for (HolderId holder = 2; holder < 20; ++holder) runs.AddHolder(line, holder, 0, 10, &refused);
  for (HolderId holder = 1; holder < 20; ++holder) retired.insert(holder);
  retired.erase(7);
  runs.RemoveRetired(line);
  EXPECT_EQ(runs.blocks(), 10u);
  EXPECT_EQ(runs.RemoveHolder(line, 7, 0, 10, &refused), 10u);
  EXPECT_EQ(runs.blocks(), 0u);
  retired.insert(7);
  runs.RemoveRetired(line);  // skips a free chunk
}

TEST(BlockRuns, ARunThatIsCutUpLeavesItsRetiredHoldersBehind) {
  std::set<HolderId> retired;
  BlockRuns runs(10'000, 0, {}, [&](HolderId holder) { return retired.contains(holder); });
  const auto hashes = Hashes(1, 30);
  uint64_t refused = 0;
  runs.AddNew(1, {}, hashes);
  const uint32_t line = LineOf(runs, hashes[0]);
  runs.AddHolder(line, 2, 4, 6, &refused);
  runs.AddHolder(line, 2, 22, 30, &refused);
  runs.AddHolder(line, 3, 25, 27, &refused);
  retired.insert(2);
  EXPECT_EQ(runs.RemoveHolder(line, 1, 1, 30, &refused), 29u);
  // Holder 1 has the first block, holder 3 the last two blocks.
  ASSERT_TRUE(runs.Find(hashes[25]).has_value());
  const uint32_t end = LineOf(runs, hashes[25]);
  EXPECT_NE(end, line);
  EXPECT_EQ(runs.Find(hashes[0])->head.length(), 1u);
  EXPECT_FALSE(runs.Find(hashes[27]).has_value());
  retired.clear();
  EXPECT_EQ(runs.RemoveHolder(end, 2, 0, runs.Find(hashes[25])->head.length(), &refused), 0u);
  EXPECT_EQ(runs.RemoveHolder(line, 2, 0, 1, &refused), 0u);
}

TEST(BlockRuns, SplittingDropsManyRetiredHolders) {
  std::set<HolderId> retired;
  BlockRuns runs(10'000, 0, {}, [&](HolderId holder) { return retired.contains(holder); });
  const auto hashes = Hashes(1, 50);
  uint64_t refused = 0;
  runs.AddNew(1, {}, hashes);
  const uint32_t line = LineOf(runs, hashes[0]);
  constexpr HolderId kLast = 2 + RunHolders::kCrowded;
  for (HolderId holder = 2; holder < kLast; ++holder) {
    runs.AddHolder(line, holder, 20, 40, &refused);
    retired.insert(holder);
  }
  ASSERT_EQ(LineOf(runs, hashes[49]), line);
  retired.insert(1);
  EXPECT_EQ(runs.AddHolder(line, kLast, 10, 15, &refused), 5u);
  // Only the blocks of the last holder are left.
  for (uint32_t i = 0; i < 50; ++i) {
    EXPECT_EQ(runs.Find(hashes[i]).has_value(), 10 <= i && i < 15) << i;
  }
  EXPECT_EQ(runs.RemoveHolder(LineOf(runs, hashes[10]), kLast, 0, 5, &refused), 5u);
  EXPECT_EQ(runs.blocks(), 0u);
  EXPECT_EQ(runs.store().free_bytes(), runs.store().bytes());
}

}  // namespace
}  // namespace baton
