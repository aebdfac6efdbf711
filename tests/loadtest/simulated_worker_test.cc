#include "loadtest/simulated_worker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace baton {
namespace {

std::vector<TokenId> PromptOf(int32_t tokens, TokenId token) {
  return std::vector<TokenId>(static_cast<size_t>(tokens), token);
}

class SimulatedWorkerTest : public ::testing::Test {
 protected:
  // Runs steps until there is no work. Returns the ends of answers in order.
  std::vector<uint64_t> RunAll(SimulatedWorker& worker) {
    std::vector<uint64_t> ended;
    for (int64_t us = worker.BeginStep(); us > 0; us = worker.BeginStep()) {
      clock_.AdvanceUs(us);
      ++steps_;
      for (const SimulatedWorker::StepEvent& event : worker.EndStep()) {
        ++tokens_;
        if (event.is_first_token) first_token_us_.push_back(clock_.NowUs());
        if (event.ended) ended.push_back(event.request);
      }
    }
    return ended;
  }

  ManualClock clock_;
  const StepTimes times_{ComputedProfile()};
  SimulatedWorkerOptions options_;
  int steps_ = 0;
  int tokens_ = 0;
  std::vector<int64_t> first_token_us_;
};

TEST_F(SimulatedWorkerTest, AnAnswerHasItsTokensAndTakesTheTimeOfItsSteps) {
  SimulatedWorker worker(options_, &times_, &clock_);
  const int64_t began_us = clock_.NowUs();
  ASSERT_TRUE(worker.Generate(1, PromptOf(1000, 7), 10).ok());
  EXPECT_EQ(worker.queued(), 1);
  EXPECT_EQ(worker.RemainingOutputTokens(), 10);
  EXPECT_EQ(RunAll(worker), std::vector<uint64_t>{1});
  EXPECT_EQ(tokens_, 10);
  EXPECT_EQ(steps_, 10) << "a step for the prompt with the first token, then one a token";
  const PrefillPiece piece{.begin = 0, .tokens = 1000};
  EXPECT_EQ(first_token_us_.front() - began_us, times_.StepUs(0, 0, {&piece, 1}));
  EXPECT_EQ(worker.queued(), 0);
  EXPECT_EQ(worker.RemainingOutputTokens(), 0);
  EXPECT_EQ(worker.RemainingPrefillUs(), 0);
}

TEST_F(SimulatedWorkerTest, TheNextTurnFindsThePromptAndTheAnswerInTheCache) {
  SimulatedWorker worker(options_, &times_, &clock_);
  std::vector<TokenId> prompt = PromptOf(1000, 7);
  ASSERT_TRUE(worker.Generate(1, prompt, 200).ok());
  RunAll(worker);
  for (int32_t i = 0; i < 200; ++i) prompt.push_back(AnswerToken(1, i));
  prompt.push_back(9);
  // The last token of an answer is never fed to the model.
  EXPECT_EQ(worker.CachedTokens(prompt), 1199 / options_.block_size * options_.block_size);
  EXPECT_FALSE(worker.TakeKvEvents().empty());
  ASSERT_TRUE(worker.Generate(2, prompt, 1).ok());
  RunAll(worker);
  EXPECT_EQ(worker.ProgressOf(2).cached_tokens, 1199 / options_.block_size * options_.block_size);
}

TEST_F(SimulatedWorkerTest, AShortPromptDoesNotWaitForALongOne) {
  SimulatedWorker worker(options_, &times_, &clock_);
  ASSERT_TRUE(worker.Generate(1, PromptOf(100'000, 7), 1).ok());
  ASSERT_TRUE(worker.Generate(2, PromptOf(100, 8), 1).ok());
  EXPECT_EQ(RunAll(worker), (std::vector<uint64_t>{2, 1}));
}

TEST_F(SimulatedWorkerTest, AHandOffReservesRoomAndBringsTheFirstToken) {
  SimulatedWorker prefill(options_, &times_, &clock_);
  SimulatedWorker decode(options_, &times_, &clock_);
  const std::vector<TokenId> prompt = PromptOf(1000, 7);
  const int32_t room = decode.available_blocks();
  ASSERT_TRUE(*decode.AwaitKv(1, prompt, 5, /*queues=*/false));
  EXPECT_LT(decode.available_blocks(), room);
  EXPECT_EQ(decode.BeginStep(), 0) << "it waits for KV";
  ASSERT_TRUE(prefill.Prefill(1, prompt).ok());
  EXPECT_EQ(RunAll(prefill), std::vector<uint64_t>{1});
  EXPECT_EQ(prefill.ProgressOf(1).prompt_tokens, 1000);
  EXPECT_FALSE(decode.KvArrived(1));
  tokens_ = 0;
  EXPECT_EQ(RunAll(decode), std::vector<uint64_t>{1});
  EXPECT_EQ(tokens_, 4);
  ASSERT_TRUE(*decode.AwaitKv(2, prompt, 1, /*queues=*/false));
  EXPECT_EQ(decode.ProgressOf(2).cached_tokens, 1000 / options_.block_size * options_.block_size);
  EXPECT_TRUE(decode.KvArrived(2)) << "the first token is the whole answer";
}

TEST_F(SimulatedWorkerTest, AWorkerComputesAPromptWhoseKvIsLost) {
  SimulatedWorker worker(options_, &times_, &clock_);
  ASSERT_TRUE(*worker.AwaitKv(1, PromptOf(1000, 7), 3, /*queues=*/false));
  worker.KvLost(1);
  EXPECT_GT(worker.RemainingPrefillUs(), 0);
  EXPECT_EQ(RunAll(worker), std::vector<uint64_t>{1});
  EXPECT_EQ(tokens_, 3);
}

TEST_F(SimulatedWorkerTest, AHandOffMayWaitForRoom) {
  options_.pool_tokens = 2048;
  SimulatedWorker worker(options_, &times_, &clock_);
  ASSERT_TRUE(worker.Generate(1, PromptOf(1500, 7), 4).ok());
  ASSERT_GT(worker.BeginStep(), 0);
  worker.EndStep();
  EXPECT_FALSE(worker.AwaitKv(2, PromptOf(1000, 8), 3, /*queues=*/false).ok());
  EXPECT_EQ(worker.queued(), 1) << "nothing has happened";
  EXPECT_FALSE(*worker.AwaitKv(2, PromptOf(1000, 8), 3, /*queues=*/true));
  EXPECT_EQ(worker.waiting(), 1);
  EXPECT_EQ(RunAll(worker), std::vector<uint64_t>{1});
  EXPECT_EQ(worker.TakeRooms(), std::vector<uint64_t>{2});
  EXPECT_EQ(worker.waiting(), 0);
  EXPECT_FALSE(worker.KvArrived(2));
  EXPECT_EQ(RunAll(worker), std::vector<uint64_t>{2});
}

TEST_F(SimulatedWorkerTest, APullBringsWholeBlocksThatAreMissing) {
  SimulatedWorker source(options_, &times_, &clock_);
  SimulatedWorker receiver(options_, &times_, &clock_);
  const std::vector<TokenId> prompt = PromptOf(1001, 7);
  EXPECT_EQ(receiver.BeginPull(1, prompt, 1000, source), 0) << "the source has nothing";
  ASSERT_TRUE(source.Generate(1, prompt, 1).ok());
  RunAll(source);
  const int32_t whole = 1000 / options_.block_size * options_.block_size;
  ASSERT_EQ(receiver.BeginPull(1, prompt, 1000, source), whole);
  EXPECT_EQ(receiver.CachedTokens(prompt), 0);
  receiver.EndPull(1);
  EXPECT_EQ(receiver.CachedTokens(prompt), whole);
  EXPECT_EQ(receiver.BeginPull(2, prompt, 1000, source), 0) << "nothing is missing";
}

TEST_F(SimulatedWorkerTest, APromptThatNeverFitsIsRefused) {
  options_.pool_tokens = 1024;
  SimulatedWorker worker(options_, &times_, &clock_);
  EXPECT_FALSE(worker.Generate(1, PromptOf(2000, 7), 1).ok());
  EXPECT_EQ(worker.queued(), 0);
}

TEST_F(SimulatedWorkerTest, RandomLoadEndsEveryAnswerInATightPool) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    options_.pool_tokens = 4096;
    options_.block_size = 16;
    SimulatedWorker worker(options_, &times_, &clock_);
    const uint64_t count = 30;
    for (uint64_t request = 1; request <= count; ++request) {
      const auto prompt = static_cast<int32_t>(1 + random() % 1500);
      ASSERT_TRUE(worker
                      .Generate(request, PromptOf(prompt, static_cast<TokenId>(random() % 3)),
                                static_cast<int32_t>(1 + random() % 300))
                      .ok());
    }
    std::vector<uint64_t> ended = RunAll(worker);
    std::sort(ended.begin(), ended.end());
    ASSERT_EQ(ended.size(), count);
    for (uint64_t i = 0; i < count; ++i) EXPECT_EQ(ended[i], i + 1);
    EXPECT_EQ(worker.queued(), 0);
    EXPECT_EQ(worker.RemainingOutputTokens(), 0);
  }
}

}  // namespace
}  // namespace baton
