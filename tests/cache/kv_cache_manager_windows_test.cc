#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/cache/kv_cache_manager_fixture.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Blocks of 4 tokens, a window of 8 slots (a boundary needs 2 blocks), steps of 8 tokens.
class KvCacheManagerWindows : public KvCacheManagerTest {
 protected:
  static KvCacheOptions WithWindow(int32_t full_blocks, int32_t window_blocks) {
    KvCacheOptions options = Options(full_blocks);
    options.windows = {{.window = 8, .num_blocks = window_blocks, .max_blocks = 40}};
    options.max_step_tokens = 8;
    return options;
  }
  // Computes all of `units` in steps of 8, like a scheduler. Returns the number of matched tokens.
  int32_t Compute(KvCacheManager& cache, SequenceId id, const std::vector<CacheUnit>& units,
                  bool inserts_chunks = true) {
    const auto size = static_cast<int32_t>(units.size());
    const auto matched = cache.Begin(id, kSpace, units, size + 100);
    EXPECT_TRUE(matched.ok()) << matched.status();
    for (int32_t at = *matched; at < size;) {
      const absl::Status reserved = cache.Reserve(id, size);
      EXPECT_TRUE(reserved.ok()) << reserved;
      if (!reserved.ok()) break;
      const int32_t count = std::min(8, size - at);
      cache.Commit(id, std::span(units).subspan(at, count));
      if (inserts_chunks) cache.InsertCommitted(id);
      cache.FreeBehindWindows(id);
      EXPECT_TRUE(cache.CheckConservation().ok()) << cache.CheckConservation();
      at += count;
    }
    return *matched;
  }
  static std::vector<bool> Held(const KvCacheManager& cache, SequenceId id) {
    std::vector<bool> held;
    for (const BlockId block : cache.BlockTable(id, 1)) held.push_back(block != kNoBlock);
    return held;
  }
};

TEST_F(KvCacheManagerWindows, BlocksAreTakenForAStepAndFreedAsTheWindowSlides) {
  KvCacheManager cache(WithWindow(20, 20), &clock_);
  ASSERT_TRUE(cache.Begin(kA, kSpace, Units(24), 24).ok());
  ASSERT_TRUE(cache.Reserve(kA, 24).ok());
  EXPECT_EQ(cache.BlockTable(kA, 0).size(), 6u);
  EXPECT_THAT(Held(cache, kA), ElementsAre(true, true, false, false, false, false));
  cache.Commit(kA, Units(8));
  ASSERT_TRUE(cache.Reserve(kA, 24).ok());
  EXPECT_THAT(Held(cache, kA), ElementsAre(true, true, true, true, false, false));
  cache.Commit(kA, Units(4, 8));
  cache.FreeBehindWindows(kA);
  EXPECT_THAT(Held(cache, kA), ElementsAre(false, true, true, true, false, false))
      << "the token at position 12 sees slots 5 and later";
  ASSERT_TRUE(cache.Reserve(kA, 24).ok());
  EXPECT_THAT(Held(cache, kA), ElementsAre(false, true, true, true, true, false));
  EXPECT_EQ(cache.Stats().windows[0].blocks.owned, 4);
  cache.Release(kA, false);
  EXPECT_EQ(cache.Stats().windows[0].blocks.free, 20);
}

TEST_F(KvCacheManagerWindows, AMatchEndsOnlyWhereTheWindowIsWhole) {
  KvCacheManager cache(WithWindow(40, 40), &clock_);
  Compute(cache, kA, Units(32), /*inserts_chunks=*/false);
  cache.Release(kA, true);
  EXPECT_EQ(cache.Stats().blocks.cached, 8);
  EXPECT_EQ(cache.Stats().windows[0].blocks.cached, 2) << "the blocks that its last token saw";
  EXPECT_EQ(cache.PeekMatch(kSpace, Units(33)), 32);
  EXPECT_EQ(cache.PeekMatch(kSpace, Units(32)), 0)
      << "block 5 has no window block: the window slid past it";

  Compute(cache, kB, Units(32, 100), /*inserts_chunks=*/true);
  cache.Release(kB, true);
  for (const int32_t tokens : {33, 32, 17, 9, 5}) {
    EXPECT_EQ(cache.PeekMatch(kSpace, Units(tokens, 100)), (tokens - 1) / 4 * 4);
  }
}

TEST_F(KvCacheManagerWindows, RecomputingATombstonesTokensRestoresItsBlock) {
  KvCacheManager cache(WithWindow(40, 40), &clock_);
  Compute(cache, kA, Units(32), /*inserts_chunks=*/false);
  cache.Release(kA, true);
  EXPECT_EQ(Compute(cache, kB, Units(17)), 0);
  cache.Release(kB, true);
  EXPECT_EQ(cache.Stats().blocks.cached, 8) << "its full blocks were already cached";
  EXPECT_EQ(cache.Stats().windows[0].blocks.cached, 6);
  EXPECT_EQ(cache.PeekMatch(kSpace, Units(17)), 16);
  EXPECT_EQ(cache.PeekMatch(kSpace, Units(24)), 16) << "block 4 is still a tombstone";
}

