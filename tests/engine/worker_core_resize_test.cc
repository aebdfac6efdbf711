// Requests while the pool is resized.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/worker_core.h"
#include "tests/engine/worker_bench.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

TEST(WorkerCoreResize, AWaitingRequestThatCanNeverFitIsRefusedWithBothNumbers) {
  WorkerBench bench({.num_blocks = 16, .max_blocks = 16, .max_running = 1});
  const auto runs = bench.Generate(Bytes("abcdefgh"), 4);
  bench.Turn();
  const auto fits = bench.Generate(Bytes("ijklmnop"), 4);
  const auto too_long = bench.Generate(Bytes("qrstuvwxyzqrstuvwxyz"), 4);
  bench.Resize(4);
  ASSERT_TRUE(too_long->error.has_value()) << "refused at once";
  EXPECT_EQ(too_long->error->code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(too_long->error->message()),
              HasSubstr("20 tokens, which needs 5 blocks"));
  EXPECT_THAT(std::string(too_long->error->message()), HasSubstr("KV pool of 4 blocks"));
  bench.Run();
  EXPECT_EQ(runs->tokens.size(), 4u);
  EXPECT_EQ(fits->tokens.size(), 4u);
  const auto late = bench.Generate(Bytes("qrstuvwxyzqrstuvwxyz"), 4);
  EXPECT_EQ(late->error->code(), absl::StatusCode::kResourceExhausted);
  bench.ExpectAllBlocksHome();
}

TEST(WorkerCoreResize, AnAnswerThatThePoolCanNoLongerHoldEndsEarly) {
  WorkerBench bench({.num_blocks = 16, .max_blocks = 16});
  const auto record = bench.Generate(Bytes("abcdefghijklmnop"), 20);
  for (int i = 0; i < 6; ++i) bench.Turn();
  const size_t said = record->tokens.size();
  ASSERT_GT(said, 1u);
  bench.Resize(3);
  bench.Run();
  ASSERT_TRUE(record->finish.has_value());
  EXPECT_EQ(record->finish->reason, FinishReason::kLength);
  EXPECT_GE(record->tokens.size(), said);
  EXPECT_LT(record->tokens.size(), 20u);
  EXPECT_EQ(record->tokens, bench.runner.Continuation(Bytes("abcdefghijklmnop"),
                                                      static_cast<int32_t>(record->tokens.size())));
  bench.ExpectAllBlocksHome();
}

TEST(WorkerCoreResize, RunningRequestsPreemptEachOtherAndAllFinish) {
  WorkerBench bench({.num_blocks = 32, .max_blocks = 32, .context_length = 40});
  std::vector<std::shared_ptr<SinkRecord>> records;
  const std::vector<std::string> prompts = {"abcdefgh", "ijklmnop", "qrstuvwx", "yzabcdef"};
  for (const std::string& prompt : prompts) records.push_back(bench.Generate(Bytes(prompt), 16));
  for (int i = 0; i < 5; ++i) bench.Turn();
  bench.Resize(8);
  EXPECT_GT(bench.cache.retiring_blocks(), 0);
  for (int i = 0; i < 1000 && bench.Turn(); ++i) {
    bench.DiscardRetired();
    ASSERT_TRUE(bench.cache.CheckConservation().ok()) << bench.cache.CheckConservation();
  }
  EXPECT_GT(bench.scheduler.preemption_count(), 0);
  for (size_t i = 0; i < prompts.size(); ++i) {
    ASSERT_TRUE(records[i]->finish.has_value());
    EXPECT_EQ(records[i]->tokens, bench.runner.Continuation(Bytes(prompts[i]), 16));
  }
  EXPECT_EQ(bench.cache.retiring_blocks(), 0);
  bench.ExpectAllBlocksHome();
}

TEST(WorkerCoreResize, ARequestThatWaitsForBlocksContinuesWhenThePoolGrows) {
  WorkerBench bench({.num_blocks = 6, .max_blocks = 20});
  const auto ticket = bench.GenerateRemote(Bytes("abcdefghijklmnopqrst"), 2);  // 5 of 6 blocks
  ASSERT_TRUE(ticket->ticket.has_value());
  const auto waits = bench.Generate(Bytes("uvwxyzuvwxyz"), 3);
  bench.Run();
  EXPECT_TRUE(waits->tokens.empty()) << "it waits until the transfer ends";
  bench.Resize(20);
  bench.Run();
  EXPECT_EQ(waits->tokens.size(), 3u);
  bench.core->Shutdown(absl::CancelledError("over"));
  bench.fake.FailReceive(1, absl::CancelledError("over"));
  bench.Run();
  bench.ExpectAllBlocksHome();
}

TEST(WorkerCoreResize, ATransferKeepsItsBlocksUntilItEnds) {
  WorkerBench bench({.num_blocks = 16, .max_blocks = 16});
  const std::vector<TokenId> prompt = Bytes("abcdefghijklmnop");
  const auto prefill = bench.Prefill(prompt, bench.Ticket(prompt.size()));
  bench.Run();
  ASSERT_EQ(bench.fake.sends.size(), 1u);
  bench.Resize(1);
  EXPECT_EQ(bench.cache.retiring_blocks(), 3);
  bench.DiscardRetired();
  bench.fake.EndSend(1, absl::OkStatus());  // checks that the announced blocks are unchanged
  bench.Run();
  EXPECT_EQ(bench.cache.retiring_blocks(), 0);
  EXPECT_TRUE(prefill->done.has_value());
  bench.ExpectAllBlocksHome();
}

}  // namespace
}  // namespace baton
