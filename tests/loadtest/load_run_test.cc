#include "loadtest/load_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "loadtest/load_summary.h"
#include "tests/loadtest/fake_service.h"

namespace baton {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

std::unique_ptr<Workload> WorkloadOf(const WorkloadOptions& options,
                                     std::vector<TracedRequest> trace = {}) {
  auto workload = MakeWorkload(options, std::move(trace));
  EXPECT_TRUE(workload.ok()) << workload.status();
  return *std::move(workload);
}

LoadRunOptions Open(ArrivalKind kind, double rate_per_s, int64_t requests) {
  LoadRunOptions options;
  options.arrivals = {.kind = kind, .rate_per_s = rate_per_s, .seed = 1};
  options.max_requests = requests;
  return options;
}

TEST(LoadRun, RequestsAreSentAtTheTimesOfTheProcess) {
  const auto workload = WorkloadOf({.output_tokens = 1});
  LoadRun run(Open(ArrivalKind::kConstant, 10, 3), *workload);
  EXPECT_EQ(run.NextDueUs(), 0);
  EXPECT_EQ(run.TakeDue(0)->intended_us, 0);
  EXPECT_FALSE(run.TakeDue(99'999).has_value());
  EXPECT_EQ(run.TakeDue(150'000)->intended_us, 100'000) << "a late take keeps the intended time";
  EXPECT_EQ(run.TakeDue(200'000)->intended_us, 200'000);
  EXPECT_EQ(run.NextDueUs(), std::nullopt);
  EXPECT_FALSE(run.finished()) << "three answers have not ended";
}

// The claim that the harness exists for: a stall of one second shows in the times of all requests
// that users would have sent during it. A closed loop sees one slow request.
TEST(LoadRun, AStallShowsInTheTimesOfAllRequestsThatItDelays) {
  const FakeServiceOptions service = {
      .prefill_us = 1'000, .gap_us = 0, .stall_begin_us = 5'000'000, .stall_end_us = 6'000'000};
  const auto ttft_of = [&](const LoadRunOptions& options) {
    const auto workload = WorkloadOf({.output_tokens = 1});
    LoadRun run(options, *workload);
    LoadResult result;
    result.records = FakeService(service).Play(run);
    return SummaryOf(result).ttft_ms;
  };
  const Distribution open = ttft_of(Open(ArrivalKind::kConstant, 100, 1000));
  EXPECT_NEAR(open.p50, 1, 0.001);
  EXPECT_NEAR(open.max, 1001, 1);
  EXPECT_GT(open.p95, 400) << "a tenth of all requests fell into the stall";
  EXPECT_GT(open.p99, 900);
  LoadRunOptions closed = Open(ArrivalKind::kClosed, 1, 9000);
  closed.concurrency = 1;
  const Distribution omitted = ttft_of(closed);
  EXPECT_NEAR(omitted.p99, 1, 0.001) << "a closed loop hides the stall, as it must";
  EXPECT_GT(omitted.max, 900);
}

TEST(LoadRun, LatenessCountsAsTimeOfTheAnswer) {
  const auto workload = WorkloadOf({.output_tokens = 1});
  LoadRun run(Open(ArrivalKind::kConstant, 10, 20), *workload);
  const auto records =
      FakeService({.prefill_us = 1'000, .gap_us = 0, .send_delay_us = 3'000}).Play(run);
  ASSERT_EQ(records.size(), 20u);
  for (const RequestRecord& record : records) {
    EXPECT_EQ(record.late_ms(), 3);
    EXPECT_EQ(record.ttft_ms(), 4);
  }
}

TEST(LoadRun, ClosedClientsSendWhenTheirAnswerHasEnded) {
  const auto workload = WorkloadOf({.output_tokens = 1});
  LoadRunOptions options = Open(ArrivalKind::kClosed, 1, 50);
  options.concurrency = 4;
  LoadRun run(options, *workload);
  FakeService service({.prefill_us = 1'000, .gap_us = 0});
  const auto records = service.Play(run);
  EXPECT_EQ(records.size(), 50u);
  EXPECT_EQ(service.most_running(), 4u);
  for (const RequestRecord& record : records) EXPECT_EQ(record.late_ms(), 0);
}

TEST(LoadRun, ALimitOfRunningRequestsMakesOthersLateAndNotLost) {
  const auto workload = WorkloadOf({.output_tokens = 1});
  LoadRunOptions options = Open(ArrivalKind::kConstant, 1000, 3);
  options.concurrency = 1;
  LoadRun run(options, *workload);
  const auto due = run.TakeDue(0);
  ASSERT_TRUE(due.has_value());
  EXPECT_EQ(run.NextDueUs(), std::nullopt);
  run.OnEnd(due->request, {}, 50'000);
  EXPECT_EQ(run.TakeDue(50'000)->intended_us, 1'000);
}

TEST(LoadRun, TheDurationLimitsIntendedTimes) {
  const auto workload = WorkloadOf({.output_tokens = 1});
  LoadRunOptions options = Open(ArrivalKind::kConstant, 10, 0);
  options.duration_us = 1'000'000;
  LoadRun run(options, *workload);
  EXPECT_EQ(FakeService({}).Play(run).size(), 10u);
}

// The next request is planned ahead, and may never be sent.
TEST(LoadRun, OnlySentRequestsCountAsClipped) {
  const WorkloadOptions clips = {.context_length = 100, .prompt_tokens = 300, .output_tokens = 1};
  const auto workload = WorkloadOf(clips);
  LoadRun run(Open(ArrivalKind::kConstant, 10, 3), *workload);
  EXPECT_EQ(run.clipped().requests, 0);
  EXPECT_EQ(FakeService({}).Play(run).size(), 3u);
  EXPECT_EQ(run.clipped().requests, 3);
  EXPECT_EQ(run.clipped().prompt_tokens, 3 * (300 - 99));
  EXPECT_EQ(run.clipped().output_tokens, 0);
  EXPECT_EQ(run.clipped().conversations, 0);
}

TEST(LoadRun, ATraceIsPlayedAtItsTimesOrFaster) {
  std::vector<TracedRequest> trace;
  for (const int64_t at_us : {5'000'000, 5'500'000, 7'000'000}) {
    trace.push_back({.at_us = at_us, .prompt_tokens = 3, .output_tokens = 1, .hash_ids = {}});
  }
  for (const double speed : {1.0, 4.0}) {
    const auto workload = WorkloadOf({.kind = WorkloadKind::kAzure}, trace);
    LoadRunOptions options = Open(ArrivalKind::kTrace, 1, 0);
    options.trace_speed = speed;
    LoadRun run(options, *workload);
    std::vector<double> at_s;
    for (const RequestRecord& record : FakeService({}).Play(run)) {
      at_s.push_back(static_cast<double>(record.intended_us) / 1e6 * speed);
    }
    EXPECT_THAT(at_s, ElementsAre(0, 0.5, 2));
  }
}

TEST(LoadRun, ALaterTurnWaitsForItsAnswerAndItsPause) {
  WorkloadOptions chat = {
      .kind = WorkloadKind::kChat, .output_tokens = 2, .turns = 3, .think_s = 0.5};
  const auto workload = WorkloadOf(chat);
  LoadRun run(Open(ArrivalKind::kConstant, 0.1, 9), *workload);
  const auto records = FakeService({}).Play(run);
  ASSERT_EQ(records.size(), 9u);
  std::vector<int> turns(3);
  for (const RequestRecord& record : records) {
    ++turns[static_cast<size_t>(record.turn)];
    if (record.turn == 0) continue;
    const auto before = std::find_if(records.begin(), records.end(), [&](const auto& other) {
      return other.conversation == record.conversation && other.turn == record.turn - 1;
    });
    ASSERT_NE(before, records.end());
    EXPECT_GE(record.intended_us, before->end_us);
  }
  EXPECT_THAT(turns, Each(3));
}

TEST(LoadRun, NothingIsDueAfterAStop) {
  const auto workload = WorkloadOf({.kind = WorkloadKind::kChat, .output_tokens = 1});
  LoadRun run(Open(ArrivalKind::kConstant, 10, 0), *workload);
  const auto due = run.TakeDue(0);
  run.StopSending();
  EXPECT_EQ(run.NextDueUs(), std::nullopt);
  EXPECT_FALSE(run.finished());
  run.OnEnd(due->request, {.whole = true, .text = {}, .tokens = {}}, 5);
  EXPECT_TRUE(run.finished());
}

}  // namespace
}  // namespace baton