TEST_F(KvCacheManagerWindows, DuplicatesAreSwappedForTheCachedBlocksInEveryGroup) {
  KvCacheManager cache(WithWindow(40, 40), &clock_);
  for (const SequenceId id : {kA, kB}) {
    ASSERT_TRUE(cache.Begin(id, kSpace, Units(8), 8).ok());
    ASSERT_TRUE(cache.Reserve(id, 8).ok());
    cache.Commit(id, Units(8));
  }
  for (const SequenceId id : {kA, kB}) cache.InsertCommitted(id);
  for (const int32_t group : {0, 1}) {
    const std::vector<BlockId> first(cache.BlockTable(kA, group).begin(),
                                     cache.BlockTable(kA, group).end());
    EXPECT_THAT(cache.BlockTable(kB, group), testing::ElementsAreArray(first));
  }
  EXPECT_EQ(cache.Stats().blocks.owned, 2);
  EXPECT_EQ(cache.Stats().windows[0].blocks.owned, 2);
}

TEST_F(KvCacheManagerWindows, WindowBlocksAreEvictedAloneAndWithTheirFullBlocks) {
  KvCacheManager cache(WithWindow(16, 8), &clock_);
  Compute(cache, kA, Units(32));
  cache.Release(kA, true);
  EXPECT_EQ(cache.PeekMatch(kSpace, Units(29)), 28);
  ASSERT_TRUE(cache.Begin(kB, kSpace, Units(8, 100), 8).ok());
  ASSERT_TRUE(cache.Reserve(kB, 8).ok());
  EXPECT_EQ(cache.Stats().blocks.cached, 8) << "no full block was evicted";
  EXPECT_EQ(cache.Stats().windows[0].blocks.cached, 6);
  EXPECT_EQ(cache.Stats().windows[0].evicted_blocks, 2);
  EXPECT_EQ(cache.PeekMatch(kSpace, Units(9)), 0)
      << "the blocks that slid out first were evicted first";
  EXPECT_EQ(cache.PeekMatch(kSpace, Units(33)), 32);
  EXPECT_EQ(cache.ClearCache(), 8);
  EXPECT_EQ(cache.Stats().windows[0].blocks.cached, 0);
  EXPECT_EQ(cache.Stats().windows[0].blocks.free, 6);
}

TEST_F(KvCacheManagerWindows, ALongPromptNeedsOnlyAWindowAndAStep) {
  KvCacheManager cache(WithWindow(300, 5), &clock_);
  const BlockCounts needed = cache.BlocksToAdmit(kSpace, Units(1000), 1000);
  EXPECT_EQ(needed.full(), 250);
  EXPECT_EQ(needed[1], 5) << "15 slots can touch 5 blocks";
  Compute(cache, kA, Units(1000));
  EXPECT_EQ(cache.AvailableBlocks()[1], 3) << "at the end the charge is only the window";
}

TEST_F(KvCacheManagerWindows, NoOtherSequenceTakesBlocksPromisedToAPrefill) {
  KvCacheManager cache(WithWindow(300, 8), &clock_);
  ASSERT_TRUE(cache.Begin(kA, kSpace, Units(100), 100).ok());
  ASSERT_TRUE(cache.Reserve(kA, 100).ok());
  EXPECT_EQ(cache.Stats().windows[0].blocks.free, 6) << "two blocks are taken";
  EXPECT_EQ(cache.AvailableBlocks()[1], 3) << "and three are charged";
  ASSERT_TRUE(cache.Begin(kB, kSpace, Units(100, 100), 100).ok());
  const BlockCounts before = cache.AvailableBlocks();
  EXPECT_THAT(cache.Reserve(kB, 100).ToString(),
              HasSubstr("KV group 1: needs 2 more blocks and 5 more charged; 6 are free or "
                        "evictable, 3 of 8 are not charged"));
  EXPECT_EQ(cache.AvailableBlocks(), before) << "nothing is taken, in group 0 either";
  ASSERT_TRUE(cache.Reserve(kB, 12).ok());
}

