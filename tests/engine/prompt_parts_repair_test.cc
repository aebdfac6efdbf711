// Repaired chunked prompts through a whole WorkerCore with the fake model. A repair changes the KV
// that its own request sees, and nothing else.
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

constexpr int32_t kAnswer = 9;

ChunkedPrompt ThreeChunks(ChunkOptions options) {
  return PromptOf("Be brief.", {"a first chunk", "the second one is longer", "third"},
                  "Who signed it?", options);
}

// Every mode with every repair.
std::vector<ChunkOptions> EveryRepair() {
  std::vector<ChunkOptions> all;
  for (ChunkOptions mode : EveryMode()) {
    for (const ChunkRepair& repair : SomeRepairs()) {
      mode.repair = repair;
      all.push_back(mode);
    }
  }
  return all;
}

std::string Name(const ChunkOptions& options) {
  return StrCat(ChunkPositionsName(options.positions), " ", ChunkScopeName(options.scope), " ",
                ChunkRepairName(options.repair));
}

void ExpectAnswer(WorkerBench& bench, const ChunkedPrompt& prompt, const SinkRecord& record) {
  ASSERT_FALSE(record.error.has_value()) << *record.error;
  ASSERT_TRUE(record.finish.has_value());
  EXPECT_EQ(record.tokens, ChunkedContinuation(bench.runner, prompt, kAnswer));
}

SinkRecord Ask(WorkerBench& bench, const ChunkedPrompt& prompt) {
  const auto record = bench.Generate(ChunkedRequest(prompt, kAnswer));
  bench.Run();
  ExpectAnswer(bench, prompt, *record);
  bench.ExpectAllBlocksHome();
  return *record;
}

TEST(PromptPartsRepair, TheFakeModelSeesARepair) {
  WorkerBench bench;
  for (const ChunkOptions mode : EveryMode()) {
    std::vector<std::vector<TokenId>> answers;
    answers.push_back(ChunkedContinuation(bench.runner, ThreeChunks(mode), kAnswer));
    for (const ChunkRepair& repair : SomeRepairs()) {
      ChunkOptions options = mode;
      options.repair = repair;
      answers.push_back(ChunkedContinuation(bench.runner, ThreeChunks(options), kAnswer));
    }
    for (size_t i = 1; i < answers.size(); ++i) {
      // first:1000 and share:1 are the last of their kind, and equal.
      for (size_t other = 0; other < i; ++other) {
        EXPECT_EQ(answers[i] == answers[other], i == 8 && other == 4) << i << " " << other;
      }
    }
  }
}

TEST(PromptPartsRepair, EveryModeAnswersTheSameColdCachedAndBypassed) {
  for (const ChunkOptions& options : EveryRepair()) {
    const ChunkedPrompt prompt = ThreeChunks(options);
    const int32_t repaired = CountRepaired(prompt);
    for (const int32_t block_size : {1, 4, 16}) {
      for (const int32_t budget : {3, 64}) {
        for (const double share : {0.0, 0.5}) {
          for (const bool prefix_cache : {true, false}) {
            SCOPED_TRACE(StrCat(Name(options), ", blocks of ", block_size, ", budget ", budget,
                                ", share ", share, ", ", prefix_cache));
            WorkerBench bench({.num_blocks = 600 / block_size,
                               .block_size = block_size,
                               .token_budget = budget,
                               .max_chunk_tokens = budget,
                               .prefix_cache = prefix_cache,
                               .prompt_parts = {.cache = {.share = share}, .piece_tokens = 256}});
            const RequestLedger cold = Ask(bench, prompt).finish->ledger;
            EXPECT_EQ(cold.chunk.repaired_tokens, repaired);
            EXPECT_EQ(cold.computed_tokens, TokensOf(prompt) + repaired);
            const RequestLedger warm = Ask(bench, prompt).finish->ledger;
            EXPECT_EQ(warm.chunk.hits, share > 0 ? 3 : 0);
            EXPECT_EQ(warm.chunk.repaired_tokens, repaired);
            EXPECT_EQ(warm.cached_tokens + warm.computed_tokens, TokensOf(prompt) + repaired);
          }
        }
      }
    }
  }
}

TEST(PromptPartsRepair, AFullHitComputesTheQuestionAndTheRepairedTokens) {
  for (const ChunkOptions& options : EveryRepair()) {
    for (const int32_t block_size : {1, 4, 8, 16}) {
      WorkerBench bench({.num_blocks = 800 / block_size, .block_size = block_size});
      Ask(bench, ThreeChunks(options));
      ChunkedPrompt other = ThreeChunks(options);
      std::swap(other.chunks[0], other.chunks[2]);
      other.question = Bytes("And who else?");
      const RequestLedger ledger = Ask(bench, other).finish->ledger;
      EXPECT_EQ(ledger.chunk.hits, 3);
      EXPECT_EQ(ledger.chunk.repaired_tokens, CountRepaired(other));
      EXPECT_EQ(ledger.computed_tokens, 13 + CountRepaired(other)) << Name(options);
    }
  }
}

