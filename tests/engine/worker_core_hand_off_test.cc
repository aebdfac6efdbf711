// Two workers connected by the real loopback transport: one prefills, the other decodes.
#include <gtest/gtest.h>

#include "engine/worker_core.h"
#include "kvtransfer/loopback/loopback_transport.h"
#include "tests/engine/worker_bench.h"

namespace baton {
namespace {

TEST(WorkerCoreHandOff, TwoWorkersGiveTheAnswersOfOne) {
  const auto network = CreateLoopbackNetwork();
  for (const int32_t chunk : {3, 64}) {
    WorkerBench prefills({.max_chunk_tokens = chunk}, network, "prefill");
    WorkerBench decodes({}, network, "decode");
    WorkerBench alone;
    std::vector<std::pair<std::shared_ptr<SinkRecord>, std::shared_ptr<PrefillRecord>>> pairs;
    std::vector<std::shared_ptr<SinkRecord>> single;
    for (int i = 0; i < 6; ++i) {  // common prefixes; whole and part-full last blocks
      GenerateRequest request =
          WorkerBench::Request(Bytes("common text " + std::string(i, 'x')), 10);
      request.sampling.temperature = i % 2 == 0 ? 0.0f : 3.0f;
      request.sampling.seed = 7 + i;
      request.sampling.repetition_penalty = 1.2f;
      single.push_back(alone.Generate(request));
      request.remote_prefill = true;
      const auto record = decodes.Generate(request);
      ASSERT_TRUE(record->ticket.has_value());
      pairs.emplace_back(record,
                         prefills.Prefill(request.prompt, *record->ticket, request.sampling));
    }
    alone.Run();
    RunBoth(prefills, decodes);
    for (size_t i = 0; i < pairs.size(); ++i) {
      const auto& [record, prefill] = pairs[i];
      ASSERT_TRUE(record->finish.has_value()) << i;
      ASSERT_TRUE(single[i]->finish.has_value()) << i;
      EXPECT_EQ(record->tokens, single[i]->tokens);
      EXPECT_EQ(record->text, single[i]->text);
      EXPECT_EQ(record->finish->logits_hash, single[i]->finish->logits_hash);
      EXPECT_TRUE(prefill->done.has_value() && prefill->done->ok());
      EXPECT_GT(record->finish->ledger.kv_bytes, 0);
    }
    EXPECT_EQ(decodes.core->counters().prefill_tokens, 0);
    prefills.ExpectAllBlocksHome();
    decodes.ExpectAllBlocksHome();
  }
}

// Also if one side has a cached prefix that ends inside a block of the other.
TEST(WorkerCoreHandOff, WorkersWithDifferentBlockSizesGiveTheAnswersOfOne) {
  const auto network = CreateLoopbackNetwork();
  for (const auto& [theirs, ours] : std::vector<std::pair<int32_t, int32_t>>{
           {4, 16}, {16, 4}, {1, 32}, {32, 1}, {8, 4}, {4, 8}}) {
    SCOPED_TRACE(testing::Message() << theirs << " to " << ours);
    for (const int32_t chunk : {3, 64}) {
      WorkerBench prefills(
          {.num_blocks = 512 / theirs, .block_size = theirs, .max_chunk_tokens = chunk}, network,
          "prefill");
      WorkerBench decodes({.num_blocks = 512 / ours, .block_size = ours}, network, "decode");
      const std::string common = "what both of them begin with, 42 tokens of it";
      decodes.Cache(Bytes(common.substr(0, 37)));  // ends inside a block on both sides
      prefills.Cache(Bytes(common.substr(0, 21)));
      std::vector<std::pair<std::vector<TokenId>, std::shared_ptr<SinkRecord>>> answers;
      for (const size_t length : {3, 16, 31, 32, 33, 40}) {
        const std::vector<TokenId> prompt =
            Bytes(common.substr(0, length) + std::string(length % 7, 'x'));
        const auto record = decodes.GenerateRemote(prompt, 6);
        ASSERT_TRUE(record->ticket.has_value());
        EXPECT_EQ(record->ticket->block_size, ours);
        prefills.Prefill(prompt, *record->ticket);
        answers.emplace_back(prompt, record);
      }
      const auto computed_before = decodes.core->counters().prefill_tokens;
      RunBoth(prefills, decodes);
      for (const auto& [prompt, record] : answers) {
        ASSERT_TRUE(record->finish.has_value()) << prompt.size();
        EXPECT_EQ(record->tokens, decodes.runner.Continuation(prompt, 6)) << prompt.size();
      }
      EXPECT_EQ(decodes.core->counters().prefill_tokens, computed_before)
          << "the prefill worker computed it";
      prefills.ExpectAllBlocksHome();
      decodes.ExpectAllBlocksHome();
    }
  }
}

// Blocks that landed before the sender was lost are kept if they are whole here.
TEST(WorkerCoreHandOff, HalfABlockOfALostSenderIsComputed) {
  const auto network = CreateLoopbackNetwork();
  WorkerBench prefills({.num_blocks = 64, .block_size = 4, .max_chunk_tokens = 4}, network,
                       "prefill");
  WorkerBench decodes({.num_blocks = 16, .block_size = 16}, network, "decode");
  const auto prompt = Bytes("0123456789abcdefghijklmnopqrstuvwxyz");
  const auto record = decodes.GenerateRemote(prompt, 5);
  const auto prefill = prefills.Prefill(prompt, *record->ticket);
  for (int i = 0; i < 7; ++i) prefills.Turn();
  prefills.core->Shutdown(absl::CancelledError("over"));
  EXPECT_TRUE(decodes.core->PrefillLocally(1, decodes.loopback->epoch()).ok());
  RunBoth(prefills, decodes);
  ASSERT_TRUE(record->finish.has_value());
  EXPECT_EQ(record->tokens, decodes.runner.Continuation(prompt, 5));
  prefills.ExpectAllBlocksHome();
  decodes.ExpectAllBlocksHome();
}

TEST(WorkerCoreHandOff, ACancelledReceiverFailsTheSenderAndBothWorkersContinue) {
  const auto network = CreateLoopbackNetwork();
  WorkerBench prefills({.max_chunk_tokens = 4}, network, "prefill");
  WorkerBench decodes({}, network, "decode");
  const auto prompt = Bytes("0123456789abcdefgh");
  const auto gives_up = decodes.GenerateRemote(prompt, 5);
  const auto prefill = prefills.Prefill(prompt, *gives_up->ticket);
  prefills.Turn();
  decodes.core->Cancel(1);
  RunBoth(prefills, decodes);
  EXPECT_EQ(gives_up->error->code(), absl::StatusCode::kCancelled);
  EXPECT_FALSE(prefill->done->ok());
  const auto refused = prefills.Prefill(prompt, *gives_up->ticket);  // the request has ended
  RunBoth(prefills, decodes);
  EXPECT_FALSE(refused->done->ok());
  prefills.ExpectAllBlocksHome();
  decodes.ExpectAllBlocksHome();
}

TEST(WorkerCoreHandOff, ThePromptOfACancelledSenderIsComputedAtTheReceiver) {
  const auto network = CreateLoopbackNetwork();
  WorkerBench prefills({.max_chunk_tokens = 4}, network, "prefill");
  WorkerBench decodes({}, network, "decode");
  const auto prompt = Bytes("0123456789abcdefgh");
  const auto record = decodes.GenerateRemote(prompt, 5);
  const auto prefill = prefills.Prefill(prompt, *record->ticket);
  prefills.Turn();
  prefills.core->Shutdown(absl::CancelledError("over"));
  EXPECT_TRUE(decodes.core->PrefillLocally(1, decodes.loopback->epoch()).ok());
  RunBoth(prefills, decodes);
  EXPECT_EQ(prefill->done->status().message(), "over");
  EXPECT_EQ(record->tokens, decodes.runner.Continuation(prompt, 5));
  prefills.ExpectAllBlocksHome();
  decodes.ExpectAllBlocksHome();
}

}  // namespace
}  // namespace baton
