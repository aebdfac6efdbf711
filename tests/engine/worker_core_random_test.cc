// WorkerCore under seeded random events in any order. It checks these properties:
//  - every request ends exactly once, and every run ends;
//  - no token is wrong, wherever its KV was computed;
//  - every choice equals a separate request;
//  - no block is lost or given away too early.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "engine/worker_core.h"
#include "tests/common/random_operations.h"
#include "tests/engine/expected_choices.h"
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
      ASSERT_TRUE(bench_.core->CheckConservation().ok()) << bench_.core->CheckConservation();
      if (bench_.cache.options().max_blocks > 0) ResizeSometimes();
    }
    Drain();
    CheckEnds();
    bench_.ExpectAllBlocksHome();
  }
  int64_t preemptions() const { return bench_.scheduler.preemption_count(); }
  int finished() const { return finished_; }
  int finished_forks() const { return finished_forks_; }

 private:
  struct Generated {
    GenerateRequest request;
    std::shared_ptr<SinkRecord> record;
  };
  uint32_t Pick(uint32_t below) { return random_() % below; }

  // Prompts often share a prefix. Some end in the poison token, which makes NaN.
  std::vector<TokenId> Prompt() {
    std::vector<TokenId> prompt(1 + Pick(24), 'A' + static_cast<TokenId>(Pick(2)));
    for (uint32_t i = Pick(4); i > 0; --i) prompt.push_back('0' + static_cast<TokenId>(Pick(3)));
    if (Pick(20) == 0) prompt.back() = '!';
    return prompt;
  }

  void PlayOne() {
    if (bench_.asynchronous && Pick(4) == 0) return PlayDevice();
    switch (Pick(14)) {
      case 12:
        return PullSomePrefix();
      case 13:
        return SendSomePrefix();
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
        return bench_.core->Cancel(PickHandle());
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
        if (bench_.core->has_work()) Step();
    }
  }

  RequestHandle PickHandle() {
    return Pick(4) + (bench_.last_handle < 6 ? 1 : bench_.last_handle - 4);
  }

  void Step() {
    if (bench_.asynchronous) return bench_.core->Step();
    WithACancellation([&] { bench_.core->Step(); });
  }

  // One event of the asynchronous device: report layers, compute a step, or end it.
  void PlayDevice() {
    switch (Pick(4)) {
      case 0:
        return bench_.core->PollSteps();
      case 1:
        return WithACancellation([&] { bench_.deferred.Run(); });
      default:
        return WithACancellation([&] { bench_.deferred.FinishOne(); });
    }
  }

  // Runs `compute`, sometimes with a cancellation while it runs.
  void WithACancellation(const std::function<void()>& compute) {
    if (Pick(4) > 0) return compute();
    const RequestHandle leaves = PickHandle();
    uint32_t chunks = Pick(3);
    bench_.runner.after_chunk = [&] {
      if (chunks-- == 0) bench_.cancels.Add(leaves);
    };
    compute();
    bench_.runner.after_chunk = nullptr;
    bench_.core->Cancel(leaves);
    bench_.cancels.Remove(leaves);
  }

  // Sometimes resizes the pool. Retired blocks are discarded as soon as they have no holder.
  void ResizeSometimes() {
    if (Pick(10) == 0) {
      bench_.Resize(static_cast<int32_t>(4 + Pick(bench_.cache.max_blocks() - 3)));
      smallest_ = std::min(smallest_, bench_.cache.num_blocks());
    }
    bench_.DiscardRetired();
    const absl::Status sound = bench_.core->CheckConservation();
    ASSERT_TRUE(sound.ok()) << sound;
  }

  void AddGenerate(bool remote) {
    const auto max_tokens = static_cast<int32_t>(1 + Pick(30));
    GenerateRequest request = WorkerBench::Request(Prompt(), max_tokens);
    request.remote_prefill = remote;
    request.priority = static_cast<int32_t>(Pick(2));
    if (Pick(3) == 0) request.n = static_cast<int32_t>(2 + Pick(3));
    if (request.n > 1) request.sampling.temperature = Pick(4) == 0 ? 0.0f : 3.0f;
    request.sampling.seed = Pick(1000);
    request.sampling.ignore_eos = true;
    if (Pick(6) == 0) request.sampling.repetition_penalty = 1.5f;
    if (Pick(4) == 0) {
      AddGeneratedParts(request);
    } else if (Pick(2) == 0) {
      request.sampling.stop_token_ids = {'a' + static_cast<TokenId>(Pick(26))};
      request.sampling.min_tokens = std::min(max_tokens, static_cast<int32_t>(Pick(3)));
    }
    if (Pick(8) == 0) request.timeout_ms = 1 + Pick(10);
    if (Pick(20) == 0) bench_.fake.next_post = absl::UnavailableError("refused");
    generated_.push_back({request, bench_.Generate(request)});
    bench_.fake.next_post = absl::OkStatus();
    const auto& ticket = generated_.back().record->ticket;
    if (ticket)
      deliveries_[ticket->transfer_id] = {ExpectedChoices::HandedOver(request),
                                          expected_.Manifest(request)};
  }

  // The request was started on another worker: some choices have tokens, some have ended, at least
  // one continues.
  void AddGeneratedParts(GenerateRequest& request) {
    const auto most = static_cast<uint32_t>(*request.sampling.max_tokens);
    for (int32_t i = 0; i < request.n; ++i) {
      const ExpectedChoices::Tokens said =
          expected_.Draw(request, i, i == 0 ? Pick(most) : Pick(most + 1));
      request.generated.push_back({.tokens = said.ids(),
                                   .logits_hash = said.logits_hash,
                                   .finished = said.drawn.size() == most && Pick(2) == 0});
    }
  }

  void PullSomePrefix() {
    std::vector<TokenId> prefix = Prompt();
    std::replace(prefix.begin(), prefix.end(), TokenId{'!'}, TokenId{'A'});
    if (Pick(20) == 0) bench_.fake.next_post = absl::UnavailableError("refused");
    pulls_.push_back(bench_.Pull(prefix, 1 + Pick(10)));
    bench_.fake.next_post = absl::OkStatus();
    const auto& ticket = pulls_.back()->ticket;
    if (ticket) deliveries_[ticket->transfer_id] = {prefix, bench_.Manifest(prefix)};
  }

  void SendSomePrefix() {
    const auto prefix = Prompt();
    const auto blocks = static_cast<int32_t>(prefix.size()) / bench_.cache.options().block_size;
    TransferTicket ticket =
        bench_.Ticket(static_cast<size_t>(blocks) * bench_.cache.options().block_size,
                      static_cast<int32_t>(Pick(blocks + 1)));
    if (Pick(20) == 0) bench_.fake.next_post = absl::UnavailableError("refused");
    bench_.SendPrefix(prefix, ticket).IgnoreError();
    bench_.fake.next_post = absl::OkStatus();
  }

  void EndSomeReceive() {
    if (bench_.fake.receives.empty()) return;
    auto it = bench_.fake.receives.begin();
    std::advance(it, Pick(static_cast<uint32_t>(bench_.fake.receives.size())));
    const uint64_t id = it->first;
    const std::vector<TokenId>& shipped = deliveries_.at(id).shipped;
    const std::string& manifest = deliveries_.at(id).manifest;
    if (it->second.spec.may_end_early && Pick(3) == 0) {  // the source has less
      return bench_.fake.Deliver(id, shipped, "",
                                 static_cast<int32_t>(Pick(BlocksOf(it->second.spec) + 1)));
    }
    switch (Pick(5)) {
      case 0:
        return bench_.fake.Progress(id);
      case 1:
        return bench_.fake.FailReceive(id, absl::UnavailableError("lost"),
                                       static_cast<int32_t>(Pick(BlocksOf(it->second.spec) + 1)),
                                       shipped);
      case 2:
        return bench_.fake.Deliver(id, shipped, manifest.substr(1));
      default:
        return bench_.fake.Deliver(id, shipped, manifest);
    }
  }

  uint32_t BlocksOf(const ReceiveSpec& spec) const {
    return static_cast<uint32_t>(spec.blocks.size() / bench_.cache.groups());
  }

  void EndSomeSend() {
    if (bench_.fake.sends.empty()) return;
    auto it = bench_.fake.sends.begin();
    std::advance(it, Pick(static_cast<uint32_t>(bench_.fake.sends.size())));
    const bool sent = it->second.final && it->second.cancels == 0 && Pick(4) != 0;
    bench_.fake.EndSend(it->first, sent ? absl::OkStatus() : absl::UnavailableError("lost"));
  }

  // Ends transfers in any order while the loop runs. Afterwards nothing may be left.
  void Drain() {
    bench_.runner.next_status = absl::OkStatus();
    int turns = 0;
    while (!bench_.core->idle()) {
      ASSERT_LT(++turns, 20'000) << "the loop never becomes idle";
      const bool worked = bench_.Turn();
      if (Pick(3) == 0) EndSomeReceive();
      if (Pick(3) == 0) EndSomeSend();
      const bool events = bench_.core->active_transfers() > 0;
      if (worked || events || bench_.core->has_work()) continue;
      bench_.clock.AdvanceUs(1'000'000);  // leases expire
      bench_.core->CheckDeadlines();
      if (!bench_.core->has_work()) break;
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
      for (int32_t i = 0; i < one.request.n; ++i) CheckChoice(one, i);
    }
    for (const auto& prefill : prefills_) EXPECT_TRUE(prefill->done.has_value());
    for (const auto& pull : pulls_) EXPECT_TRUE(pull->done.has_value());
    EXPECT_EQ(bench_.core->counters().requests,
              static_cast<int64_t>(generated_.size() + prefills_.size()));
  }

  // Tokens of the longest choice. Before the fork, a pool that is too small for one choice ends all
  // of them.
  static size_t MostSaid(const Generated& one) {
    size_t most = 0;
    for (int32_t i = 0; i < one.request.n; ++i) {
      const size_t before =
          one.request.generated.empty() ? 0 : one.request.generated[i].tokens.size();
      most = std::max(most, before + one.record->Choice(i).tokens.size());
    }
    return most;
  }

  // An answer must stop at the first stop token after min_tokens, and nowhere else.
  static bool StoppedAsItMust(const GenerateRequest& request, const std::vector<TokenId>& tokens,
                              FinishReason reason) {
    const std::vector<TokenId>& stops = request.sampling.stop_token_ids;
    const auto held_back = static_cast<size_t>(request.sampling.min_tokens);
    const auto first = std::find_first_of(tokens.begin() + std::min(held_back, tokens.size()),
                                          tokens.end(), stops.begin(), stops.end());
    const bool stops_here = !tokens.empty() && first == tokens.end() - 1;
    EXPECT_TRUE(first == tokens.end() || stops_here) << "the answer continues after a stop token";
    EXPECT_EQ(reason, stops_here ? FinishReason::kStop : FinishReason::kLength);
    return stops_here;
  }

  void CheckChoice(const Generated& one, int32_t number) {
    const SinkRecord& choice = one.record->Choice(number);
    const GeneratedPart before =
        one.request.generated.empty() ? GeneratedPart() : one.request.generated[number];
    const size_t said = before.tokens.size() + choice.tokens.size();
    std::vector<TokenId> tokens = before.tokens;
    tokens.insert(tokens.end(), choice.tokens.begin(), choice.tokens.end());
    const ExpectedChoices::Tokens expected = expected_.Draw(one.request, number, said);
    EXPECT_EQ(tokens, expected.ids());
    EXPECT_TRUE(one.record->error.has_value() || before.finished || choice.finish.has_value());
    if (!choice.finish) return;
    ++finished_;
    if (number > 0) ++finished_forks_;
    EXPECT_EQ(choice.finish->logits_hash, expected.logits_hash);
    if (StoppedAsItMust(one.request, tokens, choice.finish->reason)) return;
    // A contiguous run is reserved for the longest possible answer.
    const KvCacheOptions& cache = bench_.cache.options();
    const size_t most =
        cache.paged ? MostSaid(one) : static_cast<size_t>(*one.request.sampling.max_tokens);
    const auto pool = static_cast<size_t>(smallest_ * cache.block_size);
    const bool pool_was_full = one.request.prompt.size() + most > pool / 2;
    EXPECT_TRUE(said == static_cast<size_t>(*one.request.sampling.max_tokens) || pool_was_full)
        << said << " of " << *one.request.sampling.max_tokens;
  }

  std::mt19937 random_;
  WorkerBench bench_;
  std::vector<Generated> generated_;
  std::vector<std::shared_ptr<PrefillRecord>> prefills_;
  struct Delivery {
    std::vector<TokenId> shipped;
    std::string manifest;
  };
  std::map<uint64_t, Delivery> deliveries_;  // by transfer id
  std::vector<std::shared_ptr<PullRecord>> pulls_;
  ExpectedChoices expected_{bench_};
  int finished_ = 0;
  int finished_forks_ = 0;
  int32_t smallest_ = bench_.cache.num_blocks();  // smallest size of the pool so far
};

