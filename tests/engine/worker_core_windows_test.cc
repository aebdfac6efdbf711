// WorkerCore with sliding windows: hand-offs, pulls, and the blocks that remain when they fail. The
// fake runner gives a wrong token if a window is not whole.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/worker_core.h"
#include "kvtransfer/loopback/loopback_transport.h"
#include "tests/common/random_operations.h"
#include "tests/engine/prefix_pull_prompt.h"
#include "tests/engine/worker_bench.h"

namespace baton {
namespace {

BenchOptions Windows(int32_t chunk = 64, int32_t pieces = 1) {
  return {.max_chunk_tokens = chunk,
          .layer_pieces = pieces,
          .windows = {{.window = 6, .num_blocks = 60}, {.window = 11, .num_blocks = 60}}};
}

void ExpectConserved(const WorkerBench& bench) {
  ASSERT_TRUE(bench.core->CheckConservation().ok()) << bench.core->CheckConservation();
}

// Runs both loops and recounts the holds of every group after each turn.
void RunChecked(WorkerBench& one, WorkerBench& other, int most = 100'000) {
  for (int i = 0; i < most && !(one.core->idle() && other.core->idle()); ++i) {
    const bool worked = one.Turn();
    if (!other.Turn() && !worked) std::this_thread::sleep_for(std::chrono::microseconds(100));
    ASSERT_NO_FATAL_FAILURE(ExpectConserved(one));
    ASSERT_NO_FATAL_FAILURE(ExpectConserved(other));
  }
}

TEST(WorkerCoreWindows, TwoWorkersGiveTheAnswersOfOne) {
  const auto network = CreateLoopbackNetwork();
  for (const auto& [chunk, pieces] :
       std::vector<std::pair<int32_t, int32_t>>{{3, 1}, {64, 1}, {7, 3}, {64, 3}}) {
    SCOPED_TRACE(testing::Message() << "chunks of " << chunk << ", " << pieces << " pieces");
    WorkerBench prefills(Windows(chunk, pieces), network, "prefill");
    WorkerBench decodes(Windows(), network, "decode");
    prefills.Cache(Bytes("common text that"));
    decodes.Cache(Bytes("common t"));
    const int64_t computed_before = decodes.core->counters().prefill_tokens;
    for (const size_t length : {1, 4, 6, 17, 24, 25, 31, 60}) {
      SCOPED_TRACE(testing::Message() << length << " tokens");
      std::vector<TokenId> prompt = Bytes("common text that goes on and on");
      prompt.resize(length, 'z');
      const auto record = decodes.GenerateRemote(prompt, 20);
      ASSERT_TRUE(record->ticket.has_value());
      EXPECT_EQ(record->ticket->window_first_blocks.size(), 2);
      const auto prefill = prefills.Prefill(prompt, *record->ticket);
      ASSERT_NO_FATAL_FAILURE(RunChecked(prefills, decodes));
      ASSERT_TRUE(prefill->done.has_value() && prefill->done->ok()) << prefill->done->status();
      EXPECT_EQ(record->tokens, decodes.runner.Continuation(prompt, 20));
    }
    EXPECT_EQ(decodes.core->counters().prefill_tokens, computed_before)
        << "the transfer brought all of it";
    prefills.ExpectAllBlocksHome();
    decodes.ExpectAllBlocksHome();
  }
}

TEST(WorkerCoreWindows, ATicketAsksForTheWindowAtThePromptsEndAlone) {
  WorkerBench bench(Windows());
  const auto record = bench.GenerateRemote(std::vector<TokenId>(30, 'x'), 2);
  ASSERT_TRUE(record->ticket.has_value());
  EXPECT_EQ(record->ticket->first_block, 0);
  EXPECT_EQ(record->ticket->block_count, 8);
  EXPECT_EQ(record->ticket->window_first_blocks, (std::vector<int32_t>{6, 5}));
  const std::vector<BlockId>& rows =
      bench.fake.receives.at(record->ticket->transfer_id).spec.blocks;
  ASSERT_EQ(rows.size(), 8 * 3);
  for (int32_t block = 0; block < 8; ++block) {
    EXPECT_NE(rows[block * 3], kNoBlock);
    EXPECT_EQ(rows[block * 3 + 1] != kNoBlock, block >= 6);
    EXPECT_EQ(rows[block * 3 + 2] != kNoBlock, block >= 5);
  }
  bench.core->Cancel(bench.last_handle);
  bench.fake.FailReceive(record->ticket->transfer_id, absl::CancelledError("asked to"));
  bench.Run();
  bench.ExpectAllBlocksHome();
}

// Blocks of a failed transfer are kept only after a match that has the whole window.
TEST(WorkerCoreWindows, AnIncompleteWindowIsComputedLocally) {
  struct Case {
    int32_t length, cached, landed;  // prompt tokens, cached tokens, landed blocks
    int32_t computed;
  };
  for (const Case& c : {Case{31, 0, 0, 31}, Case{31, 0, 5, 31}, Case{31, 0, 7, 31},
                        Case{31, 0, 8, 31}, Case{31, 24, 0, 7}, Case{31, 24, 1, 7},
                        Case{31, 24, 2, 7}, Case{31, 28, 1, 1}, Case{30, 0, 8, 30}}) {
    // The window of 6 is sent from token 26 on. A boundary before the prompt's end needs earlier
    // tokens, which are not sent. They must be cached here.
    SCOPED_TRACE(testing::Message() << c.length << " tokens, " << c.cached << " cached, "
                                    << c.landed << " blocks landed");
    WorkerBench bench(Windows());
    std::vector<TokenId> prompt = Bytes("0123456789abcdefghijklmnopqrstu");
    prompt.resize(c.length);
    if (c.cached > 0) bench.Cache({prompt.begin(), prompt.begin() + c.cached});
    const int64_t before = bench.core->counters().prefill_tokens;
    const auto record = bench.GenerateRemote(prompt, 5);
    ASSERT_TRUE(record->ticket.has_value());
    bench.fake.FailReceive(record->ticket->transfer_id, absl::UnavailableError("gone"), c.landed,
                           prompt);
    bench.Run();
    EXPECT_EQ(record->tokens, bench.runner.Continuation(prompt, 5));
    EXPECT_EQ(bench.core->counters().prefill_tokens - before, c.computed);
    bench.ExpectAllBlocksHome();
  }
}

TEST(WorkerCoreWindows, ASenderAnnouncesAWindowWithTheBlocksThatHoldIt) {
  WorkerBench bench(Windows(/*chunk=*/5));
  const std::vector<TokenId> prompt(30, 'x');
  const auto record = bench.Prefill(prompt, bench.Ticket(prompt.size(), /*first_block=*/2));
  bench.Run();
  const FakeTransport::Send& send = bench.fake.sends.at(bench.last_handle);
  ASSERT_TRUE(send.final);
  ASSERT_EQ(send.blocks.size(), 6 * 3);
  for (int32_t i = 0; i < 6; ++i) {
    EXPECT_NE(send.blocks[i * 3], kNoBlock);
    EXPECT_EQ(send.blocks[i * 3 + 1] != kNoBlock, i + 2 >= 6);
    EXPECT_EQ(send.blocks[i * 3 + 2] != kNoBlock, i + 2 >= 5);
  }
  EXPECT_EQ(bench.cache.Stats().windows[0].blocks.in_transfer, 2);
  EXPECT_EQ(bench.cache.Stats().windows[1].blocks.in_transfer, 3);
  ExpectConserved(bench);
  bench.fake.EndSend(bench.last_handle, absl::OkStatus());
  bench.Run();
  EXPECT_TRUE(record->done->ok());
  bench.ExpectAllBlocksHome();
}

TEST(WorkerCoreWindows, RefusesTicketsThatDoNotFitTheGroups) {
  WorkerBench bench(Windows());
  const std::vector<TokenId> prompt(30, 'x');
  const auto expect = [&](const TransferTicket& ticket, absl::StatusCode code) {
    EXPECT_EQ(bench.Prefill(prompt, ticket)->done->status().code(), code);
    bench.Cache(prompt);
    std::vector<TokenId> prefix(prompt.begin(), prompt.begin() + 28);
    TransferTicket pull = ticket;
    if (pull.block_size == 0) pull.block_count = 7;
    EXPECT_EQ(bench.SendPrefix(prefix, pull).status().code(), code);
  };
  TransferTicket ticket = bench.Ticket(prompt.size());
  ticket.window_first_blocks = {6};
  expect(ticket, absl::StatusCode::kInvalidArgument);
  ticket.window_first_blocks = {6, 5, 5};
  expect(ticket, absl::StatusCode::kInvalidArgument);
  ticket.window_first_blocks = {-1, 5};
  expect(ticket, absl::StatusCode::kInvalidArgument);
  ticket.window_first_blocks = {6, 9};
  expect(ticket, absl::StatusCode::kInvalidArgument);
  // The receiver would cache half of a larger block as a whole one.
  ticket = bench.Ticket(prompt.size());
  ticket.block_size = 32;
  ticket.block_count = 1;
  ticket.window_first_blocks = {0, 0};
  EXPECT_TRUE(absl::IsFailedPrecondition(bench.Prefill(prompt, ticket)->done->status()));
  bench.ExpectAllBlocksHome();
  WorkerBench one_group;
  ticket = one_group.Ticket(prompt.size());
  ticket.window_first_blocks = {6};
  EXPECT_TRUE(absl::IsInvalidArgument(one_group.Prefill(prompt, ticket)->done->status()));
}

// ---- pulls --------------------------------------------------------------------------------------

class WindowPulls : public testing::Test {
 protected:
  void ExpectSays(const std::vector<TokenId>& prompt, int32_t cached_tokens) {
    const auto answer = receiver_.Generate(prompt, 6);
    receiver_.Run();
    ASSERT_TRUE(answer->finish.has_value());
    EXPECT_EQ(answer->tokens, receiver_.runner.Continuation(prompt, 6));
    EXPECT_EQ(answer->finish->ledger.cached_tokens, cached_tokens);
  }
  void RunUntilDone(const PullRecord& pull) {
    for (int i = 0; i < 100'000 && !pull.done.has_value(); ++i) {
      source_.Turn();
      receiver_.Turn();
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      ASSERT_NO_FATAL_FAILURE(ExpectConserved(source_));
      ASSERT_NO_FATAL_FAILURE(ExpectConserved(receiver_));
    }
    ASSERT_TRUE(pull.done.has_value());
  }
  void TearDown() override {
    EndLeases(receiver_);
    RunBoth(source_, receiver_);
    source_.ExpectAllBlocksHome();
    receiver_.ExpectAllBlocksHome();
  }

