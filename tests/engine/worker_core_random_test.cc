// WorkerCore under seeded random events in any order. What must hold: one end a request, no wrong
// token whoever computed its KV, no block lost or given away too early, and always an end.
#include <gtest/gtest.h>

#include <random>

#include "engine/worker_core.h"
#include "tests/engine/worker_bench.h"

namespace baton {
namespace {

class RandomWorker {
 public:
  RandomWorker(uint32_t seed, const BenchOptions& options) : random_(seed), bench_(options) {
    bench_.runner.poison = '!';
  }

  void Play(int events) {
    for (int i = 0; i < events; ++i) {
      PlayOne();
      if (bench_.cache.options().max_blocks > 0) ResizeSometimes();
    }
    Drain();
    CheckEnds();
    bench_.ExpectAllBlocksHome();
  }
  int64_t preemptions() const { return bench_.scheduler.preemption_count(); }
  int finished() const { return finished_; }

 private:
  struct Generated {
    std::vector<TokenId> prompt;
    int32_t max_tokens;
    std::shared_ptr<SinkRecord> record;
  };

  uint32_t Pick(uint32_t below) { return random_() % below; }

  // Often alike at the beginning, sometimes ending in the poison that makes NaN.
  std::vector<TokenId> Prompt() {
    std::vector<TokenId> prompt(1 + Pick(24), 'A' + static_cast<TokenId>(Pick(2)));
    for (uint32_t i = Pick(4); i > 0; --i) prompt.push_back('0' + static_cast<TokenId>(Pick(3)));
    if (Pick(20) == 0) prompt.back() = '!';
    return prompt;
  }

  void PlayOne() {
    switch (Pick(12)) {
      case 0:
        return AddGenerate(false);
      case 1:
        return AddGenerate(true);
      case 2: {
        const auto prompt = Prompt();
        const int32_t blocks = bench_.cache.BlocksFor(static_cast<int32_t>(prompt.size()));
        if (Pick(10) == 0) bench_.fake.next_post = absl::UnavailableError("refused");
        prefills_.push_back(bench_.Prefill(
            prompt, bench_.Ticket(prompt.size(), static_cast<int32_t>(Pick(blocks)))));
        bench_.fake.next_post = absl::OkStatus();
        return;
      }
      case 3:
        return bench_.core->Cancel(Pick(4) + (bench_.last_handle < 6 ? 1 : bench_.last_handle - 4));
      case 4:
        bench_.clock.AdvanceUs(Pick(1500));
        bench_.core->CheckDeadlines();
        return;
      case 5:
        bench_.core->PrefillLocally(1 + Pick(bench_.last_handle + 1), Epoch(77)).IgnoreError();
        return;
      case 6:
        if (Pick(8) == 0) bench_.runner.next_status = absl::InternalError("device");
        return;
      case 7:
        return EndSomeReceive();
      case 8:
        return EndSomeSend();
      case 9:
        return bench_.core->PollTransfers();
      default:
        if (bench_.core->has_work()) bench_.core->Step();
    }
  }

  // The pool changes its size now and then; what retires is gone as soon as nobody holds it.
  void ResizeSometimes() {
    if (Pick(10) == 0) {
      bench_.Resize(static_cast<int32_t>(4 + Pick(bench_.cache.max_blocks() - 3)));
      smallest_ = std::min(smallest_, bench_.cache.num_blocks());
    }
    bench_.DiscardRetired();
    const absl::Status sound = bench_.cache.CheckConservation();
    ASSERT_TRUE(sound.ok()) << sound;
  }

  void AddGenerate(bool remote) {
    const auto prompt = Prompt();
    const auto max_tokens = static_cast<int32_t>(1 + Pick(30));
    GenerateRequest request = WorkerBench::Request(prompt, max_tokens);
    request.remote_prefill = remote;
    request.priority = static_cast<int32_t>(Pick(2));
    if (Pick(8) == 0) request.timeout_ms = 1 + Pick(10);
    if (Pick(20) == 0) bench_.fake.next_post = absl::UnavailableError("refused");
    generated_.push_back({prompt, max_tokens, bench_.Generate(std::move(request))});
    bench_.fake.next_post = absl::OkStatus();
    if (generated_.back().record->ticket) prompts_[bench_.last_handle] = prompt;
  }

  void EndSomeReceive() {
    if (bench_.fake.receives.empty()) return;
    auto it = bench_.fake.receives.begin();
    std::advance(it, Pick(static_cast<uint32_t>(bench_.fake.receives.size())));
    const uint64_t id = it->first;
    const auto& prompt = prompts_.at(id);
    switch (Pick(5)) {
      case 0:
        return bench_.fake.Progress(id);
      case 1:
        return bench_.fake.FailReceive(
            id, absl::UnavailableError("lost"),
            static_cast<int32_t>(Pick(it->second.spec.blocks.size() + 1)), prompt);
      case 2:
        return bench_.fake.Deliver(id, prompt, bench_.Manifest(prompt).substr(1));
      default:
        return bench_.fake.Deliver(id, prompt, bench_.Manifest(prompt));
    }
  }

