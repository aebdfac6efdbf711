// Admission and steps with a sliding-window group.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "scheduler/scheduler.h"
#include "tests/scheduler/pipelined_bench.h"
#include "tests/scheduler/scheduler_bench.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Blocks of 4, a window of 8 slots, steps of 8 tokens: a prefill needs up to 5 window blocks.
KvCacheOptions WithWindow(int32_t full_blocks, int32_t window_blocks) {
  KvCacheOptions pool = Pool(full_blocks);
  pool.windows = {{.window = 8, .num_blocks = window_blocks, .max_blocks = 40}};
  pool.max_step_tokens = 8;
  return pool;
}

TEST(SchedulerWindows, ASequenceIsAdmittedOnlyWhenEveryGroupHasRoom) {
  SchedulerBench bench(WithWindow(100, 9), Budget(8));
  ASSERT_TRUE(bench.Add(1, Prompt(40), 1).ok());
  ASSERT_TRUE(bench.Add(2, Prompt(40, 7), 1).ok());
  EXPECT_THAT(bench.Step().admitted, ElementsAre(SequenceId(1)));
  while (bench.scheduler().Contains(SequenceId(1))) {
    for (const SequenceId id : bench.Step().admitted) {
      EXPECT_EQ(id, SequenceId(2));
      EXPECT_GE(bench.cache().num_blocks(1) - bench.cache().Stats().windows[0].charged, 0);
    }
  }
  while (bench.scheduler().has_work()) bench.Step();
  bench.ExpectTokens(1, 1);
  bench.ExpectTokens(2, 1);
  EXPECT_EQ(bench.scheduler().preemption_count(), 0);
}

TEST(SchedulerWindows, AWindowPoolNeedsNoRoomForAWholePrompt) {
  SchedulerBench bench(WithWindow(100, 6), Budget(8));
  ASSERT_TRUE(bench.Add(1, Prompt(300), 40).ok());
  while (bench.scheduler().has_work()) bench.Step();
  bench.ExpectTokens(1, 40);
  EXPECT_EQ(bench.scheduler().preemption_count(), 0);
}

TEST(SchedulerWindows, APromptThatAWindowsPoolCanNeverHoldIsRefusedWithItsGroup) {
  SchedulerBench bench(WithWindow(100, 4), Budget(8));
  const absl::Status status = bench.Add(1, Prompt(40), 1);
  EXPECT_THAT(
      status.ToString(),
      HasSubstr("40 tokens need 5 blocks of 4 tokens; the pool has 4 blocks in KV group 1"));
}

