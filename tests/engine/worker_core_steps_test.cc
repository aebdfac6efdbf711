// WorkerCore with steps in flight: events between a step's submission and its collection.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "engine/worker_core.h"
#include "tests/engine/worker_bench.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

BenchOptions TwoSteps(BenchOptions options = {}) {
  options.asynchronous = true;
  options.steps_in_flight = 2;
  return options;
}

// The first `count` tokens of a greedy request's answer.
std::vector<TokenId> Answer(const WorkerBench& bench, const std::string& prompt, int32_t count) {
  return bench.runner.Continuation(Bytes(prompt), count);
}

void Drain(WorkerBench& bench) {
  bench.Run();
  bench.ExpectAllBlocksHome();
  EXPECT_TRUE(bench.core->CheckConservation().ok()) << bench.core->CheckConservation();
}

TEST(WorkerCoreSteps, SubmitsAStepWhileOneRuns) {
  WorkerBench bench(TwoSteps());
  const auto record = bench.Generate(Bytes("a prompt"), 4);
  bench.core->Step();
  EXPECT_EQ(bench.core->steps_in_flight(), 2);
  EXPECT_FALSE(bench.core->has_work()) << "both are running";
  EXPECT_TRUE(record->tokens.empty());
  bench.deferred.FinishOne();
  EXPECT_TRUE(bench.core->has_work());
  bench.core->Step();
  EXPECT_EQ(record->tokens, Answer(bench, "a prompt", 1));
  EXPECT_EQ(bench.core->steps_in_flight(), 2);
  Drain(bench);
  EXPECT_EQ(record->tokens, Answer(bench, "a prompt", 4));
  EXPECT_EQ(bench.runner.counts.size(), 4u) << "no row after the last token";
}

TEST(WorkerCoreSteps, OneStepInFlightIsOneAtATime) {
  WorkerBench bench({.asynchronous = true});
  const auto record = bench.Generate(Bytes("a prompt"), 2);
  bench.core->Step();
  EXPECT_EQ(bench.core->steps_in_flight(), 1);
  bench.core->Step();
  EXPECT_EQ(bench.core->steps_in_flight(), 1);
  Drain(bench);
  EXPECT_EQ(record->tokens, Answer(bench, "a prompt", 2));
}

TEST(WorkerCoreSteps, ALateStopCostsARowAndNoToken) {
  WorkerBench bench(TwoSteps());
  bench.runner.choose = [](uint64_t, int32_t length) {
    return length == 10 ? kEndToken : TokenId{'x'};
  };
  const auto record = bench.Generate(Bytes("a prompt"), 50);
  const int32_t free = bench.cache.available_blocks();
  int32_t most_step_blocks = 0;
  while (bench.Turn()) {
    most_step_blocks = std::max(most_step_blocks, bench.cache.step_blocks());
    ASSERT_TRUE(bench.core->CheckConservation().ok()) << bench.core->CheckConservation();
  }
  EXPECT_THAT(record->tokens, ElementsAre('x', 'x', kEndToken));
  EXPECT_EQ(record->finish->reason, FinishReason::kStop);
  EXPECT_EQ(bench.runner.counts.size(), 4u) << "one row after the end token, then none";
  EXPECT_GT(most_step_blocks, 0);
  EXPECT_EQ(bench.cache.available_blocks(), free);
  bench.ExpectAllBlocksHome();
}

TEST(WorkerCoreSteps, ABlockHeldOnlyByAStepIsNotReservedForATransfer) {
  WorkerBench bench(TwoSteps({.num_blocks = 6, .prefix_cache = false}));
  bench.runner.choose = [](uint64_t, int32_t) { return kEndToken; };
  bench.Generate(Bytes("12345678"), 4);  // two blocks; the next row needs a third
  bench.core->Step();
  bench.deferred.FinishOne();
  bench.core->Step();
  EXPECT_EQ(bench.cache.step_blocks(), 3);
  EXPECT_EQ(bench.cache.available_blocks(), 3);
  const auto large = bench.GenerateRemote(Bytes("1234567890123"), 1);
  ASSERT_TRUE(large->error.has_value()) << "it needs 4 blocks";
  EXPECT_TRUE(absl::IsResourceExhausted(*large->error));
  bench.deferred.FinishOne();
  bench.core->Step();
  EXPECT_EQ(bench.cache.step_blocks(), 0);
  const auto now = bench.GenerateRemote(Bytes("1234567890123"), 1);
  EXPECT_TRUE(now->ticket.has_value());
  bench.core->Cancel(bench.last_handle);
  bench.fake.FailReceive(now->ticket->transfer_id, absl::CancelledError("cancelled"));
  Drain(bench);
}

