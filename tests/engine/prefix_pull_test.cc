// Prefixes on their way between the caches of two workers, seen through WorkerCore: over a
// transport that is told what to report, and over the real loopback one.
#include "engine/prefix_pull.h"

#include <gtest/gtest.h>

#include <string>

#include "engine/worker_core.h"
#include "tests/engine/worker_bench.h"

namespace baton {
namespace {

const std::vector<TokenId> kPrompt = Bytes("the quick brown fox jumps over it");  // 33 tokens
const std::vector<TokenId> kPrefix(kPrompt.begin(), kPrompt.begin() + 32);        // 8 blocks
constexpr int64_t kLeaseUs = 1'000'000;

void EndLeases(WorkerBench& bench) {
  bench.clock.AdvanceUs(kLeaseUs);
  bench.core->CheckDeadlines();
}

uint64_t IdOf(const PullRecord& pull) { return pull.ticket->transfer_id; }

// ---- the receiver -------------------------------------------------------------------------------

TEST(PrefixPull, WhatLandsIsFoundByTheNextRequest) {
  WorkerBench bench;
  const auto pull = bench.Pull(kPrefix);
  ASSERT_TRUE(pull->ticket.has_value());
  EXPECT_EQ(pull->ticket->first_block, 0);
  EXPECT_EQ(pull->ticket->block_count, 8);
  EXPECT_EQ(bench.fake.receives.at(IdOf(*pull)).spec.timeout_ms, 1000);
  bench.fake.Deliver(IdOf(*pull), kPrompt, "");
  bench.core->PollTransfers();
  ASSERT_TRUE(pull->done.has_value() && pull->done->ok());
  EXPECT_EQ((*pull->done)->tokens, 32);
  EXPECT_EQ((*pull->done)->pulled_tokens, 32);
  EXPECT_EQ((*pull->done)->kv_bytes, 1000);
  const auto answer = bench.Generate(kPrompt, 5);
  bench.Run();
  EXPECT_EQ(answer->tokens, bench.runner.Continuation(kPrompt, 5));
  EXPECT_EQ(answer->finish->ledger.cached_tokens, 32);
  EXPECT_EQ(answer->finish->ledger.computed_tokens, 1);
  EndLeases(bench);
  bench.ExpectAllBlocksHome();
}

TEST(PrefixPull, OnlyWhatIsMissingIsAskedForAndAPartFullBlockIsLeftOut) {
  WorkerBench bench;
  bench.Cache({kPrompt.begin(), kPrompt.begin() + 12});
  const auto pull = bench.Pull({kPrompt.begin(), kPrompt.begin() + 31});
  ASSERT_TRUE(pull->ticket.has_value());
  EXPECT_EQ(pull->ticket->first_block, 3);
  EXPECT_EQ(pull->ticket->block_count, 4);  // up to token 28
  bench.fake.Deliver(IdOf(*pull), kPrompt, "");
  bench.core->PollTransfers();
  EXPECT_EQ((*pull->done)->tokens, 28);
  EXPECT_EQ((*pull->done)->pulled_tokens, 16);
  EndLeases(bench);
  bench.ExpectAllBlocksHome();
}

TEST(PrefixPull, WithNothingMissingThereIsNoTransfer) {
  WorkerBench bench;
  bench.Cache(kPrompt);
  const auto pull = bench.Pull(kPrefix);
  EXPECT_FALSE(pull->ticket.has_value());
  EXPECT_EQ((*pull->done)->tokens, 32);
  EXPECT_EQ((*pull->done)->pulled_tokens, 0);
  EXPECT_TRUE(bench.fake.receives.empty());
  const auto less = bench.Pull({1, 2, 3});
  EXPECT_EQ((*less->done)->tokens, 0);
  EndLeases(bench);
  bench.ExpectAllBlocksHome();
}

TEST(PrefixPull, ASourceThatHasLessLeavesTheRestToCompute) {
  WorkerBench bench;
  const auto pull = bench.Pull(kPrefix);
  EXPECT_TRUE(bench.fake.receives.at(IdOf(*pull)).spec.may_end_early);
  bench.fake.Deliver(IdOf(*pull), kPrompt, "", 3);
  bench.core->PollTransfers();
  EXPECT_EQ((*pull->done)->tokens, 12);
  EXPECT_EQ(bench.CachedTokens(kPrefix), 12);
  const auto answer = bench.Generate(kPrompt, 5);
  bench.Run();
  EXPECT_EQ(answer->tokens, bench.runner.Continuation(kPrompt, 5));
  EXPECT_EQ(answer->finish->ledger.computed_tokens, 33 - 12);
  EndLeases(bench);
  bench.ExpectAllBlocksHome();
}

TEST(PrefixPull, WhatLandedBeforeAFailureStaysAndTheRestIsNeverRead) {
  for (const int32_t landed : {0, 5}) {
    WorkerBench bench;
    const auto pull = bench.Pull(kPrefix);
    bench.fake.FailReceive(IdOf(*pull), absl::DataLossError("crc"), landed, kPrompt);
    bench.core->PollTransfers();
    ASSERT_TRUE(pull->done.has_value());
    EXPECT_EQ(pull->done->status().code(),
              landed == 0 ? absl::StatusCode::kDataLoss : absl::StatusCode::kOk);
    EXPECT_EQ(bench.CachedTokens(kPrefix), 4 * landed);
    const auto answer = bench.Generate(kPrompt, 5);
    bench.Run();
    EXPECT_EQ(answer->tokens, bench.runner.Continuation(kPrompt, 5));
    EndLeases(bench);
    bench.ExpectAllBlocksHome();
  }
}

TEST(PrefixPull, WhoAsksForWhatIsOnItsWayWaitsForIt) {
  WorkerBench bench;
  const auto first = bench.Pull(kPrefix);
  const auto same = bench.Pull(kPrefix);
  const auto shorter = bench.Pull({kPrefix.begin(), kPrefix.begin() + 10});
  const auto other = bench.Pull(Bytes("the quick brown cat jumps over it"));
  EXPECT_FALSE(same->ticket.has_value());
  EXPECT_FALSE(shorter->ticket.has_value());
  EXPECT_TRUE(other->ticket.has_value());
  EXPECT_EQ(bench.fake.receives.size(), 2u);
  bench.core->Cancel(1);  // the others still want it
  EXPECT_EQ(first->done->status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(bench.fake.receives.at(IdOf(*first)).cancels, 0);
  ASSERT_TRUE(same->ticket.has_value()) << "its source may never have been asked";
  EXPECT_EQ(IdOf(*same), IdOf(*first));
  EXPECT_FALSE(shorter->ticket.has_value());
  bench.fake.Deliver(IdOf(*first), kPrompt, "");
  bench.core->PollTransfers();
  EXPECT_EQ((*same->done)->tokens, 32);
  EXPECT_TRUE(shorter->done->ok());
  EXPECT_FALSE(other->done.has_value());
  bench.fake.FailReceive(IdOf(*other), absl::UnavailableError("lost"));
  bench.core->PollTransfers();
  EXPECT_EQ(other->done->status().code(), absl::StatusCode::kAborted) << "this worker is not gone";
  EndLeases(bench);
  bench.ExpectAllBlocksHome();
}

TEST(PrefixPull, ThatNobodyWaitsForAnyMoreIsCancelledAndNobodyJoinsIt) {
  WorkerBench bench;
  const auto pull = bench.Pull(kPrefix);
  bench.core->Cancel(1);
  EXPECT_EQ(bench.fake.receives.at(IdOf(*pull)).cancels, 1);
  bench.core->Cancel(1);
  EXPECT_EQ(bench.fake.receives.at(IdOf(*pull)).cancels, 1);
  EXPECT_FALSE(bench.core->idle()) << "its blocks may still be written";
  const auto next = bench.Pull(kPrefix);
  EXPECT_TRUE(next->ticket.has_value());
  bench.fake.FailReceive(IdOf(*pull), absl::CancelledError("by us"), 2, kPrompt);
  bench.fake.Deliver(IdOf(*next), kPrompt, "");
  bench.core->PollTransfers();
  EXPECT_EQ((*next->done)->tokens, 32);
  EXPECT_EQ(bench.CachedTokens(kPrefix), 32);
  EndLeases(bench);
  bench.ExpectAllBlocksHome();
}

TEST(PrefixPull, IsRefusedWhereItDoesNotFitAndNothingIsTaken) {
  WorkerBench small({.num_blocks = 15});  // half of it is less than 8 blocks
  EXPECT_EQ(small.Pull(kPrefix)->done->status().code(), absl::StatusCode::kResourceExhausted);
  small.ExpectAllBlocksHome();

  WorkerBench busy({.num_blocks = 20});
  const auto running = busy.Generate(std::vector<TokenId>(45, 'x'), 30);
  busy.Turn();  // takes 12 blocks
  EXPECT_EQ(busy.Pull(kPrefix)->done->status().code(), absl::StatusCode::kResourceExhausted)
      << "the answer needs one block to grow";
  EXPECT_TRUE(busy.Pull({kPrefix.begin(), kPrefix.begin() + 28})->ticket.has_value());
  busy.fake.FailReceive(3, absl::UnavailableError("lost"));
  busy.Run();
  EXPECT_TRUE(running->finish.has_value());
  busy.ExpectAllBlocksHome();
}

TEST(PrefixPull, RefusesWhatIsNoPrefixOfThisModelOrHasNowhereToStay) {
  WorkerBench bench;
  EXPECT_EQ(bench.Pull({1, 2, 3, kFakeVocabulary})->done->status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(bench.Pull(std::vector<TokenId>(129, 1))->done->status().code(),
            absl::StatusCode::kInvalidArgument);
  bench.fake.next_post = absl::ResourceExhaustedError("too many transfers");
  EXPECT_EQ(bench.Pull(kPrefix)->done->status().code(), absl::StatusCode::kResourceExhausted);
  bench.ExpectAllBlocksHome();
  WorkerBench naive({.prefix_cache = false});
  EXPECT_EQ(naive.Pull(kPrefix)->done->status().code(), absl::StatusCode::kFailedPrecondition);
}

// ---- the lease ----------------------------------------------------------------------------------

TEST(PrefixPull, ALeaseKeepsThePrefixUntilItsTimeIsOver) {
  WorkerBench bench({.num_blocks = 20});
  const auto pull = bench.Pull(kPrefix);
  bench.fake.Deliver(IdOf(*pull), kPrompt, "");
  bench.core->PollTransfers();
  EXPECT_EQ(bench.cache.Stats().evictable, 0);
  EXPECT_EQ(bench.core->active_transfers(), 0);
  EXPECT_EQ(bench.core->CheckDeadlines(), bench.clock.NowUs() + kLeaseUs);
  bench.clock.AdvanceUs(kLeaseUs - 1);
  bench.core->CheckDeadlines();
  EXPECT_EQ(bench.cache.Stats().evictable, 0);
  bench.clock.AdvanceUs(1);
  EXPECT_EQ(bench.core->CheckDeadlines(), std::nullopt);
  EXPECT_EQ(bench.cache.Stats().evictable, 8);
  bench.ExpectAllBlocksHome();
}

TEST(PrefixPull, ALeaseYieldsToAPromptThatFindsNoRoom) {
  WorkerBench bench({.num_blocks = 20});
  const auto pull = bench.Pull(kPrefix);
  bench.fake.Deliver(IdOf(*pull), kPrompt, "");
  bench.core->PollTransfers();
  const auto answer = bench.Generate(std::vector<TokenId>(70, 'x'), 5);  // 18 blocks and more
  bench.Run();
  ASSERT_TRUE(answer->finish.has_value());
  EXPECT_EQ(answer->tokens.size(), 5u);
  bench.ExpectAllBlocksHome();
}

TEST(PrefixPull, ALeaseNeverCutsAnAnswerShort) {
  WorkerBench bench({.num_blocks = 20});
  const auto pull = bench.Pull(kPrefix);
  bench.fake.Deliver(IdOf(*pull), kPrompt, "");
  bench.core->PollTransfers();
  const auto answer = bench.Generate(std::vector<TokenId>(10, 'x'), 70);  // grows to all blocks
  bench.Run();
  ASSERT_TRUE(answer->finish.has_value());
  EXPECT_EQ(answer->tokens.size(), 70u);
  EXPECT_EQ(bench.scheduler.preemption_count(), 0);
  bench.ExpectAllBlocksHome();
}

TEST(PrefixPull, OlderLeasesYieldToANewPull) {
  WorkerBench bench({.num_blocks = 20});
  const auto pull = bench.Pull(kPrefix);
  bench.fake.Deliver(IdOf(*pull), kPrompt, "");
  bench.core->PollTransfers();
  const auto next = bench.Pull(Bytes("another prompt altogether"));
  EXPECT_TRUE(next->ticket.has_value());
  EXPECT_EQ(bench.cache.Stats().evictable, 8);
  bench.fake.FailReceive(IdOf(*next), absl::UnavailableError("lost"));
  bench.core->PollTransfers();
  bench.ExpectAllBlocksHome();
}

TEST(PrefixPull, ShutdownAnswersThoseWhoWaitAndEndsLeases) {
  WorkerBench bench;
  const auto leased = bench.Pull(kPrefix);
  bench.fake.Deliver(IdOf(*leased), kPrompt, "");
  bench.core->PollTransfers();
  const auto pull = bench.Pull(Bytes("another prompt altogether"));
  bench.Cache(kPrompt);
  ASSERT_TRUE(bench.SendPrefix(kPrefix, bench.Ticket(32)).ok());
  bench.core->Shutdown(absl::CancelledError("bye"));
  EXPECT_EQ(pull->done->status().message(), "bye");
  EXPECT_EQ(bench.fake.receives.at(IdOf(*pull)).cancels, 1);
  EXPECT_EQ(bench.fake.sends.begin()->second.cancels, 1);
  bench.fake.FailReceive(IdOf(*pull), absl::CancelledError("by us"));
  bench.fake.EndSend(bench.fake.sends.begin()->first, absl::CancelledError("by us"));
  bench.core->PollTransfers();
  bench.ExpectAllBlocksHome();
}

// ---- the source ---------------------------------------------------------------------------------

TEST(PrefixPull, TheSourceSendsTheWholeBlocksThatTheReceiverLacks) {
  WorkerBench bench;
  bench.Cache(kPrompt, 4);
  const auto tokens = bench.SendPrefix(kPrefix, bench.Ticket(32, 3));
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  EXPECT_EQ(*tokens, 32);
  const FakeTransport::Send& send = bench.fake.sends.at(bench.last_handle);
  EXPECT_EQ(send.blocks.size(), 5u);
  EXPECT_TRUE(send.final);
  EXPECT_TRUE(send.spec.may_end_early);
  EXPECT_EQ(send.spec.tokens, 32);
  bench.fake.EndSend(bench.last_handle, absl::OkStatus());
  bench.core->PollTransfers();
  bench.ExpectAllBlocksHome();
}

TEST(PrefixPull, TheSourceAnnouncesWhatItHasWhereThatIsLess) {
  WorkerBench bench;
  bench.Cache({kPrompt.begin(), kPrompt.begin() + 14});
  const auto tokens = bench.SendPrefix(kPrefix, bench.Ticket(32, 1));
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  EXPECT_EQ(*tokens, 12);
  EXPECT_EQ(bench.fake.sends.at(bench.last_handle).blocks.size(), 2u);
  bench.fake.EndSend(bench.last_handle, absl::UnavailableError("lost"));
  bench.core->PollTransfers();
  bench.ExpectAllBlocksHome();
}

TEST(PrefixPull, WhatTheSourceSendsIsNotEvictedBeforeTheTransferEnds) {
  WorkerBench bench({.num_blocks = 20});
  bench.Cache(kPrompt);
  ASSERT_TRUE(bench.SendPrefix(kPrefix, bench.Ticket(32)).ok());
  const RequestHandle send = bench.last_handle;
  bench.Cache(std::vector<TokenId>(40, 'x'), 5);  // evicts all that it can
  bench.Cache(std::vector<TokenId>(40, 'y'), 5);
  bench.fake.EndSend(send, absl::OkStatus());  // compares the blocks with what was announced
  bench.core->PollTransfers();
  bench.ExpectAllBlocksHome();
}

TEST(PrefixPull, TheSourceRefusesWhatItCannotSendAndHoldsNothing) {
  WorkerBench bench;
  const auto code = [&](std::vector<TokenId> tokens, const TransferTicket& ticket) {
    return bench.SendPrefix(std::move(tokens), ticket).status().code();
  };
  EXPECT_EQ(code(kPrefix, bench.Ticket(32)), absl::StatusCode::kNotFound) << "evicted meanwhile";
  bench.Cache(kPrompt);
  TransferTicket hostile = bench.Ticket(32);
  for (const int32_t block_size : {-4, 3, 256, 1 << 30}) {
    hostile.block_size = block_size;
    EXPECT_EQ(code(kPrefix, hostile), absl::StatusCode::kInvalidArgument) << block_size;
  }
  hostile = bench.Ticket(32);
  hostile.first_block = -1;
  EXPECT_EQ(code(kPrefix, hostile), absl::StatusCode::kInvalidArgument);
  hostile = bench.Ticket(32);
  hostile.block_count = 1 << 30;
  EXPECT_EQ(code(kPrefix, hostile), absl::StatusCode::kInvalidArgument);
  hostile.first_block = INT32_MAX;
  hostile.block_count = INT32_MAX;
  EXPECT_EQ(code(kPrefix, hostile), absl::StatusCode::kInvalidArgument);
  hostile = bench.Ticket(32, 8);
  hostile.block_count = 0;
  EXPECT_EQ(code(kPrefix, hostile), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({1, 2, -3, 4}, bench.Ticket(4)), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({}, {}), absl::StatusCode::kInvalidArgument);
  bench.fake.next_post = absl::InvalidArgumentError("no such address");
  EXPECT_EQ(code(kPrefix, bench.Ticket(32)), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(bench.cache.blocks_in_transfer(), 0);
  bench.ExpectAllBlocksHome();
}

// ---- both, over the real sessions ---------------------------------------------------------------

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
  // 33 + 12 tokens, of which the last was never fed: 44 are whole blocks.
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
    int32_t has, cached;  // tokens of the prompt: at the source, and at the receiver
    int32_t gets;         // -1: nothing is sent
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

TEST_F(PrefixPullPair, ATicketOfAnotherIncarnationBringsNothing) {
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

TEST_F(PrefixPullPair, ACancelledPullLetsTheSourceGo) {
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

TEST_F(PrefixPullPair, ASecondSenderForOneTicketHarmsNobody) {
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
