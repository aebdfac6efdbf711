#include "engine/step_pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/str_cat.h"
#include "model/shared_prefixes.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr SequenceId kOne{1};

// Asynchronous device without a model. It ends steps when the test says so. Its tokens encode the
// step and the draw.
class ScriptedRunner final : public ModelRunner {
 public:
  struct Row {
    int32_t begin_slot;
    size_t tokens;
    size_t draws;
    std::optional<DrawnBy> from;
  };
  int32_t most_in_flight = 2;
  bool shares = false;
  int64_t done = 0;                               // steps up to this number are done
  std::map<int64_t, absl::Status> failures;       // by step
  absl::Status health;                            // of the device
  std::function<void(const StepInput&)> enqueue;  // called by Submit
  absl::Status next_submit;                       // returned once, by the next Submit
  std::vector<std::vector<Row>> steps;            // the submitted steps
  std::vector<std::pair<int64_t, int>> copies;    // (last step submitted before, number of copies)

  static TokenId Token(int64_t step, int32_t draw) {
    return static_cast<TokenId>(10 * step + draw);
  }

  int32_t max_in_flight() const override { return most_in_flight; }
  absl::StatusOr<StepId> Submit(const StepInput& input) override {
    if (!next_submit.ok()) return std::exchange(next_submit, absl::OkStatus());
    std::vector<Row>& rows = steps.emplace_back();
    for (const StepChunk& chunk : input.chunks) {
      rows.push_back({chunk.begin_slot, chunk.tokens.size(), chunk.draws.size(), chunk.token_from});
    }
    wanted_.push_back(input.wanted);
    if (enqueue) enqueue(input);
    return StepId(static_cast<int64_t>(steps.size()));
  }
  absl::StatusOr<StepResult> Collect(StepId step) override {
    EXPECT_EQ(step.value(), ++collected_);
    EXPECT_LE(step.value(), done);
    wanted_[static_cast<size_t>(step.value() - 1)]();
    if (failures.contains(step.value())) return failures[step.value()];
    StepResult result;
    for (const Row& row : steps[static_cast<size_t>(step.value() - 1)]) {
      for (size_t i = 0; i < row.draws; ++i) {
        result.drawn.push_back(Token(step.value(), static_cast<int32_t>(result.drawn.size())));
      }
    }
    return result;
  }
  bool Done(StepId step) const override { return step.value() <= done; }
  bool shares_prefixes() const override { return shares; }
  absl::Status CopyBlocks(std::span<const BlockCopy> blocks) override {
    copies.emplace_back(static_cast<int64_t>(steps.size()), static_cast<int>(blocks.size()));
    return absl::OkStatus();
  }
  std::span<const float> Logits(StepId, int32_t) const override { return {}; }
  absl::Status Health() const override { return health; }

 private:
  std::vector<std::function<int32_t()>> wanted_;
  int64_t collected_ = 0;
};

// Requests that end with their first token `stop`; every token is drawn on the device.
class Answers final : public StepPipeline::Requests {
 public:
  Answers(Scheduler* scheduler, KvCacheManager* cache) : scheduler_(scheduler), cache_(cache) {}

  std::vector<std::string> log;
  TokenId stop = -1;
  int64_t deadline_us = 0;

