// The driver with targets that answer on threads of their own. No test asserts how long anything
// takes.
#include "cli/load_driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cli/bench_runner.h"
#include "common/clock.h"

namespace baton {
namespace {

// Answers each request on a thread of its own.
class ThreadedTarget : public LoadTarget {
 public:
  ~ThreadedTarget() override {
    for (std::thread& thread : threads_) thread.join();
  }
  absl::StatusOr<TargetModel> Describe(int64_t) override { return TargetModel{.name = "fake"}; }
  void Send(const LoadRequest& request, std::shared_ptr<AnswerSink> sink) override {
    prompts_.push_back(AllTokens(request));
    threads_.emplace_back([request, sink = std::move(sink)] {
      for (int32_t i = 0; i < request.output_tokens; ++i) sink->OnContent("x", {}, 1);
      sink->OnEnd(
          {.outcome = RequestOutcome::kWhole, .error = {}, .error_message = {}, .ledger = {}});
    });
  }
  void CancelAll() override {}

  const std::vector<std::vector<TokenId>>& prompts() const { return prompts_; }

 private:
  std::vector<std::thread> threads_;
  std::vector<std::vector<TokenId>> prompts_;
};

// Never answers by itself. CancelAll ends everything.
class SilentTarget : public LoadTarget {
 public:
  absl::StatusOr<TargetModel> Describe(int64_t) override { return TargetModel{.name = "fake"}; }
  void Send(const LoadRequest&, std::shared_ptr<AnswerSink> sink) override {
    std::lock_guard lock(mutex_);
    sinks_.push_back(std::move(sink));
    if (on_send) on_send(sinks_.size());
  }
  void CancelAll() override {
    std::vector<std::shared_ptr<AnswerSink>> sinks;
    {
      std::lock_guard lock(mutex_);
      sinks.swap(sinks_);
    }
    for (const auto& sink : sinks) {
      sink->OnEnd({.outcome = RequestOutcome::kFailed,
                   .error = "cancelled",
                   .error_message = {},
                   .ledger = {}});
    }
  }