  const std::shared_ptr<LoopbackNetwork> network_ = CreateLoopbackNetwork();
  WorkerBench source_{Windows(), network_, "source"};
  WorkerBench receiver_{Windows(), network_, "receiver"};
};

TEST_F(WindowPulls, AWholePrefixComesWithItsWindowsAndALeaseKeepsThem) {
  source_.Cache(kPrompt);
  receiver_.Cache({kPrompt.begin(), kPrompt.begin() + 9});
  const auto pull = receiver_.Pull(kPrefix);
  ASSERT_TRUE(pull->ticket.has_value());
  EXPECT_EQ(pull->ticket->first_block, 2);
  EXPECT_EQ(*source_.SendPrefix(kPrefix, *pull->ticket), 32);
  RunUntilDone(*pull);
  ASSERT_TRUE(pull->done->ok()) << pull->done->status();
  EXPECT_EQ((*pull->done)->tokens, 32);
  EXPECT_EQ((*pull->done)->pulled_tokens, 24);
  // Windows of 6 and 11 slots: the token after the prefix sees 5 and 10 slots before it.
  EXPECT_EQ(receiver_.cache.Stats().blocks.in_transfer, 8);
  EXPECT_EQ(receiver_.cache.Stats().windows[0].blocks.in_transfer, 2);
  EXPECT_EQ(receiver_.cache.Stats().windows[1].blocks.in_transfer, 3);
  ExpectSays(kPrompt, 32);
}

TEST_F(WindowPulls, AShorterPrefixDoesNotWaitForALongerOne) {
  source_.Cache(kPrompt);
  const std::vector<TokenId> shorter_prefix(kPrefix.begin(), kPrefix.begin() + 20);
  const auto longer = receiver_.Pull(kPrefix);
  const auto same = receiver_.Pull(kPrefix);
  const auto shorter = receiver_.Pull(shorter_prefix);
  ASSERT_TRUE(longer->ticket.has_value());
  EXPECT_FALSE(same->ticket.has_value());
  ASSERT_TRUE(shorter->ticket.has_value()) << "the longer prefix brings no window for its end";
  EXPECT_EQ(*source_.SendPrefix(kPrefix, *longer->ticket), 32);
  receiver_.core->Cancel(3);  // the shorter pull; its ticket was not used
  RunUntilDone(*longer);
  RunUntilDone(*same);
  RunUntilDone(*shorter);
  EXPECT_EQ((*same->done)->tokens, 32);
  EXPECT_EQ(shorter->done->status().code(), absl::StatusCode::kCancelled);
}

TEST_F(WindowPulls, ASourceWithoutThePrefixsEndSendsNothing) {
  source_.Cache({kPrompt.begin(), kPrompt.begin() + 29});
  const auto pull = receiver_.Pull(kPrefix);
  ASSERT_TRUE(pull->ticket.has_value());
  EXPECT_TRUE(absl::IsNotFound(source_.SendPrefix(kPrefix, *pull->ticket).status()));
  EXPECT_EQ(source_.cache.Stats().windows[0].blocks.in_transfer, 0);
  EXPECT_EQ(source_.cache.Stats().blocks.in_transfer, 0);
  receiver_.core->Cancel(receiver_.last_handle);
}

TEST_F(WindowPulls, ACachedPrefixIsLeasedWithItsWindows) {
  receiver_.Cache(kPrompt);
  const auto pull = receiver_.Pull(kPrefix);
  ASSERT_TRUE(pull->done.has_value() && pull->done->ok());
  EXPECT_EQ((*pull->done)->tokens, 32);
  EXPECT_EQ(receiver_.cache.Stats().windows[0].blocks.in_transfer, 2);
  EndLeases(receiver_);
  EXPECT_EQ(receiver_.cache.Stats().windows[0].blocks.in_transfer, 0);
}

TEST(WorkerCoreWindows, APullTakesHalfOfEachGroupsPoolAtMost) {
  BenchOptions options = Windows();
  options.windows[1].num_blocks = 5;  // a prefix's end takes 3
  WorkerBench bench(options);
  const auto pull = bench.Pull(kPrefix);
  ASSERT_TRUE(pull->done.has_value());
  EXPECT_EQ(pull->done->status(),
            absl::ResourceExhaustedError("KV group 2: a prefix of 3 blocks does not fit: 0 blocks "
                                         "are being pulled or leased, the limit is 2"));
}

TEST(WorkerCoreWindows, AnIncompleteWindowOfAFailedPullIsNotCached) {
  for (const int32_t landed : {3, 7, 8}) {
    SCOPED_TRACE(landed);
    WorkerBench bench(Windows());
    const auto pull = bench.Pull(kPrefix);
    bench.fake.FailReceive(pull->ticket->transfer_id, absl::UnavailableError("gone"), landed,
                           kPrefix);
    bench.Run();
    ASSERT_TRUE(pull->done.has_value());
    EXPECT_EQ(pull->done->ok(), landed == 8);
    EXPECT_EQ(bench.CachedTokens(kPrefix), landed == 8 ? 32 : 0);
    EndLeases(bench);
    bench.ExpectAllBlocksHome();
  }
}

// ---- both directions ----------------------------------------------------------------------------

// Two workers that prefill for each other and pull from each other, with cancellations at any
// moment.
class WindowPair {
 public:
  explicit WindowPair(uint32_t seed) : random_(seed) {}

