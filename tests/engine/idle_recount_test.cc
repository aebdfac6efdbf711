#include "engine/idle_recount.h"

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

TEST(IdleRecount, IsMadeAfterWorkAndNotOften) {
  ManualClock clock;
  int recounts = 0;
  IdleRecount recount(
      [&recounts] {
        ++recounts;
        return absl::OkStatus();
      },
      &clock);
  recount.OnIdle();
  EXPECT_EQ(recounts, 0) << "nothing was done";
  recount.Worked();
  recount.OnIdle();
  recount.OnIdle();
  EXPECT_EQ(recounts, 1);
  recount.Worked();
  clock.AdvanceUs(IdleRecount::kIntervalUs - 1);
  recount.OnIdle();
  EXPECT_EQ(recounts, 1) << "too early";
  clock.AdvanceUs(1);
  recount.OnIdle();
  EXPECT_EQ(recounts, 2) << "of the work that was done meanwhile";
  EXPECT_TRUE(recount.error().ok());
}

TEST(IdleRecount, TheFirstErrorIsFinal) {
  ManualClock clock;
  absl::Status found = absl::InternalError("block 3 is in 1 tables but has 2 sequence holds");
  IdleRecount recount([&found] { return found; }, &clock);
  recount.Worked();
  recount.OnIdle();
  EXPECT_TRUE(absl::IsUnavailable(recount.error()));
  EXPECT_THAT(std::string(recount.error().message()), HasSubstr("block 3 is in 1 tables"));
  found = absl::OkStatus();
  recount.Worked();
  clock.AdvanceUs(10 * IdleRecount::kIntervalUs);
  recount.OnIdle();
  EXPECT_FALSE(recount.error().ok());
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
  EXPECT_THAT(std::string(found.message()), HasSubstr("1 transfer holds, transfers own 0"));
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

TEST(WorkerCoreConservation, ASequenceThatNobodyAnswersForIsFoundAtIdle) {
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

TEST(EngineConservation, AMismatchIsToldAndEndsNewWork) {
  EngineOptions options = TinyOptions();
  options.also_recount = [] { return absl::InternalError("free 9, held 90, total 100"); };
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