  void EndSomeSend() {
    if (bench_.fake.sends.empty()) return;
    auto it = bench_.fake.sends.begin();
    std::advance(it, Pick(static_cast<uint32_t>(bench_.fake.sends.size())));
    const bool sent = it->second.final && it->second.cancels == 0 && Pick(4) != 0;
    bench_.fake.EndSend(it->first, sent ? absl::OkStatus() : absl::UnavailableError("lost"));
  }

  // Transfers end in any order while the loop runs; then nothing may be left.
  void Drain() {
    bench_.runner.next_status = absl::OkStatus();
    int turns = 0;
    while (!bench_.core->idle()) {
      ASSERT_LT(++turns, 20'000) << "spins";
      const bool worked = bench_.Turn();
      if (Pick(3) == 0) EndSomeReceive();
      if (Pick(3) == 0) EndSomeSend();
      const bool events = bench_.core->active_transfers() > 0;
      if (!worked && !events && !bench_.core->has_work()) break;
    }
    EXPECT_TRUE(bench_.core->idle())
        << "stalls with " << bench_.core->Handles().size() << " requests, "
        << bench_.scheduler.waiting_count() << " waiting, " << bench_.scheduler.running_count()
        << " running";
    if (!bench_.core->idle()) bench_.core->Shutdown(absl::InternalError("stalled"));
  }

  void CheckEnds() {
    for (const Generated& one : generated_) {
      ASSERT_TRUE(one.record->ended());
      const auto expected =
          bench_.runner.Continuation(one.prompt, static_cast<int32_t>(one.record->tokens.size()));
      EXPECT_EQ(one.record->tokens, expected);
      if (!one.record->finish) continue;
      ++finished_;
      EXPECT_EQ(one.record->finish->reason, FinishReason::kLength);
      const auto said = static_cast<int32_t>(one.record->tokens.size());
      const int32_t pool = smallest_ * bench_.cache.options().block_size;
      const bool pool_was_full = static_cast<int32_t>(one.prompt.size()) + said > pool / 2;
      EXPECT_TRUE(said == one.max_tokens || pool_was_full) << said << " of " << one.max_tokens;
    }
    for (const auto& prefill : prefills_) EXPECT_TRUE(prefill->done.has_value());
    EXPECT_EQ(bench_.core->counters().requests,
              static_cast<int64_t>(generated_.size() + prefills_.size()));
  }

  std::mt19937 random_;
  WorkerBench bench_;
  std::vector<Generated> generated_;
  std::vector<std::shared_ptr<PrefillRecord>> prefills_;
  std::map<uint64_t, std::vector<TokenId>> prompts_;
  int finished_ = 0;
  int32_t smallest_ = bench_.cache.num_blocks();  // that the pool has been
};

void PlaySeeds(const BenchOptions& options, bool expect_preemptions) {
  int64_t preemptions = 0;
  int finished = 0;
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    RandomWorker worker(seed, options);
    worker.Play(400);
    preemptions += worker.preemptions();
    finished += worker.finished();
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(finished, 1000);
  EXPECT_EQ(preemptions > 0, expect_preemptions);
}

TEST(WorkerCoreRandom, WithRoom) {
  PlaySeeds({.num_blocks = 400, .max_chunk_tokens = 7}, /*expect_preemptions=*/false);
}

TEST(WorkerCoreRandom, WithAPoolThatRunsDry) {
  PlaySeeds({.num_blocks = 14, .token_budget = 12, .max_chunk_tokens = 5}, true);
}

TEST(WorkerCoreRandom, WithAPoolThatRunsDryAndNoPrefixCache) {
  PlaySeeds({.num_blocks = 14, .token_budget = 12, .max_chunk_tokens = 5, .prefix_cache = false},
            true);
}

TEST(WorkerCoreRandom, WithBlocksOfOneToken) {
  PlaySeeds({.num_blocks = 60, .block_size = 1, .max_chunk_tokens = 9}, true);
}

TEST(WorkerCoreRandom, WithAPoolThatGrowsAndShrinks) {
  PlaySeeds({.num_blocks = 14, .max_blocks = 40, .token_budget = 12, .max_chunk_tokens = 5}, true);
}

TEST(WorkerCoreRandom, WithAPoolThatGrowsAndShrinksAndNoPrefixCache) {
  PlaySeeds({.num_blocks = 14,
             .max_blocks = 40,
             .token_budget = 12,
             .max_chunk_tokens = 5,
             .prefix_cache = false},
            true);
}

TEST(WorkerCoreRandom, WithContiguousRunsInAPoolThatGrowsAndShrinks) {
  PlaySeeds({.num_blocks = 30,
             .max_blocks = 60,
             .max_chunk_tokens = 9,
             .prefix_cache = false,
             .paged = false},
            false);
}

TEST(WorkerCoreRandom, WithContiguousRuns) {
  PlaySeeds({.num_blocks = 60, .max_chunk_tokens = 9, .prefix_cache = false, .paged = false},
            false);
}

}  // namespace
}  // namespace baton
