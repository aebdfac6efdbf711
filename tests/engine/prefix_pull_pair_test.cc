// Prefix pulls between two workers over the real transfer sessions, by loopback.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "engine/prefix_pull.h"
#include "engine/worker_core.h"
#include "kvtransfer/loopback/loopback_transport.h"
#include "tests/engine/prefix_pull_prompt.h"
#include "tests/engine/worker_bench.h"

namespace baton {
namespace {

class PrefixPullPair : public ::testing::Test {
 protected:
  void RunUntilDone(const PullRecord& pull) {
    for (int i = 0; i < 100'000 && !pull.done.has_value(); ++i) {
      source_.Turn();
      receiver_.Turn();
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    ASSERT_TRUE(pull.done.has_value());
  }
  void ExpectAllHome() {
    EndLeases(receiver_);
    RunBoth(source_, receiver_);
    source_.ExpectAllBlocksHome();
    receiver_.ExpectAllBlocksHome();
  }
  void ExpectSays(const std::vector<TokenId>& prompt, int32_t cached_tokens) {
    const auto answer = receiver_.Generate(prompt, 6);
    receiver_.Run();
    ASSERT_TRUE(answer->finish.has_value());
    EXPECT_EQ(answer->tokens, receiver_.runner.Continuation(prompt, 6));
    EXPECT_EQ(answer->finish->ledger.cached_tokens, cached_tokens);
  }

  const std::shared_ptr<LoopbackNetwork> network_ = CreateLoopbackNetwork();
  WorkerBench source_{{}, network_, "source"};
  WorkerBench receiver_{{}, network_, "receiver"};
};

TEST_F(PrefixPullPair, ATurnsPromptAndAnswerArePulledForTheNextTurn) {
  source_.Cache(kPrompt, 12);
  std::vector<TokenId> next = kPrompt;
  for (const TokenId token : source_.runner.Continuation(kPrompt, 12)) next.push_back(token);
  for (const TokenId token : Bytes(" and then?")) next.push_back(token);
  // 33 + 12 tokens; the last one was not computed, and whole blocks hold 44.
  std::vector<TokenId> prefix(next.begin(), next.begin() + 44);
  const auto pull = receiver_.Pull(prefix);
  ASSERT_TRUE(source_.SendPrefix(prefix, *pull->ticket).ok());
  RunUntilDone(*pull);
  EXPECT_EQ((*pull->done)->tokens, 44);
  ExpectSays(next, 44);
  ExpectAllHome();
}

TEST_F(PrefixPullPair, ASourceWithLessEndsTheTransferEarly) {
  source_.Cache({kPrompt.begin(), kPrompt.begin() + 18});
  const auto pull = receiver_.Pull(kPrefix);
  EXPECT_EQ(*source_.SendPrefix(kPrefix, *pull->ticket), 16);
  RunUntilDone(*pull);
  EXPECT_EQ((*pull->done)->tokens, 16);
  ExpectSays(kPrompt, 16);
  ExpectAllHome();
}

TEST_F(PrefixPullPair, WholeBlocksComeOutOfWholeBlocksOfAnotherSize) {
  struct Case {
    int32_t theirs, ours;
    int32_t has, cached;  // cached tokens of the prompt, at the source and at the receiver
    int32_t gets;         // tokens after the pull; -1: nothing is sent
  };
  for (const Case& c : {Case{8, 4, 33, 0, 32}, Case{4, 8, 33, 0, 32}, Case{16, 4, 33, 6, 32},
                        Case{4, 16, 29, 0, 16}, Case{4, 16, 13, 0, -1}, Case{32, 4, 25, 0, -1},
                        Case{2, 8, 33, 17, 32}, Case{32, 8, 33, 17, 32}, Case{8, 4, 29, 0, 24}}) {
    SCOPED_TRACE(testing::Message() << c.theirs << " to " << c.ours << ", " << c.has << " there, "
                                    << c.cached << " here");
    WorkerBench source({.num_blocks = 256 / c.theirs, .block_size = c.theirs}, network_, "other");
    WorkerBench receiver({.num_blocks = 256 / c.ours, .block_size = c.ours}, network_, "another");
    source.Cache({kPrompt.begin(), kPrompt.begin() + c.has});
    if (c.cached > 0) receiver.Cache({kPrompt.begin(), kPrompt.begin() + c.cached});
    const auto pull = receiver.Pull(kPrefix);
    ASSERT_TRUE(pull->ticket.has_value());
    const absl::StatusOr<int32_t> sent = source.SendPrefix(kPrefix, *pull->ticket);
    if (c.gets < 0) {
      EXPECT_EQ(sent.status().code(), absl::StatusCode::kNotFound);
      EXPECT_EQ(source.cache.blocks_in_transfer(), 0);
      receiver.core->Cancel(receiver.last_handle);
    } else {
      ASSERT_TRUE(sent.ok()) << sent.status();
      EXPECT_EQ(*sent, c.gets);
    }
    for (int i = 0; i < 100'000 && !pull->done.has_value(); ++i) {
      source.Turn();
      receiver.Turn();
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    ASSERT_TRUE(pull->done.has_value());
    if (c.gets >= 0) {
      ASSERT_TRUE(pull->done->ok()) << pull->done->status();
      EXPECT_EQ((*pull->done)->tokens, c.gets);
    }
    const auto answer = receiver.Generate(kPrompt, 6);
    receiver.Run();
    EXPECT_EQ(answer->tokens, receiver.runner.Continuation(kPrompt, 6));
    EXPECT_EQ(answer->finish->ledger.cached_tokens, std::max(c.gets, 0));
    EndLeases(receiver);
    RunBoth(source, receiver);
    source.ExpectAllBlocksHome();
    receiver.ExpectAllBlocksHome();
  }
}

TEST_F(PrefixPullPair, ATicketOfAnotherIncarnationPullsNothing) {
  source_.Cache(kPrompt);
  const auto pull = receiver_.Pull(kPrefix);
  TransferTicket stale = *pull->ticket;
  stale.receiver_epoch = Epoch(4711);
  ASSERT_TRUE(source_.SendPrefix(kPrefix, stale).ok());
  for (int i = 0; i < 100'000 && !source_.core->idle(); ++i) {
    source_.Turn();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  EXPECT_TRUE(source_.core->idle());
  receiver_.core->Cancel(receiver_.last_handle);
  RunUntilDone(*pull);
  EXPECT_EQ(pull->done->status().code(), absl::StatusCode::kCancelled);
  ExpectSays(kPrompt, 0);
  ExpectAllHome();
}

TEST_F(PrefixPullPair, ACancelledPullReleasesTheSource) {
  source_.Cache(kPrompt);
  const auto pull = receiver_.Pull(kPrefix);
  ASSERT_TRUE(source_.SendPrefix(kPrefix, *pull->ticket).ok());
  receiver_.core->Cancel(receiver_.last_handle);
  EXPECT_EQ(pull->done->status().code(), absl::StatusCode::kCancelled);
  RunBoth(source_, receiver_);
  const auto answer = receiver_.Generate(kPrompt, 6);
  receiver_.Run();
  EXPECT_EQ(answer->tokens, receiver_.runner.Continuation(kPrompt, 6));
  ExpectAllHome();
}

TEST_F(PrefixPullPair, ASecondSenderForOneTicketChangesNothing) {
  source_.Cache(kPrompt);
  const auto pull = receiver_.Pull(kPrefix);
  ASSERT_TRUE(source_.SendPrefix(kPrefix, *pull->ticket).ok());
  ASSERT_TRUE(source_.SendPrefix(kPrefix, *pull->ticket).ok());
  RunUntilDone(*pull);
  EXPECT_EQ((*pull->done)->tokens, 32);
  ExpectSays(kPrompt, 32);
  ExpectAllHome();
}

}  // namespace
}  // namespace baton
