// Receiving KV that a peer delivers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/worker_core.h"
#include "tests/engine/worker_bench.h"

namespace baton {
namespace {

constexpr Epoch kFakeEpoch(77);

TEST(WorkerCoreReceive, TheTicketNamesTheBlocksThatAreMissing) {
  WorkerBench bench;
  bench.Generate(Bytes("01234567----"), 1);
  bench.Run();
  const auto record = bench.GenerateRemote(Bytes("01234567abcdefghi"), 4);
  ASSERT_TRUE(record->ticket.has_value());
  EXPECT_EQ(record->ticket->transfer_id, 2u);
  EXPECT_EQ(record->ticket->receiver_epoch, kFakeEpoch);
  EXPECT_EQ(record->ticket->address, "fake:here");
  EXPECT_EQ(record->ticket->first_block, 2);
  EXPECT_EQ(record->ticket->block_count, 3);
  EXPECT_GT(record->ticket->timeout_ms, 0);
  EXPECT_EQ(bench.fake.receives[2].spec.tokens, 17);
  EXPECT_EQ(bench.cache.blocks_in_transfer(), 3);
  EXPECT_FALSE(bench.core->has_work());
  bench.fake.FailReceive(2, absl::UnavailableError("gone"));
  bench.Run();
  bench.ExpectAllBlocksHome();
}

TEST(WorkerCoreReceive, DecodesFromTheKvThatLanded) {
  WorkerBench bench;
  const auto prompt = Bytes("01234567abcdefghi");
  const auto record = bench.GenerateRemote(prompt, 6);
  bench.fake.Progress(1);
  bench.core->PollTransfers();
  EXPECT_TRUE(record->tokens.empty());
  bench.fake.Deliver(1, prompt, bench.Manifest(prompt));
  bench.Run();
  EXPECT_EQ(record->tokens, bench.runner.Continuation(prompt, 6));
  EXPECT_EQ(record->finish->ledger.kv_bytes, 1000);
  EXPECT_EQ(record->finish->ledger.kv_transfer_us, 10);
  EXPECT_EQ(record->finish->ledger.computed_tokens, 2);  // the sender's
  EXPECT_EQ(bench.core->counters().prefill_tokens, 0);
  EXPECT_EQ(bench.core->counters().decode_tokens, 5);
  bench.ExpectAllBlocksHome();
}

TEST(WorkerCoreReceive, TheFirstTokenMayBeTheLast) {
  for (const int32_t length : {16, 17}) {
    WorkerBench bench;
    const std::vector<TokenId> prompt(length, 'p');
    const auto record = bench.GenerateRemote(prompt, 1);
    bench.fake.Deliver(1, prompt, bench.Manifest(prompt));
    bench.Run();
    EXPECT_EQ(record->tokens, bench.runner.Continuation(prompt, 1));
    EXPECT_EQ(record->finish->logits_hash, 99u);
    EXPECT_TRUE(bench.runner.counts.empty()) << "all of the prompt has landed";
    bench.ExpectAllBlocksHome();
  }
}

TEST(WorkerCoreReceive, AFailedTransferIsComputedHere) {
  WorkerBench bench;
  const auto prompt = Bytes("01234567abcdefghi");
  const auto record = bench.GenerateRemote(prompt, 6);
  bench.fake.FailReceive(1, absl::UnavailableError("peer died"));
  bench.Run();
  EXPECT_EQ(record->tokens, bench.runner.Continuation(prompt, 6));
  EXPECT_EQ(record->finish->ledger.computed_tokens, 17);
  EXPECT_EQ(record->finish->ledger.kv_bytes, 0);
  bench.ExpectAllBlocksHome();
}

// Verified blocks are kept even if the transfer fails. At least one token is computed here.
TEST(WorkerCoreReceive, BlocksThatLandedBeforeTheFailureAreNotRecomputed) {
  for (const char* text : {"01234567abcdefghi", "01234567abcdefgh"}) {
    const auto prompt = Bytes(text);
    for (const bool shared : {false, true}) {
      const int32_t blocks = static_cast<int32_t>(prompt.size() + 3) / 4 - (shared ? 2 : 0);
      for (int32_t landed = 0; landed <= blocks; ++landed) {
        SCOPED_TRACE(::testing::Message() << text << " shared " << shared << " landed " << landed);
        WorkerBench bench;
        if (shared) bench.Generate(Bytes("01234567----"), 1);
        bench.Run();
        const auto record = bench.GenerateRemote(prompt, 6);
        bench.fake.FailReceive(bench.last_handle, absl::UnavailableError("late"), landed, prompt);
        bench.Run();
        EXPECT_EQ(record->tokens, bench.runner.Continuation(prompt, 6));
        const int32_t have = (landed + (shared ? 2 : 0)) * 4;
        const int32_t all = static_cast<int32_t>(prompt.size());
        EXPECT_EQ(record->finish->ledger.computed_tokens, std::max(1, all - have));
        EXPECT_EQ(record->finish->ledger.kv_bytes, landed > 0 ? 1000 : 0);
        // The next request uses the cached blocks.
        const auto again = bench.Generate(prompt, 6);
        bench.Run();
        EXPECT_EQ(again->tokens, record->tokens);
        EXPECT_EQ(again->finish->ledger.cached_tokens, (all - 1) / 4 * 4);
        bench.ExpectAllBlocksHome();
      }
    }
  }
}

// The first peer to announce a transfer owns it, so one transfer's id must not reveal the next
// one's.
TEST(WorkerCoreReceive, TransfersAreNamedByRandomBitsThatAreFree) {
  WorkerBench bench;
  // 0 and used ids are drawn again.
  std::vector<uint64_t> bits = {0xFEEDull << 48, 0, 0xFEEDull << 48, 3};
  bench.next_transfer_id = [&, at = size_t{0}]() mutable { return bits.at(at++); };
  const auto prompt = Bytes("01234567abcdefghi");
  const auto other = Bytes("ABCDEFGH");
  const auto first = bench.GenerateRemote(prompt, 6);
  const auto second = bench.GenerateRemote(other, 6);
  EXPECT_EQ(first->ticket->transfer_id, bits[0]);
  EXPECT_EQ(second->ticket->transfer_id, 3u);
  for (const uint64_t handle : {1, 2}) {  // not transfer ids
    EXPECT_EQ(bench.core->PrefillLocally(handle, kFakeEpoch).code(), absl::StatusCode::kNotFound);
  }
  EXPECT_TRUE(bench.core->PrefillLocally(bits[0], kFakeEpoch).ok());
  EXPECT_EQ(bench.fake.receives[bits[0]].cancels, 1);
  bench.core->Cancel(2);
  EXPECT_EQ(bench.fake.receives[3].cancels, 1);
  bench.fake.FailReceive(bits[0], absl::CancelledError("as asked"));
  bench.fake.FailReceive(3, absl::CancelledError("as asked"));
  bench.Run();
  EXPECT_EQ(first->tokens, bench.runner.Continuation(prompt, 6));
  EXPECT_TRUE(second->tokens.empty());
  bench.ExpectAllBlocksHome();
}

TEST(WorkerCoreReceive, ADamagedManifestIsComputedHere) {
  WorkerBench bench;
  const auto prompt = Bytes("01234567abcdefghi");
  const auto record = bench.GenerateRemote(prompt, 6);
  bench.fake.Deliver(1, prompt, "nonsense");
  bench.Run();
  EXPECT_EQ(record->tokens, bench.runner.Continuation(prompt, 6));
  EXPECT_EQ(record->finish->ledger.computed_tokens, 17);
  bench.ExpectAllBlocksHome();
}

TEST(WorkerCoreReceive, PrefillLocallyWaitsForTheTransferToEnd) {
  WorkerBench bench;
  const auto prompt = Bytes("01234567abcdefghi");
  const auto record = bench.GenerateRemote(prompt, 6);
  EXPECT_EQ(bench.core->PrefillLocally(1, Epoch(1)).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(bench.core->PrefillLocally(2, kFakeEpoch).code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(bench.core->PrefillLocally(1, kFakeEpoch).ok());
  EXPECT_EQ(bench.core->PrefillLocally(1, kFakeEpoch).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(bench.fake.receives[1].cancels, 1);
  EXPECT_FALSE(bench.core->has_work()) << "the transport may still write";
  bench.fake.FailReceive(1, absl::CancelledError("as asked"));
  bench.Run();
  EXPECT_EQ(record->tokens, bench.runner.Continuation(prompt, 6));
  EXPECT_EQ(bench.core->PrefillLocally(1, kFakeEpoch).code(), absl::StatusCode::kNotFound);
  bench.ExpectAllBlocksHome();
}

TEST(WorkerCoreReceive, KvThatArrivedBeforeTheCancelIsUsed) {
  WorkerBench bench;
  const auto prompt = Bytes("01234567abcdefghi");
  const auto record = bench.GenerateRemote(prompt, 6);
  bench.fake.Deliver(1, prompt, bench.Manifest(prompt));  // not polled yet
  EXPECT_TRUE(bench.core->PrefillLocally(1, kFakeEpoch).ok());
  bench.Run();
  EXPECT_EQ(record->tokens, bench.runner.Continuation(prompt, 6));
  EXPECT_EQ(bench.core->counters().prefill_tokens, 0);
  bench.ExpectAllBlocksHome();
}

TEST(WorkerCoreReceive, BlocksOfACancelledRequestStayUntilTheTransportIsDone) {
  for (const bool locally : {false, true}) {
    WorkerBench bench({.num_blocks = 8});
    const auto prompt = Bytes("01234567abcdefghi");  // 5 blocks
    const auto record = bench.GenerateRemote(prompt, 6);
    if (locally) {
      ASSERT_TRUE(bench.core->PrefillLocally(1, kFakeEpoch).ok());
    }
    bench.core->Cancel(1);
    EXPECT_EQ(record->error->code(), absl::StatusCode::kCancelled);
    EXPECT_EQ(bench.fake.receives[1].cancels, 1) << "cancelled only once";
    EXPECT_EQ(bench.cache.blocks_in_transfer(), 5);
    EXPECT_FALSE(bench.core->idle());
    const auto other = bench.Generate(Bytes("AAAABBBBCCCCDDD"), 2);  // 4 blocks, 3 are free
    EXPECT_TRUE(bench.core->has_work());
    bench.Run();
    EXPECT_TRUE(other->tokens.empty());
    bench.fake.FailReceive(1, absl::CancelledError("late"));  // overwrites its blocks
    bench.Run();
    EXPECT_EQ(other->tokens, bench.runner.Continuation(Bytes("AAAABBBBCCCCDDD"), 2));
    bench.ExpectAllBlocksHome();
  }
}

TEST(WorkerCoreReceive, KvForACancelledRequestIsDropped) {
  WorkerBench bench;
  const auto prompt = Bytes("01234567abcdefghi");
  const auto record = bench.GenerateRemote(prompt, 6);
  bench.core->Cancel(1);
  bench.fake.Deliver(1, prompt, bench.Manifest(prompt));
  bench.Run();
  EXPECT_TRUE(record->tokens.empty());
  bench.ExpectAllBlocksHome();
}

TEST(WorkerCoreReceive, ATransportThatRefusesEndsTheRequest) {
  WorkerBench bench;
  bench.fake.next_post = absl::ResourceExhaustedError("1024 transfers are expected");
  const auto record = bench.GenerateRemote(Bytes("0123456"), 6);
  EXPECT_FALSE(record->ticket.has_value());
  EXPECT_EQ(record->error->code(), absl::StatusCode::kResourceExhausted);
  bench.ExpectAllBlocksHome();
}

TEST(WorkerCoreReceive, RefusedWithoutRoomNow) {
  WorkerBench bench({.num_blocks = 6});
  const auto first = bench.GenerateRemote(Bytes("0123456789abcdef"), 2);
  const auto second = bench.GenerateRemote(Bytes("ABCDEFGHIJKL"), 2);
  EXPECT_EQ(second->error->code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(second->ticket.has_value());
  bench.core->Cancel(1);
  bench.fake.FailReceive(1, absl::CancelledError(""));
  bench.Run();
  bench.ExpectAllBlocksHome();
}

TEST(WorkerCoreReceive, TheDeadlineCoversTheWait) {
  WorkerBench bench;
  GenerateRequest request = WorkerBench::Request(Bytes("0123456"), 6);
  request.remote_prefill = true;
  request.timeout_ms = 5;
  const auto record = bench.Generate(std::move(request));
  bench.clock.AdvanceUs(5000);
  bench.Turn();
  EXPECT_EQ(record->error->code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(bench.fake.receives[1].cancels, 1);
  bench.fake.FailReceive(1, absl::CancelledError(""));
  bench.Run();
  bench.ExpectAllBlocksHome();
}

}  // namespace
}  // namespace baton