  void OnPlanned(const SchedulerOutput& plan) override {
    log.push_back(StrCat("plan of ", plan.chunks.size()));
  }
  StepDemand::Chunk DemandOf(SequenceId id) const override {
    return {.request = id.value(), .deadline_us = deadline_us};
  }
  StepPipeline::RowUse DescribeRow(const ScheduledChunk&, std::vector<TokenDraw>& draws) override {
    draws.push_back({});
    return {.keeps_logits = false, .draws_next = true};
  }
  std::function<void(int32_t, int32_t)> LayerListener(const SchedulerOutput&) override {
    return nullptr;
  }
  void OnCollected(const SchedulerOutput& plan) override {
    log.push_back(StrCat("collected ", plan.chunks.size()));
  }
  void OnCancellationDone(int64_t us) override {
    log.push_back(StrCat("cancelled since ", us, " us, ", cache_->step_blocks(), " step blocks"));
  }
  absl::Status last_failure;
  void OnFailed(SequenceId id, const absl::Status& why) override {
    last_failure = why;
    log.push_back(StrCat(id.value(), " failed: ", why.message()));
    if (scheduler_->Contains(id)) scheduler_->Finish(id, /*keep_cached=*/false);
  }
  void OnComputed(const ScheduledChunk& chunk, const SampledRow& row) override {
    if (!scheduler_->Contains(chunk.id)) {
      log.push_back(StrCat(chunk.id.value(), " is gone"));
      return;
    }
    EXPECT_EQ(cache_->committed(chunk.id), chunk.begin + chunk.count);
    EXPECT_EQ(row.position, chunk.begin + chunk.count);
    if (!chunk.samples) return;
    ASSERT_EQ(row.drawn.size(), 1u);
    log.push_back(StrCat(chunk.id.value(), " says ", *row.drawn[0]));
    if (*row.drawn[0] == stop) return scheduler_->Finish(chunk.id, /*keep_cached=*/true);
    scheduler_->AppendToken(chunk.id, *row.drawn[0]);
  }

 private:
  Scheduler* const scheduler_;
  KvCacheManager* const cache_;
};

class StepPipelineTest : public ::testing::Test {
 protected:
  explicit StepPipelineTest(int32_t depth = 2)
      : pipeline_(depth, &cache_, &scheduler_, &runner_, &clock_, &answers_) {
    pipeline_.set_pending_cancellations(&cancels_);
  }
  ~StepPipelineTest() override {
    while (pipeline_.in_flight() > 0) FinishOne();
    EXPECT_EQ(cache_.step_blocks(), 0);
  }
  void Add(uint64_t id, int32_t prompt, int32_t answer = 50) {
    const std::vector<TokenId> tokens(static_cast<size_t>(prompt), static_cast<TokenId>(id));
    ASSERT_TRUE(scheduler_
                    .Add({.id = SequenceId(id),
                          .tokens = tokens,
                          .cache_namespace = CacheNamespace(1),
                          .max_tokens = prompt + answer})
                    .ok());
  }
  void FinishOne() {
    ++runner_.done;
    pipeline_.Step();
  }
  std::vector<std::string> TakeLog() { return std::exchange(answers_.log, {}); }

  ManualClock clock_;
  KvCacheManager cache_{{.num_blocks = 64, .block_size = 4}, &clock_};
  Scheduler scheduler_{{.token_budget = 16, .max_chunk_tokens = 16, .max_running = 4}, &cache_};
  ScriptedRunner runner_;
  PendingCancellations cancels_;
  Answers answers_{&scheduler_, &cache_};
  StepPipeline pipeline_;
};

TEST_F(StepPipelineTest, SubmitsUpToTheDepthAndCollectsInOrder) {
  Add(1, 3);
  EXPECT_TRUE(pipeline_.has_work());
  pipeline_.Step();
  EXPECT_EQ(pipeline_.in_flight(), 2);
  EXPECT_FALSE(pipeline_.has_work());
  EXPECT_THAT(TakeLog(), ElementsAre("plan of 1", "plan of 1"));
  ASSERT_EQ(runner_.steps.size(), 2u);
  EXPECT_FALSE(runner_.steps[0][0].from.has_value());
  ASSERT_TRUE(runner_.steps[1][0].from.has_value());
  EXPECT_EQ(runner_.steps[1][0].from->step, StepId(1));
  EXPECT_EQ(runner_.steps[1][0].from->draw, 0);
  FinishOne();
  EXPECT_THAT(TakeLog(), ElementsAre("collected 1", "1 says 10", "plan of 1"));
  FinishOne();
  EXPECT_THAT(TakeLog(), ElementsAre("collected 1", "1 says 20", "plan of 1"));
}

