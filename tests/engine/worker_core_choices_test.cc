// Several choices of one prompt. Each choice equals the answer of a separate request, and the
// prompt is computed once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "common/str_cat.h"
#include "engine/worker_core.h"
#include "kvtransfer/loopback/loopback_transport.h"
#include "tests/engine/worker_bench.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kAnswer = 14;
constexpr uint64_t kSeed = ~uint64_t{0} - 1;  // the seeds of later choices wrap around to 0

GenerateRequest Sampled(int32_t n, uint64_t seed = kSeed) {
  GenerateRequest request = WorkerBench::Request(Bytes("a prompt of some length"), kAnswer);
  request.n = n;
  request.sampling.temperature = 3.0f;
  request.sampling.seed = seed;
  request.sampling.repetition_penalty = 1.3f;
  request.sampling.logprobs = 1;
  return request;
}

// Answers of separate requests.
std::vector<SinkRecord> Separate(const GenerateRequest& request) {
  std::vector<SinkRecord> answers;
  for (int32_t i = 0; i < request.n; ++i) {
    WorkerBench bench({.num_blocks = 200});
    GenerateRequest one = request;
    one.n = 1;
    one.remote_prefill = false;
    one.generated.clear();
    one.sampling.seed = SeedOfChoice(*request.sampling.seed, i);
    const auto record = bench.Generate(std::move(one));
    bench.Run();
    answers.push_back(*record);
  }
  return answers;
}

void ExpectChoices(const std::vector<SinkRecord>& expected, SinkRecord& record) {
  ASSERT_FALSE(record.error.has_value()) << *record.error;
  EXPECT_TRUE(record.last_finished);
  for (size_t i = 0; i < expected.size(); ++i) {
    SCOPED_TRACE(::testing::Message() << "choice " << i);
    const SinkRecord& choice = record.Choice(static_cast<int32_t>(i));
    ASSERT_TRUE(choice.finish.has_value());
    EXPECT_EQ(choice.tokens, expected[i].tokens);
    EXPECT_EQ(choice.text, expected[i].text);
    EXPECT_EQ(choice.logprobs.size(), choice.tokens.size());
    EXPECT_EQ(choice.finish->reason, expected[i].finish->reason);
    EXPECT_EQ(choice.finish->logits_hash, expected[i].finish->logits_hash);
    EXPECT_EQ(choice.finish->prompt_tokens, expected[i].finish->prompt_tokens);
    EXPECT_EQ(choice.finish->completion_tokens, expected[i].finish->completion_tokens);
  }
}

// The part of an answer that a client has after `messages` messages with tokens.
GeneratedPart Beginning(const SinkRecord& whole, size_t messages) {
  if (messages == 0) return {};
  const SinkRecord::Progress& progress = whole.progress[messages - 1];
  return {.tokens = {whole.tokens.begin(), whole.tokens.begin() + progress.tokens},
          .logits_hash = progress.logits_hash};
}

TEST(WorkerCoreChoices, EachIsTheAnswerOfARequestOfItsOwn) {
  const GenerateRequest request = Sampled(4);
  const std::vector<SinkRecord> expected = Separate(request);
  EXPECT_NE(expected[0].tokens, expected[1].tokens);
  const BenchOptions kinds[] = {{},
                                {.block_size = 1},
                                {.max_chunk_tokens = 5},
                                {.prefix_cache = false},
                                {.num_blocks = 80, .prefix_cache = false, .paged = false}};
  for (const BenchOptions& options : kinds) {
    SCOPED_TRACE(::testing::Message() << "blocks of " << options.block_size << ", paged "
                                      << options.paged << ", cache " << options.prefix_cache);
    WorkerBench bench(options);
    const auto record = bench.Generate(request);
    bench.Run();
    ExpectChoices(expected, *record);
    bench.ExpectAllBlocksHome();
  }
}

TEST(WorkerCoreChoices, ThePromptIsComputedOnceAndItsBlocksAreShared) {
  WorkerBench bench;
  const auto record = bench.Generate(Sampled(4));  // 23 tokens: 5 blocks and 3 slots
  bench.core->Step();
  EXPECT_EQ(bench.core->counters().prefill_tokens, 23);
  for (int32_t i = 0; i < 4; ++i) EXPECT_EQ(record->Choice(i).tokens.size(), 1u);
  EXPECT_EQ(bench.cache.Stats().blocks.owned, 6) << "no choice has written yet";
  EXPECT_EQ(bench.runner.copied_blocks, 0);
  bench.core->Step();
  EXPECT_EQ(bench.runner.copied_blocks, 3) << "the last writer owns the block alone";
  EXPECT_EQ(bench.cache.Stats().blocks.owned, 9);
  EXPECT_TRUE(bench.cache.CheckConservation().ok()) << bench.cache.CheckConservation();
  bench.Run();
  EXPECT_EQ(bench.core->counters().prefill_tokens, 23);
  EXPECT_EQ(bench.core->counters().requests, 1);
  for (int32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(record->Choice(i).finish->ledger.computed_tokens, 23);
    EXPECT_EQ(record->Choice(i).finish->ledger.prefill_chunks, 1);
  }
  bench.ExpectAllBlocksHome();
}

