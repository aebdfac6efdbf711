#include "engine/handoff_sends.h"

#include <gtest/gtest.h>

#include "tests/engine/machine_bench.h"

namespace baton {
namespace {

class HandoffSendsTest : public testing::Test {
 protected:
  static constexpr RequestHandle kRequest = 3;

  void TearDown() override {
    std::vector<BlockId> held;
    sends_.AppendHeld(/*group=*/0, held);
    EXPECT_TRUE(bench_.cache.CheckTransferHolds(held).ok());
  }
  static TransferTicket Ticket(int32_t first_block, int32_t block_count) {
    return {.transfer_id = 5,
            .receiver_epoch = Epoch(9),
            .address = "fake:there",
            .first_block = first_block,
            .block_count = block_count,
            .timeout_ms = 1000};
  }
  // Starts the sequence of a prompt of 10 tokens, and the send to a receiver that has its first
  // block.
  void Start() {
    ASSERT_TRUE(bench_.scheduler.Add(MachineBench::Spec(kRequest, 10)).ok());
    ASSERT_TRUE(sends_.Check(Ticket(1, 2), 10).ok());
    ASSERT_TRUE(sends_.Start(kRequest, Ticket(1, 2), 10, /*priority=*/0).ok());
  }
  FakeTransport::Send& Post() { return bench_.transport.sends.at(kRequest); }
  std::vector<BlockId> Table() {
    const std::span<const BlockId> table = bench_.cache.BlockTable(SequenceOf(kRequest));
    return {table.begin(), table.end()};
  }
  void Finish() { bench_.scheduler.Finish(SequenceOf(kRequest), /*keep_cached=*/true); }
  static HandoffManifest Manifest() { return MachineBench::Manifest(Bytes("q")); }

  MachineBench bench_;
  HandoffSends sends_{
      {.timeout_ms = 50, .layer_pieces = {.layers = 3, .bytes_per_token = 1, .pieces = 3}},
      &bench_.cache,
      &bench_.transport};
};

TEST_F(HandoffSendsTest, FullBlocksBehindTheReceiversPrefixAreAnnouncedOnce) {
  Start();
  bench_.Step();
  sends_.AnnounceComputed(kRequest);
  sends_.AnnounceComputed(kRequest);
  const std::vector<BlockId> table = Table();
  EXPECT_EQ(Post().blocks, std::vector<BlockId>{table[1]}) << "the last block is part-full";
  sends_.Deliver(kRequest, Manifest());
  Finish();
  EXPECT_EQ(Post().blocks, (std::vector<BlockId>{table[1], table[2]}));
  EXPECT_TRUE(Post().final);
  EXPECT_EQ(bench_.cache.Stats().blocks.in_transfer, 2) << "the holds outlive the sequence";
  bench_.transport.EndSend(kRequest, absl::OkStatus());
  EXPECT_TRUE(sends_.OnEvent(bench_.Poll()));
  EXPECT_EQ(sends_.active(), 0);
  EXPECT_EQ(bench_.cache.Stats().blocks.in_transfer, 0);
}

TEST_F(HandoffSendsTest, LayersOfTheLastChunkAreAnnouncedAndThenItsBlocks) {
  Start();
  SchedulerOutput plan = bench_.scheduler.Schedule();
  const auto listener = sends_.LayerListener(plan);
  ASSERT_NE(listener, nullptr);
  const std::vector<BlockId> table = Table();
  listener(1, 0);
  EXPECT_TRUE(Post().layers.empty()) << "its chunk is no longer computed";
  listener(1, 1);
  listener(2, 1);
  EXPECT_EQ(Post().layers, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(Post().rest, (std::vector<BlockId>{table[1], table[2]}));
  EXPECT_EQ(bench_.cache.Stats().blocks.in_transfer, 2);
  sends_.AnnounceComputed(kRequest);
  EXPECT_TRUE(Post().blocks.empty()) << "Deliver announces them";
  bench_.scheduler.CommitStep(plan);
  sends_.Deliver(kRequest, Manifest());
  EXPECT_EQ(Post().blocks, Post().rest);
  Finish();
  bench_.transport.EndSend(kRequest, absl::OkStatus());
  EXPECT_TRUE(sends_.OnEvent(bench_.Poll()));
}

TEST_F(HandoffSendsTest, NoLayersAreAnnouncedOfACancelledHandOff) {
  Start();
  const auto listener = sends_.LayerListener(bench_.scheduler.Schedule());
  sends_.Cancel(kRequest);
  sends_.Cancel(kRequest);
  EXPECT_EQ(Post().cancels, 1);
  listener(1, 1);
  EXPECT_TRUE(Post().layers.empty());
  EXPECT_EQ(sends_.LayerListener(bench_.scheduler.Schedule()), nullptr);
  bench_.transport.EndSend(kRequest, absl::CancelledError("asked to"));
  EXPECT_FALSE(sends_.OnEvent(bench_.Poll())) << "its request has ended";
  EXPECT_EQ(sends_.active(), 0);
  Finish();
}

TEST_F(HandoffSendsTest, RefusesTicketsThatDoNotFitThePrompt) {
  EXPECT_TRUE(absl::IsInvalidArgument(sends_.Check(Ticket(1, 1), 10)));
  EXPECT_TRUE(absl::IsInvalidArgument(sends_.Check(Ticket(-1, 4), 10)));
  HandoffSends deaf({.layer_pieces = {}}, &bench_.cache, nullptr);
  EXPECT_TRUE(absl::IsFailedPrecondition(deaf.Check(Ticket(1, 2), 10)));
}

TEST_F(HandoffSendsTest, ARefusedPostHoldsNothing) {
  bench_.transport.next_post = absl::InvalidArgumentError("a bad address");
  EXPECT_EQ(sends_.Start(kRequest, Ticket(1, 2), 10, 0),
            absl::InvalidArgumentError("a bad address"));
  EXPECT_EQ(sends_.active(), 0);
}

TEST_F(HandoffSendsTest, EventsOfOtherTransfersAreIgnored) {
  TransferEvent event{};
  event.kind = TransferEvent::Kind::kSent;
  event.id = 99;
  EXPECT_FALSE(sends_.OnEvent(event));
}

}  // namespace
}  // namespace baton