TEST(WorkerCoreSteps, ACancelledRequestKeepsItsBlocksUntilItsStepsAreCollected) {
  WorkerBench bench(TwoSteps({.prefix_cache = false}));
  const auto record = bench.Generate(Bytes("a prompt"), 50);
  const auto stays = bench.Generate(Bytes("another prompt"), 5);
  bench.core->Step();
  ASSERT_EQ(bench.core->steps_in_flight(), 2);
  bench.core->Cancel(1);
  EXPECT_EQ(record->error, absl::CancelledError("the request was cancelled"));
  EXPECT_EQ(bench.cache.step_blocks(), 3);
  EXPECT_FALSE(bench.core->idle());
  bench.deferred.FinishOne();
  bench.core->Step();
  EXPECT_EQ(bench.cache.step_blocks(), 3) << "the second step also writes them";
  bench.deferred.FinishOne();
  bench.core->Step();
  EXPECT_EQ(bench.cache.step_blocks(), 0);
  Drain(bench);
  EXPECT_EQ(stays->tokens, Answer(bench, "another prompt", 5));
}

TEST(WorkerCoreSteps, AStepInFlightSeesThatItsRequestWasCancelled) {
  WorkerBench bench(TwoSteps({.prefix_cache = false}));
  const auto record = bench.Generate(Bytes("a prompt"), 50);
  bench.core->Step();
  ASSERT_EQ(bench.core->steps_in_flight(), 2);
  bench.cancels.Add(1);
  bench.core->Cancel(1);
  EXPECT_EQ(record->error, absl::CancelledError("the request was cancelled"));
  EXPECT_TRUE(bench.cancels.Contains(1)) << "the steps may look it up";
  bench.deferred.FinishOne();
  bench.core->Step();
  EXPECT_TRUE(bench.cancels.Contains(1)) << "the second step may look it up";
  bench.deferred.FinishOne();
  bench.core->Step();
  EXPECT_FALSE(bench.cancels.Contains(1));
  EXPECT_EQ(bench.core->counters().prefill_tokens, 0) << "no token was computed";
  bench.cancels.Add(1);
  bench.core->Cancel(1);
  EXPECT_FALSE(bench.cancels.Contains(1)) << "nothing is in flight";
  Drain(bench);
}

TEST(WorkerCoreSteps, ADeadlineEndsARequestWhileItsStepsRun) {
  WorkerBench bench(TwoSteps());
  GenerateRequest request = WorkerBench::Request(Bytes("a prompt"), 50);
  request.timeout_ms = 1;
  const auto record = bench.Generate(std::move(request));
  bench.core->Step();
  bench.clock.AdvanceUs(1500);
  bench.core->CheckDeadlines();
  ASSERT_TRUE(record->error.has_value());
  EXPECT_TRUE(absl::IsDeadlineExceeded(*record->error));
  EXPECT_EQ(bench.core->steps_in_flight(), 2);
  Drain(bench);
}

TEST(WorkerCoreSteps, AFailedStepFailsTheStepBehindIt) {
  WorkerBench bench(TwoSteps());
  const auto first = bench.Generate(Bytes("a prompt"), 5);
  bench.core->Step();
  const auto late = bench.Generate(Bytes("another prompt"), 5);
  bench.deferred.FinishOne();
  bench.core->Step();  // the second step has only the first request, the third has both
  bench.runner.next_status = absl::InternalError("the device is lost");
  bench.deferred.FinishOne();
  bench.core->Step();
  EXPECT_EQ(first->error, absl::InternalError("the device is lost"));
  EXPECT_EQ(late->error, absl::InternalError("the device is lost"));
  Drain(bench);
  const auto next = bench.Generate(Bytes("one more"), 2);
  Drain(bench);
  EXPECT_EQ(next->tokens, Answer(bench, "one more", 2));
}

