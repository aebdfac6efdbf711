// Prefix pulls between the caches of two workers, through WorkerCore, with a transport that the
// test scripts.
#include "engine/prefix_pull.h"

#include <gtest/gtest.h>

#include <string>

#include "engine/worker_core.h"
#include "tests/engine/prefix_pull_prompt.h"
#include "tests/engine/worker_bench.h"

namespace baton {
namespace {

uint64_t IdOf(const PullRecord& pull) { return pull.ticket->transfer_id; }

// ---- the receiver -------------------------------------------------------------------------------

TEST(PrefixPull, LandedBlocksAreFoundByTheNextRequest) {
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

TEST(PrefixPull, RequestsOnlyMissingFullBlocks) {
  WorkerBench bench;
  bench.Cache({kPrompt.begin(), kPrompt.begin() + 12});
  const auto pull = bench.Pull({kPrompt.begin(), kPrompt.begin() + 31});
  ASSERT_TRUE(pull->ticket.has_value());
  EXPECT_EQ(pull->ticket->first_block, 3);
  EXPECT_EQ(pull->ticket->block_count, 4);  // blocks up to token 28
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

TEST(PrefixPull, BlocksThatLandedBeforeAFailureStayAndTheRestIsNeverRead) {
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

TEST(PrefixPull, ARequestForAPrefixInFlightWaitsForIt) {
  WorkerBench bench;
  const auto first = bench.Pull(kPrefix);
  const auto same = bench.Pull(kPrefix);
  const auto shorter = bench.Pull({kPrefix.begin(), kPrefix.begin() + 10});
  const auto other = bench.Pull(Bytes("the quick brown cat jumps over it"));
  EXPECT_FALSE(same->ticket.has_value());
  EXPECT_FALSE(shorter->ticket.has_value());
  EXPECT_TRUE(other->ticket.has_value());
  EXPECT_EQ(bench.fake.receives.size(), 2u);
  bench.core->Cancel(1);  // two waiters are left
  EXPECT_EQ(first->done->status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(bench.fake.receives.at(IdOf(*first)).cancels, 0);
  ASSERT_TRUE(same->ticket.has_value()) << "the first waiter's source may not have the ticket";
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

// A ticket covers the whole prefix, so a waiter for a shorter prefix cannot use it.
TEST(PrefixPull, OnlyAWaiterForTheWholePrefixInheritsTheTicket) {
  WorkerBench bench;
  const auto first = bench.Pull(kPrefix);
  const auto shorter = bench.Pull({kPrefix.begin(), kPrefix.begin() + 10});
  const auto same = bench.Pull(kPrefix);
  bench.core->Cancel(1);
  EXPECT_FALSE(shorter->ticket.has_value());
  ASSERT_TRUE(same->ticket.has_value());
  EXPECT_EQ(IdOf(*same), IdOf(*first));
  bench.fake.Deliver(IdOf(*first), kPrompt, "");
  bench.core->PollTransfers();
  EXPECT_TRUE(same->done->ok());
  EXPECT_TRUE(shorter->done->ok());
  EndLeases(bench);
  bench.ExpectAllBlocksHome();
}

TEST(PrefixPull, NoSecondSendIsRequestedForAPullInFlight) {
  WorkerBench bench;
  const auto first = bench.Pull(kPrefix);
  const auto same = bench.Pull(kPrefix);
  bench.fake.Progress(IdOf(*first));
  bench.core->PollTransfers();
  bench.core->Cancel(1);
  EXPECT_FALSE(same->ticket.has_value());
  EXPECT_EQ(bench.fake.receives.at(IdOf(*first)).cancels, 0);
  bench.fake.Deliver(IdOf(*first), kPrompt, "");
  bench.core->PollTransfers();
  EXPECT_EQ((*same->done)->tokens, 32);
  EndLeases(bench);
  bench.ExpectAllBlocksHome();
}

TEST(PrefixPull, APullWithoutWaitersIsCancelledAndNoNewRequestJoinsIt) {
  WorkerBench bench;
  const auto pull = bench.Pull(kPrefix);
  bench.core->Cancel(1);
  EXPECT_EQ(bench.fake.receives.at(IdOf(*pull)).cancels, 1);
  bench.core->Cancel(1);
  EXPECT_EQ(bench.fake.receives.at(IdOf(*pull)).cancels, 1);
  EXPECT_FALSE(bench.core->idle()) << "the transport may still write the blocks";
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
  WorkerBench small({.num_blocks = 15});  // half of the pool is less than 8 blocks
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

TEST(PrefixPull, RefusesInvalidPrefixesAndPullsWithoutAPrefixCache) {
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

TEST(PrefixPull, ALeaseKeepsThePrefixUntilItExpires) {
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
  // The answer grows until it needs all blocks.
  const auto answer = bench.Generate(std::vector<TokenId>(10, 'x'), 70);
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

TEST(PrefixPull, ALeaseOfHigherPriorityDoesNotYieldToAPull) {
  WorkerBench bench({.num_blocks = 20});
  const auto pull = bench.Pull(kPrefix, 1000, /*priority=*/0);
  const auto joined = bench.Pull(kPrefix, 1000, /*priority=*/5);
  bench.fake.Deliver(IdOf(*pull), kPrompt, "");
  bench.core->PollTransfers();
  const auto next = bench.Pull(Bytes("another prompt altogether"), 1000, /*priority=*/4);
  ASSERT_TRUE(next->done.has_value());
  EXPECT_TRUE(absl::IsResourceExhausted(next->done->status())) << next->done->status();
  EXPECT_EQ(bench.cache.Stats().evictable, 0);
  const auto equal = bench.Pull(Bytes("another prompt altogether"), 1000, /*priority=*/5);
  EXPECT_TRUE(equal->ticket.has_value());
  bench.fake.FailReceive(IdOf(*equal), absl::UnavailableError("lost"));
  bench.core->PollTransfers();
  bench.ExpectAllBlocksHome();
}

TEST(PrefixPull, ShutdownAnswersWaitingPullsAndEndsLeases) {
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
  const auto tokens = bench.SendPrefix(kPrefix, bench.Ticket(32, 3), /*priority=*/-7);
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  EXPECT_EQ(*tokens, 32);
  const FakeTransport::Send& send = bench.fake.sends.at(bench.last_handle);
  EXPECT_EQ(send.blocks.size(), 5u);
  EXPECT_TRUE(send.final);
  EXPECT_TRUE(send.spec.may_end_early);
  EXPECT_EQ(send.spec.tokens, 32);
  EXPECT_EQ(send.spec.priority, -7);
  bench.fake.EndSend(bench.last_handle, absl::OkStatus());
  bench.core->PollTransfers();
  bench.ExpectAllBlocksHome();
}

TEST(PrefixPull, AHigherPrioritySendReplacesOneOfLowerPriority) {
  constexpr int32_t kMost = 256;
  WorkerBench bench;
  bench.Cache(kPrompt, 4);
  const auto send = [&](int32_t priority) {
    return bench.SendPrefix(kPrefix, bench.Ticket(32), priority).status();
  };
  for (int32_t i = 0; i < kMost; ++i) ASSERT_TRUE(send(i % 2).ok()) << i;
  const RequestHandle last_of_0 = bench.last_handle - 1;
  for (const int32_t priority : {-1, 0}) {
    EXPECT_TRUE(absl::IsResourceExhausted(send(priority))) << "no send has a lower priority";
  }
  ASSERT_TRUE(send(1).ok());
  EXPECT_EQ(bench.fake.sends.at(last_of_0).cancels, 1);
  EXPECT_EQ(bench.fake.sends.at(last_of_0 - 2).cancels, 0);
  // Cancelled sends end slowly here. At most kMost of them may be ending.
  int32_t ending = 1;
  for (; send(2).ok(); ++ending) ASSERT_LE(ending, kMost);
  EXPECT_EQ(ending, kMost);
  EXPECT_EQ(bench.core->active_transfers(), 2 * kMost);
  bench.fake.EndSend(last_of_0, absl::CancelledError("as asked"));
  bench.core->PollTransfers();
  ASSERT_TRUE(send(3).ok());
  while (!bench.fake.sends.empty()) {
    const auto& [id, ended] = *bench.fake.sends.begin();
    bench.fake.EndSend(id,
                       ended.cancels == 0 ? absl::OkStatus() : absl::CancelledError("as asked"));
  }
  bench.core->PollTransfers();
  ASSERT_TRUE(send(-1).ok());
  bench.fake.EndSend(bench.last_handle, absl::OkStatus());
  bench.core->PollTransfers();
  bench.ExpectAllBlocksHome();
}

TEST(PrefixPull, ASourceWithAShorterPrefixAnnouncesOnlyThat) {
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

TEST(PrefixPull, TheSourcesBlocksAreNotEvictedBeforeTheTransferEnds) {
  WorkerBench bench({.num_blocks = 20});
  bench.Cache(kPrompt);
  ASSERT_TRUE(bench.SendPrefix(kPrefix, bench.Ticket(32)).ok());
  const RequestHandle send = bench.last_handle;
  bench.Cache(std::vector<TokenId>(40, 'x'), 5);  // evicts every evictable block
  bench.Cache(std::vector<TokenId>(40, 'y'), 5);
  bench.fake.EndSend(send, absl::OkStatus());  // compares the blocks with what was announced
  bench.core->PollTransfers();
  bench.ExpectAllBlocksHome();
}

TEST(PrefixPull, TheSourceRefusesPrefixesThatItCannotSendAndHoldsNothing) {
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

}  // namespace
}  // namespace baton
