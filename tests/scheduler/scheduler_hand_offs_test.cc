// Hand-offs: KV from a peer that is on time, late, cancelled, or meets a full pool.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/scheduler.h"
#include "tests/scheduler/scheduler_bench.h"

namespace baton {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(SchedulerHandOff, ArrivedKvDecodesAtOnce) {
  SchedulerBench bench(Pool(16), Budget(64));
  ASSERT_TRUE(bench.scheduler().AddWaitingForKv(bench.Spec(1, Prompt(10), 5)).ok());
  EXPECT_EQ(bench.scheduler().waiting_for_kv_count(), 1);
  EXPECT_EQ(bench.cache().BlockTable(SequenceId(1)).size(), 3u);
  EXPECT_FALSE(bench.scheduler().has_work());
  bench.KvArrives(SequenceId(1), 10);
  const SchedulerOutput output = bench.Step();
  ASSERT_EQ(output.chunks.size(), 1u);
  EXPECT_EQ(output.chunks[0].begin, 10);
  while (bench.scheduler().has_work()) bench.Step();
  bench.ExpectTokens(1, 5);
}

TEST(SchedulerHandOff, MissingKvIsComputedLocally) {
  for (const int32_t arrived : {0, 3, 4, 9}) {
    SchedulerBench bench(Pool(16), Budget(4));
    ASSERT_TRUE(bench.scheduler().AddWaitingForKv(bench.Spec(1, Prompt(10), 5)).ok());
    bench.KvArrives(SequenceId(1), arrived);
    EXPECT_EQ(bench.Step().chunks.at(0).begin, arrived);
    while (bench.scheduler().has_work()) bench.Step();
    bench.ExpectTokens(1, 5);
  }
}

TEST(SchedulerHandOff, ACancelledHandOffFreesEveryBlockOnceItsTransferEnds) {
  SchedulerBench bench(Pool(16), Budget(64));
  ASSERT_TRUE(bench.scheduler().AddWaitingForKv(bench.Spec(1, Prompt(10), 5)).ok());
  const auto table = bench.cache().BlockTable(SequenceId(1));
  const std::vector<BlockId> blocks(table.begin(), table.end());
  bench.cache().HoldForTransfer(blocks);
  bench.scheduler().Finish(SequenceId(1), false);
  EXPECT_EQ(bench.cache().available_blocks(), 13);
  bench.cache().ReleaseTransferHold(blocks);
  EXPECT_EQ(bench.cache().available_blocks(), 16);
}

TEST(SchedulerHandOff, AHandOffIsRefusedWhenFullAndTakesNothing) {
  SchedulerBench bench(Pool(4), Budget(64));
  ASSERT_TRUE(bench.scheduler().AddWaitingForKv(bench.Spec(1, Prompt(10), 2)).ok());
  const absl::Status status = bench.scheduler().AddWaitingForKv(bench.Spec(2, Prompt(4, 9), 2));
  EXPECT_THAT(status.ToString(), AllOf(HasSubstr("RESOURCE_EXHAUSTED"), HasSubstr("1 of 4")));
  EXPECT_FALSE(bench.scheduler().Contains(SequenceId(2)));
  EXPECT_EQ(bench.cache().available_blocks(), 1);
}

TEST(SchedulerHandOff, ASequenceThatWaitsForKvIsNeverPreemptedAndOthersWaitForIt) {
  SchedulerBench bench(Pool(8), Budget(64));
  ASSERT_TRUE(bench.Add(1, Prompt(12), 12).ok());
  bench.Step();
  ASSERT_TRUE(bench.scheduler().AddWaitingForKv(bench.Spec(2, Prompt(12, 100), 4)).ok());
  while (bench.scheduler().has_work()) {
    const SchedulerOutput output = bench.Step();
    EXPECT_THAT(output.preempted, IsEmpty());
    EXPECT_THAT(output.exhausted, IsEmpty());
  }
  EXPECT_EQ(bench.scheduler().running_count(), 1) << "it waits and keeps its blocks";
  bench.KvArrives(SequenceId(2), 12);
  while (bench.scheduler().has_work()) bench.Step();
  bench.ExpectTokens(1, 12);
  bench.ExpectTokens(2, 4);
}

SequenceSpec Awaiting(SequenceSpec spec) {
  spec.awaits_kv = true;
  return spec;
}

TEST(SchedulerHandOff, AQueuedHandOffIsAdmittedWhenItHasRoom) {
  SchedulerBench bench(Pool(8), Budget(64));
  ASSERT_TRUE(bench.Add(1, Prompt(16), 8).ok());
  bench.Step();
  ASSERT_TRUE(bench.scheduler().Add(Awaiting(bench.Spec(2, Prompt(16, 100), 4))).ok());
  ASSERT_TRUE(bench.Add(3, Prompt(1, 200), 2).ok());
  EXPECT_EQ(bench.scheduler().waiting_count(), 2);
  while (bench.scheduler().Contains(SequenceId(1))) {
    const SchedulerOutput output = bench.Step();
    EXPECT_THAT(output.admitted, IsEmpty()) << "none passes the hand-off";
    EXPECT_THAT(output.awaiting_kv, IsEmpty());
  }
  const SchedulerOutput output = bench.Step();
  EXPECT_THAT(output.awaiting_kv, ElementsAre(SequenceId(2)));
  EXPECT_THAT(output.admitted, ElementsAre(SequenceId(3)));
  EXPECT_EQ(bench.scheduler().phase(SequenceId(2)), SequencePhase::kWaitingForKv);
  EXPECT_EQ(bench.scheduler().waiting_for_kv_count(), 1);
  bench.KvArrives(SequenceId(2), 16);
  while (bench.scheduler().has_work()) bench.Step();
  bench.ExpectTokens(2, 4);
  bench.ExpectTokens(3, 2);
}

TEST(SchedulerHandOff, NoOtherHandOffPassesAQueuedOne) {
  SchedulerBench bench(Pool(20), Budget(64));
  ASSERT_TRUE(bench.Add(1, Prompt(60), 4).ok());
  bench.Step();
  ASSERT_TRUE(bench.scheduler().Add(Awaiting(bench.Spec(2, Prompt(20, 100), 1))).ok());
  ASSERT_TRUE(bench.scheduler().Add(Awaiting(bench.Spec(3, Prompt(40, 200), 1))).ok());
  EXPECT_EQ(bench.scheduler().PromptTokensLeft(), 0) << "a peer computes them";
  EXPECT_EQ(bench.scheduler().UncomputedTokens(), 1) << "of the running answer";
  bench.Cancel(SequenceId(1));
  EXPECT_THAT(bench.scheduler().AddWaitingForKv(bench.Spec(4, Prompt(40, 300), 1)).ToString(),
              AllOf(HasSubstr("RESOURCE_EXHAUSTED"), HasSubstr("2 hand-offs wait")));
  ASSERT_TRUE(bench.scheduler().AddWaitingForKv(bench.Spec(5, Prompt(4, 400), 1, 1)).ok())
      << "it is more important";
  EXPECT_THAT(bench.Step().awaiting_kv, ElementsAre(SequenceId(2), SequenceId(3)));
  for (const uint64_t id : {2, 3, 5}) bench.Cancel(SequenceId(id));
  EXPECT_TRUE(bench.scheduler().AddWaitingForKv(bench.Spec(6, Prompt(40, 300), 1)).ok());
}

TEST(SchedulerHandOff, AQueuedHandOffNeedsNoShareOfTheBudget) {
  SchedulerBench bench(Pool(16), Budget(8));
  ASSERT_TRUE(bench.Add(1, Prompt(32), 2).ok());
  bench.Step();
  ASSERT_TRUE(bench.scheduler().Add(Awaiting(bench.Spec(2, Prompt(8, 100), 4))).ok());
  const SchedulerOutput output = bench.Step();
  EXPECT_EQ(output.total_tokens, 8) << "all of it is for the prompt that is computed";
  EXPECT_THAT(output.awaiting_kv, ElementsAre(SequenceId(2)));
  bench.KvArrives(SequenceId(2), 3);
  while (bench.scheduler().has_work()) bench.Step();
  bench.ExpectAllCorrect();
}

TEST(SchedulerHandOff, AQueuedHandOffGoesByPriorityAndMayEndThere) {
  SchedulerBench bench(Pool(4), Budget(64, /*max_running=*/1));
  ASSERT_TRUE(bench.Add(1, Prompt(4), 2).ok());
  bench.Step();
  for (uint64_t id = 2; id <= 4; ++id) {
    const auto priority = static_cast<int32_t>(id);
    ASSERT_TRUE(bench.scheduler().Add(Awaiting(bench.Spec(id, Prompt(4, 100), 2, priority))).ok());
  }
  bench.Cancel(SequenceId(3));
  std::vector<SequenceId> order;
  while (bench.scheduler().has_work()) {
    for (const SequenceId id : bench.Step().awaiting_kv) {
      order.push_back(id);
      bench.KvArrives(id, 4);
    }
  }
  EXPECT_THAT(order, ElementsAre(SequenceId(4), SequenceId(2)));
  EXPECT_EQ(bench.cache().available_blocks(), 4);
}

TEST(SchedulerHandOff, AQueuedHandOffThatNeverFitsAnyMoreIsExhausted) {
  SchedulerBench bench(Pool(8), Budget(64));
  ASSERT_TRUE(bench.Add(1, Prompt(20), 2).ok());
  bench.Step();
  ASSERT_TRUE(bench.scheduler().Add(Awaiting(bench.Spec(2, Prompt(28, 100), 2))).ok());
  ASSERT_TRUE(bench.cache().Resize(6).ok());
  EXPECT_THAT(bench.scheduler().PoolResized(), ElementsAre(SequenceId(2)));
  EXPECT_THAT(bench.Step().exhausted, ElementsAre(SequenceId(2)));
}

TEST(SchedulerHandOff, SaysWhenPromptsWaitForRoomAndNoneIsComputed) {
  SchedulerBench bench(Pool(12), Budget(8));
  ASSERT_TRUE(bench.Add(1, Prompt(16), 8).ok());
  EXPECT_FALSE(bench.Step().prompts_blocked) << "a prompt is admitted";
  ASSERT_TRUE(bench.scheduler().AddWaitingForKv(bench.Spec(2, Prompt(20, 100), 4)).ok());
  ASSERT_TRUE(bench.Add(3, Prompt(20, 200), 4).ok());
  EXPECT_FALSE(bench.Step().prompts_blocked) << "the prompt's second chunk";
  SchedulerOutput output = bench.Step();
  ASSERT_EQ(output.chunks.size(), 1u);
  EXPECT_TRUE(output.prompts_blocked) << "the answer's tokens take only a part of the budget";
  bench.KvArrives(SequenceId(2), 8);
  EXPECT_FALSE(bench.Step().prompts_blocked) << "the rest of the prompt is computed here";
  while (bench.scheduler().has_work()) output = bench.Step();
  EXPECT_FALSE(output.prompts_blocked);
  bench.ExpectTokens(3, 4);
}

TEST(SchedulerHandOff, APreemptedSequenceResumesBeforeWaitingOnesAndNewHandOffs) {
  SchedulerBench bench(Pool(10), Budget(64));
  ASSERT_TRUE(bench.Add(1, Prompt(16, 100), 12).ok());
  bench.Step();
  ASSERT_TRUE(bench.scheduler().AddWaitingForKv(bench.Spec(3, Prompt(8, 300), 20)).ok());
  ASSERT_TRUE(bench.Add(2, Prompt(32, 200), 1).ok());
  bench.KvArrives(SequenceId(3), 8);
  SchedulerOutput output;
  while (output.preempted.empty()) output = bench.Step();
  EXPECT_THAT(output.preempted, ElementsAre(SequenceId(3)));
  EXPECT_THAT(bench.scheduler().AddWaitingForKv(bench.Spec(4, Prompt(1, 400), 1)).ToString(),
              AllOf(HasSubstr("RESOURCE_EXHAUSTED"), HasSubstr("1 preempted")));
  while (output.admitted.empty()) output = bench.Step();
  EXPECT_EQ(output.admitted[0], SequenceId(3));
  while (bench.scheduler().has_work()) bench.Step();
  bench.ExpectAllCorrect();
}

}  // namespace
}  // namespace baton