// A repair that wrote shared blocks, or stored its own, would change the answers after it.
TEST(PromptPartsRepair, RepairedKvNeverReachesAnotherRequest) {
  for (const ChunkOptions& options : EveryRepair()) {
    for (const int32_t block_size : {1, 4, 16}) {
      SCOPED_TRACE(StrCat(Name(options), ", blocks of ", block_size));
      WorkerBench bench({.num_blocks = 800 / block_size, .block_size = block_size});
      ChunkedPrompt plain = ThreeChunks(options);
      plain.options.repair = {};
      ChunkedPrompt turned = plain;
      std::swap(turned.chunks[0], turned.chunks[1]);
      const int32_t entries_before = (Ask(bench, plain), bench.core->chunk_stats().entries);
      Ask(bench, ThreeChunks(options));
      EXPECT_EQ(bench.core->chunk_stats().entries, entries_before);
      Ask(bench, turned);
      Ask(bench, plain);
      // At the same time, with steps of both in between.
      const auto repaired = bench.Generate(ChunkedRequest(ThreeChunks(options), kAnswer));
      const auto unrepaired = bench.Generate(ChunkedRequest(plain, kAnswer));
      bench.Run();
      ExpectAnswer(bench, ThreeChunks(options), *repaired);
      ExpectAnswer(bench, plain, *unrepaired);
      bench.ExpectAllBlocksHome();
    }
  }
}

TEST(PromptPartsRepair, ANextTurnIsCachedUnderItsRepair) {
  for (const ChunkOptions& options : EveryRepair()) {
    WorkerBench bench({.num_blocks = 300});
    ChunkedPrompt prompt = ThreeChunks(options);
    const SinkRecord first = Ask(bench, prompt);
    const std::vector<TokenId> before = prompt.question;
    prompt.question.insert(prompt.question.end(), first.tokens.begin(), first.tokens.end());
    const std::vector<TokenId> more = Bytes(" And then?");
    prompt.question.insert(prompt.question.end(), more.begin(), more.end());
    const auto question = static_cast<int32_t>(prompt.question.size());
    const auto kept = static_cast<int32_t>(before.size() + kAnswer - 1) / 4 * 4;
    EXPECT_EQ(Ask(bench, prompt).finish->ledger.computed_tokens,
              question - kept + CountRepaired(prompt));
    ChunkRepair& repair = prompt.options.repair;
    repair.first_tokens += 1;
    repair.share_millionths += repair.share_millionths > 1 ? -1 : 1;
    EXPECT_EQ(Ask(bench, prompt).finish->ledger.computed_tokens, question + CountRepaired(prompt))
        << "with another repair, the question sees something else";
    prompt.options.repair = {};
    EXPECT_EQ(Ask(bench, prompt).finish->ledger.computed_tokens, question);
  }
}

TEST(PromptPartsRepair, ContiguousModeRepairs) {
  for (const ChunkOptions& options : EveryRepair()) {
    WorkerBench bench({.num_blocks = 200, .prefix_cache = false, .paged = false});
    Ask(bench, ThreeChunks(options));
    Ask(bench, ThreeChunks(options));
  }
}

TEST(PromptPartsRepair, AChunkThatStandsTwiceIsRepairedInBothPlaces) {
  for (const ChunkOptions& options : EveryRepair()) {
    WorkerBench bench({.num_blocks = 200});
    const ChunkedPrompt prompt = PromptOf("system", {"same", "other", "same"}, "which?", options);
    EXPECT_EQ(Ask(bench, prompt).finish->ledger.computed_tokens,
              6 + 4 + 5 + 6 + CountRepaired(prompt));
    Ask(bench, PromptOf("", {"same", "same"}, "which?", options));
    Ask(bench, PromptOf("", {"one"}, "q", options));
    Ask(bench, PromptOf("system", {"one"}, "q", options));
    Ask(bench, PromptOf("system alone", {}, "q", options));
  }
}

TEST(PromptPartsRepair, ChoicesShareTheRepairedBlocks) {
  for (const ChunkOptions& options : EveryRepair()) {
    WorkerBench bench({.num_blocks = 100, .max_running = 8});
    const ChunkedPrompt prompt = ThreeChunks(options);
    GenerateRequest request = ChunkedRequest(prompt, kAnswer);
    request.n = 4;
    const auto record = bench.Generate(request);
    bench.Run();
    ASSERT_TRUE(record->last_finished);
    for (int32_t i = 0; i < 4; ++i) {
      SinkRecord& choice = record->Choice(i);
      EXPECT_EQ(choice.tokens, ChunkedContinuation(bench.runner, prompt, kAnswer));
      EXPECT_EQ(choice.finish->ledger.computed_tokens, TokensOf(prompt) + CountRepaired(prompt));
    }
    bench.ExpectAllBlocksHome();
  }
}

