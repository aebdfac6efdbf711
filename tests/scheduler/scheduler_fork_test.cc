// Forks: the room reserved for them, and their place in the queue.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "scheduler/scheduler.h"
#include "tests/scheduler/scheduler_bench.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class SchedulerFork : public ::testing::Test {
 protected:
  void Make(int32_t blocks, int32_t max_running, int32_t block_size = 4) {
    cache_ = std::make_unique<KvCacheManager>(Pool(blocks, block_size), &clock_);
    scheduler_ = std::make_unique<Scheduler>(Budget(64, max_running), cache_.get());
  }
  void TearDown() override {
    ASSERT_TRUE(cache_->CheckConservation().ok()) << cache_->CheckConservation();
    scheduler_.reset();
    EXPECT_EQ(cache_->Stats().blocks.owned, 0);
  }

  static SequenceSpec Spec(uint64_t id, int32_t prompt, int32_t forks = 0) {
    return {.id = SequenceId(id),
            .tokens = Prompt(prompt, static_cast<TokenId>(id)),
            .cache_namespace = kSpace,
            .max_tokens = 100,
            .priority = 0,
            .forks = forks};
  }
  // Runs a step and appends a token to every sequence. Returns the ids that got a chunk.
  std::vector<uint64_t> Step() {
    const SchedulerOutput output = scheduler_->Schedule();
    cache_->TakeCopies();
    scheduler_->CommitStep(output);
    std::vector<uint64_t> ids;
    for (const ScheduledChunk& chunk : output.chunks) {
      ids.push_back(chunk.id.value());
      if (chunk.samples && !parting_) Append(chunk.id);
    }
    return ids;
  }
  // Appends a token that no other sequence has. Otherwise full blocks would become shared again.
  void Append(SequenceId id) { scheduler_->AppendToken(id, static_cast<TokenId>(id.value())); }
  // Computes the prompt of `parent` and forks sequences with the ids after it.
  void ComputeAndFork(uint64_t parent, int32_t forks) {
    parting_ = true;
    ASSERT_THAT(Step(), ElementsAre(parent));
    parting_ = false;
    for (int32_t i = 1; i <= forks; ++i) {
      scheduler_->Fork(SequenceId(parent), SequenceId(parent + static_cast<uint64_t>(i)));
    }
    for (int32_t i = 0; i <= forks; ++i) {
      Append(SequenceId(parent + static_cast<uint64_t>(i)));
    }
  }

  ManualClock clock_;
  std::unique_ptr<KvCacheManager> cache_;
  std::unique_ptr<Scheduler> scheduler_;
  bool parting_ = false;
};

TEST_F(SchedulerFork, PlacesAreKeptFromAdmissionOn) {
  Make(40, 4);
  ASSERT_TRUE(scheduler_->Add(Spec(1, 10, 3)).ok());
  ASSERT_TRUE(scheduler_->Add(Spec(9, 10)).ok());
  ComputeAndFork(1, 3);
  EXPECT_EQ(scheduler_->running_count(), 4);
  EXPECT_EQ(scheduler_->waiting_count(), 1);
  EXPECT_THAT(Step(), ElementsAre(1, 2, 3, 4));
  scheduler_->Finish(SequenceId(3), true);
  EXPECT_THAT(Step(), ElementsAre(1, 2, 4, 9));
}

TEST_F(SchedulerFork, BlocksAreKeptFromAdmissionOn) {
  Make(10, 16);
  ASSERT_TRUE(scheduler_->Add(Spec(1, 10, 6)).ok());  // 3 blocks, and 7 for growth
  ASSERT_TRUE(scheduler_->Add(Spec(9, 1)).ok());
  ComputeAndFork(1, 6);
  EXPECT_EQ(cache_->Stats().blocks.free, 7) << "forks take no blocks before they write";
  EXPECT_THAT(Step(), ElementsAre(1, 2, 3, 4, 5, 6, 7));
  EXPECT_EQ(cache_->Stats().blocks.free, 1) << "six copies; the last writer keeps the shared block";
  EXPECT_EQ(scheduler_->preemption_count(), 0);
}

