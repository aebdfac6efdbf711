#include "engine/handoff_receives.h"

#include <gtest/gtest.h>

#include "tests/engine/machine_bench.h"

namespace baton {
namespace {

class HandoffReceivesTest : public testing::Test {
 protected:
  // Adds a sequence of 10 tokens that waits for KV. Its first 4 tokens are cached.
  void SetUp() override {
    bench_.Cache(Bytes("xxxx"));
    ASSERT_TRUE(bench_.scheduler.AddWaitingForKv(MachineBench::Spec(kRequest, 10)).ok());
  }
  void TearDown() override {
    std::vector<BlockId> held;
    receives_.AppendHeld(/*group=*/0, held);
    EXPECT_TRUE(bench_.cache.CheckTransferHolds(held).ok());
  }
  uint64_t Expect(int32_t n = 1) {
    const absl::StatusOr<TransferTicket> ticket = receives_.Expect(kRequest, 10, n);
    EXPECT_TRUE(ticket.ok()) << ticket.status();
    return ticket.ok() ? ticket->transfer_id : 0;
  }
  static std::string Manifest() { return EncodeManifest(MachineBench::Manifest(Bytes("q"))); }
  // Ends the sequence, with its holds.
  void Finish() { bench_.scheduler.Finish(SequenceOf(kRequest), /*keep_cached=*/true); }