  std::function<void(size_t)> on_send;

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<AnswerSink>> sinks_;
};

std::unique_ptr<Workload> WorkloadFor(const WorkloadOptions& options) {
  return *MakeWorkload(options, {});
}

LoadRunOptions FastRun(int64_t requests) {
  LoadRunOptions options;
  options.arrivals = {.kind = ArrivalKind::kPoisson, .rate_per_s = 2000, .seed = 3};
  options.max_requests = requests;
  return options;
}

TEST(LoadDriver, EveryRequestHasARecordInTheOrderOfSending) {
  const auto workload = WorkloadFor({.output_tokens = 3});
  LoadRun run(FastRun(100), *workload);
  ThreadedTarget target;
  const SystemClock clock;
  const DriverResult result = LoadDriver(target, clock).Run(run, {});
  ASSERT_EQ(result.records.size(), 100u);
  EXPECT_FALSE(result.interrupted);
  int64_t last_us = 0;
  for (const RequestRecord& record : result.records) {
    EXPECT_EQ(record.outcome, RequestOutcome::kWhole);
    EXPECT_EQ(record.output_tokens, 3);
    EXPECT_EQ(record.gaps_us.size(), 2u);
    EXPECT_GE(record.sent_us, record.intended_us);
    EXPECT_GE(record.first_content_us, record.sent_us);
    EXPECT_GE(record.end_us, record.last_content_us);
    EXPECT_GE(record.intended_us, last_us);
    last_us = record.intended_us;
  }
}

// A later send must not wait for an earlier answer: here, no answer comes before all are sent.
TEST(LoadDriver, SlowAnswersDoNotDelayTheNextSends) {
  const auto workload = WorkloadFor({.output_tokens = 1});
  LoadRun run(FastRun(200), *workload);
  SilentTarget target;
  const SystemClock clock;
  LoadDriver driver(target, clock);
  std::vector<std::thread> threads;
  target.on_send = [&](size_t waiting) {
    if (waiting == 200) threads.emplace_back([&] { target.CancelAll(); });
  };
  const DriverResult result = driver.Run(run, {});
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(result.records.size(), 200u);
}

TEST(LoadDriver, TurnsOfAChatFollowTheirAnswers) {
  WorkloadOptions options = {
      .kind = WorkloadKind::kChat, .output_tokens = 2, .turns = 3, .think_s = 0};
  const auto workload = WorkloadFor(options);
  // Each client asks its next turn after an answer, so a slow machine sends the same turns.
  LoadRunOptions run_options = FastRun(30);
  run_options.arrivals.kind = ArrivalKind::kClosed;
  run_options.concurrency = 2;
  LoadRun run(run_options, *workload);
  ThreadedTarget target;
  const SystemClock clock;
  const DriverResult result = LoadDriver(target, clock).Run(run, {});
  EXPECT_EQ(result.records.size(), 30u);
  std::set<int32_t> turns;
  for (const RequestRecord& record : result.records) turns.insert(record.turn);
  EXPECT_EQ(turns.size(), 3u);
}

TEST(LoadDriver, AnInterruptCancelsWhatRunsAndSendsNothingMore) {
  const auto workload = WorkloadFor({.output_tokens = 1});
  LoadRun run(FastRun(0), *workload);
  SilentTarget target;
  const SystemClock clock;
  LoadDriver driver(target, clock);
  std::vector<std::thread> threads;
  target.on_send = [&](size_t waiting) {
    if (waiting == 10) threads.emplace_back([&] { driver.Interrupt(); });
  };
  const DriverResult result = driver.Run(run, {});
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(result.interrupted);
  EXPECT_GE(result.records.size(), 10u);
  for (const RequestRecord& record : result.records) EXPECT_EQ(record.error, "cancelled");
}

TEST(LoadDriver, ARunThatCannotHoldEndsEarly) {
  const auto workload = WorkloadFor({.output_tokens = 1});
  LoadRun run(FastRun(0), *workload);
  SilentTarget target;
  const SystemClock clock;
  DriverOptions options;
  options.objectives.ttft_ms = 1;
  options.max_bad = 5;
  const DriverResult result = LoadDriver(target, clock).Run(run, options);
  EXPECT_TRUE(result.ended_early);
  EXPECT_GT(result.records.size(), 5u);
}

TEST(LoadDriver, TheWarmupDoesNotCountAsBad) {
  const auto workload = WorkloadFor({.output_tokens = 1});
  LoadRun run(FastRun(20), *workload);
  ThreadedTarget target;
  const SystemClock clock;
  DriverOptions options;
  options.objectives.ttft_ms = 1e-9;  // no answer can meet it
  options.warmup = 20;
  options.max_bad = 0;
  EXPECT_FALSE(LoadDriver(target, clock).Run(run, options).ended_early);
}

TEST(BenchRunner, StepsOfARateSearchHaveTheirOwnPrompts) {
  BenchFlags flags;
  flags.find_rate = true;
  flags.rate_per_s = 500;
  flags.max_rate_per_s = 1000;
  flags.objectives.e2e_ms = 60'000;
  BenchPlan plan;
  plan.workload.prompt_tokens = 8;
  plan.workload.output_tokens = 1;
  plan.run.max_requests = 20;
  ThreadedTarget target;
  const SystemClock clock;
  BenchRunner runner(flags, plan, target, clock, [](const std::string&) {});
  const auto result = runner.Run({});
  ASSERT_TRUE(result.ok()) << result.status();
  // A busy machine may send late, and a late step does not hold. Whatever holds, no step repeats
  // the prompts of another.
  ASSERT_GE(result->rate_steps.size(), 2u);
  const std::set<std::vector<TokenId>> prompts(target.prompts().begin(), target.prompts().end());
  EXPECT_EQ(prompts.size(), target.prompts().size());
}

TEST(BenchRunner, ATraceGetsTheMeanRateThatIsAskedFor) {
  std::vector<TracedRequest> trace(5);
  for (size_t i = 0; i < trace.size(); ++i) trace[i].at_us = static_cast<int64_t>(i) * 2'000'000;
  EXPECT_DOUBLE_EQ(TraceSpeedFor(trace, 0.5), 1);
  EXPECT_DOUBLE_EQ(TraceSpeedFor(trace, 2), 4);
  EXPECT_DOUBLE_EQ(TraceSpeedFor({trace[0]}, 2), 1);
}

}  // namespace
}  // namespace baton