TEST_F(KvCacheManagerWindows, AForkSharesTheWindowAndCopiesTheTailOfEveryGroup) {
  KvCacheManager cache(WithWindow(40, 40), &clock_);
  Compute(cache, kA, Units(18));
  ASSERT_TRUE(cache.Fork(kA, kB).ok());
  const std::vector<BlockId> table(cache.BlockTable(kA, 1).begin(), cache.BlockTable(kA, 1).end());
  EXPECT_THAT(cache.BlockTable(kB, 1), testing::ElementsAreArray(table));
  ASSERT_TRUE(cache.Reserve(kB, 19).ok());
  const std::vector<BlockCopy> copies = cache.TakeCopies();
  ASSERT_EQ(copies.size(), 2u);
  for (int32_t group : {0, 1}) {
    EXPECT_EQ(copies[group], (BlockCopy{.from = cache.BlockTable(kA, group)[4],
                                        .to = cache.BlockTable(kB, group)[4],
                                        .tokens = 2,
                                        .group = group}));
  }
  EXPECT_TRUE(cache.CheckConservation().ok()) << cache.CheckConservation();
}

TEST_F(KvCacheManagerWindows, AForkWithoutRoomInAWindowIsRefused) {
  KvCacheManager cache(WithWindow(40, 5), &clock_);
  Compute(cache, kA, Units(18));
  EXPECT_THAT(cache.Fork(kA, kB).ToString(),
              HasSubstr("a fork of 18 tokens needs 3 blocks, 2 of 5 are available"));
  EXPECT_FALSE(cache.Contains(kB));
}

TEST_F(KvCacheManagerWindows, AnImportTakesTheWindowAtItsEndAlone) {
  KvCacheManager cache(WithWindow(40, 40), &clock_);
  ASSERT_TRUE(cache.BeginImport(kA, kSpace, Units(32), 0).ok());
  EXPECT_THAT(Held(cache, kA), ElementsAre(false, false, false, false, false, false, true, true));
  EXPECT_EQ(cache.WholeBoundary(kA, 32, 32), 32);
  EXPECT_EQ(cache.WholeBoundary(kA, 31, 32), 0) << "its window may have arrived only in part";
  cache.Commit(kA, Units(32));
  cache.InsertCommitted(kA);
  cache.FreeBehindWindows(kA);
  cache.Release(kA, true);
  EXPECT_EQ(cache.PeekMatch(kSpace, Units(33)), 32);
  EXPECT_TRUE(cache.CheckConservation().ok()) << cache.CheckConservation();
}

TEST_F(KvCacheManagerWindows, AnImportThatFailsIsComputedFromItsMatch) {
  KvCacheManager cache(WithWindow(40, 8), &clock_);
  Compute(cache, kA, Units(12));
  cache.Release(kA, true);
  ASSERT_EQ(*cache.Begin(kB, kSpace, Units(32), 32), 12);
  ASSERT_TRUE(cache.ReserveForImport(kB, 32).ok());
  EXPECT_THAT(Held(cache, kB), ElementsAre(false, true, true, false, false, false, true, true));
  EXPECT_EQ(cache.WholeBoundary(kB, 25, 32), 12);
  ASSERT_TRUE(cache.Reserve(kB, 32).ok());
  EXPECT_THAT(Held(cache, kB), ElementsAre(false, true, true, true, true, false, false, false))
      << "the end of the import must be freed";
}

TEST_F(KvCacheManagerWindows, APartOfAnImportCountsWhereItsWindowBeginsInTheMatch) {
  KvCacheManager cache(WithWindow(40, 8), &clock_);
  Compute(cache, kA, Units(12));
  cache.Release(kA, true);
  ASSERT_EQ(*cache.Begin(kB, kSpace, Units(19), 19), 12);
  ASSERT_TRUE(cache.ReserveForImport(kB, 19).ok());
  EXPECT_EQ(cache.WholeBoundary(kB, 16, 19), 16)
      << "slots 12 to 15 arrived, 9 to 11 were already there";
  EXPECT_EQ(cache.WholeBoundary(kB, 16, 20), 12) << "slot 12 was not sent";
}

TEST_F(KvCacheManagerWindows, AHeldPrefixHasWhatItsBoundaryNeeds) {
  KvCacheManager cache(WithWindow(40, 40), &clock_);
  Compute(cache, kA, Units(32));
  cache.Release(kA, true);
  const HeldBlocks held = cache.HoldPrefix(kSpace, Units(32), 1);
  EXPECT_EQ(held.blocks.size(), 7u);
  ASSERT_EQ(held.windows.size(), 1u);
  EXPECT_EQ(held.windows[0].first, 6);
  EXPECT_EQ(held.windows[0].blocks.size(), 2u);
  EXPECT_TRUE(cache.CheckTransferHolds(held.blocks).ok());
  EXPECT_TRUE(cache.CheckTransferHolds(held.windows[0].blocks, 1).ok());
  EXPECT_FALSE(cache.CheckTransferHolds({}, 1).ok());
  EXPECT_EQ(cache.blocks_in_transfer(), 9);
  EXPECT_EQ(cache.AvailableBlocks()[1], 38);
  cache.ReleaseTransferHold(held.blocks);
  cache.ReleaseTransferHold(held.windows[0].blocks, 1);
  EXPECT_EQ(cache.HoldPrefix(kSpace, Units(32), 7).windows[0].first, 7);
  const HeldBlocks rest = cache.HoldPrefix(kSpace, Units(32), 7);
  for (int i = 0; i < 2; ++i) {
    cache.ReleaseTransferHold(rest.blocks);
    cache.ReleaseTransferHold(rest.windows[0].blocks, 1);
  }
}