TEST(WorkerCoreSteps, ARowThatAllowsNoTokenFailsItsRequestAlone) {
  WorkerBench bench(TwoSteps());
  bench.runner.poison = '!';
  const auto bad = bench.Generate(Bytes("poison!"), 5);
  const auto good = bench.Generate(Bytes("a prompt"), 5);
  Drain(bench);
  ASSERT_TRUE(bad->error.has_value());
  EXPECT_THAT(std::string(bad->error->message()), HasSubstr("logit of token 7 is nan"));
  EXPECT_EQ(good->tokens, Answer(bench, "a prompt", 5));
}

TEST(WorkerCoreSteps, PenaltiesWaitForEveryToken) {
  GenerateRequest request = WorkerBench::Request(Bytes("a prompt"), 6);
  request.sampling.temperature = 2.0f;
  request.sampling.seed = 3;
  request.sampling.frequency_penalty = 1.0f;
  WorkerBench inline_bench;
  const auto expected = inline_bench.Generate(request);
  inline_bench.Run();
  WorkerBench bench(TwoSteps());
  const auto record = bench.Generate(request);
  bench.core->Step();
  EXPECT_EQ(bench.core->steps_in_flight(), 1) << "no row depends on an unknown token";
  Drain(bench);
  EXPECT_EQ(record->tokens, expected->tokens);
  EXPECT_EQ(record->finish->logits_hash, expected->finish->logits_hash);
}

TEST(WorkerCoreSteps, SamplesAsAnInlineDeviceDoes) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    GenerateRequest request = WorkerBench::Request(Bytes("a prompt"), 12);
    request.sampling.temperature = 1.5f;
    request.sampling.seed = seed;
    request.sampling.top_k = seed % 3 == 0 ? 20 : 0;
    request.sampling.top_p = seed % 2 == 0 ? 0.8f : 1.0f;
    request.sampling.min_p = seed % 5 == 0 ? 0.1f : 0.0f;
    request.sampling.logit_bias = {{'q', 3.0f}, {kEndToken, 4.0f}};
    request.sampling.min_tokens = static_cast<int32_t>(seed % 12);
    request.sampling.logprobs = 2;
    request.n = seed % 4 == 0 ? 3 : 1;
    WorkerBench inline_bench;
    const auto expected = inline_bench.Generate(request);
    inline_bench.Run();
    WorkerBench bench(TwoSteps());
    const auto record = bench.Generate(request);
    Drain(bench);
    for (int32_t choice = 0; choice < request.n; ++choice) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed << ", choice " << choice);
      const SinkRecord& one = record->Choice(choice);
      const SinkRecord& other = expected->Choice(choice);
      EXPECT_EQ(one.tokens, other.tokens);
      EXPECT_EQ(one.text, other.text);
      EXPECT_EQ(one.finish->logits_hash, other.finish->logits_hash);
      ASSERT_EQ(one.logprobs.size(), other.logprobs.size());
      for (size_t i = 0; i < one.logprobs.size(); ++i) {
        EXPECT_EQ(one.logprobs[i].logprob, other.logprobs[i].logprob);
        EXPECT_EQ(one.logprobs[i].top, other.logprobs[i].top);
      }
    }
  }
}

