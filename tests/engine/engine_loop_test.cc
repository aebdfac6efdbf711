#include "engine/engine_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/worker_bench.h"

namespace baton {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kOpStallUs = 1'000'000;

class EngineLoopTest : public ::testing::Test {
 protected:
  explicit EngineLoopTest(const BenchOptions& options = {}) : bench(options) {
    bench.core->set_watchdog(&watchdog);
    bench.next_transfer_id = [] { return 5; };
  }

  ~EngineLoopTest() override {
    loop.Shutdown();
    while (!bench.fake.receives.empty()) {
      bench.fake.FailReceive(bench.fake.receives.begin()->first, absl::CancelledError("cancelled"));
    }
    EXPECT_TRUE(loop.PollUntilIdle());
  }

  std::shared_ptr<SinkRecord> Generate(GenerateRequest request) {
    auto record = std::make_shared<SinkRecord>();
    inbox.Generate(std::move(request), std::make_shared<RecordingSink>(record));
    return record;
  }
  bool WatchdogFailsAfter(int64_t us) {
    bench.clock.AdvanceUs(us);
    return !watchdog.Check().ok();
  }

  WorkerBench bench;
  LoopWatchdog watchdog{&bench.clock, kOpStallUs};
  int checks = 0;
  absl::Status found;
  IdleIntegrityCheck integrity_check{[this] {
                                       ++checks;
                                       return found;
                                     },
                                     &bench.clock};
  EngineInbox inbox{&integrity_check, [] {}};
  KvEventFeed feed;
  int published = 0;
  EngineLoop loop{EngineLoop::Parts{.core = bench.core.get(),
                                    .cache = &bench.cache,
                                    .inbox = &inbox,
                                    .kv_events = &feed,
                                    .integrity_check = &integrity_check,
                                    .watchdog = &watchdog,
                                    .clock = &bench.clock,
                                    .publish = [this] { ++published; }}};
};

TEST_F(EngineLoopTest, AnIdleLoopTurnsAndPublishesEvery50Milliseconds) {
  EXPECT_EQ(loop.Rest(), 50'000);
  EXPECT_TRUE(loop.Turn());
  EXPECT_EQ(published, 1);
  EXPECT_FALSE(loop.has_step());
  EXPECT_EQ(loop.Rest(), 50'000);
}

TEST_F(EngineLoopTest, ARequestIsAnsweredStepByStepWithoutIdleTurns) {
  const auto prompt = Bytes("once upon a time");
  const auto record = Generate(WorkerBench::Request(prompt, 3));
  int steps = 0;
  do {
    ASSERT_TRUE(loop.Turn());
    if (loop.has_step()) {
      const int before = published;
      loop.Step();
      ++steps;
      EXPECT_EQ(published, before + 1);
    }
  } while (loop.Rest() == 0 && steps < 100);
  EXPECT_EQ(steps, 3);
  EXPECT_EQ(record->tokens, bench.runner.Continuation(prompt, 3));
  EXPECT_EQ(loop.Rest(), EngineLoop::kIdleTurnUs);
}

TEST_F(EngineLoopTest, EventsRunInTheirOrderBeforeTheStep) {
  std::vector<int> order;
  for (const int i : {1, 2, 3}) {
    ASSERT_TRUE(inbox.Post([&order, i](WorkerCore&) { order.push_back(i); }).ok());
  }
  bench.runner.during_step = [&] { order.push_back(9); };
  Generate(WorkerBench::Request(Bytes("go"), 1));
  loop.Turn();
  EXPECT_THAT(order, ElementsAre(1, 2, 3));
  loop.Step();
  EXPECT_THAT(order, ElementsAre(1, 2, 3, 9));
}

TEST_F(EngineLoopTest, AnEventThatPostsAnotherIsNotRunAgain) {
  int first = 0;
  int second = 0;
  ASSERT_TRUE(inbox
                  .Post([&](WorkerCore&) {
                    ++first;
                    ASSERT_TRUE(inbox.Post([&](WorkerCore&) { ++second; }).ok());
                  })
                  .ok());
  loop.Turn();
  EXPECT_EQ(first, 1);
  EXPECT_EQ(second, 0);
  loop.Turn();
  EXPECT_EQ(first, 1);
  EXPECT_EQ(second, 1);
}

TEST_F(EngineLoopTest, TheNextTurnIsDueAtTheEarliestDeadlineAndRestEndsLateRequests) {
  GenerateRequest request = WorkerBench::Request(Bytes("waits for KV"), 3);
  request.remote_prefill = true;
  request.timeout_ms = 20;
  const auto record = Generate(std::move(request));
  loop.Turn();
  ASSERT_FALSE(loop.has_step());
  EXPECT_EQ(loop.Rest(), 20'000);
  bench.clock.AdvanceUs(15'000);
  EXPECT_EQ(loop.Rest(), 5'000);
  EXPECT_FALSE(record->ended());
  bench.clock.AdvanceUs(5'000);
  EXPECT_EQ(loop.Rest(), EngineLoop::kIdleTurnUs);
  ASSERT_TRUE(record->error.has_value());
  EXPECT_TRUE(absl::IsDeadlineExceeded(*record->error));
}

TEST_F(EngineLoopTest, ADistantDeadlineDoesNotDelayTheIdleTurn) {
  GenerateRequest request = WorkerBench::Request(Bytes("waits for KV"), 3);
  request.remote_prefill = true;
  request.timeout_ms = 60'000;
  Generate(std::move(request));
  loop.Turn();
  EXPECT_EQ(loop.Rest(), EngineLoop::kIdleTurnUs);
}

TEST_F(EngineLoopTest, TheWatchdogIsFedWithWorkAndDisarmedWithout) {
  loop.Turn();
  loop.Rest();
  EXPECT_FALSE(WatchdogFailsAfter(10 * kOpStallUs)) << "the loop is idle";
  Generate(WorkerBench::Request(Bytes("go"), 2));
  loop.Turn();
  EXPECT_EQ(loop.Rest(), 0);
  EXPECT_TRUE(WatchdogFailsAfter(kOpStallUs + 1)) << "there is work but no progress";
  loop.Turn();
  EXPECT_FALSE(WatchdogFailsAfter(0));
}

TEST_F(EngineLoopTest, EveryEventFeedsTheWatchdog) {
  bool fed = true;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(inbox
                    .Post([&](WorkerCore&) {
                      fed = fed && watchdog.Check().ok();
                      bench.clock.AdvanceUs(kOpStallUs * 2 / 3);
                    })
                    .ok());
  }
  loop.Turn();
  EXPECT_TRUE(fed);
}

TEST_F(EngineLoopTest, BlocksAreCheckedInAQuietTurnAfterWork) {
  loop.Turn();
  EXPECT_EQ(checks, 0) << "no work yet";
  ASSERT_TRUE(inbox.Post([](WorkerCore&) {}).ok());
  loop.Turn();
  EXPECT_EQ(checks, 0) << "this turn had an event";
  loop.Turn();
  EXPECT_EQ(checks, 1);
  loop.Turn();
  EXPECT_EQ(checks, 1);
}

TEST_F(EngineLoopTest, ShutdownEndsEveryRequestAndWaitsForItsTransfer) {
  GenerateRequest request = WorkerBench::Request(Bytes("waits for KV"), 3);
  request.remote_prefill = true;
  const auto record = Generate(std::move(request));
  loop.Turn();
  const auto late = Generate(WorkerBench::Request(Bytes("late"), 3));
  inbox.Close();
  EXPECT_FALSE(loop.Turn()) << "events posted before the close are taken";
  EXPECT_EQ(checks, 0);
  loop.Shutdown();
  for (const auto& ended : {record, late}) {
    ASSERT_TRUE(ended->error.has_value());
    EXPECT_TRUE(absl::IsCancelled(*ended->error));
  }
  EXPECT_FALSE(loop.PollUntilIdle()) << "the transport still holds blocks";
  const uint64_t transfer = bench.fake.receives.begin()->first;
  EXPECT_EQ(bench.fake.receives.at(transfer).cancels, 1);
  bench.fake.FailReceive(transfer, absl::CancelledError("cancelled"));
  EXPECT_TRUE(loop.PollUntilIdle());
  bench.ExpectAllBlocksHome();
}

class AsynchronousEngineLoopTest : public EngineLoopTest {
 protected:
  AsynchronousEngineLoopTest() : EngineLoopTest({.asynchronous = true}) {}
};

TEST_F(AsynchronousEngineLoopTest, TheWatchdogFindsAHungDeviceWhileTurnsContinue) {
  Generate(WorkerBench::Request(Bytes("go"), 1));
  loop.Turn();
  ASSERT_TRUE(loop.has_step());
  loop.Step();
  ASSERT_EQ(bench.core->steps_in_flight(), 1);
  EXPECT_EQ(loop.Rest(), EngineLoop::kIdleTurnUs) << "the device is not waited for";
  bench.clock.AdvanceUs(kOpStallUs + 1);
  loop.Turn();
  EXPECT_FALSE(watchdog.Check().ok()) << "turns continue although the device hangs";
  bench.deferred.FinishOne();
  loop.Turn();
  EXPECT_EQ(loop.Rest(), 0);
  loop.Step();
  EXPECT_TRUE(bench.core->idle());
}

TEST_F(AsynchronousEngineLoopTest, ShutdownCollectsTheStepsInFlight) {
  Generate(WorkerBench::Request(Bytes("go"), 5));
  loop.Turn();
  loop.Step();
  inbox.Close();
  EXPECT_FALSE(loop.Turn());
  loop.Shutdown();
  EXPECT_FALSE(loop.PollUntilIdle());
  bench.deferred.FinishOne();
  EXPECT_TRUE(loop.PollUntilIdle());
  bench.ExpectAllBlocksHome();
}

TEST_F(EngineLoopTest, AnEngineWithoutKvEventsSaysSo) {
  EXPECT_EQ(loop.kv_events(), nullptr);
  absl::Status status;
  loop.SnapshotKvEvents([&](const auto& snapshot) { status = snapshot.status(); });
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
}

}  // namespace
}  // namespace baton