TEST_F(KvCacheManagerWindows, BlocksPromisedToAWindowAreNotGivenToATransfer) {
  KvCacheManager cache(WithWindow(40, 6), &clock_);
  Compute(cache, kA, Units(8));
  cache.Release(kA, true);
  ASSERT_TRUE(cache.Begin(kB, kSpace, Units(40, 100), 40).ok());
  ASSERT_TRUE(cache.Reserve(kB, 40).ok());
  EXPECT_EQ(cache.AvailableBlocks()[1], 1);
  EXPECT_TRUE(cache.HoldPrefix(kSpace, Units(8), 0).blocks.empty());
  EXPECT_EQ(cache.blocks_in_transfer(), 0);
}

TEST_F(KvCacheManagerWindows, EachGroupsPoolIsResizedByItself) {
  KvCacheManager cache(WithWindow(40, 40), &clock_);
  Compute(cache, kA, Units(16));
  Compute(cache, kB, Units(16, 100));
  ASSERT_TRUE(cache.Resize(5, 1).ok());
  EXPECT_EQ(cache.num_blocks(0), 40);
  EXPECT_EQ(cache.num_blocks(1), 5);
  EXPECT_EQ(cache.retiring_blocks(1), 2) << "the two blocks of kB's window";
  EXPECT_EQ(cache.PeekMatch(kSpace, Units(17, 100)), 4)
      << "a new match must not take retiring blocks";
  EXPECT_EQ(cache.PeekMatch(kSpace, Units(17)), 16);
  EXPECT_TRUE(cache.CheckConservation().ok()) << cache.CheckConservation();
  cache.Release(kB, true);
  EXPECT_THAT(cache.RetiredBlocks(1), ElementsAre(BlockRange{5, 40}));
  EXPECT_THAT(cache.Resize(41, 1).ToString(), HasSubstr("41 blocks; [1, 40]"));
}

TEST_F(KvCacheManagerWindows, FiguresAndTraceAreKeptForEachGroup) {
  KvCacheOptions options = WithWindow(40, 40);
  options.record_trace = true;
  KvCacheManager cache(options, &clock_);
  EXPECT_EQ(cache.groups(), 2);
  EXPECT_EQ(cache.PoolBlocks()[1], 40);
  Compute(cache, kA, Units(16));
  const WindowStats window = cache.Stats().windows[0];
  EXPECT_EQ(window.blocks.owned, 2);
  EXPECT_EQ(window.blocks.cached, 2);
  EXPECT_EQ(window.evictable, 2);
  EXPECT_EQ(window.charged, 2);
  int32_t taken = 0, given = 0;
  for (const AllocationEvent& event : cache.trace()) {
    if (event.group != 1) continue;
    (event.kind == AllocationEvent::Kind::kReserve ? taken : given) += event.blocks;
  }
  EXPECT_EQ(taken, 4);
  EXPECT_EQ(given, 2);
}

TEST_F(KvCacheManagerWindows, ContiguousSequencesThatFindNoRunInAWindowTakeNothing) {
  KvCacheOptions options = WithWindow(20, 6);
  options.paged = false;
  options.kind = CacheKind::kNaive;
  KvCacheManager cache(options, &clock_);
  EXPECT_THAT(cache.Begin(kA, kSpace, Units(4), 28).status().ToString(),
              HasSubstr("KV group 1: no run of 7 free blocks; 6 of 6"));
  EXPECT_EQ(cache.Stats().blocks.free, 20);
  ASSERT_TRUE(cache.Begin(kA, kSpace, Units(4), 24).ok());
  EXPECT_EQ(cache.BlockTable(kA, 1).size(), 6u);
}

TEST(WindowsOf, ReadsASpecAndRefusesWhatCannotBeCached) {
  KvCacheSpec spec;
  spec.groups = {
      {.layers = 1, .model_layers = {0}},
      {.kind = KvGroupKind::kSlidingWindow, .layers = 2, .window = 64, .model_layers = {1, 2}}};
  const auto windows = WindowsOf(spec);
  ASSERT_TRUE(windows.ok()) << windows.status();
  ASSERT_EQ(windows->size(), 1u);
  EXPECT_EQ((*windows)[0].window, 64);
  spec.groups[1].kind = KvGroupKind::kRecurrentState;
  EXPECT_EQ(WindowsOf(spec).status().code(), absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace baton