TEST(PromptPartsRepair, ACancelledRepairLeavesNoBlockAndNoTrace) {
  for (const bool asynchronous : {false, true}) {
    for (const ChunkOptions& options : EveryRepair()) {
      for (int32_t turns = 0; turns < 20; ++turns) {
        WorkerBench bench({.num_blocks = 200,
                           .token_budget = 7,
                           .asynchronous = asynchronous,
                           .steps_in_flight = asynchronous ? 2 : 1});
        const ChunkedPrompt prompt = ThreeChunks(options);
        const auto cancelled = bench.Generate(ChunkedRequest(prompt, kAnswer));
        const RequestHandle handle = bench.last_handle;
        ChunkedPrompt plain = prompt;
        plain.options.repair = {};
        const auto waiter = bench.Generate(ChunkedRequest(plain, kAnswer));
        for (int32_t i = 0; i < turns; ++i) bench.Turn();
        bench.cancels.Add(handle);
        bench.core->Cancel(handle);
        ASSERT_TRUE(bench.core->CheckConservation().ok()) << bench.core->CheckConservation();
        bench.Run();
        ExpectAnswer(bench, plain, *waiter);
        bench.ExpectAllBlocksHome();
        Ask(bench, prompt);
        if (testing::Test::HasFailure()) FAIL() << Name(options) << " after " << turns << " turns";
      }
    }
  }
}

TEST(PromptPartsRepair, AFailedStepFailsTheRequest) {
  for (int32_t turns = 0; turns < 8; ++turns) {
    WorkerBench bench({.num_blocks = 200, .token_budget = 16});
    ChunkedPrompt prompt = ThreeChunks({.repair = SomeRepairs()[2]});
    const auto record = bench.Generate(ChunkedRequest(prompt, kAnswer));
    for (int32_t i = 0; i < turns; ++i) bench.Turn();
    bench.runner.next_status = absl::InternalError("broken");
    bench.Turn();
    bench.Run();
    ASSERT_TRUE(record->error.has_value());
    bench.ExpectAllBlocksHome();
    Ask(bench, prompt);
  }
}

// The answer grows until the pool is full, so requests are preempted and drop their repairs.
TEST(PromptPartsRepair, APreemptedRequestIsRepairedAgain) {
  int64_t preemptions = 0;
  for (const bool asynchronous : {false, true}) {
    for (const ChunkOptions& options : EveryRepair()) {
      WorkerBench bench({.num_blocks = 44,
                         .asynchronous = asynchronous,
                         .steps_in_flight = asynchronous ? 2 : 1});
      const ChunkedPrompt prompt = ThreeChunks(options);
      std::vector<std::shared_ptr<SinkRecord>> records;
      for (int i = 0; i < 3; ++i) records.push_back(bench.Generate(ChunkedRequest(prompt, 40)));
      bench.Run();
      for (const auto& record : records) {
        ASSERT_TRUE(record->finish.has_value()) << *record->error;
        const std::vector<TokenId> expected = ChunkedContinuation(bench.runner, prompt, 40);
        EXPECT_EQ(record->tokens, expected) << Name(options);
      }
      bench.ExpectAllBlocksHome();
      preemptions += bench.scheduler.preemption_count();
    }
  }
  EXPECT_GT(preemptions, 5);
}

TEST(PromptPartsRepair, StepsKeepTheLimitsOfTheRunner) {
  for (const int32_t shifts : {2, 5, 100}) {
    for (const int32_t runs : {4, 6, 100}) {
      WorkerBench bench({.num_blocks = 300,
                         .prompt_parts = {.cache = {.share = 0.5},
                                          .piece_tokens = 256,
                                          .max_shifted_queries = shifts,
                                          .max_repair_runs = runs}});
      const ChunkedPrompt prompt =
          ThreeChunks({.positions = ChunkPositions::kSequential, .repair = SomeRepairs()[1]});
      std::vector<std::shared_ptr<SinkRecord>> records;
      for (int i = 0; i < 3; ++i) {
        records.push_back(bench.Generate(ChunkedRequest(prompt, kAnswer)));
      }
      bench.Run();
      for (const auto& record : records) ExpectAnswer(bench, prompt, *record);
      bench.ExpectAllBlocksHome();
    }
  }
}

}  // namespace
}  // namespace baton