TEST_F(StepPipelineTest, EachRowNamesItsOwnDrawOfTheStepBefore) {
  Add(1, 3);
  Add(2, 5);
  pipeline_.Step();
  runner_.done = 1;
  Add(3, 30);  // its chunks draw nothing until the prompt is computed
  pipeline_.Step();
  FinishOne();
  for (size_t step = 1; step < runner_.steps.size(); ++step) {
    for (const ScriptedRunner::Row& row : runner_.steps[step]) {
      if (!row.from) continue;
      EXPECT_EQ(row.from->step, StepId(static_cast<int64_t>(step)));
    }
  }
  ASSERT_EQ(runner_.steps[1].size(), 2u);
  EXPECT_EQ(runner_.steps[1][0].from->draw, 0);
  EXPECT_EQ(runner_.steps[1][1].from->draw, 1);
  EXPECT_THAT(TakeLog(), ::testing::IsSupersetOf({"1 says 10", "2 says 11", "1 says 20"}));
}

TEST_F(StepPipelineTest, TheRowBehindAStopIsDropped) {
  answers_.stop = ScriptedRunner::Token(1, 0);
  Add(1, 3);
  pipeline_.Step();
  FinishOne();
  EXPECT_THAT(TakeLog(), ElementsAre("plan of 1", "plan of 1", "collected 1", "1 says 10"));
  EXPECT_FALSE(scheduler_.Contains(kOne));
  EXPECT_GT(cache_.step_blocks(), 0);
  FinishOne();
  EXPECT_THAT(TakeLog(), ElementsAre("collected 1", "1 is gone"));
  EXPECT_EQ(cache_.step_blocks(), 0);
}

TEST_F(StepPipelineTest, ChunksThatAreNotWantedFailAndAreNotCommitted) {
  Add(1, 3);
  Add(2, 5);
  pipeline_.Step();
  cancels_.Add(2);
  FinishOne();
  EXPECT_THAT(TakeLog(), ElementsAre("plan of 2", "plan of 2", "collected 2",
                                     "2 failed: the request was cancelled", "1 says 10",
                                     "2 is gone", "plan of 1"));
  EXPECT_EQ(cache_.PeekMatch(CacheNamespace(1), UnitsFromTokens(std::vector<TokenId>(6, 2))), 0);
}

TEST_F(StepPipelineTest, ACancellationIsDoneWhenNoStepUsesTheBlocks) {
  Add(1, 3);
  pipeline_.Step();
  TakeLog();
  cancels_.Add(1, clock_.NowUs());
  scheduler_.Finish(kOne, /*keep_cached=*/false);
  pipeline_.RemovePendingCancellation(1);
  EXPECT_GT(cache_.step_blocks(), 0);
  EXPECT_THAT(TakeLog(), ElementsAre());
  clock_.AdvanceUs(500);
  while (pipeline_.in_flight() > 0) FinishOne();
  EXPECT_THAT(TakeLog(), ::testing::Contains("cancelled since 500 us, 0 step blocks"));
  cancels_.Add(2, clock_.NowUs());
  pipeline_.RemovePendingCancellation(2);  // at rest: done at once
  EXPECT_THAT(TakeLog(), ElementsAre("cancelled since 0 us, 0 step blocks"));
}

TEST_F(StepPipelineTest, AnUnwantedStepDoesNotFailTheStepBehindIt) {
  Add(1, 3);
  pipeline_.Step();
  runner_.failures[1] = absl::CancelledError("abandoned");
  cancels_.Add(1);
  FinishOne();
  Add(2, 3);
  EXPECT_THAT(TakeLog(), ::testing::Contains("1 failed: the request was cancelled"));
  cancels_.Remove(1);
  FinishOne();
  FinishOne();
  EXPECT_THAT(TakeLog(), ::testing::Contains("2 says 30"));
}

