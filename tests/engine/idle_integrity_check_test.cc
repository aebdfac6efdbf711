#include "engine/idle_integrity_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "tests/engine/tiny_engine.h"
#include "tests/engine/worker_bench.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

TEST(IdleIntegrityCheck, RunsAfterWorkWithAMinimumInterval) {
  ManualClock clock;
  int checks = 0;
  IdleIntegrityCheck integrity_check(
      [&checks] {
        ++checks;
        return absl::OkStatus();
      },
      &clock);
  integrity_check.OnIdle();
  EXPECT_EQ(checks, 0) << "no work was done";
  integrity_check.Worked();
  integrity_check.OnIdle();
  integrity_check.OnIdle();
  EXPECT_EQ(checks, 1);
  integrity_check.Worked();
  clock.AdvanceUs(IdleIntegrityCheck::kIntervalUs - 1);
  integrity_check.OnIdle();
  EXPECT_EQ(checks, 1) << "too early";
  clock.AdvanceUs(1);
  integrity_check.OnIdle();
  EXPECT_EQ(checks, 2) << "work was done since the last check";
  EXPECT_TRUE(integrity_check.error().ok());
}

TEST(IdleIntegrityCheck, TheFirstErrorIsFinal) {
  ManualClock clock;
  absl::Status found = absl::InternalError("block 3 is in 1 tables but has 2 sequence holds");
  IdleIntegrityCheck integrity_check([&found] { return found; }, &clock);
  integrity_check.Worked();
  integrity_check.OnIdle();
  EXPECT_TRUE(absl::IsUnavailable(integrity_check.error()));
  EXPECT_THAT(std::string(integrity_check.error().message()), HasSubstr("block 3 is in 1 tables"));
  found = absl::OkStatus();
  integrity_check.Worked();
  clock.AdvanceUs(10 * IdleIntegrityCheck::kIntervalUs);
  integrity_check.OnIdle();
  EXPECT_FALSE(integrity_check.error().ok());
}

std::vector<TokenId> Prompt(int32_t tokens) {
  std::vector<TokenId> prompt;
  for (int32_t i = 0; i < tokens; ++i) prompt.push_back(i % kFakeVocabulary);
  return prompt;
}

TEST(WorkerCoreConservation, ATransferHoldThatNoTransferOwnsIsFound) {
  WorkerBench bench;
  const auto record = bench.Generate(Prompt(16), 4);
  bench.Run();
  ASSERT_TRUE(record->finish.has_value());
  EXPECT_TRUE(bench.core->CheckConservation().ok()) << bench.core->CheckConservation();
  const std::vector<BlockId> cached =
      bench.cache.HoldPrefix(CacheNamespace(), UnitsFromTokens(Prompt(16)), 0).blocks;
  ASSERT_FALSE(cached.empty());
  const absl::Status found = bench.core->CheckConservation();
  EXPECT_EQ(found.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(found.message()), HasSubstr("1 transfer holds, but transfers claim 0"));
  bench.cache.ReleaseTransferHold(cached);
  EXPECT_TRUE(bench.core->CheckConservation().ok());
}

TEST(WorkerCoreConservation, HoldsOfTransfersUnderWayAreNoMismatch) {
  WorkerBench bench;
  const auto receives = bench.GenerateRemote(Prompt(16), 4);
  bench.Cache(Prompt(24));
  bench.Prefill(Prompt(24), bench.Ticket(24));
  bench.Run();
  EXPECT_GT(bench.cache.blocks_in_transfer(), 0);
  EXPECT_TRUE(bench.core->CheckConservation().ok()) << bench.core->CheckConservation();
  bench.fake.Deliver(1, Prompt(16), bench.Manifest(Prompt(16)));
  bench.fake.EndSend(3, absl::OkStatus());
  bench.Run();
  EXPECT_TRUE(receives->finish.has_value());
  EXPECT_EQ(bench.cache.blocks_in_transfer(), 0);
  EXPECT_TRUE(bench.core->CheckConservation().ok()) << bench.core->CheckConservation();
}

TEST(WorkerCoreConservation, ASequenceWithoutARequestIsFoundAtIdle) {
  WorkerBench bench;
  bench.Cache(Prompt(16));
  ASSERT_TRUE(bench.cache.Begin(SequenceId(999), CacheNamespace(), {}, 8).ok());
  ASSERT_TRUE(bench.cache.Reserve(SequenceId(999), 8).ok());
  ASSERT_TRUE(bench.core->idle());
  EXPECT_THAT(std::string(bench.core->CheckConservation().message()),
              HasSubstr("idle, yet sequences own 2 blocks"));
  bench.cache.Release(SequenceId(999), /*keep=*/false);
  EXPECT_TRUE(bench.core->CheckConservation().ok());
}

TEST(EngineConservation, AMismatchIsReportedAndStopsNewWork) {
  EngineOptions options = TinyOptions();
  options.also_check = [] { return absl::InternalError("free 9, held 90, total 100"); };
  auto engine = Engine::Create(options);
  ASSERT_TRUE(engine.ok()) << engine.status();
  const SinkRecord first = Ask(**engine, TinyRequest(20, 4, 1));
  ASSERT_TRUE(first.finish.has_value());
  while ((*engine)->Status().conservation_error.empty()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_THAT((*engine)->Status().conservation_error, HasSubstr("free 9, held 90, total 100"));
  const SinkRecord second = Ask(**engine, TinyRequest(20, 4, 1));
  ASSERT_TRUE(second.error.has_value());
  EXPECT_TRUE(absl::IsUnavailable(*second.error));
  EXPECT_THAT(std::string(second.error->message()), HasSubstr("free 9, held 90, total 100"));
}

}  // namespace
}  // namespace baton