TEST(WorkerCoreChoices, TheRequestEndsOnceWhenAllHaveEnded) {
  WorkerBench bench;
  GenerateRequest request = Sampled(3);
  // Choices stop at different letters, so their lengths differ.
  request.sampling.stop = {"e", "k"};
  const std::vector<SinkRecord> expected = Separate(request);
  const auto record = bench.Generate(request);
  int ended = 0;
  while (bench.Turn()) {
    int now = 0;
    for (int32_t i = 0; i < 3; ++i) now += record->Choice(i).finish.has_value() ? 1 : 0;
    EXPECT_GE(now, ended);
    ended = now;
    EXPECT_EQ(record->last_finished, ended == 3);
    EXPECT_EQ(static_cast<int>(bench.core->Handles().size()), 3 - ended);
    EXPECT_TRUE(bench.cache.CheckConservation().ok()) << bench.cache.CheckConservation();
  }
  ExpectChoices(expected, *record);
  bench.ExpectAllBlocksHome();
}

TEST(WorkerCoreChoices, WithOneTokenEachTheyEndWithThePrompt) {
  WorkerBench bench;
  GenerateRequest request = Sampled(5);
  request.sampling.max_tokens = 1;
  const auto record = bench.Generate(request);
  bench.Run();
  ExpectChoices(Separate(request), *record);
  EXPECT_EQ(bench.core->counters().steps, 1);
  bench.ExpectAllBlocksHome();
}

TEST(WorkerCoreChoices, AFullPoolPreemptsThemAndTheirAnswersStayTheSame) {
  const GenerateRequest request = Sampled(4);
  const std::vector<SinkRecord> expected = Separate(request);
  for (const bool prefix_cache : {true, false}) {
    WorkerBench bench({.num_blocks = 12, .prefix_cache = prefix_cache});
    const auto record = bench.Generate(request);
    bench.Run();
    ExpectChoices(expected, *record);
    EXPECT_GT(bench.scheduler.preemption_count(), 0);
    bench.ExpectAllBlocksHome();
  }
}

TEST(WorkerCoreChoices, APoolThatCannotHoldThePromptAnyMoreEndsThemAll) {
  WorkerBench bench;
  const auto record = bench.Generate(Sampled(3));
  ASSERT_TRUE(bench.cache.Resize(2).ok());
  bench.Run();
  ASSERT_TRUE(record->error.has_value());
  EXPECT_EQ(record->error->code(), absl::StatusCode::kResourceExhausted);
  for (int32_t i = 0; i < 3; ++i) EXPECT_FALSE(record->Choice(i).finish.has_value());
  EXPECT_TRUE(bench.core->idle());
}

TEST(WorkerCoreChoices, MoreThanMayRunAtOnceTakeTurns) {
  WorkerBench bench({.max_running = 2});
  const GenerateRequest request = Sampled(5);
  const auto record = bench.Generate(request);
  while (bench.Turn()) EXPECT_LE(bench.scheduler.running_count(), 2);
  ExpectChoices(Separate(request), *record);
  bench.ExpectAllBlocksHome();
}

TEST(WorkerCoreChoices, OneThatWaitsForRoomForItsChoicesLetsOthersRunFirst) {
  WorkerBench bench({.num_blocks = 16, .max_running = 4});
  const auto first = bench.Generate(Bytes("0123456"), 8);
  bench.core->Step();
  const auto record = bench.Generate(Sampled(4));  // needs four places; three are free
  bench.core->Step();
  EXPECT_TRUE(record->tokens.empty());
  EXPECT_FALSE(first->ended());
  bench.Run();
  EXPECT_TRUE(first->finish.has_value());
  ExpectChoices(Separate(Sampled(4)), *record);
  bench.ExpectAllBlocksHome();
}

