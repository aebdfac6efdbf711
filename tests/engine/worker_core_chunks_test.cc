// Chunked prompts through a whole WorkerCore with the fake model. An answer depends on the mode and
// on what each token sees, and on nothing else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/str_cat.h"
#include "engine/worker_core.h"
#include "tests/engine/chunked_prompt.h"
#include "tests/engine/worker_bench.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kAnswer = 9;

ChunkedPrompt ThreeChunks(ChunkOptions mode) {
  return PromptOf("Be brief.", {"a first chunk", "the second one is longer", "third"},
                  "Who signed it?", mode);
}

void ExpectAnswer(WorkerBench& bench, const ChunkedPrompt& prompt, const SinkRecord& record) {
  ASSERT_FALSE(record.error.has_value()) << *record.error;
  ASSERT_TRUE(record.finish.has_value());
  EXPECT_EQ(record.tokens, ChunkedContinuation(bench.runner, prompt, kAnswer));
  EXPECT_EQ(record.finish->prompt_tokens, TokensOf(prompt));
}

SinkRecord Ask(WorkerBench& bench, const ChunkedPrompt& prompt, CacheNamespace space = {}) {
  GenerateRequest request = ChunkedRequest(prompt, kAnswer);
  request.cache_namespace = space;
  const auto record = bench.Generate(std::move(request));
  bench.Run();
  ExpectAnswer(bench, prompt, *record);
  bench.ExpectAllBlocksHome();
  return *record;
}

TEST(WorkerCoreChunks, EveryModeAnswersTheSameColdCachedAndBypassed) {
  for (const ChunkOptions mode : EveryMode()) {
    const ChunkedPrompt prompt = ThreeChunks(mode);
    for (const int32_t block_size : {1, 4, 16}) {
      for (const int32_t budget : {3, 64}) {
        for (const double share : {0.0, 0.5}) {
          for (const bool prefix_cache : {true, false}) {
            SCOPED_TRACE(StrCat(ChunkPositionsName(mode.positions), " ", ChunkScopeName(mode.scope),
                                ", blocks of ", block_size, ", budget ", budget, ", share ", share,
                                ", ", prefix_cache));
            WorkerBench bench({.num_blocks = 400 / block_size,
                               .block_size = block_size,
                               .token_budget = budget,
                               .max_chunk_tokens = budget,
                               .prefix_cache = prefix_cache,
                               .prompt_parts = {.cache = {.share = share}, .piece_tokens = 256}});
            const RequestLedger cold = Ask(bench, prompt).finish->ledger;
            EXPECT_EQ(cold.chunk.chunks, 3);
            EXPECT_EQ(cold.chunk.hits, 0);
            EXPECT_EQ(cold.cached_tokens, 0);
            EXPECT_EQ(cold.computed_tokens, TokensOf(prompt));
            const RequestLedger warm = Ask(bench, prompt).finish->ledger;
            EXPECT_EQ(warm.chunk.hits, share > 0 ? 3 : 0);
            EXPECT_EQ(warm.cached_tokens + warm.computed_tokens, TokensOf(prompt));
          }
        }
      }
    }
  }
}

TEST(WorkerCoreChunks, AfterAFullHitOnlyTheQuestionIsComputed) {
  for (const ChunkOptions mode : EveryMode()) {
    for (const int32_t block_size : {1, 4, 8, 16}) {
      for (const bool prefix_cache : {true, false}) {
        WorkerBench bench({.num_blocks = 600 / block_size,
                           .block_size = block_size,
                           .prefix_cache = prefix_cache});
        const ChunkedPrompt prompt = ThreeChunks(mode);
        Ask(bench, prompt);
        ChunkedPrompt other = prompt;
        std::swap(other.chunks[0], other.chunks[2]);
        other.question = Bytes("And who else?");
        const RequestLedger ledger = Ask(bench, other).finish->ledger;
        EXPECT_EQ(ledger.chunk.hits, 3);
        EXPECT_EQ(ledger.computed_tokens, 13) << "blocks of " << block_size;
        EXPECT_EQ(ledger.cached_tokens, TokensOf(other) - 13);
      }
    }
  }
}

TEST(WorkerCoreChunks, ContiguousModeBypassesEveryChunk) {
  for (const ChunkOptions mode : EveryMode()) {
    WorkerBench bench({.num_blocks = 128, .prefix_cache = false, .paged = false});
    const ChunkedPrompt prompt = ThreeChunks(mode);
    EXPECT_EQ(Ask(bench, prompt).finish->ledger.chunk.hits, 0);
    EXPECT_EQ(Ask(bench, prompt).finish->ledger.chunk.hits, 0);
    EXPECT_EQ(bench.core->chunk_stats().entries, 0);
  }
}

TEST(WorkerCoreChunks, AChunkMayStandInAPromptTwice) {
  for (const ChunkOptions mode : EveryMode()) {
    WorkerBench bench({.num_blocks = 100});
    const ChunkedPrompt prompt = PromptOf("system", {"same", "other", "same"}, "which?", mode);
    EXPECT_EQ(Ask(bench, prompt).finish->ledger.computed_tokens, 6 + 4 + 5 + 6);
    EXPECT_EQ(Ask(bench, prompt).finish->ledger.chunk.hits, 3);
  }
}

