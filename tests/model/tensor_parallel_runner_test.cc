// The group of ranks when one of them fails. tests/model/llama_runner_ranks_test.cc has the real
// ranks.
#include "model/tensor_parallel_runner.h"

#include <gtest/gtest.h>

#include <barrier>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/cpu/cpu_communicator.h"
#include "kernels/cpu/cpu_device.h"

namespace baton {
namespace {

// Counts steps, and fails where the test asks for it.
class ScriptedRunner final : public ModelRunner {
 public:
  int32_t max_in_flight() const override { return 2; }
  absl::StatusOr<StepId> Submit(const StepInput& input) override {
    if (before_submit) before_submit();
    if (!refuse.ok()) return refuse;
    inputs.push_back(input);
    return StepId(++submitted);
  }
  absl::StatusOr<StepResult> Collect(StepId step) override {
    EXPECT_EQ(step.value(), ++collected) << "not the oldest step";
    EXPECT_LE(step.value(), submitted);
    if (inputs[step.value() - 1].kv_written) inputs[step.value() - 1].kv_written(1, 1);
    if (!fail.ok()) return fail;
    return StepResult{.drawn = {TokenId(7)}};
  }
  bool Done(StepId) const override { return done; }
  void set_waker(std::function<void()> to) override { waker = std::move(to); }
  absl::Status CopyBlocks(std::span<const BlockCopy> copies) override {
    copied += static_cast<int>(copies.size());
    return absl::OkStatus();
  }
  std::span<const float> Logits(StepId, int32_t) const override { return {}; }

  absl::Status refuse, fail;
  bool done = true;
  int64_t submitted = 0, collected = 0;
  int copied = 0;
  std::vector<StepInput> inputs;
  std::function<void()> waker;
  std::function<void()> before_submit;
};

class TensorParallelRunnerTest : public ::testing::Test {
 protected:
  explicit TensorParallelRunnerTest(std::unique_ptr<RankThreads> threads = nullptr)
      : communicators_(CreateCpuCommunicators(3)) {
    std::vector<TensorParallelRunner::Rank> ranks;
    for (int rank = 0; rank < 3; ++rank) {
      auto runner = std::make_unique<ScriptedRunner>();
      ranks_.push_back(runner.get());
      ranks.push_back({.runner = std::move(runner), .device = device_.get()});
    }
    runner_.emplace(std::move(ranks), *communicators_[0], std::move(threads));
  }
  StepInput Step() {
    StepInput input;
    StepChunk& chunk = input.chunks.emplace_back();
    chunk.tokens = tokens_;
    chunk.logit_rows = 1;
    chunk.draws = draws_;
    chunk.keeps_logits = true;
    return input;
  }

