// Two workers under seeded random events: chunked and ordinary prompts, hand-offs that fail in
// every way, cancellations, resizes, clears, preemption, chunks that sleep and damage of them. It
// checks these properties:
//  - every request ends exactly once, and every run ends;
//  - every answer is that of one worker, as far as it goes;
//  - after every event, no block is lost or given away too early.
//
// The loopback transport has a thread of its own, so a seed gives the same events but not always
// the same run.
#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <string>
#include <vector>

#include "common/str_cat.h"
#include "engine/worker_core.h"
#include "tests/common/random_operations.h"
#include "tests/engine/chunk_pair.h"
#include "tests/engine/chunked_prompt.h"

namespace baton {
namespace {

class RandomPair {
 public:
  RandomPair(uint64_t seed, const BenchOptions& prefill, const BenchOptions& decode)
      : random_(seed), pair_(prefill, decode), resizes_(decode.paged && prefill.paged) {}

  void Play(int events) {
    for (int i = 0; i < events; ++i) {
      PlayOne();
      for (PairedRequest& one : asked_) {
        if (Below(3) == 0) pair_.GiveUpIfFailed(one);
      }
      CheckSound();
      if (::testing::Test::HasFailure()) return;
    }
    Drain();
    CheckAnswers();
    pair_.ExpectAllBlocksHome();
  }

  struct Seen {
    int64_t whole = 0;      // answers
    int64_t elsewhere = 0;  // of them, prefilled by the peer with chunks
    int64_t mixed = 0;      // of them, with parts that were computed at the receiver
    int64_t hits = 0;
    int64_t preemptions = 0;
    int64_t pulled_tokens = 0;
    int64_t wakes = 0;
    int64_t damaged = 0;
  };
  void AddTo(Seen& seen) const {
    seen.whole += seen_.whole;
    seen.elsewhere += seen_.elsewhere;
    seen.mixed += seen_.mixed;
    seen.pulled_tokens += seen_.pulled_tokens;
    seen.hits += pair_.decodes.core->chunk_stats().hits + pair_.prefills.core->chunk_stats().hits;
    for (const WorkerBench* bench : {&pair_.prefills, &pair_.decodes}) {
      const SleepingChunkStats sleeping = bench->core->sleeping_stats();
      seen.wakes += sleeping.wakes;
      seen.damaged += sleeping.damaged;
    }
    seen.preemptions += pair_.decodes.scheduler.preemption_count();
  }

 private:
  int32_t Below(int32_t end) { return static_cast<int32_t>(random_() % end); }
  WorkerBench& Either() { return Below(2) == 0 ? pair_.prefills : pair_.decodes; }

  ChunkedPrompt Prompt() {
    static const std::vector<std::string_view> kTexts = {
        "a",          "chunk",           "chunk two", "a longer chunk of text",
        "more to do", "the end of all.", "abcdefgh",  "0123456789abcdef"};
    static const std::vector<std::string_view> kSystems = {"", "Be brief.", "12345678"};
    std::vector<std::string_view> chunks;
    for (int32_t i = Below(5); i > 0; --i) chunks.push_back(kTexts[Below(8)]);
    return PromptOf(kSystems[Below(3)], chunks, Below(2) == 0 ? "Who?" : "What is it?",
                    EveryMode()[Below(4)]);
  }