TEST(WorkerCoreSteps, ChoicesForkWhenTheirPromptIsCollectedAndCopiesWaitForTheStepThatRuns) {
  WorkerBench bench(TwoSteps());
  const auto runs = bench.Generate(Bytes("this one keeps the device busy"), 30);
  bench.core->Step();
  GenerateRequest request = WorkerBench::Request(Bytes("a prompt!"), 6);  // a part-full block
  request.n = 3;
  const auto record = bench.Generate(std::move(request));

  while (bench.Turn()) {
    ASSERT_TRUE(bench.core->CheckConservation().ok()) << bench.core->CheckConservation();
    // A transfer takes all free blocks and overwrites them.
    const auto remote = bench.GenerateRemote(Bytes("1234"), 1);
    if (!remote->ticket) continue;
    bench.core->Cancel(bench.last_handle);
    bench.fake.FailReceive(remote->ticket->transfer_id, absl::CancelledError("cancelled"));
  }
  EXPECT_GT(bench.runner.copied_blocks, 0);
  for (int32_t choice = 0; choice < 3; ++choice) {
    EXPECT_EQ(record->Choice(choice).tokens, Answer(bench, "a prompt!", 6));
  }
  EXPECT_EQ(runs->tokens, Answer(bench, "this one keeps the device busy", 30));
  bench.ExpectAllBlocksHome();
}

TEST(WorkerCoreSteps, ASequenceInFlightIsNotPreempted) {
  WorkerBench bench(TwoSteps({.num_blocks = 8, .token_budget = 16}));
  GenerateRequest less = WorkerBench::Request(Bytes("1234567"), 16);
  GenerateRequest more = WorkerBench::Request(Bytes("abcdefg"), 16);
  more.priority = 1;
  const auto first = bench.Generate(less);
  const auto second = bench.Generate(more);
  Drain(bench);
  EXPECT_GT(bench.scheduler.preemption_count(), 0);
  EXPECT_EQ(first->tokens, Answer(bench, "1234567", 16));
  EXPECT_EQ(second->tokens, Answer(bench, "abcdefg", 16));
}

TEST(WorkerCoreSteps, LayersAreAnnouncedWhileTheStepRuns) {
  WorkerBench bench(TwoSteps({.layer_pieces = kFakeLayers}));
  const std::vector<TokenId> prompt = Bytes("a prompt of some length");
  const auto record = bench.Prefill(prompt, bench.Ticket(prompt.size()));
  bench.core->Step();
  const FakeTransport::Send& send = bench.fake.sends.at(1);
  bench.core->PollSteps();
  EXPECT_TRUE(send.layers.empty());
  bench.deferred.Run();
  bench.core->PollSteps();
  EXPECT_THAT(send.layers, ElementsAre(1));
  bench.core->PollSteps();
  EXPECT_THAT(send.layers, ElementsAre(1, 2));
  EXPECT_FALSE(send.final);
  bench.deferred.FinishOne();
  bench.core->Step();
  EXPECT_THAT(send.layers, ElementsAre(1, 2, 3));
  EXPECT_TRUE(send.final);
  bench.fake.EndSend(1, absl::OkStatus());
  Drain(bench);
  EXPECT_TRUE(record->done->ok());
}

TEST(WorkerCoreSteps, NoLayerOfAnEndedRequestIsAnnounced) {
  WorkerBench bench(TwoSteps({.layer_pieces = kFakeLayers}));
  const std::vector<TokenId> prompt = Bytes("a prompt of some length");
  bench.Prefill(prompt, bench.Ticket(prompt.size()));
  bench.core->Step();
  bench.deferred.Run();
  bench.core->Cancel(1);
  bench.core->PollSteps();
  EXPECT_TRUE(bench.fake.sends.at(1).layers.empty());
  bench.fake.EndSend(1, absl::CancelledError("cancelled"));
  Drain(bench);
}