TEST(WorkerCoreChoices, CancellingEndsAllAtAnyMoment) {
  for (int32_t turns = 0; turns < 8; ++turns) {
    SCOPED_TRACE(turns);
    WorkerBench bench({.max_chunk_tokens = 8});
    GenerateRequest request = Sampled(3);
    request.sampling.stop = {"e"};
    const auto record = bench.Generate(request);
    for (int32_t i = 0; i < turns; ++i) bench.Turn();
    const bool ended = record->ended();
    bench.core->Cancel(1);
    ASSERT_EQ(record->error.has_value(), !ended);
    if (!ended) {
      EXPECT_EQ(record->error->code(), absl::StatusCode::kCancelled);
    }
    bench.ExpectAllBlocksHome();
    EXPECT_EQ(bench.core->counters().failures, ended ? 0 : 1);
  }
}

TEST(WorkerCoreChoices, ItsNameCancelsItWhenTheFirstChoiceHasEnded) {
  WorkerBench bench;
  GenerateRequest request = Sampled(2);
  const std::vector<SinkRecord> expected = Separate(request);
  request.generated = {{.tokens = {}, .logits_hash = 0, .finished = true}, {}};
  const auto record = bench.Generate(request);
  bench.Turn();
  bench.core->Cancel(2);
  EXPECT_FALSE(record->ended()) << "Cancel takes the request's first handle only";
  bench.core->Cancel(1);
  EXPECT_TRUE(record->error.has_value());
  bench.ExpectAllBlocksHome();
}