  void Add() {
    const ChunkedPrompt prompt = Prompt();
    GenerateRequest request = Below(4) == 0
                                  ? WorkerBench::Request(FlatTokens(prompt), 1 + Below(12))
                                  : ChunkedRequest(prompt, 1 + Below(12));
    request.n = Below(5) == 0 ? 2 : 1;
    request.priority = Below(3);
    request.timeout_ms = Below(12) == 0 ? 1 : 0;
    if (Below(5) == 0) {  // not handed over
      PairedRequest& local = asked_.emplace_back();
      local.request = request;
      local.record = pair_.decodes.Generate(request);
      local.decode = pair_.decodes.last_handle - request.n + 1;
      return;
    }
    asked_.push_back(pair_.Open(std::move(request)));
    if (asked_.back().record->ticket.has_value()) {
      // Some tickets are late, and some are lost.
      if (Below(4) > 0) return pair_.Prefill(asked_.back());
      late_.push_back(asked_.size() - 1);
    }
  }
  void SendALateTicket() {
    if (late_.empty()) return;
    PairedRequest& late = asked_[late_.front()];
    late_.pop_front();
    Below(2) == 0 ? pair_.Prefill(late) : pair_.GiveUp(late);
  }
  PairedRequest* PickOne() {
    if (asked_.empty()) return nullptr;
    const int32_t last = static_cast<int32_t>(asked_.size());
    return &asked_[last - 1 - Below(std::min(last, 6))];
  }
  void CancelOne() {
    PairedRequest* const one = PickOne();
    if (one == nullptr) return;
    if (one->prefill != 0 && Below(2) == 0) {
      pair_.prefills.cancels.Add(one->prefill);
      return pair_.prefills.core->Cancel(one->prefill);
    }
    pair_.decodes.cancels.Add(one->decode);
    pair_.decodes.core->Cancel(one->decode);
  }
  // Fails one transfer of a hand-off behind the workers' backs.
  void FailATransfer() {
    PairedRequest* const one = PickOne();
    if (one == nullptr || !one->record->ticket.has_value()) return;
    const std::vector<PartTicket>& parts = one->record->ticket->parts;
    const int32_t which = Below(static_cast<int32_t>(parts.size()) + 1);
    pair_.decodes.loopback->CancelReceive(which == 0 ? one->record->ticket->transfer_id
                                                     : parts[which - 1].transfer_id);
  }

  void PullChunks() {
    ChunkedPrompt prompt = Prompt();
    pulls_.push_back(pair_.Pull(Either(), std::move(prompt), /*lost=*/Below(8) == 0));
    if (pulls_.back().record->done.has_value() || Below(4) > 0) return;
    pulls_.back().receiver->core->Cancel(pulls_.back().handle);
  }

  void PlayOne() {
    switch (Below(24)) {
      case 0:
      case 1:
      case 2:
        return Add();
      case 3:
        if (Below(3) == 0) CancelOne();
        return;
      case 4:
        if (Below(10) == 0) Either().runner.next_status = absl::InternalError("broken");
        return;
      case 5:
        if (Below(6) == 0) Either().core->ClearCache(std::nullopt);
        if (resizes_ && Below(6) == 0) Either().Resize(40 + Below(80));
        // Time for a round of cold chunks.
        if (Below(4) == 0) Either().clock.AdvanceUs(ChunkCache::kSleepRoundUs);
        return;
      case 6:
        if (Below(3) == 0) FailATransfer();
        return;
      case 7:
        return SendALateTicket();
      case 9:
        if (Below(2) == 0) PullChunks();
        return;
      case 8:
        if (Below(8) == 0) {
          if (PairedRequest* const one = PickOne(); one != nullptr && one->record->ticket) {
            pair_.GiveUp(*one);
          }
        }
        return;
      default:
        Either().Turn();
    }
  }

  void CheckSound() {
    for (WorkerBench* bench : {&pair_.prefills, &pair_.decodes}) {
      bench->core->CheckDeadlines();
      const absl::Status sound = bench->core->CheckConservation();
      ASSERT_TRUE(sound.ok()) << sound;
    }
  }

  void Drain() {
    for (WorkerBench* bench : {&pair_.prefills, &pair_.decodes}) {
      bench->runner.next_status = absl::OkStatus();
    }
    while (!late_.empty()) SendALateTicket();
    for (const ChunkPair::PairedPull& pull : pulls_) pull.receiver->core->Cancel(pull.handle);
    const bool idle = pair_.Run(asked_);
    CheckSound();
    if (idle) return;
    ADD_FAILURE() << "the workers never become idle: " << pair_.decodes.core->Handles().size()
                  << " and " << pair_.prefills.core->Handles().size() << " requests, "
                  << pair_.decodes.core->active_transfers() << " transfers";
    for (WorkerBench* bench : {&pair_.prefills, &pair_.decodes}) {
      bench->core->Shutdown(absl::InternalError("stalled"));
    }
  }