TEST(WorkerCoreChunks, PartsMayBeMissing) {
  for (const ChunkOptions mode : EveryMode()) {
    WorkerBench bench({.num_blocks = 100});
    Ask(bench, PromptOf("", {"a chunk", "another"}, "question", mode));
    Ask(bench, PromptOf("only a system part", {}, "question", mode));
    Ask(bench, PromptOf("", {"one"}, "q", mode));
  }
  WorkerBench bench({.num_blocks = 100});
  const auto record = bench.Generate(ChunkedRequest(PromptOf("", {}, "all question"), kAnswer));
  bench.Run();
  EXPECT_EQ(record->tokens, bench.runner.Continuation(Bytes("all question"), kAnswer));
  bench.ExpectAllBlocksHome();
}

// Chunk KV depends on its system part or on its lack of one. As ordinary KV it would be wrong.
TEST(WorkerCoreChunks, ChunkKvNeverAnswersOrdinaryPromptsOrOtherTenants) {
  for (const ChunkOptions mode : EveryMode()) {
    WorkerBench bench({.num_blocks = 200});
    const ChunkedPrompt prompt = PromptOf("system part", {"a chunk of text", "more text, more"},
                                          "the question of all", mode);
    Ask(bench, prompt, CacheNamespace(1));
    EXPECT_EQ(Ask(bench, prompt, CacheNamespace(2)).finish->ledger.cached_tokens, 0);
    for (const std::vector<TokenId>& tokens :
         {prompt.chunks[0], prompt.question, FlatTokens(prompt)}) {
      std::vector<TokenId> longer = tokens;
      longer.push_back('x');
      GenerateRequest ordinary = WorkerBench::Request(longer, kAnswer);
      ordinary.cache_namespace = CacheNamespace(1);
      const auto record = bench.Generate(ordinary);
      bench.Run();
      EXPECT_EQ(record->tokens, bench.runner.Continuation(longer, kAnswer));
    }
    Ask(bench, prompt, CacheNamespace(1));
  }
}

TEST(WorkerCoreChunks, ANextTurnComputesOnlyNewTokens) {
  for (const ChunkOptions mode : EveryMode()) {
    WorkerBench bench({.num_blocks = 200});
    ChunkedPrompt prompt = ThreeChunks(mode);
    const SinkRecord first = Ask(bench, prompt);
    const std::vector<TokenId> before = prompt.question;
    prompt.question.insert(prompt.question.end(), first.tokens.begin(), first.tokens.end());
    const std::vector<TokenId> more = Bytes(" And then?");
    prompt.question.insert(prompt.question.end(), more.begin(), more.end());
    const RequestLedger ledger = Ask(bench, prompt).finish->ledger;
    // The last token of the answer has no KV, and only full blocks of 4 are kept.
    const auto kept = static_cast<int32_t>(before.size() + kAnswer - 1) / 4 * 4;
    EXPECT_EQ(ledger.computed_tokens, static_cast<int32_t>(prompt.question.size()) - kept);
    std::swap(prompt.chunks[0], prompt.chunks[1]);
    EXPECT_EQ(Ask(bench, prompt).finish->ledger.computed_tokens,
              static_cast<int32_t>(prompt.question.size()))
        << "in another order, the question sees something else";
  }
}

TEST(WorkerCoreChunks, ConcurrentMissesComputeOnce) {
  for (const bool asynchronous : {false, true}) {
    WorkerBench bench({.num_blocks = 200,
                       .token_budget = 16,
                       .asynchronous = asynchronous,
                       .steps_in_flight = asynchronous ? 2 : 1});
    std::vector<ChunkedPrompt> prompts;
    std::vector<std::shared_ptr<SinkRecord>> records;
    for (const ChunkOptions mode : EveryMode()) {
      prompts.push_back(ThreeChunks(mode));
      records.push_back(bench.Generate(ChunkedRequest(prompts.back(), kAnswer)));
    }
    bench.Run();
    int32_t computed = 0;
    for (size_t i = 0; i < prompts.size(); ++i) {
      ExpectAnswer(bench, prompts[i], *records[i]);
      const RequestLedger& ledger = records[i]->finish->ledger;
      EXPECT_EQ(ledger.cached_tokens + ledger.computed_tokens, TokensOf(prompts[i]));
      computed += ledger.computed_tokens;
    }
    const int32_t chunks = 13 + 24 + 5;
    EXPECT_EQ(computed, 9 + 2 * chunks + 4 * 14) << "once for each scope";
    bench.ExpectAllBlocksHome();
  }
}

