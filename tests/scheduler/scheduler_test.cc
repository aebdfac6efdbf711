#include "scheduler/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/scheduler/scheduler_bench.h"

namespace baton {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(Scheduler, PrefillsInChunksThenDecodesOneByOne) {
  SchedulerBench bench(Pool(32), Budget(8));
  ASSERT_TRUE(bench.Add(1, Prompt(20), 3).ok());
  EXPECT_EQ(bench.scheduler().phase(SequenceId(1)), SequencePhase::kWaiting);
  std::vector<int32_t> counts;
  while (bench.scheduler().has_work()) counts.push_back(bench.Step().total_tokens);
  EXPECT_THAT(counts, ElementsAre(8, 8, 4, 1, 1));
  bench.ExpectTokens(1, 3);
  EXPECT_FALSE(bench.scheduler().Contains(SequenceId(1)));
}

TEST(Scheduler, AStepThatDecodesComputesFewerPromptTokens) {
  SchedulerOptions options = Budget(16);
  options.mixed_prompt_tokens = 3;
  SchedulerBench bench(Pool(32), options);
  ASSERT_TRUE(bench.Add(1, Prompt(10), 4).ok());
  EXPECT_EQ(bench.Step().total_tokens, 10) << "nothing decodes yet";
  ASSERT_TRUE(bench.Add(2, Prompt(20, 50), 1).ok());
  std::vector<int32_t> counts;
  while (bench.scheduler().has_work()) counts.push_back(bench.Step().total_tokens);
  EXPECT_THAT(counts, ElementsAre(1 + 3, 1 + 3, 1 + 3, 11)) << "then it is alone again";
  bench.ExpectTokens(1, 4);
}

TEST(Scheduler, TheLastTokenOfAPromptIsNoAnswerThatWaits) {
  SchedulerOptions options = Budget(16);
  options.mixed_prompt_tokens = 3;
  SchedulerBench bench(Pool(32), options);
  ASSERT_TRUE(bench.Add(1, Prompt(17), 1).ok());
  EXPECT_EQ(bench.Step().total_tokens, 16);
  ASSERT_TRUE(bench.Add(2, Prompt(20, 50), 1).ok());
  EXPECT_EQ(bench.Step().total_tokens, 16);
}

TEST(Scheduler, CountsTheTokensThatAreLeftToCompute) {
  SchedulerBench bench(Pool(32), Budget(8));
  EXPECT_EQ(bench.scheduler().UncomputedTokens(), 0);
  ASSERT_TRUE(bench.Add(1, Prompt(20), 2).ok());
  ASSERT_TRUE(bench.Add(2, Prompt(5, 50), 1).ok());
  EXPECT_EQ(bench.scheduler().UncomputedTokens(), 25);
  EXPECT_EQ(bench.Step().total_tokens, 8);
  EXPECT_EQ(bench.scheduler().UncomputedTokens(), 17);
  while (bench.scheduler().has_work()) bench.Step();
  EXPECT_EQ(bench.scheduler().UncomputedTokens(), 0);
}

TEST(Scheduler, CountsThePromptTokensThatAreLeftWithoutThoseThatAreCached) {
  SchedulerBench bench(Pool(32), Budget(8));
  EXPECT_EQ(bench.scheduler().PromptTokensLeft(), 0);
  ASSERT_TRUE(bench.Add(1, Prompt(20), 3).ok());
  ASSERT_TRUE(bench.Add(2, Prompt(5, 50), 1).ok());
  EXPECT_EQ(bench.scheduler().PromptTokensLeft(), 25);
  EXPECT_EQ(bench.Step().total_tokens, 8);
  EXPECT_EQ(bench.scheduler().PromptTokensLeft(), 16) << "one token left is a row like a decode's";
  while (bench.scheduler().PromptTokensLeft() > 0) bench.Step();
  EXPECT_TRUE(bench.scheduler().has_work()) << "a decode is no prompt";
  while (bench.scheduler().has_work()) bench.Step();
  const int32_t cached = bench.cache().PeekMatch(kSpace, UnitsFromTokens(Prompt(20)));
  ASSERT_GT(cached, 0);
  ASSERT_TRUE(bench.Add(3, Prompt(20), 3).ok());
  EXPECT_EQ(bench.scheduler().PromptTokensLeft(), 20 - cached);
}

TEST(Scheduler, ShortPromptsPassAnEightThousandTokenPrefill) {
  SchedulerBench bench(Pool(1200, 16), Budget(512));
  ASSERT_TRUE(bench.Add(1, Prompt(8000), 2).ok());
  uint64_t next = 2;
  while (!bench.outputs().contains(SequenceId(1))) {
    ASSERT_TRUE(bench.Add(next, Prompt(50, 100 + static_cast<TokenId>(next)), 1).ok());
    bench.Step();
    EXPECT_TRUE(bench.outputs().contains(SequenceId(next)))
        << "it must get its first token in its first step";
    ++next;
  }
  EXPECT_LE(next, 22u) << "the long prompt must end within 8000 / (512 - 50) + 1 steps";
  bench.ExpectAllCorrect();
}

TEST(Scheduler, DecodesKeepTheirRowDuringAPrefill) {
  SchedulerBench bench(Pool(400), Budget(16));
  ASSERT_TRUE(bench.Add(1, Prompt(5), 200).ok());
  bench.Step();
  ASSERT_TRUE(bench.Add(2, Prompt(300, 7), 1).ok());
  for (int i = 0; i < 20; ++i) {
    const SchedulerOutput output = bench.Step();
    ASSERT_EQ(output.chunks.size(), 2u);
    EXPECT_EQ(output.chunks[0].id, SequenceId(1));
    EXPECT_EQ(output.chunks[0].count, 1);
    EXPECT_EQ(output.chunks[1].count, 15);
  }
}

TEST(Scheduler, AFinishedSequenceStaysCachedAndAFollowUpComputesOnlyNewTokens) {
  SchedulerBench bench(Pool(64), Budget(64));
  ASSERT_TRUE(bench.Add(1, Prompt(30), 11).ok());
  while (bench.scheduler().has_work()) bench.Step();
  std::vector<TokenId> turn_two = Prompt(30);
  const auto& answer = bench.outputs().at(SequenceId(1));
  turn_two.insert(turn_two.end(), answer.begin(), answer.end());
  turn_two.insert(turn_two.end(), {1, 2, 3});
  ASSERT_TRUE(bench.Add(2, turn_two, 2).ok());
  const SchedulerOutput output = bench.Step();
  ASSERT_EQ(output.chunks.size(), 1u);
  EXPECT_EQ(output.chunks[0].begin, 40) << "30 + 11 tokens, of which the last was never fed";
  EXPECT_EQ(output.chunks[0].count, 4);
}

TEST(Scheduler, AWhollyCachedPromptStillComputesItsLastBlock) {
  for (const int32_t length : {7, 8, 9}) {
    SchedulerBench bench(Pool(64), Budget(64));
    ASSERT_TRUE(bench.Add(1, Prompt(length), 4).ok());
    while (bench.scheduler().has_work()) bench.Step();
    ASSERT_TRUE(bench.Add(2, Prompt(length), 4).ok());
    EXPECT_EQ(bench.Step().chunks.at(0).begin, (length - 1) / 4 * 4) << length;
    while (bench.scheduler().has_work()) bench.Step();
    bench.ExpectTokens(2, 4);
  }
}

TEST(Scheduler, RefusalsCarryBothNumbers) {
  SchedulerOptions options = Budget(8);
  options.max_waiting = 1;
  SchedulerBench bench(Pool(4), options);
  EXPECT_THAT(bench.Add(1, Prompt(17), 1).ToString(),
              AllOf(HasSubstr("INVALID_ARGUMENT"), HasSubstr("5 blocks"), HasSubstr("has 4")));
  EXPECT_THAT(bench.Add(1, {}, 1).ToString(), HasSubstr("no tokens"));
  EXPECT_THAT(bench.Add(1, Prompt(8), -1).ToString(),
              AllOf(HasSubstr("8 tokens"), HasSubstr("max_tokens 7")));
  ASSERT_TRUE(bench.Add(1, Prompt(16), 1).ok());
  EXPECT_THAT(bench.Add(2, Prompt(4), 1).ToString(),
              AllOf(HasSubstr("RESOURCE_EXHAUSTED"), HasSubstr("the limit is 1")));
}

TEST(Scheduler, ASequenceAloneThatCannotGrowIsExhausted) {
  SchedulerBench bench(Pool(4), Budget(64));
  ASSERT_TRUE(bench.Add(1, Prompt(10), 100).ok());
  SchedulerOutput output;
  for (int i = 0; i < 20 && output.exhausted.empty(); ++i) output = bench.Step();
  EXPECT_THAT(output.exhausted, ElementsAre(SequenceId(1)));
  bench.ExpectTokens(1, 7);
  EXPECT_FALSE(bench.scheduler().has_work());
}

TEST(Scheduler, ATokenPastMaxTokensMakesASequenceExhausted) {
  SchedulerBench bench(Pool(8), Budget(64));
  ASSERT_TRUE(bench.Add(1, Prompt(4), 1).ok());
  const SchedulerOutput first = bench.scheduler().Schedule();
  bench.scheduler().CommitStep(first);
  bench.scheduler().AppendToken(SequenceId(1), 5);
  bench.scheduler().CommitStep(bench.scheduler().Schedule());
  bench.scheduler().AppendToken(SequenceId(1), 6);
  EXPECT_THAT(bench.scheduler().Schedule().exhausted, ElementsAre(SequenceId(1)));
}

TEST(Scheduler, TheVictimIsTheLowestPriorityThenTheLatest) {
  SchedulerBench bench(Pool(10), Budget(64));
  ASSERT_TRUE(bench.Add(1, Prompt(8, 100), 16, /*priority=*/0).ok());
  ASSERT_TRUE(bench.Add(2, Prompt(8, 200), 16, /*priority=*/1).ok());
  ASSERT_TRUE(bench.Add(3, Prompt(8, 300), 16, /*priority=*/0).ok());
  std::vector<SequenceId> preempted;
  while (bench.scheduler().has_work()) {
    const SchedulerOutput output = bench.Step();
    preempted.insert(preempted.end(), output.preempted.begin(), output.preempted.end());
  }
  ASSERT_GE(preempted.size(), 2u);
  EXPECT_EQ(preempted[0], SequenceId(3));
  EXPECT_THAT(preempted, Not(Contains(SequenceId(2))));
  EXPECT_EQ(bench.scheduler().preemption_count(), static_cast<int64_t>(preempted.size()));
  for (const uint64_t id : {1, 2, 3}) bench.ExpectTokens(id, 16);
}

TEST(Scheduler, APreemptedSequenceResumesBeforeNewerOnesWithTheSameAnswer) {
  SchedulerBench bench(Pool(8), Budget(64));
  ASSERT_TRUE(bench.Add(1, Prompt(8, 100), 20).ok());
  ASSERT_TRUE(bench.Add(2, Prompt(8, 200), 20).ok());
  bench.Step();
  ASSERT_TRUE(bench.Add(3, Prompt(8, 300), 2).ok());
  std::vector<SequenceId> admitted;
  while (bench.scheduler().has_work()) {
    const SchedulerOutput output = bench.Step();
    admitted.insert(admitted.end(), output.admitted.begin(), output.admitted.end());
  }
  const auto resumed = std::find(admitted.begin(), admitted.end(), SequenceId(2));
  EXPECT_NE(resumed, admitted.end()) << "2 was preempted and must resume";
  EXPECT_LT(resumed, std::find(admitted.begin(), admitted.end(), SequenceId(3)));
  bench.ExpectTokens(1, 20);
  bench.ExpectTokens(2, 20);
  bench.ExpectTokens(3, 2);
}

TEST(Scheduler, AHigherPriorityIsAdmittedFirst) {
  SchedulerBench bench(Pool(64), Budget(8, /*max_running=*/1));
  ASSERT_TRUE(bench.Add(1, Prompt(8), 1, 0).ok());
  ASSERT_TRUE(bench.Add(2, Prompt(8, 9), 1, 5).ok());
  EXPECT_THAT(bench.Step().admitted, ElementsAre(SequenceId(2)));
}

TEST(Scheduler, ALowPriorityWaitsForAllHigherPrioritiesThenRuns) {
  SchedulerBench bench(Pool(64), Budget(8, /*max_running=*/1));
  ASSERT_TRUE(bench.Add(1, Prompt(8), 1, 0).ok());
  for (uint64_t id = 2; id <= 100; ++id) {
    ASSERT_TRUE(bench.Add(id, Prompt(8, static_cast<TokenId>(id * 10)), 1, 1).ok());
    EXPECT_THAT(bench.Step().admitted, ElementsAre(SequenceId(id)));
  }
  EXPECT_THAT(bench.Step().admitted, ElementsAre(SequenceId(1)));
  bench.ExpectTokens(1, 1);
}

TEST(Scheduler, OnlyAHigherPriorityDisplacesTheLastOfAFullQueue) {
  SchedulerOptions options = Budget(64, /*max_running=*/1);
  options.max_waiting = 2;
  SchedulerBench bench(Pool(10), options);
  ASSERT_TRUE(bench.Add(1, Prompt(8), 16, 0).ok());
  bench.Step();
  ASSERT_TRUE(bench.Add(2, Prompt(8, 100), 1, 1).ok());
  EXPECT_EQ(bench.scheduler().ToDisplace(bench.Spec(5, Prompt(8), 1, 5)), std::nullopt)
      << "there is room";
  ASSERT_TRUE(bench.Add(3, Prompt(8, 200), 1, 0).ok());
  EXPECT_EQ(bench.scheduler().ToDisplace(bench.Spec(5, Prompt(8), 1, 0)), std::nullopt);
  EXPECT_EQ(bench.scheduler().ToDisplace(bench.Spec(5, Prompt(8), 1, 1)), SequenceId(3));
  EXPECT_EQ(bench.scheduler().ToDisplace(bench.Spec(5, Prompt(1000), 1, 1)), std::nullopt)
      << "Add would refuse it anyway";
}

TEST(Scheduler, AHandOffDoesNotPassWaitingSequencesOfEqualOrHigherPriority) {
  SchedulerBench bench(Pool(10), Budget(64));
  ASSERT_TRUE(bench.Add(1, Prompt(16), 8).ok());
  bench.Step();
  ASSERT_TRUE(bench.Add(2, Prompt(32, 100), 1, 1).ok());  // waits for blocks
  EXPECT_THAT(bench.scheduler().AddWaitingForKv(bench.Spec(3, Prompt(4, 200), 1)).ToString(),
              HasSubstr("a sequence of priority 1 waits; this one has priority 0"));
  EXPECT_THAT(bench.scheduler().AddWaitingForKv(bench.Spec(4, Prompt(4, 200), 1, 1)).ToString(),
              HasSubstr("11 blocks needed, 9 of them for the queue's head"));
  EXPECT_TRUE(bench.scheduler().AddWaitingForKv(bench.Spec(5, Prompt(4, 200), 1, 2)).ok());
  bench.scheduler().Finish(SequenceId(5), false);
}

// One step later the head would begin.
TEST(Scheduler, AHandOffTakesTheBlocksThatTheHeadOfTheQueueLeaves) {
  SchedulerBench bench(Pool(10), Budget(64));
  ASSERT_TRUE(bench.Add(1, Prompt(24), 4).ok());  // 6 blocks, and one for growth
  EXPECT_FALSE(bench.scheduler().AddWaitingForKv(bench.Spec(2, Prompt(16, 100), 1)).ok());
  EXPECT_TRUE(bench.scheduler().AddWaitingForKv(bench.Spec(3, Prompt(12, 100), 1)).ok());
  EXPECT_THAT(bench.Step().admitted, Contains(SequenceId(1)));
  bench.scheduler().Finish(SequenceId(3), false);
}

TEST(Scheduler, AHandOffLeavesTheLastPlaceToTheHeadOfTheQueue) {
  SchedulerOptions options = Budget(64);
  options.max_running = 2;
  SchedulerBench bench(Pool(100), options);
  ASSERT_TRUE(bench.Add(1, Prompt(4), 4).ok());
  ASSERT_TRUE(bench.scheduler().AddWaitingForKv(bench.Spec(2, Prompt(4, 100), 1)).ok());
  EXPECT_THAT(bench.scheduler().AddWaitingForKv(bench.Spec(3, Prompt(4, 200), 1)).ToString(),
              HasSubstr("1 sequences are admitted and 1 waits; the limit is 2"));
  bench.scheduler().Finish(SequenceId(2), false);
}

TEST(Scheduler, NoSequencePassesAHeadThatWaitsForBlocks) {
  SchedulerBench bench(Pool(10), Budget(64));
  ASSERT_TRUE(bench.Add(1, Prompt(16), 8).ok());
  bench.Step();
  ASSERT_TRUE(bench.Add(2, Prompt(32, 100), 1).ok());
  ASSERT_TRUE(bench.Add(3, Prompt(4, 200), 1).ok());
  while (!bench.outputs().contains(SequenceId(1))) EXPECT_THAT(bench.Step().admitted, IsEmpty());
  EXPECT_THAT(bench.Step().admitted, Contains(SequenceId(2)));
}

// Contiguous mode: enough blocks are free, but in two runs. So the head waits, and all sequences
// behind it wait too.
TEST(Scheduler, NoSequencePassesAHeadThatWaitsForARun) {
  KvCacheOptions pool = Pool(20);
  pool.paged = false;
  pool.kind = CacheKind::kNaive;
  SchedulerBench bench(pool, Budget(64));
  ASSERT_TRUE(bench.Add(1, Prompt(16), 8).ok());       // 6 blocks
  ASSERT_TRUE(bench.Add(2, Prompt(8, 100), 8).ok());   // 4 blocks between them
  ASSERT_TRUE(bench.Add(3, Prompt(16, 200), 8).ok());  // 6 blocks
  EXPECT_EQ(bench.Step().admitted.size(), 3u);
  bench.Cancel(SequenceId(1));
  bench.Cancel(SequenceId(3));
  ASSERT_TRUE(bench.Add(4, Prompt(40, 300), 4).ok());  // 11 blocks, the longest run has 10
  for (const uint64_t id : {5, 6}) ASSERT_TRUE(bench.Add(id, Prompt(3, 400), 1).ok());
  while (!bench.outputs().contains(SequenceId(2))) EXPECT_THAT(bench.Step().admitted, IsEmpty());
  EXPECT_THAT(bench.Step().admitted, Contains(SequenceId(4)));
  while (bench.scheduler().has_work()) bench.Step();
  for (const uint64_t id : {5, 6}) bench.ExpectTokens(id, 1);
  bench.ExpectTokens(4, 4);
}

// As above, but the head would take the whole budget. The running sequences must continue, or no
// run ever becomes free.
TEST(Scheduler, BudgetThatAHeadWithoutARunCannotUseGoesToRunningSequences) {
  KvCacheOptions pool = Pool(20);
  pool.paged = false;
  pool.kind = CacheKind::kNaive;
  SchedulerBench bench(pool, Budget(8));
  ASSERT_TRUE(bench.Add(1, Prompt(4), 4).ok());  // 2 blocks
  bench.Step();
  ASSERT_TRUE(bench.Add(2, Prompt(20, 100), 4, /*priority=*/-1).ok());  // 6 blocks behind them
  bench.Step();
  bench.Cancel(SequenceId(1));
  ASSERT_TRUE(bench.Add(3, Prompt(40, 300), 12).ok());  // 13 blocks, the longest run has 12
  while (!bench.outputs().contains(SequenceId(2))) {
    const SchedulerOutput output = bench.Step();
    ASSERT_EQ(output.chunks.size(), 1u);
    EXPECT_EQ(output.chunks[0].id, SequenceId(2));
  }
  while (bench.scheduler().has_work()) bench.Step();
  bench.ExpectTokens(2, 4);
  bench.ExpectTokens(3, 12);
}

TEST(Scheduler, AdmissionLeavesABlockForEachSequenceToGrow) {
  for (const int32_t blocks : {8, 9}) {
    SchedulerBench bench(Pool(blocks), Budget(64));
    ASSERT_TRUE(bench.Add(1, Prompt(16, 100), 8).ok());
    ASSERT_TRUE(bench.Add(2, Prompt(16, 200), 8).ok());
    EXPECT_EQ(bench.Step().admitted.size(), blocks == 8 ? 1u : 2u);
  }
}

TEST(Scheduler, AHigherPrioritysPrefillGoesBeforeOneInProgress) {
  SchedulerBench bench(Pool(400), Budget(64));
  ASSERT_TRUE(bench.Add(1, Prompt(1000), 1, /*priority=*/0).ok());
  bench.Step();
  ASSERT_TRUE(bench.Add(2, Prompt(200, 100), 1, /*priority=*/1).ok());
  const SchedulerOutput output = bench.Step();
  ASSERT_EQ(output.chunks.size(), 1u);
  EXPECT_EQ(output.chunks[0].id, SequenceId(2));
}

TEST(Scheduler, AStepIsCommittedOnce) {
  SchedulerBench bench(Pool(16), Budget(8));
  ASSERT_TRUE(bench.Add(1, Prompt(20), 1).ok());
  const SchedulerOutput dropped = bench.scheduler().Schedule();
  const SchedulerOutput again = bench.scheduler().Schedule();
  EXPECT_EQ(again.chunks.at(0).begin, 0);
  bench.scheduler().CommitStep(again);
  bench.scheduler().CommitStep(dropped);
  EXPECT_EQ(bench.cache().committed(SequenceId(1)), 8);
}

TEST(Scheduler, BlocksOfAPreemptedSequenceStayCached) {
  SchedulerOptions options = Budget(64);
  options.insert_chunks = false;
  SchedulerBench bench(Pool(8), options);
  ASSERT_TRUE(bench.Add(1, Prompt(8, 100), 20).ok());
  ASSERT_TRUE(bench.Add(2, Prompt(8, 200), 20).ok());
  SchedulerOutput output;
  while (output.preempted.empty()) output = bench.Step();
  const auto units = UnitsFromTokens(bench.scheduler().tokens(SequenceId(2)));
  EXPECT_GT(bench.cache().PeekMatch(kSpace, units), 8);
}

}  // namespace
}  // namespace baton
