#include "model/inline_runner.h"

#include <gtest/gtest.h>

#include <vector>

namespace baton {
namespace {

TokenDraw GreedyDraw() {
  TokenDraw draw;
  draw.temperature = 0;
  return draw;
}

class CountingRunner final : public InlineRunner {
 public:
  absl::Status next_status;
  int runs = 0;

  absl::Status CopyBlocks(std::span<const BlockCopy>) override { return absl::OkStatus(); }

 protected:
  absl::Status Run(const StepInput&) override {
    ++runs;
    logits_ = {0, 0, 0};
    logits_[runs % 3] = 1;
    return std::exchange(next_status, absl::OkStatus());
  }
  std::span<const float> LogitsOf(int32_t) const override { return logits_; }

 private:
  std::vector<float> logits_;
};

StepInput GreedyStep(std::span<const TokenDraw> draws) {
  StepInput input;
  input.chunks.push_back(
      {.tokens = {}, .block_table = {}, .logit_rows = 1, .draws = draws, .keeps_logits = true});
  return input;
}

TEST(InlineRunner, RunsInSubmitAndNamesStepsFromOne) {
  const std::vector<TokenDraw> greedy = {GreedyDraw()};
  CountingRunner runner;
  EXPECT_EQ(runner.max_in_flight(), 1);
  for (int i = 1; i < 5; ++i) {
    const auto step = runner.Submit(GreedyStep(greedy));
    ASSERT_TRUE(step.ok());
    EXPECT_EQ(step->value(), i);
    EXPECT_EQ(runner.runs, i);
    EXPECT_TRUE(runner.Done(*step));
    const auto result = runner.Collect(*step);
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(*result->drawn.at(0), i % 3);
    EXPECT_EQ(runner.Logits(*step, 0)[i % 3], 1);
  }
}

TEST(InlineRunner, ReportsAFailureInCollectAndContinues) {
  const std::vector<TokenDraw> greedy = {GreedyDraw()};
  CountingRunner runner;
  runner.next_status = absl::InternalError("the device is lost");
  const auto failed = runner.Submit(GreedyStep(greedy));
  ASSERT_TRUE(failed.ok());
  EXPECT_EQ(runner.Collect(*failed).status(), absl::InternalError("the device is lost"));
  EXPECT_TRUE(RunStep(runner, GreedyStep(greedy)).ok());
}

TEST(InlineRunnerDeathTest, HasOneStepInFlight) {
  CountingRunner runner;
  ASSERT_TRUE(runner.Submit(GreedyStep({})).ok());
  EXPECT_DEATH(runner.Submit(GreedyStep({})).IgnoreError(), "uncollected");
}

}  // namespace
}  // namespace baton