  std::vector<TokenId> Expected(const GenerateRequest& request) const {
    const FakeRunner& runner = pair_.decodes.runner;
    const int32_t count = *request.sampling.max_tokens;
    if (!request.chunked.has_value()) return runner.Continuation(request.prompt, count);
    const ChunkedPrompt& prompt = *request.chunked;
    if (prompt.system.empty() && prompt.chunks.empty()) {
      return runner.Continuation(prompt.question, count);
    }
    return ChunkedContinuation(runner, prompt, count);
  }
  void CheckAnswers() {
    for (const ChunkPair::PairedPull& pull : pulls_) {
      ASSERT_TRUE(pull.record->done.has_value());
      if (pull.record->done->ok()) seen_.pulled_tokens += (*pull.record->done)->pulled_tokens;
    }
    for (const PairedRequest& one : asked_) {
      ASSERT_TRUE(one.record->ended());
      EXPECT_TRUE(one.prefilled == nullptr || one.prefilled->done.has_value());
      const std::vector<TokenId> expected = Expected(one.request);
      for (int32_t choice = 0; choice < one.request.n; ++choice) {
        const SinkRecord& got = one.record->Choice(choice);
        ASSERT_LE(got.tokens.size(), expected.size());
        EXPECT_TRUE(std::equal(got.tokens.begin(), got.tokens.end(), expected.begin()));
        if (!got.finish.has_value() || got.tokens.size() < expected.size()) continue;
        ++seen_.whole;
        const RequestLedger& ledger = got.finish->ledger;
        if (!one.request.chunked.has_value() || !ledger.prefilled_elsewhere) continue;
        ++seen_.elsewhere;
        const bool all_there =
            ledger.computed_tokens + ledger.prefill_cached_tokens == TokensOf(*one.request.chunked);
        if (!all_there) ++seen_.mixed;
      }
    }
  }

  std::mt19937_64 random_;
  ChunkPair pair_;
  const bool resizes_;
  std::vector<PairedRequest> asked_;
  std::deque<size_t> late_;  // requests whose ticket was not sent yet
  std::vector<ChunkPair::PairedPull> pulls_;
  Seen seen_;
};

TEST(WorkerCoreChunkHandOffRandom, AnswersAreRightAndNoBlockIsLost) {
  RandomPair::Seen seen;
  constexpr int kSeeds = kThreadSanitizer ? 100 : 300;  // chunks move in other threads
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(StrCat("seed ", seed));
    std::mt19937_64 random(seed * 977);
    const auto below = [&](int32_t end) { return static_cast<int32_t>(random() % end); };
    const auto options = [&] {
      const bool asynchronous = below(2) == 0;
      const bool paged = below(8) != 0;
      return BenchOptions{.num_blocks = 40 + below(80),
                          .max_blocks = 120,
                          .block_size = 1 << below(4),
                          .token_budget = 3 + below(40),
                          .max_chunk_tokens = 2 + below(40),
                          .max_running = 2 + below(6),
                          .max_waiting = 12,
                          .prefix_cache = paged && below(4) != 0,
                          .paged = paged,
                          .layer_pieces = 1 + below(2),
                          .asynchronous = asynchronous,
                          .steps_in_flight = asynchronous ? 2 : 1,
                          .prompt_parts = {.cache = {.share = below(4) * 0.2,
                                                     .max_entries = 1 + below(8),
                                                     .sleep_after_us = below(2) * 20'000,
                                                     .sleep_uses = below(5)},
                                           .piece_tokens = 256},
                          .chunk_host_bytes = below(3) * (1000 + below(4000)),
                          .chunk_compress = below(2) == 0,
                          .mover_seed = seed,
                          .damage_every = static_cast<uint32_t>(below(2) * 10)};
    };
    const BenchOptions prefill = options();
    const BenchOptions decode = options();
    RandomPair run(seed, prefill, decode);
    run.Play(500);
    if (::testing::Test::HasFailure()) return;
    run.AddTo(seen);
  }
  EXPECT_GT(seen.whole, 13 * kSeeds);
  EXPECT_GT(seen.elsewhere, kSeeds / 2);
  EXPECT_GT(seen.mixed, kSeeds / 50);  // 19 to 25 of 300: it depends on time
  EXPECT_GT(seen.hits, 2 * kSeeds);
  EXPECT_GT(seen.preemptions, kSeeds / 15);
  EXPECT_GT(seen.pulled_tokens, kSeeds / 3);
  EXPECT_GT(seen.wakes, kSeeds / 3);
  EXPECT_GT(seen.damaged, kSeeds / 150);
}

}  // namespace
}  // namespace baton