  static constexpr RequestHandle kRequest = 3;
  MachineBench bench_;
  HandoffReceives receives_{
      {.vocabulary = kFakeVocabulary, .timeout_ms = 50}, &bench_.cache, &bench_.transport, [this] {
        return bench_.next_transfer_id++;
      }};
};

TEST_F(HandoffReceivesTest, TheTicketAsksForTheBlocksBehindTheMatch) {
  const absl::StatusOr<TransferTicket> ticket = receives_.Expect(kRequest, 10, 1);
  ASSERT_TRUE(ticket.ok()) << ticket.status();
  EXPECT_EQ(ticket->first_block, 1);
  EXPECT_EQ(ticket->block_count, 2);
  EXPECT_EQ(ticket->block_size, 4);
  EXPECT_EQ(ticket->timeout_ms, 50);
  EXPECT_EQ(ticket->receiver_epoch, bench_.transport.epoch());
  const ReceiveSpec& spec = bench_.transport.receives.at(ticket->transfer_id).spec;
  const std::span<const BlockId> table = bench_.cache.BlockTable(SequenceOf(kRequest));
  EXPECT_TRUE(std::ranges::equal(spec.blocks, table.subspan(1, 2)));
  EXPECT_EQ(spec.tokens, 10);
  EXPECT_FALSE(spec.may_end_early);
  Finish();
  EXPECT_EQ(bench_.cache.Stats().blocks.in_transfer, 2) << "the holds outlive the sequence";
  bench_.transport.FailReceive(ticket->transfer_id, absl::AbortedError("over"));
  EXPECT_TRUE(receives_.OnEvent(bench_.Poll()).has_value());
  EXPECT_EQ(bench_.cache.Stats().blocks.in_transfer, 0);
}

TEST_F(HandoffReceivesTest, AWholeManifestComesWithTheKv) {
  const uint64_t id = Expect();
  bench_.transport.Progress(id);
  EXPECT_FALSE(receives_.OnEvent(bench_.Poll()).has_value()) << "the transfer continues";
  bench_.transport.Deliver(id, std::vector<TokenId>(10, 'x'), Manifest());
  const std::optional<ReceivedHandoff> received = receives_.OnEvent(bench_.Poll());
  ASSERT_TRUE(received.has_value());
  EXPECT_EQ(received->request, kRequest);
  ASSERT_TRUE(received->manifest.has_value());
  EXPECT_EQ(received->manifest->drawn.front().token, 'q');
  EXPECT_EQ(received->bytes, 1000);
  EXPECT_EQ(received->busy_us, 10);
  EXPECT_FALSE(receives_.IsReceiving(id));
}

TEST_F(HandoffReceivesTest, AManifestThatLacksAChoiceIsRefused) {
  for (const auto& [n, manifest] :
       {std::pair<int32_t, std::string>{1, "damaged"}, {2, Manifest()}}) {
    const uint64_t id = Expect(n);
    bench_.transport.Deliver(id, std::vector<TokenId>(10, 'x'), manifest);
    const std::optional<ReceivedHandoff> received = receives_.OnEvent(bench_.Poll());
    ASSERT_TRUE(received.has_value());
    EXPECT_FALSE(received->manifest.has_value());
    EXPECT_EQ(received->landed_blocks, 0);
  }
}

TEST_F(HandoffReceivesTest, BlocksThatLandedBeforeAFailureCount) {
  const uint64_t id = Expect();
  bench_.transport.FailReceive(id, absl::UnavailableError("gone"), 1,
                               std::vector<TokenId>(10, 'x'));
  const std::optional<ReceivedHandoff> received = receives_.OnEvent(bench_.Poll());
  ASSERT_TRUE(received.has_value());
  EXPECT_FALSE(received->manifest.has_value());
  EXPECT_EQ(received->landed_blocks, 1);
}

TEST_F(HandoffReceivesTest, ATransferIsCancelledOnceAndHeldUntilItsEnd) {
  const uint64_t id = Expect();
  receives_.Cancel(id);
  receives_.Cancel(id);
  receives_.Cancel(0);
  EXPECT_EQ(bench_.transport.receives.at(id).cancels, 1);
  EXPECT_EQ(receives_.active(), 1);
  EXPECT_EQ(bench_.cache.Stats().blocks.in_transfer, 2);
  EXPECT_TRUE(absl::IsNotFound(receives_.GiveUp(id, bench_.transport.epoch())));
  bench_.transport.FailReceive(id, absl::CancelledError("asked to"));
  EXPECT_TRUE(receives_.OnEvent(bench_.Poll()).has_value());
  EXPECT_EQ(receives_.active(), 0);
}

TEST_F(HandoffReceivesTest, AbandoningNamesTheTransferAndTheEpoch) {
  const uint64_t id = Expect();
  EXPECT_TRUE(absl::IsNotFound(receives_.GiveUp(id, Epoch(1))));
  EXPECT_TRUE(absl::IsNotFound(receives_.GiveUp(id + 1, bench_.transport.epoch())));
  EXPECT_TRUE(receives_.GiveUp(id, bench_.transport.epoch()).ok());
  EXPECT_EQ(bench_.transport.receives.at(id).cancels, 1);
  bench_.transport.FailReceive(id, absl::CancelledError("asked to"));
  EXPECT_TRUE(receives_.OnEvent(bench_.Poll()).has_value());
}

TEST_F(HandoffReceivesTest, TheFirstInOrderThatHasNotBegunIsTakenOver) {
  const auto choose = [this] {
    return receives_.ToTakeOver([this](SequenceId id) { return bench_.scheduler.priority(id); },
                                [](uint64_t, bool begun) { return !begun; });
  };
  ASSERT_TRUE(bench_.scheduler.AddWaitingForKv(MachineBench::Spec(kRequest + 1, 8)).ok());
  ASSERT_TRUE(bench_.scheduler.AddWaitingForKv(MachineBench::Spec(kRequest + 2, 8, 1)).ok());
  EXPECT_EQ(choose(), std::nullopt) << "there is no transfer";
  const uint64_t second = receives_.Expect(kRequest + 1, 8, 1)->transfer_id;
  const uint64_t first = Expect();
  EXPECT_EQ(choose(), first);
  const uint64_t important = receives_.Expect(kRequest + 2, 8, 1)->transfer_id;
  EXPECT_EQ(choose(), important);
  bench_.transport.Progress(important);
  bench_.transport.Progress(first);
  for (const TransferEvent& event : bench_.transport.Poll()) receives_.OnEvent(event);
  EXPECT_EQ(choose(), second) << "blocks of the others land already";
  receives_.Cancel(first);
  EXPECT_EQ(choose(), std::nullopt) << "the cancelled transfer is about to end";
  for (const uint64_t id : {first, second, important}) {
    bench_.transport.FailReceive(id, absl::CancelledError("over"));
    EXPECT_TRUE(receives_.OnEvent(bench_.Poll()).has_value());
  }
  Finish();
  bench_.scheduler.Finish(SequenceOf(kRequest + 1), /*keep_cached=*/true);
  bench_.scheduler.Finish(SequenceOf(kRequest + 2), /*keep_cached=*/true);
}

TEST_F(HandoffReceivesTest, ARefusedPostHoldsNothing) {
  bench_.transport.next_post = absl::ResourceExhaustedError("too many");
  EXPECT_EQ(receives_.Expect(kRequest, 10, 1).status(), absl::ResourceExhaustedError("too many"));
  EXPECT_EQ(receives_.active(), 0);
  EXPECT_EQ(bench_.cache.Stats().blocks.in_transfer, 0);
}

}  // namespace
}  // namespace baton