TEST(WorkerCoreSteps, WholeBlocksOfAChunkAreAnnouncedAtItsCollect) {
  WorkerBench bench(TwoSteps({.token_budget = 8, .max_chunk_tokens = 8}));
  const std::vector<TokenId> prompt = Bytes("a prompt of some length");  // 23 tokens
  bench.Prefill(prompt, bench.Ticket(prompt.size()));
  bench.core->Step();
  const FakeTransport::Send& send = bench.fake.sends.at(1);
  ASSERT_EQ(bench.core->steps_in_flight(), 2);
  bench.deferred.Run();
  EXPECT_TRUE(send.blocks.empty()) << "nothing is announced before Collect";
  bench.deferred.FinishOne();
  bench.core->Step();
  EXPECT_EQ(send.blocks.size(), 2u);
  bench.deferred.FinishOne();
  bench.core->Step();
  EXPECT_EQ(send.blocks.size(), 4u);
  bench.deferred.FinishOne();
  bench.core->Step();
  EXPECT_EQ(send.blocks.size(), 6u);
  EXPECT_TRUE(send.final);
  bench.fake.EndSend(1, absl::OkStatus());
  Drain(bench);
}

TEST(WorkerCoreSteps, NothingIsCachedBeforeItIsCollected) {
  WorkerBench bench(TwoSteps());
  const std::vector<TokenId> prompt = Bytes("a prompt of 24 tokens...");
  bench.Generate(prompt, 1);
  bench.core->Step();
  bench.deferred.Run();
  EXPECT_EQ(bench.CachedTokens(prompt), 0);
  bench.deferred.FinishOne();
  bench.core->Step();
  EXPECT_EQ(bench.CachedTokens(prompt), 24);
  Drain(bench);
}

TEST(WorkerCoreSteps, APoolThatShrinksWhileAStepRunsKeepsItsBlocksUntilThen) {
  WorkerBench bench(TwoSteps({.num_blocks = 40, .max_blocks = 40, .prefix_cache = false}));
  bench.Cache(Bytes("take the first blocks, so that the next ones lie behind"), 2);
  const auto record = bench.Generate(Bytes("a prompt of some length"), 40);
  const auto other = bench.Generate(Bytes("another prompt"), 4);
  bench.core->Step();
  bench.core->Cancel(2);
  const int32_t held = bench.cache.step_blocks();
  EXPECT_GT(held, 0);
  bench.Resize(6);
  EXPECT_TRUE(bench.core->CheckConservation().ok()) << bench.core->CheckConservation();
  EXPECT_GT(bench.cache.retiring_blocks(), 0);
  bench.cache.ClearCache();
  while (bench.Turn()) bench.DiscardRetired();
  EXPECT_EQ(bench.cache.retiring_blocks(), 0);
  EXPECT_EQ(other->tokens, Answer(bench, "another prompt", 4));
  bench.ExpectAllBlocksHome();
}

TEST(WorkerCoreSteps, APulledPrefixLandsWhileStepsRun) {
  WorkerBench bench(TwoSteps());
  const auto record = bench.Generate(Bytes("a prompt"), 12);
  bench.core->Step();
  const std::vector<TokenId> prefix = Bytes("16 tokens prefix");
  const auto pull = bench.Pull(prefix);
  ASSERT_TRUE(pull->ticket.has_value());
  bench.Turn();
  bench.fake.Deliver(pull->ticket->transfer_id, prefix, "");
  bench.Turn();
  bench.Turn();
  ASSERT_TRUE(pull->done.has_value());
  const auto follower = bench.Generate(Bytes("16 tokens prefix and more"), 5);
  bench.clock.AdvanceUs(10'000'000);
  Drain(bench);
  EXPECT_EQ(follower->tokens, Answer(bench, "16 tokens prefix and more", 5));
  EXPECT_EQ(follower->finish->ledger.cached_tokens, 16);
  EXPECT_EQ(record->tokens, Answer(bench, "a prompt", 12));
}

TEST(WorkerCoreSteps, ShutsDownWithStepsInFlight) {
  WorkerBench bench(TwoSteps());
  const auto record = bench.Generate(Bytes("a prompt"), 12);
  bench.core->Step();
  bench.core->Shutdown(absl::CancelledError("the worker is shutting down"));
  EXPECT_TRUE(record->error.has_value());
  EXPECT_FALSE(bench.core->idle());
  while (!bench.core->idle()) {
    bench.deferred.FinishOne();
    bench.core->Step();
  }
  bench.ExpectAllBlocksHome();
}

}  // namespace
}  // namespace baton