TEST(WorkerCoreChoices, ADeadlineEndsThemTogether) {
  WorkerBench bench;
  GenerateRequest request = Sampled(3);
  request.timeout_ms = 1;
  const auto record = bench.Generate(request);
  bench.Run();
  ASSERT_TRUE(record->error.has_value());
  EXPECT_EQ(record->error->code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(record->tokens.empty());
  bench.ExpectAllBlocksHome();
}

TEST(WorkerCoreChoices, AFailureEndsThemTogether) {
  WorkerBench bench;
  const auto record = bench.Generate(Sampled(3));
  bench.Turn();
  bench.runner.next_status = absl::InternalError("device");
  bench.Run();
  EXPECT_EQ(record->error->code(), absl::StatusCode::kInternal);
  EXPECT_EQ(bench.core->counters().failures, 1);
  bench.ExpectAllBlocksHome();
}

TEST(WorkerCoreChoices, APrefillWorkerDrawsTheFirstTokenOfEach) {
  const auto network = CreateLoopbackNetwork();
  WorkerBench prefills({.max_chunk_tokens = 6}, network, "prefill");
  WorkerBench decodes({}, network, "decode");
  GenerateRequest request = Sampled(4);
  const std::vector<SinkRecord> expected = Separate(request);
  request.remote_prefill = true;
  const auto record = decodes.Generate(request);
  ASSERT_TRUE(record->ticket.has_value());
  const auto prefill = prefills.Prefill(request.prompt, *record->ticket, request.sampling, {}, 4);
  RunBoth(prefills, decodes);
  ExpectChoices(expected, *record);
  EXPECT_TRUE(prefill->done.has_value() && prefill->done->ok());
  EXPECT_EQ(decodes.core->counters().prefill_tokens, 0);
  for (int32_t i = 0; i < 4; ++i) {
    EXPECT_GT(record->Choice(i).finish->ledger.kv_bytes, 0);
    EXPECT_EQ(record->Choice(i).finish->ledger.computed_tokens, 23);
  }
  prefills.ExpectAllBlocksHome();
  decodes.ExpectAllBlocksHome();
}

TEST(WorkerCoreChoices, AManifestWithTooFewTokensIsRefused) {
  WorkerBench bench;
  GenerateRequest request = Sampled(3);
  const std::vector<SinkRecord> expected = Separate(request);
  request.remote_prefill = true;
  const auto record = bench.Generate(request);
  bench.fake.Deliver(1, request.prompt, bench.Manifest(request.prompt));
  bench.Run();
  ExpectChoices(expected, *record);
  EXPECT_EQ(bench.core->counters().prefill_tokens, 23);
  bench.ExpectAllBlocksHome();
}

TEST(WorkerCoreChoices, WithoutAPeersKvTheyAreComputedHere) {
  WorkerBench bench;
  GenerateRequest request = Sampled(3);
  const std::vector<SinkRecord> expected = Separate(request);
  request.remote_prefill = true;
  const auto record = bench.Generate(request);
  bench.fake.FailReceive(1, absl::UnavailableError("lost"), 2, request.prompt);
  bench.Run();
  ExpectChoices(expected, *record);
  EXPECT_EQ(bench.core->counters().prefill_tokens, 23 - 2 * 4);
  bench.ExpectAllBlocksHome();
}

TEST(WorkerCoreChoices, AHandOffThatHasNoRoomForAllIsRefused) {
  WorkerBench bench({.num_blocks = 64, .max_running = 4});
  const auto first = bench.Generate(Bytes("0123456"), 8);
  bench.core->Step();
  GenerateRequest request = Sampled(4);
  request.remote_prefill = true;
  const auto record = bench.Generate(request);
  ASSERT_TRUE(record->error.has_value());
  EXPECT_EQ(record->error->code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(record->error->message(), HasSubstr("3 forks need as many places, 2 of"));
  request.n = 3;
  const auto fits = bench.Generate(request);
  EXPECT_FALSE(fits->ended());
  bench.core->Cancel(bench.last_handle - 2);
  EXPECT_TRUE(fits->error.has_value());
  bench.fake.FailReceive(bench.fake.receives.begin()->first, absl::CancelledError("cancelled"));
  bench.Run();
  bench.ExpectAllBlocksHome();
}

// The client has different numbers of tokens of each choice when their worker is lost.
TEST(WorkerCoreChoices, AnotherWorkerContinuesAnyTokensThatTheClientHas) {
  const GenerateRequest whole = Sampled(3);
  const std::vector<SinkRecord> expected = Separate(whole);
  const auto network = CreateLoopbackNetwork();
  for (uint32_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    GenerateRequest request = whole;
    bool goes_on = false;
    for (const SinkRecord& one : expected) {
      GeneratedPart part = Beginning(one, random() % (one.progress.size() + 1));
      part.finished = part.tokens.size() == one.tokens.size() && random() % 2 == 0;
      goes_on = goes_on || !part.finished;
      request.generated.push_back(std::move(part));
    }
    if (!goes_on) continue;
    WorkerBench prefills({.max_chunk_tokens = 6}, network, "prefill");
    WorkerBench decodes({.num_blocks = seed % 3 == 0 ? 13 : 64,
                         .token_budget = 8,
                         .max_chunk_tokens = 5,
                         .prefix_cache = seed % 5 != 0},
                        network, "decode");
    request.remote_prefill = random() % 2 == 0;
    const auto rest = decodes.Generate(request);
    if (rest->ticket.has_value()) {
      prefills.Prefill(request.prompt, *rest->ticket, request.sampling, {}, 3);
    }
    RunBoth(prefills, decodes);
    ASSERT_FALSE(rest->error.has_value()) << *rest->error;
    for (int32_t i = 0; i < 3; ++i) {
      SCOPED_TRACE(::testing::Message() << "choice " << i);
      const GeneratedPart& had = request.generated[i];
      const SinkRecord& choice = rest->Choice(i);
      EXPECT_EQ(choice.finish.has_value(), !had.finished);
      std::vector<TokenId> tokens = had.tokens;
      tokens.insert(tokens.end(), choice.tokens.begin(), choice.tokens.end());
      EXPECT_EQ(tokens, expected[i].tokens);
      if (had.finished) continue;
      EXPECT_EQ(choice.finish->logits_hash, expected[i].finish->logits_hash);
      EXPECT_EQ(choice.finish->completion_tokens, expected[i].finish->completion_tokens);
    }
    EXPECT_TRUE(rest->last_finished);
    prefills.ExpectAllBlocksHome();
    decodes.ExpectAllBlocksHome();
  }
}

TEST(WorkerCoreChoices, RefusesInvalidNumbersOfChoices) {
  WorkerBench bench;
  const auto refusal = [&](const GenerateRequest& request) {
    const auto record = bench.Generate(request);
    EXPECT_TRUE(record->error.has_value());
    EXPECT_EQ(record->error->code(), absl::StatusCode::kInvalidArgument);
    return std::string(record->error.value_or(absl::OkStatus()).message());
  };
  for (const int32_t n : {0, -1, 17, INT32_MAX, INT32_MIN}) {
    EXPECT_THAT(refusal(Sampled(n)), HasSubstr(StrCat("n is ", n, "; [1, 16] is allowed")));
    const auto prefill = bench.Prefill(Bytes("0123"), bench.Ticket(4), Sampled(1).sampling, {}, n);
    EXPECT_THAT(std::string(prefill->done->status().message()), HasSubstr("[1, 16] is allowed"));
  }
  GenerateRequest request = Sampled(3);
  request.generated.resize(2);
  EXPECT_THAT(refusal(request), HasSubstr("generated has 2 parts for 3 choices"));
  request.generated.assign(3, {.tokens = {}, .logits_hash = 0, .finished = true});
  EXPECT_THAT(refusal(request), HasSubstr("all 3 choices are finished"));
  const auto prefill =
      bench.Prefill(Bytes("0123"), bench.Ticket(5), Sampled(1).sampling, {.tokens = {1}}, 2);
  EXPECT_THAT(std::string(prefill->done->status().message()), HasSubstr("n is 2"));
  bench.ExpectAllBlocksHome();
}

}  // namespace
}  // namespace baton