TEST(SchedulerWindows, APromptThatAPoolCannotHoldNowIsRefusedWithItsSizeNowAndAtMost) {
  SchedulerBench bench(WithWindow(100, 6), Budget(8));
  ASSERT_TRUE(bench.cache().Resize(1, /*group=*/1).ok());
  const absl::Status status = bench.Add(1, Prompt(40), 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(
      status.ToString(),
      HasSubstr("5 blocks of 4 tokens; the pool has 1 block in KV group 1 now, at most 40"));
}

TEST(SchedulerWindows, AHandOffIsRefusedWithoutRoomInAWindowAndTakesNothing) {
  SchedulerBench bench(WithWindow(100, 6), Budget(8));
  ASSERT_TRUE(bench.scheduler().AddWaitingForKv(bench.Spec(1, Prompt(40), 4)).ok());
  const absl::Status status = bench.scheduler().AddWaitingForKv(bench.Spec(2, Prompt(40, 7), 4));
  EXPECT_THAT(status.ToString(), HasSubstr("of 6 are available in KV group 1"));
  EXPECT_FALSE(bench.cache().Contains(SequenceId(2)));
  bench.KvArrives(SequenceId(1), 40);
  while (bench.scheduler().has_work()) bench.Step();
  bench.ExpectTokens(1, 4);
}

// A cached prefix and the imported blocks are held at the same time. Of a small pool, that can be
// more than all blocks.
TEST(SchedulerWindows, AQueuedHandOffThatAWindowCannotImportIsComputedHere) {
  int imported = 0;
  int computed = 0;
  for (const int32_t blocks : {4, 5, 6, 8}) {
    for (int32_t cached = 4; cached <= 40; ++cached) {
      for (const int32_t own : {1, 5, 16, 24}) {
        KvCacheOptions pool = WithWindow(100, blocks);
        pool.max_step_tokens = 1;
        SchedulerBench bench(pool, Budget(1));
        ASSERT_TRUE(bench.Add(1, Prompt(cached), 1).ok());
        while (bench.scheduler().has_work()) bench.Step();
        std::vector<TokenId> longer = Prompt(cached);
        for (TokenId token = 0; token < own; ++token) longer.push_back(200 + token);
        SequenceSpec spec = bench.Spec(2, longer, 4);
        spec.awaits_kv = true;
        ASSERT_TRUE(bench.scheduler().Add(spec).ok());
        while (bench.scheduler().has_work()) {
          const SchedulerOutput output = bench.Step();
          for (const SequenceId id : output.awaiting_kv) bench.KvArrives(id, cached + own);
          imported += static_cast<int>(output.awaiting_kv.size());
          computed += static_cast<int>(output.admitted.size());
        }
        ASSERT_EQ(bench.scheduler().waiting_count(), 0) << blocks << " " << cached << " " << own;
        bench.ExpectTokens(2, 4);
      }
    }
  }
  EXPECT_GT(imported, 0);
  EXPECT_GT(computed, 0);
}

TEST(SchedulerWindows, AHandOffThatStopsHalfWayIsComputedFromAWholeBoundary) {
  SchedulerBench bench(WithWindow(100, 12), Budget(8));
  ASSERT_TRUE(bench.scheduler().AddWaitingForKv(bench.Spec(1, Prompt(40), 4)).ok());
  bench.KvArrives(SequenceId(1), 37);
  EXPECT_EQ(bench.cache().committed(SequenceId(1)), 0)
      << "the window of 37 begins before the window of an import of 40";
  while (bench.scheduler().has_work()) bench.Step();
  bench.ExpectTokens(1, 4);
}

TEST(SchedulerWindows, APrefillStoppedByAShrunkWindowIsPreemptedAndContinuesLater) {
  SchedulerBench bench(WithWindow(100, 10), Budget(8));
  ASSERT_TRUE(bench.Add(1, Prompt(40), 4).ok());
  bench.Step();
  // A transfer reads the blocks that slide out.
  const std::vector<BlockId> read(bench.cache().BlockTable(SequenceId(1), 1).begin(),
                                  bench.cache().BlockTable(SequenceId(1), 1).begin() + 2);
  bench.cache().HoldForTransfer(read, 1);
  ASSERT_TRUE(bench.cache().Resize(5, 1).ok());
  int preempted = 0;
  while (bench.scheduler().has_work()) preempted += !bench.Step().preempted.empty();
  EXPECT_EQ(preempted, 1);
  bench.cache().ReleaseTransferHold(read, 1);
  while (bench.scheduler().has_work()) bench.Step();
  bench.ExpectTokens(1, 4);
}

// ---- steps in flight ----------------------------------------------------------------------------

class WindowsWithStepsInFlight : public ::testing::Test {
 protected:
  explicit WindowsWithStepsInFlight(int32_t max_step_tokens = 16) {
    KvCacheOptions pool = WithWindow(100, 10);
    pool.max_step_tokens = max_step_tokens;
    bench_.emplace(pool, Budget(8));
  }
  Scheduler& scheduler() { return bench_->scheduler(); }
  KvCacheManager& cache() { return bench_->cache(); }
  SchedulerOutput Submit() {
    SchedulerOutput plan = scheduler().Schedule();
    if (!plan.chunks.empty()) scheduler().StepSubmitted(plan);
    return plan;
  }
  void Collect(const SchedulerOutput& plan) {
    scheduler().StepCollected(plan);
    scheduler().CommitStep(plan);
  }

  const SequenceId id_{1};
  std::optional<SchedulerBench> bench_;
};

class WindowsForOneStepInFlight : public WindowsWithStepsInFlight {
 protected:
  WindowsForOneStepInFlight() : WindowsWithStepsInFlight(8) {}
};

TEST_F(WindowsForOneStepInFlight, NoChunkIsPlannedWhereTheWindowHasNoBlocksYet) {
  ASSERT_TRUE(bench_->Add(1, Prompt(40), 1).ok());
  const SchedulerOutput first = Submit();
  ASSERT_EQ(first.chunks.size(), 1u);
  EXPECT_TRUE(Submit().chunks.empty());
  Collect(first);
  const SchedulerOutput second = Submit();
  ASSERT_EQ(second.chunks.size(), 1u);
  EXPECT_EQ(second.chunks[0].begin, 8);
  Collect(second);
}

TEST_F(WindowsWithStepsInFlight, EveryChunkHasTheWindowsBlocksThatItWrites) {
  ASSERT_TRUE(bench_->Add(1, Prompt(40), 1).ok());
  const SchedulerOutput first = Submit(), second = Submit();
  ASSERT_EQ(second.chunks.size(), 1u);
  EXPECT_EQ(second.chunks[0].begin, 8);
  for (int32_t slot = 0; slot < 16; ++slot) {
    EXPECT_NE(cache().BlockTable(id_, 1)[slot / 4], kNoBlock) << slot;
  }
  Collect(first);
  Collect(second);
}

TEST_F(WindowsWithStepsInFlight, APrefillInFlightIsNotPreemptedBeforeItIsCollected) {
  ASSERT_TRUE(bench_->Add(1, Prompt(40), 1).ok());
  const SchedulerOutput first = Submit(), second = Submit();
  Collect(first);
  ASSERT_TRUE(cache().Resize(4, 1).ok());
  const SchedulerOutput third = Submit();
  EXPECT_THAT(third.preempted, ElementsAre());
  EXPECT_THAT(third.chunks, ElementsAre());
  Collect(second);
  EXPECT_EQ(cache().committed(id_), 16);
  EXPECT_THAT(scheduler().Schedule().preempted, ElementsAre(id_));
}

TEST_F(WindowsWithStepsInFlight, AStepHoldsTheBlocksOfEveryGroupOfASequenceThatEnds) {
  ASSERT_TRUE(bench_->Add(1, Prompt(40), 1).ok());
  const SchedulerOutput step = Submit();
  const int32_t held = 4;  // blocks of the window, for 16 tokens
  scheduler().Finish(id_, /*keep_cached=*/false);
  EXPECT_EQ(cache().Stats().blocks.step, 10);
  EXPECT_EQ(cache().Stats().windows[0].blocks.step, held);
  scheduler().StepCollected(step);
  EXPECT_EQ(cache().step_blocks(), 0);
  EXPECT_EQ(cache().Stats().windows[0].blocks.free, 10);
}

}  // namespace
}  // namespace baton