  void Play() {
    for (int i = 0; i < 120; ++i) {
      ASSERT_NO_FATAL_FAILURE(PlayOne());
      ExpectConserved(workers_[0]);
      ExpectConserved(workers_[1]);
    }
    RunChecked(workers_[0], workers_[1], /*most=*/300);
    // A router does this if the peer refuses or is lost.
    for (const Answer& answer : answers_) {
      if (answer.record->ended() || !answer.record->ticket) continue;
      const TransferTicket& ticket = *answer.record->ticket;
      WorkerBench& waits = workers_[ticket.receiver_epoch == Epoch(5) ? 0 : 1];
      waits.core->PrefillLocally(ticket.transfer_id, ticket.receiver_epoch).IgnoreError();
    }
    for (WorkerBench& worker : workers_) EndLeases(worker);
    RunChecked(workers_[0], workers_[1]);
    for (WorkerBench& worker : workers_) worker.ExpectAllBlocksHome();
    for (const Answer& answer : answers_) {
      ASSERT_TRUE(answer.record->ended());
      const auto count = static_cast<int32_t>(answer.record->tokens.size());
      EXPECT_EQ(answer.record->tokens, workers_[0].runner.Continuation(answer.prompt, count));
      finished += answer.record->finish.has_value() ? 1 : 0;
      delivered +=
          answer.record->finish.has_value() && answer.record->finish->ledger.prefilled_elsewhere
              ? 1
              : 0;
    }
    for (const auto& pull : pulls_) {
      ASSERT_TRUE(pull->done.has_value());
      pulled += pull->done->ok() && (*pull->done)->pulled_tokens > 0 ? 1 : 0;
    }
  }
  int finished = 0;
  int delivered = 0;
  int pulled = 0;

