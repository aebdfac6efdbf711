#include "cache/full_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace baton {
namespace {

using ::testing::HasSubstr;

constexpr SequenceId kA{1}, kB{2};
constexpr CacheNamespace kSpace{1};
constexpr int32_t kBlockSize = 4;

std::vector<CacheUnit> Units(int32_t count, CacheUnit first = 0) {
  std::vector<CacheUnit> units(count);
  std::iota(units.begin(), units.end(), first);
  return units;
}

class FullTablesTest : public testing::Test {
 protected:
  void TearDown() override {
    EXPECT_TRUE(Recount().ok()) << Recount();
    while (!tables_.empty()) tables_.Release(tables_.first(), /*forgets=*/false);
    EXPECT_TRUE(Recount().ok()) << Recount();
    EXPECT_EQ(cache_.available(), 16);
  }
  absl::Status Recount() const {
    const absl::Status pool = cache_.CheckConservation();
    return pool.ok() ? tables_.CheckConservation(/*shares_full_blocks=*/true) : pool;
  }

  int32_t Begin(SequenceId id, const std::vector<CacheUnit>& units) {
    tables_.Begin(id, cache_.tree().Match(kSpace, units, INT32_MAX));
    return tables_.matched(id);
  }
  void Reserve(SequenceId id, int32_t tokens) {
    const FullTables::Missing missing = tables_.MissingFor(id, tokens);
    if (missing.blocks == 0) return;
    cache_.MakeFree(missing.blocks);
    copy_ = tables_.Grow(id, missing);
  }
  void Compute(SequenceId id, const std::vector<CacheUnit>& units) {
    Reserve(id, tables_.committed(id) + static_cast<int32_t>(units.size()));
    tables_.Commit(id, units);
  }

  PrefixCache cache_{16, 16, kBlockSize, EvictionPolicy::kLru, /*hash_seed=*/0};
  FullTables tables_{kBlockSize, /*keeps_units=*/true, &cache_};
  std::optional<BlockCopy> copy_;  // from the last Reserve
};

TEST_F(FullTablesTest, MissingBlocksAreThoseThatTheTableLacks) {
  EXPECT_EQ(Begin(kA, Units(10)), 0);
  EXPECT_EQ(tables_.MissingFor(kA, 10).blocks, 3);
  Reserve(kA, 10);
  EXPECT_EQ(tables_.capacity(kA), 12);
  EXPECT_EQ(tables_.MissingFor(kA, 12).blocks, 0);
  EXPECT_EQ(tables_.MissingFor(kA, 13).blocks, 1);
  EXPECT_EQ(tables_.CountSlots().reserved, 12);
}

TEST_F(FullTablesTest, InsertingSharesFullBlocksAndTheNextOneFindsThem) {
  Begin(kA, {});
  Compute(kA, Units(10));
  const FullTables::Inserted inserted = tables_.Insert(kA);
  EXPECT_EQ(inserted.first, 0);
  EXPECT_EQ(inserted.count, 2);
  EXPECT_EQ(inserted.fresh, 2);
  EXPECT_EQ(inserted.committed, 10);
  EXPECT_EQ(tables_.shared_blocks(kA), 2);
  EXPECT_EQ(tables_.Insert(kA).count, 0) << "no further block is full";
  EXPECT_EQ(Begin(kB, Units(10)), 8);
  EXPECT_EQ(tables_.Table(kB)[1], tables_.Table(kA)[1]);
}

TEST_F(FullTablesTest, DuplicatesAreSwappedForTheTreesBlocks) {
  Begin(kA, {});
  Begin(kB, {});
  for (const SequenceId id : {kA, kB}) Compute(id, Units(8));
  EXPECT_EQ(tables_.Insert(kA).fresh, 2);
  const FullTables::Inserted again = tables_.Insert(kB);
  EXPECT_EQ(again.count, 2);
  EXPECT_EQ(again.fresh, 0);
  EXPECT_EQ(tables_.Table(kB)[0], tables_.Table(kA)[0]);
  EXPECT_EQ(cache_.blocks().free_count(), 14) << "its own blocks were freed";
}

TEST_F(FullTablesTest, TheFirstToWriteAPartFullBlockOfAForkGetsOneOfItsOwn) {
  Begin(kA, {});
  Compute(kA, Units(6));
  tables_.Insert(kA);
  tables_.Fork(kA, kB);
  EXPECT_EQ(tables_.matched(kB), 6);
  const BlockId tail = tables_.Table(kA)[1];
  EXPECT_EQ(tables_.Table(kB)[1], tail);
  EXPECT_FALSE(tables_.MissingFor(kB, 6).copies_tail) << "B writes no token yet";
  EXPECT_EQ(tables_.MissingFor(kB, 7).blocks, 1);
  Compute(kB, Units(1, 50));
  ASSERT_TRUE(copy_.has_value());
  EXPECT_EQ(copy_->from, tail);
  EXPECT_EQ(copy_->to, tables_.Table(kB)[1]);
  EXPECT_EQ(copy_->tokens, 2);
  EXPECT_EQ(tables_.MissingFor(kA, 7).blocks, 0) << "no other sequence holds its block now";
}

TEST_F(FullTablesTest, ReleasedBlocksStayCachedUnlessForgotten) {
  for (const bool forgets : {false, true}) {
    Begin(kA, {});
    Compute(kA, Units(9));
    tables_.Insert(kA);
    const FullTables::Released released = tables_.Release(kA, forgets);
    EXPECT_EQ(released.committed, 9);
    EXPECT_EQ(released.blocks, 3);
    EXPECT_FALSE(tables_.Contains(kA));
    EXPECT_EQ(cache_.tree().Peek(kSpace, Units(8), 2).blocks, forgets ? 0 : 2);
  }
}

TEST_F(FullTablesTest, ARunIsTakenWholeOrNotAtAll) {
  EXPECT_TRUE(tables_.BeginRun(kA, 12));
  EXPECT_FALSE(tables_.BeginRun(kB, 5));
  EXPECT_FALSE(tables_.Contains(kB));
  for (int32_t i = 1; i < 12; ++i) {
    EXPECT_EQ(tables_.Table(kA)[i].value(), tables_.Table(kA)[i - 1].value() + 1);
  }
  EXPECT_EQ(tables_.capacity(kA), 48);
}

TEST_F(FullTablesTest, TheInvariantCheckFindsAHoldWithoutATable) {
  Begin(kA, {});
  Compute(kA, Units(5));
  const BlockId block = tables_.Table(kA)[0];
  cache_.blocks().AddHold(block, BlockHolder::kSequence);
  EXPECT_THAT(Recount().ToString(), HasSubstr("private block 0 is also held by another sequence"));
  cache_.blocks().ReleaseHold(block, BlockHolder::kSequence);
  std::vector<BlockId> stray;
  ASSERT_TRUE(cache_.blocks().Allocate(1, BlockHolder::kSequence, stray));
  EXPECT_THAT(Recount().ToString(), HasSubstr("is in 0 tables but has 1 sequence holds"));
  cache_.blocks().ReleaseHolds(stray, BlockHolder::kSequence);
}

using FullTablesDeathTest = FullTablesTest;

TEST_F(FullTablesDeathTest, MisuseIsABug) {
  Begin(kA, {});
  EXPECT_DEATH(Begin(kA, {}), "already exists");
  EXPECT_DEATH(tables_.Commit(kA, Units(1)), "commits more than it reserved");
  EXPECT_DEATH((void)tables_.committed(kB), "no KV of sequence 2");
}

}  // namespace
}  // namespace baton