TEST_F(StepPipelineTest, AFailedStepFailsTheStepBehindIt) {
  Add(1, 3);
  pipeline_.Step();
  runner_.failures[1] = absl::InternalError("lost");
  FinishOne();
  EXPECT_THAT(TakeLog(), ElementsAre("plan of 1", "plan of 1", "collected 1", "1 failed: lost",
                                     "1 failed: lost"));
  EXPECT_EQ(pipeline_.in_flight(), 1) << "the step is still collected later";
}

TEST_F(StepPipelineTest, AStepThatIsRefusedFailsItsPlanAlone) {
  Add(1, 3);
  runner_.next_submit = absl::InternalError("full");
  pipeline_.Step();
  EXPECT_THAT(TakeLog(), ElementsAre("plan of 1", "collected 1", "1 failed: full"));
  EXPECT_EQ(pipeline_.in_flight(), 0);
  Add(2, 3);
  pipeline_.Step();
  EXPECT_EQ(pipeline_.in_flight(), 2);
}

TEST_F(StepPipelineTest, CopiesBehindAStepHoldTheirBlocksUntilTheNextIsCollected) {
  Add(1, 3);
  pipeline_.Step();
  runner_.done = 1;
  const BlockCopy copy{.from = BlockId(0), .to = BlockId(0), .tokens = 1};
  ASSERT_TRUE(pipeline_.CopyBlocks({&copy, 1}).ok());
  EXPECT_TRUE(scheduler_.step_holds().holds_for_next());
  pipeline_.Step();
  EXPECT_FALSE(scheduler_.step_holds().holds_for_next()) << "the third step holds them";
  EXPECT_EQ(scheduler_.step_holds().Held().size(), 2u);
  FinishOne();
  EXPECT_EQ(scheduler_.step_holds().Held().size(), 2u);
  FinishOne();
  EXPECT_THAT(scheduler_.step_holds().Held(), IsEmpty());
  EXPECT_THAT(runner_.copies, ElementsAre(std::pair(int64_t{2}, 1)));
}

TEST_F(StepPipelineTest, CopiesThatNoStepFollowsAreMadeWhenTheDeviceIsIdle) {
  Add(1, 3, /*answer=*/1);
  pipeline_.Step();
  EXPECT_EQ(pipeline_.in_flight(), 1) << "the answer has one token";
  const BlockCopy copy{.from = BlockId(0), .to = BlockId(0), .tokens = 1};
  ASSERT_TRUE(pipeline_.CopyBlocks({&copy, 1}).ok());
  answers_.stop = ScriptedRunner::Token(1, 0);
  FinishOne();
  EXPECT_THAT(scheduler_.step_holds().Held(), IsEmpty());
  EXPECT_THAT(runner_.copies, ElementsAre(std::pair(int64_t{1}, 1), std::pair(int64_t{1}, 0)));
}

class StepPipelineOfDepthOneTest : public StepPipelineTest {
 protected:
  StepPipelineOfDepthOneTest() : StepPipelineTest(1) {}
};

TEST_F(StepPipelineOfDepthOneTest, PlansAStepWhenTheOneBeforeIsCollected) {
  Add(1, 3);
  pipeline_.Step();
  EXPECT_EQ(pipeline_.in_flight(), 1);
  FinishOne();
  EXPECT_THAT(TakeLog(), ElementsAre("plan of 1", "collected 1", "1 says 10", "plan of 1"));
  EXPECT_FALSE(runner_.steps[1][0].from.has_value());
}

TEST(StepPipelineDeathTest, TheDepthIsNoMoreThanTheDeviceTakes) {
  ManualClock clock;
  KvCacheManager cache({.num_blocks = 4, .block_size = 4}, &clock);
  Scheduler scheduler({}, &cache);
  ScriptedRunner runner;
  runner.most_in_flight = 1;
  Answers answers(&scheduler, &cache);
  EXPECT_DEATH(StepPipeline(2, &cache, &scheduler, &runner, &clock, &answers),
               "2 steps in flight; the device allows 1");
}