 private:
  struct Answer {
    std::vector<TokenId> prompt;
    std::shared_ptr<SinkRecord> record;
  };
  uint32_t Pick(uint32_t below) { return random_() % below; }
  std::vector<TokenId> Prompt() {
    std::vector<TokenId> prompt(1 + Pick(30), 'A' + static_cast<TokenId>(Pick(2)));
    for (uint32_t i = Pick(4); i > 0; --i) prompt.push_back('0' + static_cast<TokenId>(Pick(3)));
    return prompt;
  }
  void PlayOne() {
    const uint32_t number = Pick(2);
    WorkerBench& here = workers_[number];
    WorkerBench& there = workers_[1 - number];
    switch (Pick(8)) {
      case 0: {
        const std::vector<TokenId> prompt = Prompt();
        answers_.push_back({prompt, here.GenerateRemote(prompt, 1 + Pick(20))});
        const auto& ticket = answers_.back().record->ticket;
        if (ticket && Pick(8) > 0) there.Prefill(prompt, *ticket);
        return;
      }
      case 1: {
        const std::vector<TokenId> prefix = Prompt();
        pulls_.push_back(here.Pull(prefix, 1 + Pick(10)));
        const auto& ticket = pulls_.back()->ticket;
        if (!ticket || there.SendPrefix(prefix, *ticket).ok()) return;
        here.core->Cancel(here.last_handle);
        return;
      }
      case 2:
        if (Pick(3) == 0) here.core->Cancel(1 + Pick(here.last_handle + 1));
        return;
      case 3:
        here.core->PrefillLocally(1 + Pick(here.last_handle + 1), Epoch(5 - number)).IgnoreError();
        return;
      default:
        here.Turn();
        if (Pick(4) == 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

  std::mt19937 random_;
  const std::shared_ptr<LoopbackNetwork> network_ = CreateLoopbackNetwork();
  const BenchOptions options_ = {
      .num_blocks = 40,
      .max_chunk_tokens = 7,
      .layer_pieces = static_cast<int32_t>(1 + random_() % 3),
      .windows = {{.window = 6, .num_blocks = 24}, {.window = 11, .num_blocks = 30}}};
  WorkerBench workers_[2] = {WorkerBench(options_, network_, "right"),
                             WorkerBench(options_, network_, "left")};
  std::vector<Answer> answers_;
  std::vector<std::shared_ptr<PullRecord>> pulls_;
};

TEST(WorkerCoreWindows, TwoWorkersThatServeEachOtherLoseNoBlockAndNoToken) {
  int finished = 0;
  int delivered = 0;
  int pulled = 0;
  constexpr int kSeeds = RandomSeeds(60);
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    WindowPair pair(seed);
    pair.Play();
    if (testing::Test::HasFailure()) return;
    finished += pair.finished;
    delivered += pair.delivered;
    pulled += pair.pulled;
  }
  EXPECT_GT(finished, 3 * kSeeds);
  EXPECT_GT(delivered, kSeeds);
  EXPECT_GT(pulled, kSeeds / 6);
}

}  // namespace
}  // namespace baton