struct Device {
  const char* name;
  bool asynchronous;
  int32_t steps_in_flight;
};

class WorkerCoreRandom : public ::testing::TestWithParam<Device> {
 protected:
  static void PlaySeeds(BenchOptions options, bool expect_preemptions);
};

void WorkerCoreRandom::PlaySeeds(BenchOptions options, bool expect_preemptions) {
  options.asynchronous = GetParam().asynchronous;
  options.steps_in_flight = GetParam().steps_in_flight;
  int64_t preemptions = 0;
  int finished = 0;
  int finished_forks = 0;
  constexpr int kSeeds = RandomSeeds(300);
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    options.layer_pieces = seed % 2 == 0 ? kFakeLayers : 1;
    RandomWorker worker(seed, options);
    worker.Play(400);
    preemptions += worker.preemptions();
    finished += worker.finished();
    finished_forks += worker.finished_forks();
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(finished, 3 * kSeeds);
  EXPECT_GT(finished_forks, kSeeds);
  EXPECT_EQ(preemptions > 0, expect_preemptions);
}

TEST_P(WorkerCoreRandom, WithRoom) {
  PlaySeeds({.num_blocks = 400, .max_chunk_tokens = 7}, /*expect_preemptions=*/false);
}

TEST_P(WorkerCoreRandom, WithAPoolThatRunsDry) {
  PlaySeeds({.num_blocks = 14, .token_budget = 12, .max_chunk_tokens = 5}, true);
}