TEST_F(StepPipelineTest, AFailedDeviceEndsRequestsAsUnavailable) {
  Add(1, 3);
  pipeline_.Step();
  runner_.health = absl::InternalError("CUDA device 0 failed: out of order");
  runner_.failures[1] = runner_.failures[2] = runner_.health;
  TakeLog();
  FinishOne();
  const std::vector<std::string> log = TakeLog();
  EXPECT_THAT(log,
              ::testing::Contains("1 failed: this worker cannot compute any more: CUDA device 0 "
                                  "failed: out of order"));
  EXPECT_TRUE(absl::IsUnavailable(answers_.last_failure));
}

TEST_F(StepPipelineTest, AFailedStepOfAHealthyDeviceKeepsItsError) {
  Add(1, 3);
  pipeline_.Step();
  runner_.failures[1] = absl::InternalError("a row without tokens");
  FinishOne();
  EXPECT_EQ(answers_.last_failure, absl::InternalError("a row without tokens"));
}

// Questions about the rows of a step that is being submitted say nothing about the step before.
TEST_F(StepPipelineTest, OnlyTheEndOfAStepFeedsTheWatchdogWhileItRuns) {
  LoopWatchdog watchdog(&clock_, 1'000'000);
  pipeline_.set_watchdog(&watchdog);
  runner_.enqueue = [this](const StepInput& input) {
    clock_.AdvanceUs(900'000);
    input.wanted();
  };
  Add(1, 3);
  pipeline_.Step();
  ASSERT_EQ(runner_.steps.size(), 2u) << "the second step was submitted 0.9 s after the first";
  EXPECT_TRUE(watchdog.Check().ok());
  clock_.AdvanceUs(200'000);
  EXPECT_TRUE(absl::IsUnavailable(watchdog.Check())) << "the first step has run for 1.1 s";
  runner_.enqueue = nullptr;
  FinishOne();
  clock_.AdvanceUs(900'000);
  EXPECT_TRUE(watchdog.Check().ok()) << "the second step has a second of its own";
  pipeline_.set_watchdog(nullptr);  // the fixture ends the steps
}

// Sequences 1 and 3 begin with the same blocks.
TEST(StepPipelineOrder, RowsThatShareAPrefixAreNeighboursIfTheRunnerWantsIt) {
  for (const bool shares : {false, true}) {
    ManualClock clock;
    KvCacheManager cache({.num_blocks = 100, .block_size = 128}, &clock);
    Scheduler scheduler({.token_budget = 5000, .max_chunk_tokens = 5000, .max_running = 4}, &cache);
    ScriptedRunner runner;
    runner.shares = shares;
    Answers answers(&scheduler, &cache);
    StepPipeline pipeline(1, &cache, &scheduler, &runner, &clock, &answers);
    const auto add = [&](uint64_t id, TokenId prefix, int32_t own) {
      std::vector<TokenId> tokens(kSharedSlots, prefix);
      tokens.resize(tokens.size() + static_cast<size_t>(own), static_cast<TokenId>(100 + id));
      const auto length = static_cast<int32_t>(tokens.size());
      ASSERT_TRUE(scheduler
                      .Add({.id = SequenceId(id),
                            .tokens = tokens,
                            .cache_namespace = CacheNamespace(1),
                            .max_tokens = length + 50})
                      .ok());
      pipeline.Step();
      ++runner.done;
      pipeline.Step();
    };
    add(1, 7, 10);
    add(2, 8, 20);
    add(3, 7, 30);
    ++runner.done;
    pipeline.Step();
    std::vector<int32_t> own;
    for (const ScriptedRunner::Row& row : runner.steps.back()) {
      own.push_back((row.begin_slot - kSharedSlots) / 10);
    }
    EXPECT_EQ(own, shares ? std::vector({1, 3, 2}) : std::vector({1, 2, 3}));
    while (pipeline.in_flight() > 0) {
      ++runner.done;
      for (const int id : {1, 2, 3}) {
        if (scheduler.Contains(SequenceId(id))) scheduler.Finish(SequenceId(id), true);
      }
      pipeline.Step();
    }
  }
}

}  // namespace
}  // namespace baton
