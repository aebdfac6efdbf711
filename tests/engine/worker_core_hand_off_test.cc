// Two workers joined by the real loopback transport: one prefills, the other decodes.
#include <gtest/gtest.h>

#include "engine/worker_core.h"
#include "tests/engine/worker_bench.h"

namespace baton {
namespace {

TEST(WorkerCoreHandOff, TwoWorkersSayWhatOneSays) {
  const auto network = CreateLoopbackNetwork();
  for (const int32_t chunk : {3, 64}) {
    WorkerBench prefills({.max_chunk_tokens = chunk}, network, "prefill");
    WorkerBench decodes({}, network, "decode");
    WorkerBench alone;
    std::vector<std::pair<std::shared_ptr<SinkRecord>, std::shared_ptr<PrefillRecord>>> pairs;
    std::vector<std::shared_ptr<SinkRecord>> single;
    for (int i = 0; i < 6; ++i) {  // alike at the beginning; whole and part-full last blocks
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

TEST(WorkerCoreHandOff, AReceiverThatGaveUpFailsTheSenderAndBothGoOn) {
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
  const auto refused = prefills.Prefill(prompt, *gives_up->ticket);  // nobody waits for it
  RunBoth(prefills, decodes);
  EXPECT_FALSE(refused->done->ok());
  prefills.ExpectAllBlocksHome();
  decodes.ExpectAllBlocksHome();
}

TEST(WorkerCoreHandOff, ASenderThatGaveUpIsComputedAtTheReceiver) {
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