TEST(WorkerCoreChunks, IfTheCreatorOfAPartEndsTheOthersContinue) {
  for (const bool asynchronous : {false, true}) {
    for (int32_t turns = 0; turns < 14; ++turns) {
      WorkerBench bench({.num_blocks = 200,
                         .token_budget = 5,
                         .asynchronous = asynchronous,
                         .steps_in_flight = asynchronous ? 2 : 1});
      const ChunkedPrompt prompt = ThreeChunks({});
      const auto creator = bench.Generate(ChunkedRequest(prompt, kAnswer));
      const RequestHandle handle = bench.last_handle;
      const auto waiter = bench.Generate(ChunkedRequest(prompt, kAnswer));
      for (int32_t i = 0; i < turns; ++i) bench.Turn();
      bench.cancels.Add(handle);
      bench.core->Cancel(handle);
      bench.Run();
      EXPECT_TRUE(absl::IsCancelled(creator->error.value_or(absl::OkStatus()))) << turns;
      ExpectAnswer(bench, prompt, *waiter);
      bench.ExpectAllBlocksHome();
    }
  }
}

TEST(WorkerCoreChunks, AFailedStepFailsTheRequestsOfItsParts) {
  WorkerBench bench({.num_blocks = 200, .token_budget = 128});
  const ChunkedPrompt prompt = ThreeChunks({});
  const auto one = bench.Generate(ChunkedRequest(prompt, kAnswer));
  const auto other = bench.Generate(ChunkedRequest(prompt, kAnswer));
  bench.runner.next_status = absl::InternalError("broken");
  bench.Turn();
  bench.Run();
  for (const auto& record : {one, other}) {
    ASSERT_TRUE(record->error.has_value());
    EXPECT_THAT(std::string(record->error->message()), HasSubstr("broken"));
  }
  bench.ExpectAllBlocksHome();
  Ask(bench, prompt);
}

TEST(WorkerCoreChunks, ChoicesShareTheirChunks) {
  for (const ChunkOptions mode : EveryMode()) {
    WorkerBench bench({.num_blocks = 100, .max_running = 8});
    const ChunkedPrompt prompt = ThreeChunks(mode);
    GenerateRequest request = ChunkedRequest(prompt, kAnswer);
    request.n = 4;
    const auto record = bench.Generate(request);
    bench.Run();
    ASSERT_TRUE(record->last_finished);
    for (int32_t i = 0; i < 4; ++i) {
      SinkRecord& choice = record->Choice(i);
      EXPECT_EQ(choice.tokens, ChunkedContinuation(bench.runner, prompt, kAnswer));
      EXPECT_EQ(choice.finish->ledger.computed_tokens, TokensOf(prompt));
      EXPECT_EQ(choice.finish->ledger.chunk.chunks, 3);
    }
    bench.ExpectAllBlocksHome();
  }
}

TEST(WorkerCoreChunks, RefusesWhatItCannotDoByName) {
  const auto error = [](const BenchOptions& options, const GenerateRequest& request) {
    WorkerBench bench(options);
    const auto record = bench.Generate(request);
    bench.Run();
    bench.ExpectAllBlocksHome();
    return record->error.value_or(absl::OkStatus());
  };
  GenerateRequest request = ChunkedRequest(ThreeChunks({}), kAnswer);
  for (const bool remote : {true, false}) {
    request.remote_prefill = remote;
    EXPECT_EQ(error({.windows = {{.window = 8, .num_blocks = 64}}}, request).code(),
              absl::StatusCode::kFailedPrecondition);
  }
  request.chunked->options.repair = {.kind = ChunkRepair::Kind::kFirst, .first_tokens = 16};
  BenchOptions no_repair;
  no_repair.prompt_parts.repairs_share = false;
  EXPECT_EQ(error(no_repair, request), absl::OkStatus());
  request.chunked->options.repair = {.kind = ChunkRepair::Kind::kShare, .share_millionths = 5};
  EXPECT_EQ(error(no_repair, request),
            absl::FailedPreconditionError(
                "chunk_repair share:0.000005 needs a model of two or more layers; use first:K or "
                "none"));
  request.remote_prefill = true;
  EXPECT_EQ(error({}, request), absl::FailedPreconditionError(
                                    "chunk_repair share:0.000005 is not possible on a worker that "
                                    "prefills for another one; prefill on the decode worker"));
  request.remote_prefill = false;
  request.chunked->options.repair.share_millionths = 0;
  EXPECT_EQ(error(no_repair, request), absl::OkStatus());
  request.chunked->chunks[1].assign(130, 'x');
  EXPECT_EQ(error({}, request), absl::InvalidArgumentError(
                                    "part 2 (chunks[1]) reaches position 138; the context of 128 "
                                    "tokens ends at position 127"));
}

TEST(WorkerCoreChunks, AClearedOrShrunkenCacheIsComputedAgain) {
  WorkerBench bench({.num_blocks = 100, .max_blocks = 100});
  const ChunkedPrompt prompt = ThreeChunks({});
  Ask(bench, prompt);
  EXPECT_GT(bench.core->ClearCache(std::nullopt), 0);
  EXPECT_EQ(Ask(bench, prompt).finish->ledger.computed_tokens, TokensOf(prompt));
  bench.Resize(30);
  Ask(bench, prompt);
  bench.Resize(100);
  Ask(bench, prompt);
  EXPECT_EQ(Ask(bench, prompt).finish->ledger.chunk.hits, 3);
}

}  // namespace
}  // namespace baton
