#include "cache/window_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace baton {
namespace {

using ::testing::HasSubstr;

constexpr SequenceId kA{1}, kB{2};
constexpr int32_t kBlockSize = 4;

// Two windows, of two and four blocks, with pools of 6 and 10 blocks.
class WindowGroupsTest : public testing::Test {
 protected:
  void TearDown() override {
    EXPECT_TRUE(groups_.CheckConservation().ok()) << groups_.CheckConservation();
  }
  // Computes `tokens` in steps of eight. Returns the error of the first step without room.
  absl::Status Compute(SequenceId id, int32_t tokens) {
    for (int32_t committed = 0; committed < tokens;) {
      const auto growths = groups_.PlanGrowth(id, committed, tokens, /*imports=*/false);
      if (!growths.ok()) return growths.status();
      groups_.Grow(id, *growths, copies_);
      committed = std::min(committed + 8, tokens);
      groups_.FreeBehind(id, committed);
    }
    return absl::OkStatus();
  }

  ManualClock clock_;
  AllocationTrace trace_{/*records=*/true, &clock_};
  BlockAllocator full_{64};
  RadixTree tree_{kBlockSize, &full_};
  std::vector<BlockCopy> copies_;
  WindowGroups groups_{std::vector<WindowPoolOptions>{{.window = 5, .num_blocks = 6},
                                                      {.window = 13, .num_blocks = 10}},
                       {.block_size = kBlockSize, .max_step_tokens = 8, .full_blocks = 64},
                       &tree_,
                       &trace_};
};

TEST_F(WindowGroupsTest, EveryGroupHoldsItsOwnWindow) {
  groups_.Begin(kA, {}, 0);
  ASSERT_TRUE(Compute(kA, 32).ok());
  EXPECT_EQ(groups_.At(1).held(kA), 1);
  EXPECT_EQ(groups_.At(2).held(kA), 3);
  EXPECT_EQ(groups_.At(1).Table(kA).size(), 8u);
  EXPECT_EQ(groups_.LongestWhole(kA, 32, 32), 32);
  groups_.Release(kA);
  EXPECT_EQ(groups_.At(1).cache().blocks().free_count(), 6);
  EXPECT_EQ(groups_.At(2).cache().blocks().free_count(), 10);
}

TEST_F(WindowGroupsTest, ARunThatOneGroupLacksIsTakenInNone) {
  EXPECT_THAT(groups_.BeginRuns(kA, 7).ToString(),
              HasSubstr("KV group 1: no run of 7 free blocks; 6 of 6"));
  EXPECT_TRUE(groups_.BeginRuns(kA, 6).ok());
  EXPECT_THAT(groups_.BeginRuns(kB, 1).ToString(), HasSubstr("KV group 1"));
  groups_.Release(kA);
  EXPECT_TRUE(groups_.BeginRuns(kB, 5).ok());
  groups_.Release(kB);
}

TEST_F(WindowGroupsTest, ALaterGroupWithoutARunGivesTheEarlierOnesBack) {
  groups_.At(2).cache().Resize(3);
  EXPECT_THAT(groups_.BeginRuns(kA, 4).ToString(), HasSubstr("KV group 2: no run of 4"));
  EXPECT_EQ(groups_.At(1).cache().blocks().free_count(), 6);
}

TEST_F(WindowGroupsTest, AFailedPlanTakesNothing) {
  groups_.Begin(kA, {}, 0);
  ASSERT_TRUE(Compute(kA, 16).ok());
  groups_.At(2).cache().Resize(3);
  groups_.Begin(kB, {}, 0);
  EXPECT_THAT(groups_.PlanGrowth(kB, 0, 16, /*imports=*/false).status().ToString(),
              HasSubstr("KV group 2"));
  EXPECT_EQ(groups_.At(1).held(kB), 0);
  groups_.Release(kA);
  groups_.Release(kB);
}

TEST_F(WindowGroupsTest, AnImportNeedsRoomInEveryGroup) {
  EXPECT_TRUE(groups_.CheckRoomToImport(0, 32, 2).ok());
  EXPECT_THAT(groups_.CheckRoomToImport(0, 32, 3).ToString(),
              HasSubstr("KV group 1: a prefix of 32 tokens needs 7 blocks, 6 of 6 are available"));
  groups_.At(2).cache().Resize(2);
  EXPECT_THAT(groups_.CheckRoomToImport(0, 32, 0).ToString(), HasSubstr("KV group 2"));
}

TEST_F(WindowGroupsTest, AdmissionIsChargedInEveryGroupButTheFirst) {
  BlockCounts counts(7);
  groups_.ChargeToAdmit(0, 64, counts);
  EXPECT_EQ(counts.full(), 7);
  EXPECT_EQ(counts[1], groups_.At(1).ChargeToAdmit(0, 64));
  EXPECT_EQ(counts[2], groups_.At(2).ChargeToAdmit(0, 64));
  EXPECT_LT(counts[1], counts[2]);
}

TEST_F(WindowGroupsTest, AllocationsAndReleasesAreTracedByGroup) {
  groups_.Begin(kA, {}, 0);
  ASSERT_TRUE(Compute(kA, 16).ok());
  int32_t held = 0;
  for (const AllocationEvent& event : trace_.events()) {
    if (event.group != 2) continue;
    held += event.kind == AllocationEvent::Kind::kReserve ? event.blocks : -event.blocks;
    EXPECT_EQ(event.free_after, 10 - held);
  }
  EXPECT_EQ(held, groups_.At(2).held(kA));
  groups_.Release(kA);
}

}  // namespace
}  // namespace baton
