#include "engine/sequence_inspection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/worker_bench.h"

namespace baton {
namespace {

TEST(SequenceInspection, ReportsThePhaseOfEverySequence) {
  WorkerBench bench({.max_running = 1});
  GenerateRequest choices = WorkerBench::Request(Bytes("a prompt!"), 20);
  choices.request_id = "runs";
  bench.Generate(choices);
  bench.Generate(Bytes("waits"), 5);
  bench.Turn();
  const auto sequences = InspectSequences(*bench.core, bench.scheduler, bench.cache);
  ASSERT_EQ(sequences.size(), 2u);
  EXPECT_EQ(sequences[0].sequence_id, 1u);
  EXPECT_EQ(sequences[0].request_id, "runs");
  EXPECT_EQ(sequences[0].phase, "running");
  EXPECT_EQ(sequences[0].tokens, 10);
  EXPECT_EQ(sequences[0].committed, 9);
  EXPECT_EQ(sequences[0].blocks.size(), 3u);
  EXPECT_EQ(sequences[1].phase, "waiting");
  EXPECT_EQ(sequences[1].tokens, 5);
  EXPECT_TRUE(sequences[1].blocks.empty());
  bench.Run();
}

TEST(SequenceInspection, ShowsChoicesThatWaitForTheirPromptAndPrefillsThatDeliver) {
  WorkerBench bench;
  GenerateRequest choices = WorkerBench::Request(Bytes("a prompt!"), 2);
  choices.n = 2;
  bench.Generate(choices);
  const std::vector<TokenId> prompt = Bytes("for a peer");
  bench.Prefill(prompt, bench.Ticket(prompt.size()));
  auto sequences = InspectSequences(*bench.core, bench.scheduler, bench.cache);
  ASSERT_EQ(sequences.size(), 3u);
  EXPECT_EQ(sequences[0].phase, "waiting");
  EXPECT_EQ(sequences[1].phase, "waiting for its prompt");
  bench.Turn();
  sequences = InspectSequences(*bench.core, bench.scheduler, bench.cache);
  EXPECT_EQ(sequences.back().phase, "delivering");
  bench.fake.EndSend(3, absl::OkStatus());
  bench.Run();
}

}  // namespace
}  // namespace baton