  const std::vector<TokenId> tokens_ = {5};
  const std::vector<TokenDraw> draws_ = std::vector<TokenDraw>(1);
  const std::unique_ptr<Device> device_ = *CreateCpuDevice({.threads = 1, .asynchronous = true});
  const std::vector<std::unique_ptr<Communicator>> communicators_;
  std::vector<ScriptedRunner*> ranks_;
  std::optional<TensorParallelRunner> runner_;
};

// Ranks on GPUs.
class ThreadedRanksTest : public TensorParallelRunnerTest {
 protected:
  ThreadedRanksTest() : TensorParallelRunnerTest(std::make_unique<RankThreads>(3)) {}
};

TEST_F(TensorParallelRunnerTest, OnlyRank0DrawsAndReportsAndTheOthersUseItsDemand) {
  StepInput input = Step();
  int asked = 0;
  int told = 0;
  input.chunks.emplace_back().tokens = tokens_;
  input.chunks.back().token_from = DrawnBy{.step = StepId(0)};
  input.wanted = [&] { return ++asked < 2 ? 2 : 1; };
  input.kv_written = [&](int32_t, int32_t) { ++told; };
  const StepId step = *runner_->Submit(input);
  const StepInput& lead = ranks_[0]->inputs[0];
  EXPECT_EQ(lead.chunks[0].draws.size(), 1u);
  EXPECT_TRUE(lead.chunks[0].keeps_logits && lead.chunks[1].token_from.has_value());
  for (const int rank : {1, 2}) {
    const StepInput& other = ranks_[rank]->inputs[0];
    ASSERT_EQ(other.chunks.size(), 2u);
    EXPECT_EQ(other.chunks[0].tokens.data(), tokens_.data());
    EXPECT_EQ(other.chunks[0].logit_rows, 1);
    EXPECT_TRUE(other.chunks[0].draws.empty());
    EXPECT_FALSE(other.chunks[0].keeps_logits || other.chunks[1].token_from.has_value());
    EXPECT_FALSE(other.kv_written);
    EXPECT_EQ(other.wanted(), 2);
  }
  EXPECT_EQ(asked, 0);
  EXPECT_EQ(lead.wanted(), 2);
  EXPECT_EQ(lead.wanted(), 1);
  EXPECT_EQ(ranks_[2]->inputs[0].wanted(), 1);
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(*runner_->Collect(step)->drawn[0], 7);
  EXPECT_EQ(told, 1);
}

TEST_F(TensorParallelRunnerTest, AStepIsDoneWhenEveryRankHasIt) {
  const StepId step = *runner_->Submit(Step());
  EXPECT_TRUE(runner_->Done(step));
  ranks_[2]->done = false;
  EXPECT_FALSE(runner_->Done(step));
  int woken = 0;
  runner_->set_waker([&] { ++woken; });
  for (ScriptedRunner* rank : ranks_) rank->waker();
  EXPECT_EQ(woken, 3);
  ASSERT_TRUE(runner_->Collect(step).ok());
  const std::vector<BlockCopy> copies(2);
  EXPECT_TRUE(runner_->CopyBlocks(copies).ok());
  for (const ScriptedRunner* rank : ranks_) EXPECT_EQ(rank->copied, 2);
}

TEST_F(TensorParallelRunnerTest, AStepThatRank0RefusesLeavesTheGroupHealthy) {
  ranks_[0]->refuse = absl::InvalidArgumentError("too many runs");
  EXPECT_EQ(runner_->Submit(Step()).status(), ranks_[0]->refuse);
  EXPECT_EQ(ranks_[1]->submitted, 0);
  ranks_[0]->refuse = absl::OkStatus();
  EXPECT_TRUE(runner_->Collect(*runner_->Submit(Step())).ok());
}

TEST_F(TensorParallelRunnerTest, ARankThatCannotStartAStepEndsTheGroup) {
  const StepId before = *runner_->Submit(Step());
  StepInput input = Step();
  int told = 0;
  input.kv_written = [&](int32_t, int32_t) { ++told; };
  ranks_[1]->refuse = absl::ResourceExhaustedError("no memory");
  const absl::Status expected =
      absl::InternalError("rank 1 of the tensor-parallel group failed: no memory");
  EXPECT_EQ(runner_->Submit(input).status(), expected);
  // The caller collects only the step before. No rank still has a step.
  EXPECT_TRUE(runner_->Done(before));
  EXPECT_EQ(runner_->Collect(before).status(), expected);
  EXPECT_EQ(ranks_[0]->collected, 2);
  EXPECT_EQ(ranks_[1]->collected, 1);
  EXPECT_EQ(ranks_[2]->collected, 1);
  EXPECT_EQ(told, 0) << "KV of a failed step";
  EXPECT_EQ(communicators_[2]->Health(), expected);
  ranks_[1]->refuse = absl::OkStatus();
  EXPECT_EQ(runner_->Submit(Step()).status(), expected);
  EXPECT_EQ(runner_->CopyBlocks({}), expected);
}

TEST_F(TensorParallelRunnerTest, ARankThatFailsDuringAStepEndsTheGroup) {
  const StepId step = *runner_->Submit(Step());
  ranks_[2]->fail = absl::InternalError("lost");
  const absl::Status expected =
      absl::InternalError("rank 2 of the tensor-parallel group failed: lost");
  EXPECT_EQ(runner_->Health(), absl::OkStatus());
  EXPECT_EQ(runner_->Collect(step).status(), expected);
  EXPECT_EQ(runner_->Submit(Step()).status(), expected);
  EXPECT_EQ(runner_->Health(), expected);
}

TEST_F(TensorParallelRunnerTest, AnAbandonedStepIsNoFailure) {
  const StepId step = *runner_->Submit(Step());
  for (ScriptedRunner* rank : ranks_) rank->fail = absl::CancelledError("abandoned");
  EXPECT_TRUE(absl::IsCancelled(runner_->Collect(step).status()));
  for (ScriptedRunner* rank : ranks_) rank->fail = absl::OkStatus();
  EXPECT_TRUE(runner_->Collect(*runner_->Submit(Step())).ok());
}

// A rank may wait inside Submit until the others have the step too.
TEST_F(ThreadedRanksTest, AllRanksGetAStepAtTheSameTime) {
  std::barrier all(3);
  for (ScriptedRunner* rank : ranks_) rank->before_submit = [&] { all.arrive_and_wait(); };
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(runner_->Collect(*runner_->Submit(Step())).ok());
}

// Rank 0 may ask before another rank enqueues the same op, and its answer counts.
TEST_F(ThreadedRanksTest, TheOtherRanksComputeAllRows) {
  StepInput input = Step();
  input.wanted = [] { return 0; };
  ASSERT_TRUE(runner_->Submit(input).ok());
  EXPECT_EQ(ranks_[0]->inputs[0].wanted(), 0);
  EXPECT_FALSE(ranks_[1]->inputs[0].wanted);
  EXPECT_FALSE(ranks_[2]->inputs[0].wanted);
}

TEST_F(ThreadedRanksTest, AStepThatAllRanksRefuseLeavesTheGroupHealthy) {
  for (ScriptedRunner* rank : ranks_) rank->refuse = absl::InvalidArgumentError("too many runs");
  EXPECT_EQ(runner_->Submit(Step()).status(), ranks_[0]->refuse);
  for (ScriptedRunner* rank : ranks_) rank->refuse = absl::OkStatus();
  EXPECT_TRUE(runner_->Collect(*runner_->Submit(Step())).ok());
}

// The other ranks would wait for it for ever, so the group ends while they still submit.
TEST_F(ThreadedRanksTest, ARankThatCannotStartAStepEndsTheGroupAtOnce) {
  const StepId before = *runner_->Submit(Step());
  ranks_[2]->refuse = absl::ResourceExhaustedError("no memory");
  ranks_[1]->before_submit = [&] {
    while (communicators_[1]->Health().ok()) std::this_thread::yield();
  };
  const absl::Status expected =
      absl::InternalError("rank 2 of the tensor-parallel group failed: no memory");
  EXPECT_EQ(runner_->Submit(Step()).status(), expected);
  EXPECT_EQ(runner_->Collect(before).status(), expected);
  EXPECT_EQ(ranks_[0]->collected, 2);
  EXPECT_EQ(ranks_[1]->collected, 2);
  EXPECT_EQ(ranks_[2]->collected, 1);
  EXPECT_EQ(runner_->Submit(Step()).status(), expected);
}

}  // namespace
}  // namespace baton