TEST_F(SchedulerFork, AForkThatNeedsMoreThanIsFreeWaitsForTheOthers) {
  Make(12, 16);
  ASSERT_TRUE(scheduler_->Add(Spec(9, 10)).ok());
  EXPECT_THAT(Step(), ElementsAre(9));
  ASSERT_TRUE(scheduler_->Add(Spec(1, 10, 6)).ok());
  EXPECT_THAT(Step(), ElementsAre(9));
  const absl::Status refused = scheduler_->AddWaitingForKv(Spec(20, 10, 6));
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("6 forks need"));
  scheduler_->Finish(SequenceId(9), true);
  ComputeAndFork(1, 6);
}

TEST_F(SchedulerFork, ALoneSequenceNeedNotWaitAndForksWithoutAPlaceWaitInstead) {
  Make(40, 2);
  ASSERT_TRUE(scheduler_->Add(Spec(1, 10, 3)).ok());
  ComputeAndFork(1, 3);
  EXPECT_EQ(scheduler_->running_count(), 2);
  EXPECT_EQ(scheduler_->waiting_count(), 2);
  ASSERT_TRUE(scheduler_->Add(Spec(9, 10)).ok());
  EXPECT_EQ(scheduler_->AddWaitingForKv(Spec(20, 10)).code(), absl::StatusCode::kResourceExhausted);
  scheduler_->Finish(SequenceId(1), true);
  EXPECT_THAT(Step(), ElementsAre(2, 3)) << "before later sequences";
}

TEST_F(SchedulerFork, TheLastForkIsPreemptedFirst) {
  Make(7, 8);
  ASSERT_TRUE(scheduler_->Add(Spec(1, 10, 2)).ok());
  ComputeAndFork(1, 2);
  for (int i = 0; i < 8 && scheduler_->preemption_count() == 0; ++i) Step();
  EXPECT_EQ(scheduler_->preemption_count(), 1);
  EXPECT_EQ(scheduler_->phase(SequenceId(3)), SequencePhase::kWaiting);
  EXPECT_EQ(scheduler_->phase(SequenceId(2)), SequencePhase::kRunning);
}

TEST_F(SchedulerFork, AReservationForForksEndsWithItsSequence) {
  Make(40, 4);
  ASSERT_TRUE(scheduler_->AddWaitingForKv(Spec(1, 10, 3)).ok());
  EXPECT_EQ(scheduler_->AddWaitingForKv(Spec(9, 10)).code(), absl::StatusCode::kResourceExhausted);
  scheduler_->Finish(SequenceId(1), false);
  EXPECT_TRUE(scheduler_->AddWaitingForKv(Spec(9, 10, 3)).ok());
  scheduler_->KvArrived(SequenceId(9), 0);
  scheduler_->Finish(SequenceId(9), false);
  EXPECT_TRUE(scheduler_->AddWaitingForKv(Spec(20, 10)).ok());
}

TEST_F(SchedulerFork, ATailComesWithItsBlocksOrWaitsForThem) {
  Make(8, 8);
  ASSERT_TRUE(scheduler_->Add(Spec(1, 10, 1)).ok());
  parting_ = true;
  Step();
  scheduler_->Fork(SequenceId(1), SequenceId(2));
  scheduler_->AppendTokens(SequenceId(1), Prompt(9));  // 19 tokens: 5 blocks, of which 2 are shared
  EXPECT_EQ(cache_->capacity(SequenceId(1)), 20);
  scheduler_->AppendTokens(SequenceId(2), Prompt(17));
  EXPECT_EQ(scheduler_->phase(SequenceId(1)), SequencePhase::kRunning);
  EXPECT_EQ(scheduler_->phase(SequenceId(2)), SequencePhase::kWaiting);
  EXPECT_THAT(Step(), ElementsAre(1));
  scheduler_->Finish(SequenceId(1), true);
  EXPECT_THAT(Step(), ElementsAre(2));
  EXPECT_THAT(Step(), IsEmpty());
}

}  // namespace
}  // namespace baton
