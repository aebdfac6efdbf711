// Prefixes imported from another worker's cache, or held for an export to it.
#include <gtest/gtest.h>

#include <algorithm>

#include "cache/kv_cache_manager.h"
#include "tests/cache/kv_cache_manager_fixture.h"

namespace baton {
namespace {

constexpr SequenceId kImport{9};

class KvCacheManagerImport : public KvCacheManagerTest {};

TEST_F(KvCacheManagerImport, TakesBlocksOnlyForTheMissingPartAndMatchesUpToTheEnd) {
  KvCacheManager cache(Options(10), &clock_);
  Run(cache, kA, Units(8));
  cache.Release(kA, /*keep=*/true);
  const auto matched = cache.BeginImport(kImport, kSpace, Units(16), 0);
  ASSERT_TRUE(matched.ok()) << matched.status();
  EXPECT_EQ(*matched, 8);
  EXPECT_EQ(cache.BlockTable(kImport).size(), 4u);
  cache.Commit(kImport, Units(8, 8));
  cache.InsertCommitted(kImport);
  cache.Release(kImport, /*keep=*/true);
  EXPECT_TRUE(cache.CheckConservation().ok()) << cache.CheckConservation();
  EXPECT_EQ(cache.PeekMatch(kSpace, Units(17)), 16);
  const auto again = cache.BeginImport(kImport, kSpace, Units(16), 0);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, 16);
  EXPECT_EQ(cache.BlockTable(kImport).size(), 4u);
}

TEST_F(KvCacheManagerImport, ImportedBlocksHaveThePriorityOfTheirRequest) {
  KvCacheOptions options = Options(8);
  options.eviction_policy = EvictionPolicy::kPriority;
  KvCacheManager cache(options, &clock_);
  for (const int32_t priority : {-5, -9}) {
    const std::vector<CacheUnit> units = Units(8, 100 * -priority);
    ASSERT_TRUE(cache.BeginImport(kImport, kSpace, units, 0, priority).ok());
    cache.Commit(kImport, units);
    cache.InsertCommitted(kImport);
    cache.Release(kImport, /*keep=*/true);
  }
  Run(cache, kA, Units(20, 5000));
  EXPECT_EQ(cache.PeekMatch(kSpace, Units(9, 500)), 8) << "older, but of higher priority";
  EXPECT_EQ(cache.PeekMatch(kSpace, Units(9, 900)), 4);
}

TEST_F(KvCacheManagerImport, CountsAsNoLookup) {
  KvCacheManager cache(Options(10), &clock_);
  ASSERT_TRUE(cache.BeginImport(kImport, kSpace, Units(16), 0).ok());
  EXPECT_EQ(cache.Stats().lookups, 0);
  EXPECT_EQ(cache.Stats().lookup_tokens, 0);
}

TEST_F(KvCacheManagerImport, KeepsLandedBlocksWhenTheRestNeverArrives) {
  KvCacheManager cache(Options(10), &clock_);
  ASSERT_TRUE(cache.BeginImport(kImport, kSpace, Units(16), 0).ok());
  cache.Commit(kImport, Units(8));
  cache.Release(kImport, /*keep=*/true);
  EXPECT_EQ(cache.PeekMatch(kSpace, Units(17)), 8);
  EXPECT_EQ(cache.available_blocks(), 10);
  EXPECT_TRUE(cache.CheckConservation().ok()) << cache.CheckConservation();
}

TEST_F(KvCacheManagerImport, EvictsOnlyUnusedBlocks) {
  KvCacheManager cache(Options(6), &clock_);
  Run(cache, kA, Units(8, 100));
  cache.Release(kA, /*keep=*/true);
  Run(cache, kB, Units(8, 200));  // not released, so its blocks stay in use
  EXPECT_TRUE(absl::IsResourceExhausted(cache.BeginImport(kImport, kSpace, Units(20), 0).status()));
  EXPECT_FALSE(cache.Contains(kImport));
  ASSERT_TRUE(cache.BeginImport(kImport, kSpace, Units(16), 0).ok());
  EXPECT_EQ(cache.PeekMatch(kSpace, Units(9, 100)), 0);
  EXPECT_EQ(cache.committed(kB), 8);
}

TEST_F(KvCacheManagerImport, LeavesTheRequestedNumberOfBlocksFree) {
  KvCacheManager cache(Options(6), &clock_);
  Run(cache, kA, Units(8));
  cache.Release(kA, /*keep=*/true);
  // The pool has two cached blocks, which the import locks, and four free ones. The import takes
  // two and leaves two.
  EXPECT_TRUE(absl::IsResourceExhausted(cache.BeginImport(kImport, kSpace, Units(16), 3).status()));
  EXPECT_TRUE(cache.BeginImport(kImport, kSpace, Units(16), 2).ok());
}

TEST_F(KvCacheManagerImport, IsRefusedWherePrefixesAreNotShared) {
  for (const CacheKind kind : {CacheKind::kNaive, CacheKind::kChunkOnly}) {
    KvCacheOptions options = Options(6);
    options.kind = kind;
    KvCacheManager cache(options, &clock_);
    EXPECT_TRUE(
        absl::IsFailedPrecondition(cache.BeginImport(kImport, kSpace, Units(16), 0).status()));
    EXPECT_TRUE(cache.HoldPrefix(kSpace, Units(16), 0).blocks.empty());
  }
}

TEST_F(KvCacheManagerImport, HeldPrefixIsNotEvictedUntilTheTransferEnds) {
  KvCacheManager cache(Options(6), &clock_);
  Run(cache, kA, Units(16));
  cache.Release(kA, /*keep=*/true);
  const std::vector<BlockId> held = cache.HoldPrefix(kSpace, Units(12), 1).blocks;
  EXPECT_EQ(held.size(), 2u);
  EXPECT_EQ(cache.blocks_in_transfer(), 2);
  // The path of the third block is locked, later blocks are not.
  EXPECT_EQ(cache.available_blocks(), 3);
  Run(cache, kB, Units(12, 100));
  EXPECT_TRUE(cache.CheckConservation().ok()) << cache.CheckConservation();
  const auto table = cache.BlockTable(kB);
  for (const BlockId block : held) {
    EXPECT_EQ(std::count(table.begin(), table.end(), block), 0) << block;
  }
  cache.Release(kB, /*keep=*/false);
  cache.ReleaseTransferHold(held);
  EXPECT_EQ(cache.available_blocks(), 6);
}

TEST_F(KvCacheManagerImport, HoldsNothingOfAnotherNamespaceOrBeforeTheFirstBlock) {
  KvCacheManager cache(Options(6), &clock_);
  Run(cache, kA, Units(8));
  cache.Release(kA, /*keep=*/true);
  EXPECT_TRUE(cache.HoldPrefix(CacheNamespace(2), Units(8), 0).blocks.empty());
  EXPECT_TRUE(cache.HoldPrefix(kSpace, Units(8), 2).blocks.empty());
  EXPECT_TRUE(cache.HoldPrefix(kSpace, Units(8, 100), 0).blocks.empty());
  EXPECT_EQ(cache.blocks_in_transfer(), 0);
}

}  // namespace
}  // namespace baton
