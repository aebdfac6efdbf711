// Random requests with shared parts, in small pools, with cancellations, failures and resizes.
#include "engine/prompt_parts.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "common/str_cat.h"
#include "tests/engine/chunked_prompt.h"
#include "tests/engine/worker_bench.h"

namespace baton {
namespace {

struct Asked {
  ChunkedPrompt prompt;
  int32_t answer = 0;
  RequestHandle handle = 0;
  std::shared_ptr<SinkRecord> record;
};

class RandomRequests {
 public:
  RandomRequests(uint64_t seed, WorkerBench& bench) : random_(seed), bench_(bench) {}

  int32_t Below(int32_t end) { return static_cast<int32_t>(random_() % end); }

  void Add() {
    static const std::vector<std::string_view> kTexts = {
        "a",          "chunk",           "chunk two", "a longer chunk of text",
        "more to do", "the end of all.", "abcdefgh",  "0123456789abcdef"};
    static const std::vector<std::string_view> kSystems = {"", "Be brief.", "12345678"};
    ChunkOptions mode = EveryMode()[Below(4)];
    if (Below(2) == 0)
      mode.repair = SomeRepairs()[Below(static_cast<int32_t>(SomeRepairs().size()))];
    std::vector<std::string_view> chunks;
    for (int32_t i = Below(5); i > 0; --i) chunks.push_back(kTexts[Below(8)]);
    Asked& asked = asked_.emplace_back();
    asked.prompt =
        PromptOf(kSystems[Below(3)], chunks, Below(2) == 0 ? "Who?" : "What is it?", mode);
    asked.answer = 1 + Below(12);
    GenerateRequest request = ChunkedRequest(asked.prompt, asked.answer);
    request.n = Below(5) == 0 ? 2 : 1;
    request.priority = Below(3);
    request.timeout_ms = Below(10) == 0 ? 1 : 0;
    asked.record = bench_.Generate(std::move(request));
    asked.handle = bench_.last_handle - request.n + 1;
  }
  void CancelOne() {
    if (asked_.empty()) return;
    const RequestHandle handle = asked_[Below(static_cast<int32_t>(asked_.size()))].handle;
    bench_.cancels.Add(handle);
    bench_.core->Cancel(handle);
  }
  // Every answer is right as far as it goes.
  void Check() {
    for (Asked& asked : asked_) {
      ASSERT_TRUE(asked.record->ended());
      const std::vector<TokenId> expected = Expected(asked);
      for (int32_t choice = 0; choice < 2; ++choice) {
        const std::vector<TokenId>& tokens = asked.record->Choice(choice).tokens;
        ASSERT_LE(tokens.size(), expected.size());
        EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), expected.begin()));
        whole_ += tokens.size() == expected.size() ? 1 : 0;
      }
    }
  }
  int32_t whole() const { return whole_; }

 private:
  std::vector<TokenId> Expected(const Asked& asked) const {
    if (asked.prompt.system.empty() && asked.prompt.chunks.empty()) {
      return bench_.runner.Continuation(asked.prompt.question, asked.answer);
    }
    return ChunkedContinuation(bench_.runner, asked.prompt, asked.answer);
  }

  std::mt19937_64 random_;
  WorkerBench& bench_;
  std::vector<Asked> asked_;
  int32_t whole_ = 0;
};

TEST(PromptParts, RandomRequestsGetRightAnswersAndLeaveNoBlock) {
  int64_t hits = 0;
  int64_t evictions = 0;
  int64_t preemptions = 0;
  int32_t whole = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(StrCat("seed ", seed));
    std::mt19937_64 random(seed * 977);
    const auto below = [&](int32_t end) { return static_cast<int32_t>(random() % end); };
    const bool asynchronous = below(2) == 0;
    const bool paged = below(6) != 0;
    WorkerBench bench(
        {.num_blocks = 24 + below(80),
         .max_blocks = 104,
         .block_size = 1 << below(4),
         .token_budget = 3 + below(40),
         .max_chunk_tokens = 2 + below(40),
         .max_running = 2 + below(6),
         .max_waiting = 12,
         .prefix_cache = paged && below(4) != 0,
         .paged = paged,
         .asynchronous = asynchronous,
         .steps_in_flight = asynchronous ? 2 : 1,
         .prompt_parts = {.cache = {.share = below(4) * 0.2, .max_entries = 1 + below(8)},
                          .piece_tokens = 256}});
    RandomRequests requests(seed, bench);
    for (int32_t event = 0; event < 120; ++event) {
      switch (requests.Below(12)) {
        case 0:
        case 1:
        case 2:
          requests.Add();
          break;
        case 3:
          if (requests.Below(4) == 0) requests.CancelOne();
          break;
        case 4:
          if (requests.Below(10) == 0) bench.runner.next_status = absl::InternalError("broken");
          break;
        case 5:
          if (requests.Below(6) == 0) bench.core->ClearCache(std::nullopt);
          if (paged && requests.Below(6) == 0) bench.Resize(24 + requests.Below(80));
          break;
        default:
          bench.Turn();
      }
      bench.core->CheckDeadlines();
      const absl::Status conserved = bench.core->CheckConservation();
      ASSERT_TRUE(conserved.ok()) << conserved;
    }
    bench.Run();
    requests.Check();
    bench.ExpectAllBlocksHome();
    if (::testing::Test::HasFailure()) return;
    hits += bench.core->chunk_stats().hits;
    evictions += bench.core->chunk_stats().evictions;
    preemptions += bench.scheduler.preemption_count();
    whole += requests.whole();
  }
  EXPECT_GT(hits, 1000);
  EXPECT_GT(evictions, 100);
  EXPECT_GT(preemptions, 20);
  EXPECT_GT(whole, 3000);
}

}  // namespace
}  // namespace baton