TEST_P(WorkerCoreRandom, WithAPoolThatRunsDryAndNoPrefixCache) {
  PlaySeeds({.num_blocks = 14, .token_budget = 12, .max_chunk_tokens = 5, .prefix_cache = false},
            true);
}

TEST_P(WorkerCoreRandom, WithBlocksOfOneToken) {
  PlaySeeds({.num_blocks = 60, .block_size = 1, .max_chunk_tokens = 9}, true);
}

TEST_P(WorkerCoreRandom, WithFewPlaces) {
  PlaySeeds({.num_blocks = 16, .token_budget = 3, .max_chunk_tokens = 5, .max_running = 3}, true);
}

TEST_P(WorkerCoreRandom, WithAPoolThatGrowsAndShrinks) {
  PlaySeeds({.num_blocks = 14, .max_blocks = 40, .token_budget = 12, .max_chunk_tokens = 5}, true);
}

TEST_P(WorkerCoreRandom, WithAPoolThatGrowsAndShrinksAndNoPrefixCache) {
  PlaySeeds({.num_blocks = 14,
             .max_blocks = 40,
             .token_budget = 12,
             .max_chunk_tokens = 5,
             .prefix_cache = false},
            true);
}

TEST_P(WorkerCoreRandom, WithContiguousRunsInAPoolThatGrowsAndShrinks) {
  PlaySeeds({.num_blocks = 30,
             .max_blocks = 60,
             .max_chunk_tokens = 9,
             .prefix_cache = false,
             .paged = false},
            false);
}

TEST_P(WorkerCoreRandom, WithContiguousRuns) {
  PlaySeeds({.num_blocks = 60, .max_chunk_tokens = 9, .prefix_cache = false, .paged = false},
            false);
}

TEST_P(WorkerCoreRandom, WithWindows) {
  PlaySeeds({.num_blocks = 400,
             .max_chunk_tokens = 7,
             .windows = {{.window = 6, .num_blocks = 300}, {.window = 11, .num_blocks = 300}}},
            /*expect_preemptions=*/false);
}

TEST_P(WorkerCoreRandom, WithWindowsAndAPoolThatRunsDry) {
  PlaySeeds({.num_blocks = 16,
             .token_budget = 12,
             .max_chunk_tokens = 5,
             .windows = {{.window = 6, .num_blocks = 16}, {.window = 11, .num_blocks = 20}}},
            true);
}

INSTANTIATE_TEST_SUITE_P(Devices, WorkerCoreRandom,
                         ::testing::Values(Device{"Inline", false, 1},
                                           Device{"Asynchronous", true, 1},
                                           Device{"TwoStepsInFlight", true, 2}),
                         [](const auto& device) { return device.param.name; });

}  // namespace
}  // namespace baton
