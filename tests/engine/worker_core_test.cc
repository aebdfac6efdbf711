#include "engine/worker_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/engine/worker_bench.h"

namespace baton {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// ---- answers ------------------------------------------------------------------------------------

TEST(WorkerCore, AnswersWithTheModelsTokens) {
  WorkerBench bench;
  const auto prompt = Bytes("once upon a time");
  const auto record = bench.Generate(prompt, 20);
  EXPECT_EQ(bench.core->Describe(1).name, "name");
  EXPECT_THAT(bench.core->Handles(), ElementsAre(1));
  bench.Run();
  ASSERT_TRUE(record->finish.has_value());
  EXPECT_EQ(record->tokens, bench.runner.Continuation(prompt, 20));
  EXPECT_EQ(record->finish->reason, FinishReason::kLength);
  EXPECT_EQ(record->finish->prompt_tokens, 16);
  EXPECT_EQ(record->finish->completion_tokens, 20);
  EXPECT_NE(record->finish->logits_hash, 0u);
  EXPECT_EQ(record->finish->ledger.computed_tokens, 16);
  EXPECT_EQ(record->finish->ledger.prefill_chunks, 1);
  EXPECT_EQ(bench.core->counters().steps, 20);
  EXPECT_EQ(bench.core->counters().prefill_tokens, 16);
  EXPECT_EQ(bench.core->counters().decode_tokens, 19);
  EXPECT_TRUE(bench.core->Handles().empty());
  bench.ExpectAllBlocksHome();
}

TEST(WorkerCore, ChunksBatchesAndCachesChangeNoAnswer) {
  std::vector<std::vector<TokenId>> prompts;
  for (int i = 0; i < 6; ++i) {
    prompts.push_back(Bytes("a common beginning, then " + std::string(i * 5, 'x')));
  }
  for (const int32_t chunk : {1, 3, 64}) {
    for (const bool prefix_cache : {false, true}) {
      WorkerBench bench(
          {.token_budget = 16, .max_chunk_tokens = chunk, .prefix_cache = prefix_cache});
      std::vector<std::shared_ptr<SinkRecord>> records;
      for (const auto& prompt : prompts) records.push_back(bench.Generate(prompt, 9));
      bench.Run();
      for (size_t i = 0; i < prompts.size(); ++i) {
        EXPECT_EQ(records[i]->tokens, bench.runner.Continuation(prompts[i], 9));
      }
      bench.ExpectAllBlocksHome();
    }
  }
}

TEST(WorkerCore, TheLedgerShowsTheCachedTokens) {
  WorkerBench bench;
  const auto prompt = Bytes("0123456789abcde");
  bench.Generate(prompt, 1);
  bench.Run();
  const auto again = bench.Generate(prompt, 1);
  bench.Run();
  EXPECT_EQ(again->finish->ledger.cached_tokens, 12);
  EXPECT_EQ(again->finish->ledger.computed_tokens, 3);
}

TEST(WorkerCore, QueueTimeEndsWhenTheFirstBlocksAreTaken) {
  WorkerBench bench({.max_running = 1});
  bench.Generate(Bytes("first"), 3);
  const auto second = bench.Generate(Bytes("second"), 1);
  bench.Run();
  EXPECT_EQ(second->finish->ledger.queue_us, 300);
}

TEST(WorkerCore, EndsAtAStopStringAcrossTokens) {
  WorkerBench bench;
  bench.runner.choose = [](uint64_t, int32_t length) { return Bytes("..one two three")[length]; };
  GenerateRequest request = WorkerBench::Request(Bytes("go"), 13);
  request.sampling.stop = {"o t"};
  const auto record = bench.Generate(std::move(request));
  bench.Run();
  EXPECT_EQ(record->text, "one tw");
  EXPECT_EQ(record->finish->reason, FinishReason::kStop);
  EXPECT_EQ(record->finish->completion_tokens, 9);
  bench.ExpectAllBlocksHome();
}

TEST(WorkerCore, EndTokensAreHeldBackUntilMinTokens) {
  WorkerBench bench;
  bench.runner.choose = [](uint64_t, int32_t) { return kEndToken; };
  GenerateRequest request = WorkerBench::Request(Bytes("go"), 13);
  request.sampling.min_tokens = 4;
  const auto record = bench.Generate(std::move(request));
  bench.Run();
  EXPECT_EQ(record->finish->reason, FinishReason::kStop);
  EXPECT_EQ(record->finish->completion_tokens, 5);
  EXPECT_EQ(record->tokens.back(), kEndToken);
  EXPECT_EQ(std::count(record->tokens.begin(), record->tokens.end(), kEndToken), 1);
}

TEST(WorkerCore, WithoutMaxTokensTheContextIsTheLimit) {
  WorkerBench bench({.context_length = 40});
  const auto record = bench.Generate(Bytes("01234567"), std::nullopt);
  bench.Run();
  EXPECT_EQ(record->finish->reason, FinishReason::kLength);
  EXPECT_EQ(record->finish->completion_tokens, 32);
}

TEST(WorkerCore, MoreMaxTokensThanTheContextHoldsEndWithIt) {
  WorkerBench bench({.context_length = 40});
  const auto record = bench.Generate(Bytes("01234567"), std::numeric_limits<int32_t>::max());
  bench.Run();
  EXPECT_EQ(record->finish->completion_tokens, 32);
}

TEST(WorkerCore, AFullPoolEndsALoneRequestWithLength) {
  WorkerBench bench({.num_blocks = 4});
  const auto prompt = Bytes("01234567");
  const auto record = bench.Generate(prompt, 100);
  bench.Run();
  EXPECT_EQ(record->finish->reason, FinishReason::kLength);
  // 16 slots, and one token after them.
  EXPECT_EQ(record->tokens, bench.runner.Continuation(prompt, 9));
  bench.ExpectAllBlocksHome();
}

TEST(WorkerCore, LogProbabilitiesComeWithEveryToken) {
  WorkerBench bench;
  GenerateRequest request = WorkerBench::Request(Bytes("go"), 5);
  request.sampling.logprobs = 2;
  const auto record = bench.Generate(std::move(request));
  bench.Run();
  ASSERT_EQ(record->logprobs.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    ASSERT_EQ(record->logprobs[i].top.size(), 2u);
    EXPECT_EQ(record->logprobs[i].top[0].token, record->tokens[i]);
    EXPECT_LT(record->logprobs[i].logprob, 0);
  }
}

// ---- refusals -----------------------------------------------------------------------------------

absl::Status RefusalOf(WorkerBench& bench, GenerateRequest request) {
  const auto record = bench.Generate(std::move(request));
  EXPECT_TRUE(record->error.has_value());
  bench.ExpectAllBlocksHome();
  return record->error.value_or(absl::OkStatus());
}

TEST(WorkerCore, RefusalsNameTheValueAndTheLimit) {
  WorkerBench bench({.context_length = 16});
  EXPECT_THAT(RefusalOf(bench, WorkerBench::Request({}, 1)).message(), HasSubstr("no tokens"));
  EXPECT_THAT(RefusalOf(bench, WorkerBench::Request(Bytes("0123456789abcdef"), 1)).message(),
              AllOf(HasSubstr("16 tokens"), HasSubstr("context of 16")));
  EXPECT_THAT(RefusalOf(bench, WorkerBench::Request({1, 2, 257}, 1)).message(),
              AllOf(HasSubstr("prompt_token_ids[2] is 257"), HasSubstr("[0, 256] is allowed")));
  EXPECT_THAT(RefusalOf(bench, WorkerBench::Request({-1}, 1)).message(), HasSubstr("is -1"));
  EXPECT_THAT(RefusalOf(bench, WorkerBench::Request({1}, 0)).message(), HasSubstr("max_tokens"));
  GenerateRequest request = WorkerBench::Request({1}, 1);
  request.sampling.temperature = -1;
  EXPECT_THAT(RefusalOf(bench, request).message(), HasSubstr("temperature is -1"));
  EXPECT_EQ(bench.core->counters().failures, 6);
  EXPECT_EQ(bench.core->counters().requests, 6);
}

TEST(WorkerCore, RefusesAPromptThatThePoolCanNeverHold) {
  WorkerBench bench({.num_blocks = 2});
  const absl::Status status = RefusalOf(bench, WorkerBench::Request(Bytes("0123456789"), 1));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("3 blocks"), HasSubstr("pool has 2")));
}

