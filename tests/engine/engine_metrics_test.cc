#include "engine/engine_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/prefill_pace.h"
#include "tests/engine/worker_bench.h"

namespace baton {
namespace {

int64_t Ended(WorkerBench& bench, WorkKind kind, absl::StatusCode code) {
  return bench.metrics.Cells(Metric::kWorkerRequests, kind, code);
}

const MetricSample& Histogram(const std::vector<MetricFamily>& families, Metric metric,
                              size_t series) {
  for (const MetricFamily& family : families) {
    if (family.declaration->id == metric) return family.samples[series];
  }
  throw std::logic_error("no such metric");
}
uint64_t Observations(const WorkerBench& bench, Metric metric, size_t series) {
  const std::vector<MetricFamily> families = bench.metrics.Read();
  return Histogram(families, metric, series).cumulative.back();
}

TEST(EngineMetrics, EveryStepCountsOnceByItsWork) {
  WorkerBench bench;
  bench.Generate(Bytes("a prompt of one chunk"), 4);
  bench.Run();
  const auto steps = [&](StepWork work) {
    return Observations(bench, Metric::kWorkerStepSeconds, static_cast<size_t>(work));
  };
  EXPECT_EQ(steps(StepWork::kPrefill), 1);  // it also draws the first token
  EXPECT_EQ(steps(StepWork::kDecode), 3);
  EXPECT_EQ(steps(StepWork::kMixed), 0);
  EXPECT_EQ(bench.core->counters().steps, 4);
  EXPECT_EQ(bench.metrics.Cells(Metric::kWorkerOutputTokens), 4);
  bench.Generate(Bytes("first"), 8);
  bench.Turn();
  bench.Generate(Bytes("joins while the other decodes"), 1);
  bench.Run();
  EXPECT_EQ(steps(StepWork::kMixed), 1);
  EXPECT_EQ(steps(StepWork::kPrefill) + steps(StepWork::kDecode) + steps(StepWork::kMixed),
            static_cast<uint64_t>(bench.core->counters().steps));
}

TEST(EngineMetrics, RequestsCountByKindAndStatusWhenTheyEnd) {
  WorkerBench bench({.max_waiting = 1});
  bench.Generate(Bytes("one"), 2);
  bench.Generate(Bytes("refused: the queue is full"), 2);
  EXPECT_EQ(Ended(bench, WorkKind::kGenerate, absl::StatusCode::kResourceExhausted), 1);
  EXPECT_EQ(Ended(bench, WorkKind::kGenerate, absl::StatusCode::kOk), 0) << "it still runs";
  bench.Run();
  EXPECT_EQ(Ended(bench, WorkKind::kGenerate, absl::StatusCode::kOk), 1);
  bench.Generate(Bytes("cancelled"), 50);
  bench.core->Cancel(bench.last_handle);
  EXPECT_EQ(Ended(bench, WorkKind::kGenerate, absl::StatusCode::kCancelled), 1);
  bench.Generate(std::vector<TokenId>(), 1);
  EXPECT_EQ(Ended(bench, WorkKind::kGenerate, absl::StatusCode::kInvalidArgument), 1);
  bench.Run();
  EXPECT_EQ(Observations(bench, Metric::kWorkerQueueSeconds, 0), 1) << "one request had a step";
  EXPECT_EQ(bench.core->counters().failures, 3);
}

TEST(EngineMetrics, ACancellationCountsOnceWhenItsBlocksAreFree) {
  WorkerBench bench;
  bench.Generate(Bytes("its client leaves"), 50);
  bench.Turn();
  bench.cancels.Add(bench.last_handle, bench.clock.NowUs());
  bench.clock.AdvanceUs(3000);
  bench.core->Cancel(bench.last_handle);
  bench.Run();
  EXPECT_EQ(Observations(bench, Metric::kWorkerCancelSeconds, 0), 1);
  bench.Generate(Bytes("its client stays"), 2);
  bench.Run();
  EXPECT_EQ(Observations(bench, Metric::kWorkerCancelSeconds, 0), 1);
}

TEST(EngineMetrics, ARequestWithChoicesCountsOnce) {
  WorkerBench bench;
  GenerateRequest request;
  request.prompt = Bytes("three answers");
  request.n = 3;
  request.sampling = WorkerBench::Greedy();
  request.sampling.max_tokens = 2;
  bench.Generate(std::move(request));
  bench.Run();
  EXPECT_EQ(Ended(bench, WorkKind::kGenerate, absl::StatusCode::kOk), 1);
  EXPECT_EQ(bench.metrics.Cells(Metric::kWorkerOutputTokens), 6);
}

TEST(EngineMetrics, ReceivedKvCountsAsTransferredTokens) {
  WorkerBench bench;
  bench.Cache(Bytes("01234567"), 1);
  const auto prompt = Bytes("01234567abcdefghi");  // 8 tokens cached, 9 missing
  bench.GenerateRemote(prompt, 3);
  bench.fake.Deliver(2, prompt, bench.Manifest(prompt));
  bench.Run();
  EXPECT_EQ(bench.metrics.Cells(Metric::kWorkerPromptTokens, PromptSource::kTransferred), 9);
  EXPECT_EQ(bench.metrics.Cells(Metric::kKvTransfers, Direction::kReceived), 1);
  EXPECT_EQ(Observations(bench, Metric::kKvTransferSeconds, 0), 1);
}

TEST(EngineMetrics, FailedTransfersCountByKind) {
  WorkerBench bench;
  const auto prompt = Bytes("01234567abcdefghi");
  const std::pair<absl::Status, TransferFailure> failures[] = {
      {absl::UnavailableError("gone"), TransferFailure::kPeerLost},
      {absl::DataLossError("CRC"), TransferFailure::kCorrupt},
      {absl::DeadlineExceededError("late"), TransferFailure::kTimeout},
      {absl::AbortedError("stopped"), TransferFailure::kRefused}};
  uint64_t transfer = 0;
  for (const auto& [status, kind] : failures) {
    bench.GenerateRemote(prompt, 1);
    bench.fake.FailReceive(++transfer, status);
    bench.Run();
    EXPECT_EQ(bench.metrics.Cells(Metric::kKvTransferFailures, Direction::kReceived, kind), 1)
        << status;
    bench.core->ClearCache(std::nullopt);
  }
  EXPECT_EQ(bench.metrics.Cells(Metric::kKvTransfers, Direction::kReceived), 0);
}

TEST(EngineMetrics, PrefillsAndTheirSendsCountAtTheSender) {
  WorkerBench bench;
  const auto prompt = Bytes("01234567");
  bench.Prefill(prompt, bench.Ticket(prompt.size()));
  bench.Run();
  EXPECT_EQ(Ended(bench, WorkKind::kPrefill, absl::StatusCode::kOk), 0) << "it is being sent";
  bench.fake.EndSend(1, absl::OkStatus());
  bench.Run();
  EXPECT_EQ(Ended(bench, WorkKind::kPrefill, absl::StatusCode::kOk), 1);
  EXPECT_EQ(bench.metrics.Cells(Metric::kKvTransfers, Direction::kSent), 1);
  EXPECT_EQ(Observations(bench, Metric::kKvExposedSeconds, 0), 1);
  EXPECT_EQ(Observations(bench, Metric::kWorkerQueueSeconds, 1), 1);
  bench.Prefill(Bytes("another prompt"), bench.Ticket(14));
  bench.Run();
  bench.fake.EndSend(2, absl::UnavailableError("the receiver is gone"));
  bench.Run();
  EXPECT_EQ(Ended(bench, WorkKind::kPrefill, absl::StatusCode::kAborted), 1);
  EXPECT_EQ(bench.metrics.Cells(Metric::kKvTransferFailures, Direction::kSent,
                                TransferFailure::kPeerLost),
            1);
}

TEST(EngineMetrics, PullsCountByOutcome) {
  WorkerBench bench;
  bench.Cache(Bytes("01234567"), 1);
  bench.Pull(Bytes("01234567"));  // all of it is cached here
  const auto pull = bench.Pull(Bytes("abcdefgh"));
  ASSERT_TRUE(pull->ticket.has_value());
  bench.fake.Deliver(pull->ticket->transfer_id, Bytes("abcdefgh"), "");
  bench.core->PollTransfers();
  ASSERT_TRUE(pull->done.has_value());
  const auto failed = bench.Pull(Bytes("ijklmnop"));
  bench.fake.FailReceive(failed->ticket->transfer_id, absl::UnavailableError("gone"));
  bench.core->PollTransfers();
  EXPECT_EQ(bench.metrics.Cells(Metric::kKvPulls, PullOutcomeLabel::kNothing), 1);
  EXPECT_EQ(bench.metrics.Cells(Metric::kKvPulls, PullOutcomeLabel::kPulled), 1);
  EXPECT_EQ(bench.metrics.Cells(Metric::kKvPulls, PullOutcomeLabel::kFailed), 1);
  EXPECT_EQ(bench.metrics.Cells(Metric::kWorkerPromptTokens, PromptSource::kPulled), 8);
  bench.core->Shutdown(absl::CancelledError("end"));
  bench.Run();
}

TEST(EngineMetrics, WithoutASetNothingIsCounted) {
  const EngineMetrics metrics;
  metrics.Ended(WorkKind::kGenerate, absl::OkStatus());
  metrics.StepEnded(1, 1, 1);
  metrics.PullEnded(absl::UnavailableError("gone"));
  metrics.OnTransferEvent({.kind = TransferEvent::Kind::kSent, .manifest = {}, .status = {}});
}

TEST(PrefillPace, IsTheMeanTimeOfAPromptToken) {
  PrefillPace pace;
  EXPECT_EQ(pace.UsFor(1000), 0) << "nothing is known yet";
  pace.Learn(/*us=*/1000, /*prompt_tokens=*/100, /*decode_tokens=*/0);
  EXPECT_EQ(pace.UsFor(50), 500);
  pace.Learn(5000, 0, 8);  // no prompt: says nothing
  EXPECT_EQ(pace.UsFor(50), 500);
  for (int i = 0; i < 100; ++i) pace.Learn(4000, 100, 100);  // half of each step is the prompts'
  EXPECT_NEAR(static_cast<double>(pace.UsFor(100)), 2000, 1);
}

}  // namespace
}  // namespace baton
