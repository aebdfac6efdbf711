// One worker begins an answer and another continues it: nothing is lost, repeated or changed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/worker_core.h"
#include "kvtransfer/loopback/loopback_transport.h"
#include "tests/engine/worker_bench.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kAnswer = 14;

GenerateRequest Sampled(uint64_t seed) {
  GenerateRequest request = WorkerBench::Request(Bytes("a prompt of some length"), kAnswer);
  request.sampling.temperature = seed % 2 == 0 ? 0.0f : 3.0f;
  request.sampling.seed = seed;
  request.sampling.repetition_penalty = 1.3f;
  request.sampling.frequency_penalty = 0.5f;
  request.sampling.logprobs = 1;
  return request;
}

// The part of an answer that a client has after `messages` messages with tokens.
GeneratedPart Beginning(const SinkRecord& whole, size_t messages) {
  if (messages == 0) return {};
  const SinkRecord::Progress& progress = whole.progress[messages - 1];
  return {.tokens = {whole.tokens.begin(), whole.tokens.begin() + progress.tokens},
          .logits_hash = progress.logits_hash};
}

void ExpectTheRest(const SinkRecord& whole, const SinkRecord& rest, size_t messages) {
  ASSERT_TRUE(rest.finish.has_value()) << rest.error.value_or(absl::OkStatus());
  const size_t tokens = messages == 0 ? 0 : whole.progress[messages - 1].tokens;
  const size_t bytes = messages == 0 ? 0 : whole.progress[messages - 1].text_bytes;
  EXPECT_EQ(rest.tokens, std::vector<TokenId>(whole.tokens.begin() + tokens, whole.tokens.end()));
  EXPECT_EQ(rest.text, whole.text.substr(bytes));
  EXPECT_EQ(rest.logprobs.size(), rest.tokens.size());
  EXPECT_EQ(rest.finish->reason, whole.finish->reason);
  EXPECT_EQ(rest.finish->prompt_tokens, whole.finish->prompt_tokens);
  EXPECT_EQ(rest.finish->completion_tokens, whole.finish->completion_tokens);
  EXPECT_EQ(rest.finish->logits_hash, whole.finish->logits_hash);
}

TEST(WorkerCoreResume, AnotherWorkerContinuesAfterAnyToken) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(seed);
    WorkerBench first;
    const auto whole = first.Generate(Sampled(seed));
    first.Run();
    ASSERT_TRUE(whole->finish.has_value());
    ASSERT_NE(whole->finish->logits_hash, 0u);
    for (size_t messages = 0; messages <= whole->progress.size(); ++messages) {
      SCOPED_TRACE(messages);
      WorkerBench second({.token_budget = 8, .max_chunk_tokens = 5});
      GenerateRequest request = Sampled(seed);
      request.generated = {Beginning(*whole, messages)};
      const auto rest = second.Generate(std::move(request));
      second.Run();
      ExpectTheRest(*whole, *rest, messages);
      second.ExpectAllBlocksHome();
    }
  }
}

TEST(WorkerCoreResume, APrefillWorkerComputesWhatWasGeneratedToo) {
  const auto network = CreateLoopbackNetwork();
  WorkerBench prefills({.max_chunk_tokens = 6}, network, "prefill");
  WorkerBench decodes({}, network, "decode");
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE(seed);
    WorkerBench first;
    const auto whole = first.Generate(Sampled(seed));
    first.Run();
    for (size_t messages = 0; messages < whole->progress.size(); ++messages) {
      SCOPED_TRACE(messages);
      GenerateRequest request = Sampled(seed);
      // A new namespace: nothing is cached.
      request.cache_namespace = CacheNamespace(1 + seed * 100 + messages);
      request.generated = {Beginning(*whole, messages)};
      request.remote_prefill = true;
      const auto rest = decodes.Generate(request);
      ASSERT_TRUE(rest->ticket.has_value());
      const auto prefill =
          prefills.Prefill(request.prompt, *rest->ticket, request.sampling, request.generated[0]);
      RunBoth(prefills, decodes);
      ExpectTheRest(*whole, *rest, messages);
      EXPECT_TRUE(prefill->done.has_value() && prefill->done->ok());
      EXPECT_EQ(rest->finish->ledger.prefill_chunks, prefill->done.value()->chunks);
    }
  }
  EXPECT_EQ(decodes.core->counters().prefill_tokens, 0);
  prefills.ExpectAllBlocksHome();
  decodes.ExpectAllBlocksHome();
}

TEST(WorkerCoreResume, AnAnswerThatHasEndedIsOnlyFinished) {
  WorkerBench first;
  first.runner.choose = [](uint64_t, int32_t length) { return Bytes("..one two three")[length]; };
  GenerateRequest request = WorkerBench::Request(Bytes("go"), 13);
  request.sampling.stop = {"o t"};
  const auto whole = first.Generate(request);
  first.Run();

  WorkerBench second;
  request.generated = {
      {.tokens = whole->tokens, .logits_hash = whole->progress.back().logits_hash}};
  const auto rest = second.Generate(std::move(request));
  ExpectTheRest(*whole, *rest, whole->progress.size());
  EXPECT_EQ(second.core->counters().steps, 0);
  second.ExpectAllBlocksHome();
}

TEST(WorkerCoreResume, TheLedgerCountsItsPrefillUpToTheFirstNewToken) {
  WorkerBench bench;
  GenerateRequest request = WorkerBench::Request(Bytes("0123456789"), 8);
  request.generated = {{.tokens = Bytes("abcde")}};
  const auto rest = bench.Generate(std::move(request));
  bench.Run();
  EXPECT_EQ(rest->finish->ledger.computed_tokens, 15);
  EXPECT_EQ(rest->finish->ledger.prefill_chunks, 1);
  EXPECT_EQ(rest->finish->prompt_tokens, 10);
  EXPECT_EQ(rest->finish->completion_tokens, 8);
}

TEST(WorkerCoreResume, RefusesInvalidGeneratedTokens) {
  WorkerBench bench({.context_length = 40});
  const auto refusal = [&](GeneratedPart generated) {
    GenerateRequest request = WorkerBench::Request(Bytes("0123456789"), 20);
    request.generated = {generated};
    const auto record = bench.Generate(std::move(request));
    bench.Run();
    const auto prefill = bench.Prefill(Bytes("0123456789"), bench.Ticket(10), {}, generated);
    EXPECT_FALSE(prefill->done->ok());
    return record->error.value_or(absl::OkStatus());
  };
  const absl::Status foreign = refusal({.tokens = {1, kFakeVocabulary}, .logits_hash = 0});
  EXPECT_EQ(foreign.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(foreign.message(), HasSubstr("generated_token_ids[1]"));
  const absl::Status large = refusal({.tokens = std::vector<TokenId>(31, 7), .logits_hash = 0});
  EXPECT_EQ(large.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(large.message(), HasSubstr("31 generated tokens exceed the context of 40"));
  const absl::Status beyond = refusal({.tokens = std::vector<TokenId>(21, 7), .logits_hash = 0});
  EXPECT_EQ(beyond.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(beyond.message(), HasSubstr("generated_token_ids[20] comes after"));
  bench.ExpectAllBlocksHome();
}

}  // namespace
}  // namespace baton
