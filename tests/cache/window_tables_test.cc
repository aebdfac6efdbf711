#include "cache/window_tables.h"

#include <gtest/gtest.h>

#include <vector>

namespace baton {
namespace {

constexpr SequenceId kA{1}, kB{2};

// Makes tables with blocks of 4 tokens and a window of 8 slots.
WindowTables MakeTables(int32_t blocks, int32_t max_step_tokens) {
  return WindowTables(1, {.window = 8, .num_blocks = blocks, .max_blocks = blocks}, 4,
                      max_step_tokens, 100, EvictionPolicy::kLru);
}

void GrowTo(WindowTables& tables, SequenceId id, int32_t committed, int32_t tokens) {
  const WindowTables::Growth growth = tables.GrowToCompute(id, committed, tokens);
  ASSERT_TRUE(tables.CheckRoom(id, growth).ok()) << tables.CheckRoom(id, growth);
  tables.Grow(id, growth);
}

TEST(WindowTables, TheChargeIsTheMostThatASequenceEverHolds) {
  for (const int32_t step : {1, 3, 4, 7, 16}) {
    for (const int32_t tokens : {1, 4, 9, 30, 61}) {
      WindowTables tables = MakeTables(40, step);
      const int32_t charge = tables.ChargeToAdmit(0, tokens);
      tables.Begin(kA, {}, 0);
      int32_t most = 0;
      for (int32_t committed = 0; committed < tokens;) {
        GrowTo(tables, kA, committed, tokens);
        most = std::max(most, tables.held(kA));
        ASSERT_LE(tables.charged(), charge) << "the charge must not grow on the way";
        committed = std::min(committed + step, tokens);
        tables.Trim(kA, committed);
      }
      EXPECT_LE(most, charge);
      EXPECT_GE(most, charge - 1) << "step " << step << ", " << tokens << " tokens";
      tables.Release(kA);
      EXPECT_EQ(tables.charged(), 0);
      EXPECT_EQ(tables.available(), 40);
    }
  }
}

TEST(WindowTables, SequencesThatShareAWindowAreChargedEach) {
  WindowTables tables = MakeTables(20, 4);
  tables.Begin(kA, {}, 0);
  GrowTo(tables, kA, 0, 4);
  ASSERT_TRUE(tables.CheckRoomToFork(kA, 4).ok());
  tables.Fork(kA, kB, 4);
  EXPECT_EQ(tables.cache().blocks().Account().owned, 1);
  EXPECT_EQ(tables.charged(), 2);
  tables.Release(kA);
  tables.Release(kB);
}

TEST(WindowTables, BlocksThatATransferStillReadsAreNotPromisedAgain) {
  WindowTables tables = MakeTables(6, 4);
  tables.Begin(kA, {}, 0);
  GrowTo(tables, kA, 0, 4);
  const BlockId first = tables.Table(kA)[0];
  tables.cache().AddHold(first, BlockHolder::kTransfer);
  EXPECT_EQ(tables.available(), 5);
  tables.Release(kA);
  EXPECT_EQ(tables.available(), 5);
  tables.cache().ReleaseHold(first, BlockHolder::kTransfer);
  EXPECT_EQ(tables.available(), 6);
}

TEST(WindowTables, InvariantChecksFindDifferences) {
  WindowTables tables = MakeTables(6, 8);
  tables.Begin(kA, {}, 0);
  GrowTo(tables, kA, 0, 8);
  const std::vector<BlockId> full = {BlockId(3), BlockId(4)};
  EXPECT_TRUE(tables.CheckSequence(kA, 8, full, 0).ok());
  EXPECT_TRUE(tables.CheckConservation().ok());
  EXPECT_FALSE(tables.CheckSequence(kA, 8, std::span(full).first(1), 0).ok()) << "too long";
  tables.Insert(kA, 0, full);
  EXPECT_TRUE(tables.CheckSequence(kA, 8, full, 2).ok());
  EXPECT_FALSE(tables.CheckSequence(kA, 8, full, 1).ok())
      << "a cached window block beside a private full block";
  tables.cache().AddHold(tables.Table(kA)[0], BlockHolder::kSequence);
  EXPECT_FALSE(tables.CheckConservation().ok()) << "a hold without a table";
  tables.cache().ReleaseHold(tables.Table(kA)[0], BlockHolder::kSequence);
  tables.Release(kA);
}

}  // namespace
}  // namespace baton