TEST(WorkerCore, RefusesRequestsBeyondTheQueueLimit) {
  WorkerBench bench({.max_waiting = 1});
  const auto first = bench.Generate(Bytes("first"), 1);
  const auto second = bench.Generate(Bytes("second"), 1);
  EXPECT_EQ(second->error->code(), absl::StatusCode::kResourceExhausted);
  bench.Run();
  EXPECT_TRUE(first->finish.has_value());
}

TEST(WorkerCore, WithoutATransportNothingIsHandedOver) {
  WorkerBench bench;
  WorkerCore alone({.vocabulary = kFakeVocabulary, .context_length = 64, .block_size = 4},
                   &bench.cache, &bench.scheduler, &bench.runner, nullptr, bench.tokenizer.get(),
                   &bench.clock, [&bench] { return bench.next_transfer_id(); });
  GenerateRequest request = WorkerBench::Request({1}, 1);
  request.remote_prefill = true;
  auto record = std::make_shared<SinkRecord>();
  alone.AddGenerate(1, request, std::make_shared<RecordingSink>(record));
  EXPECT_EQ(record->error->code(), absl::StatusCode::kFailedPrecondition);
  auto prefill = std::make_shared<PrefillRecord>();
  PrefillRequest prefill_request;
  prefill_request.prompt = {1};
  prefill_request.ticket = bench.Ticket(1);
  alone.AddPrefill(2, prefill_request, std::make_shared<RecordingPrefillSink>(prefill));
  EXPECT_EQ(prefill->done->status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(alone.PrefillLocally(1, Epoch(0)).code(), absl::StatusCode::kNotFound);
  alone.PollTransfers();
  EXPECT_TRUE(alone.idle());
}

// ---- ends ---------------------------------------------------------------------------------------

TEST(WorkerCore, CancelEndsARequestInEveryPhaseAndGivesItsBlocksBack) {
  for (int turns = 0; turns < 6; ++turns) {
    WorkerBench bench({.max_chunk_tokens = 4});
    const auto record = bench.Generate(Bytes("0123456789"), 5);
    for (int i = 0; i < turns; ++i) bench.Turn();
    bench.core->Cancel(1);
    EXPECT_EQ(record->error->code(), absl::StatusCode::kCancelled);
    bench.core->Cancel(1);
    bench.core->Cancel(1234);
    bench.Run();
    bench.ExpectAllBlocksHome();
  }
}

TEST(WorkerCore, AStepEndsEarlyOnceNoRequestWantsItsResult) {
  WorkerBench bench;
  GenerateRequest request = WorkerBench::Request(Bytes("too late for this"), 10);
  request.timeout_ms = 1;
  const auto late = bench.Generate(request);
  const RequestHandle late_handle = bench.last_handle;
  const auto cancelled = bench.Generate(Bytes("and this one is not wanted"), 10);
  bench.runner.during_step = [&] {
    bench.clock.AdvanceUs(1000);
    bench.cancels.Add(late_handle + 1);
    bench.runner.during_step = nullptr;
  };
  bench.Turn();
  EXPECT_EQ(late->error->code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(cancelled->error->code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(bench.core->counters().prefill_tokens, 0);
  bench.core->Cancel(late_handle + 1);  // arrives late
  bench.ExpectAllBlocksHome();
}

TEST(WorkerCore, AStepContinuesWhileOneOfItsRequestsIsWanted) {
  for (const int unwanted : {0, 1}) {  // before and after the other chunk
    WorkerBench bench;
    const std::vector<std::vector<TokenId>> prompts = {Bytes("0123456789"), Bytes("abcdefghijkl")};
    const std::shared_ptr<SinkRecord> records[] = {bench.Generate(prompts[0], 5),
                                                   bench.Generate(prompts[1], 5)};
    bench.cancels.Add(1 + unwanted);
    bench.Turn();
    bench.core->Cancel(1 + unwanted);
    bench.Run();
    EXPECT_EQ(records[1 - unwanted]->tokens, bench.runner.Continuation(prompts[1 - unwanted], 5));
    EXPECT_EQ(records[unwanted]->error->code(), absl::StatusCode::kCancelled);
    bench.ExpectAllBlocksHome();
  }
}

TEST(WorkerCore, RowsThatAStepSkippedAreNeverCached) {
  WorkerBench bench({.max_chunk_tokens = 8});
  const auto prompt = Bytes("0123456789abcdefghij");
  const auto decodes = bench.Generate(Bytes("beside it"), 20);
  bench.Turn();
  bench.Generate(prompt, 5);
  const RequestHandle unwanted = bench.last_handle;
  bench.Turn();
  EXPECT_EQ(bench.CachedTokens(prompt), 8);
  // Cancels in the middle of the second chunk.
  bench.runner.after_chunk = [&] { bench.cancels.Add(unwanted); };
  bench.Turn();
  bench.runner.after_chunk = nullptr;
  EXPECT_EQ(bench.CachedTokens(prompt), 8);
  const auto again = bench.Generate(prompt, 5);
  bench.Run();
  EXPECT_EQ(again->tokens, bench.runner.Continuation(prompt, 5));
  EXPECT_EQ(decodes->tokens, bench.runner.Continuation(Bytes("beside it"), 20));
  bench.ExpectAllBlocksHome();
}

TEST(WorkerCore, ADeadlineEndsItsRequestAlone) {
  WorkerBench bench;
  GenerateRequest request = WorkerBench::Request(Bytes("late"), 100);
  request.timeout_ms = 1;
  const auto late = bench.Generate(request);
  request.timeout_ms = 50;
  const auto in_time = bench.Generate(request);
  EXPECT_EQ(bench.core->CheckDeadlines(), bench.clock.NowUs() + 1000);
  for (int i = 0; i < 5; ++i) bench.Turn();
  bench.clock.AdvanceUs(1000);
  EXPECT_EQ(bench.core->CheckDeadlines(), 1'000'000 + 50'000);
  EXPECT_EQ(late->error->code(), absl::StatusCode::kDeadlineExceeded);
  bench.Run();
  EXPECT_TRUE(in_time->finish.has_value());
  EXPECT_EQ(bench.core->CheckDeadlines(), std::nullopt);
  bench.ExpectAllBlocksHome();
}

TEST(WorkerCore, TheLongestTimeoutIsNoDeadlineInThePast) {
  WorkerBench bench;
  GenerateRequest request = WorkerBench::Request(Bytes("patient"), 3);
  request.timeout_ms = std::numeric_limits<int64_t>::max();
  const auto record = bench.Generate(request);
  bench.Run();
  EXPECT_TRUE(record->finish.has_value());
}

TEST(WorkerCore, AFailedStepEndsOnlyItsRequests) {
  WorkerBench bench({.max_running = 1});
  const auto first = bench.Generate(Bytes("first"), 5);
  const auto second = bench.Generate(Bytes("second"), 5);
  bench.Turn();
  bench.runner.next_status = absl::InternalError("device lost");
  bench.Run();
  EXPECT_EQ(first->error->message(), "device lost");
  EXPECT_EQ(second->tokens, bench.runner.Continuation(Bytes("second"), 5));
  EXPECT_EQ(bench.core->counters().failures, 1);
  bench.ExpectAllBlocksHome();
}

TEST(WorkerCore, NaNLogitsEndTheirRequestAlone) {
  WorkerBench bench;
  bench.runner.poison = '!';
  const auto bad = bench.Generate(Bytes("oh no!"), 5);
  const auto good = bench.Generate(Bytes("fine"), 5);
  bench.Run();
  EXPECT_EQ(bad->error->code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(bad->tokens.empty());
  EXPECT_EQ(good->tokens, bench.runner.Continuation(Bytes("fine"), 5));
  bench.ExpectAllBlocksHome();
}

TEST(WorkerCore, ShutdownEndsEveryRequest) {
  WorkerBench bench({.max_running = 1});
  const auto runs = bench.Generate(Bytes("runs"), 50);
  const auto waits = bench.Generate(Bytes("waits"), 50);
  bench.Turn();
  bench.core->Shutdown(absl::CancelledError("over"));
  EXPECT_EQ(runs->error->message(), "over");
  EXPECT_EQ(waits->error->message(), "over");
  bench.ExpectAllBlocksHome();
}

// ---- preemption ---------------------------------------------------------------------------------

TEST(WorkerCore, APreemptedRequestHasTheSameAnswerAndKeepsItsLedger) {
  for (const bool prefix_cache : {false, true}) {
    WorkerBench bench({.num_blocks = 8, .prefix_cache = prefix_cache});
    const auto first = bench.Generate(Bytes("aaaaaaa"), 20);
    const auto second = bench.Generate(Bytes("bbbbbbb"), 20);
    bench.Run();
    EXPECT_EQ(first->tokens, bench.runner.Continuation(Bytes("aaaaaaa"), 20));
    EXPECT_EQ(second->tokens, bench.runner.Continuation(Bytes("bbbbbbb"), 20));
    const RequestLedger& ledger = second->finish->ledger;
    EXPECT_GT(ledger.preemptions, 0);
    EXPECT_EQ(ledger.preemptions, bench.scheduler.preemption_count());
    EXPECT_EQ(ledger.computed_tokens, 7);
    EXPECT_EQ(ledger.prefill_chunks, 1);
    EXPECT_EQ(ledger.cached_tokens, 0);
    EXPECT_EQ(ledger.queue_us, 0);
    EXPECT_EQ(ledger.prefill_us, 0);  // the clock does not advance during a step
    bench.ExpectAllBlocksHome();
  }
}

TEST(WorkerCore, APreemptedReceiverKeepsTheSendersLedger) {
  WorkerBench bench({.num_blocks = 8, .prefix_cache = false});
  const auto prompt = Bytes("bbbbbbb");
  const auto first = bench.Generate(Bytes("aaaaaaa"), 20);
  bench.Turn();
  const auto second = bench.GenerateRemote(prompt, 20);
  bench.fake.Deliver(2, prompt, bench.Manifest(prompt));
  bench.Run();
  EXPECT_EQ(second->tokens, bench.runner.Continuation(prompt, 20));
  EXPECT_GT(second->finish->ledger.preemptions, 0);
  EXPECT_EQ(second->finish->ledger.queue_us, 4);
  EXPECT_EQ(second->finish->ledger.prefill_us, 5);
  EXPECT_EQ(second->finish->ledger.prefill_chunks, 3);
  EXPECT_EQ(second->finish->ledger.computed_tokens, 2);
  EXPECT_EQ(second->finish->ledger.cached_tokens, 0);
  EXPECT_EQ(second->finish->ledger.prefill_cached_tokens, 1);
  EXPECT_TRUE(first->finish.has_value());
  bench.ExpectAllBlocksHome();
}

}  // namespace
}  // namespace baton
