#include "engine/part_receives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/parts_bench.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class PartReceivesTest : public testing::Test {
 protected:
  static constexpr SequenceId kMain{3};

  TransferTicket Expect(PartReceives& receives, SequenceId main = kMain) {
    SequenceSpec spec = bench_.Add(main, PartsBench::TwoChunks(), PromptParts::Use::kReceived);
    EXPECT_TRUE(bench_.scheduler.AddWaitingForKv(std::move(spec)).ok());
    TransferTicket ticket;
    ticket.transfer_id = 77;
    receives.Expect(main, ticket);
    return ticket;
  }
  void TearDown() override {
    std::vector<BlockId> held;
    receives_.AppendHeld(held);
    few_.AppendHeld(held);
    EXPECT_TRUE(bench_.cache.CheckTransferHolds(held).ok());
    EXPECT_TRUE(bench_.cache.CheckConservation().ok()) << bench_.cache.CheckConservation();
    EXPECT_EQ(receives_.active() + few_.active(), 0);
    bench_.End(kMain);
    bench_.End(kOther);
  }
  static std::vector<int32_t> Counts(const SchedulerOutput& plan) {
    std::vector<int32_t> counts;
    for (const ScheduledChunk& chunk : plan.chunks) counts.push_back(chunk.count);
    return counts;
  }
  // Ends the transfer of a ticket's part.
  void Deliver(PartReceives& receives, const PartTicket& part) {
    bench_.transport.Deliver(part.transfer_id, bench_.layout->parts[part.part].tokens, "");
    EXPECT_TRUE(receives.OnEvent(bench_.Poll()));
  }
  void Fail(PartReceives& receives, const PartTicket& part, int32_t landed) {
    bench_.transport.FailReceive(part.transfer_id, absl::UnavailableError("lost"), landed,
                                 bench_.layout->parts[part.part].tokens);
    EXPECT_TRUE(receives.OnEvent(bench_.Poll()));
  }

  static constexpr SequenceId kOther{4};
  PartsBench bench_;
  std::function<uint64_t()> new_id_ = [this] { return bench_.next_transfer_id++; };
  PartReceives receives_{
      {.timeout_ms = 50}, &bench_.cache, &bench_.transport, &bench_.prompt_parts, new_id_};
  PartReceives few_{{.timeout_ms = 50, .max_transfers = 1},
                    &bench_.cache,
                    &bench_.transport,
                    &bench_.prompt_parts,
                    new_id_};
};

TEST_F(PartReceivesTest, TheTicketNamesEveryMissingPart) {
  const TransferTicket ticket = Expect(receives_);
  EXPECT_EQ(ticket.piece_tokens, 256);
  EXPECT_THAT(ticket.parts,
              ElementsAre(PartTicket{.part = 0, .transfer_id = 500, .block_count = 2},
                          PartTicket{.part = 1, .transfer_id = 501, .block_count = 3},
                          PartTicket{.part = 2, .transfer_id = 502, .block_count = 1}));
  const ReceiveSpec& spec = bench_.transport.receives.at(501).spec;
  EXPECT_EQ(spec.tokens, 9);
  EXPECT_EQ(spec.timeout_ms, 50);
  EXPECT_FALSE(spec.may_end_early);
  EXPECT_EQ(bench_.cache.Stats().blocks.in_transfer, 6);
  EXPECT_FALSE(bench_.scheduler.has_work() && !bench_.StepWithParts().chunks.empty())
      << "nothing is computed here";
  EXPECT_FALSE(receives_.Waits(78));
  for (const PartTicket& part : ticket.parts) {
    EXPECT_TRUE(receives_.Waits(77));
    Deliver(receives_, part);
  }
  EXPECT_FALSE(receives_.Waits(77));
  EXPECT_TRUE(bench_.prompt_parts.Ready(kMain));
  EXPECT_THAT(bench_.prompt_parts.TakeProgress(), ElementsAre(kMain));
  EXPECT_EQ(bench_.prompt_parts.Stats().entries, 3) << "chunks land as chunks";
  const PromptParts::Costs costs = bench_.prompt_parts.TakeCosts(kMain);
  EXPECT_EQ(costs.received.bytes(), 3000);
  EXPECT_EQ(costs.cached_tokens, 0);
  EXPECT_EQ(costs.computed_tokens, 0);
}

TEST_F(PartReceivesTest, WhatFailsToArriveIsComputedHere) {
  const TransferTicket ticket = Expect(receives_);
  Fail(receives_, ticket.parts[1], /*landed=*/1);
  EXPECT_THAT(Counts(bench_.StepWithParts()), IsEmpty()) << "its system part is on its way";
  Fail(receives_, ticket.parts[0], /*landed=*/0);
  EXPECT_THAT(Counts(bench_.StepWithParts()), ElementsAre(6, 5));
  EXPECT_FALSE(bench_.prompt_parts.Ready(kMain));
  Fail(receives_, ticket.parts[2], /*landed=*/1);  // whole, although the transfer failed
  EXPECT_TRUE(bench_.prompt_parts.Ready(kMain));
  EXPECT_EQ(bench_.prompt_parts.TakeCosts(kMain).computed_tokens, 11);
}

TEST_F(PartReceivesTest, APartWhosePostIsRefusedIsComputedHere) {
  bench_.transport.next_post = absl::ResourceExhaustedError("full");
  const TransferTicket ticket = Expect(receives_);
  ASSERT_EQ(ticket.parts.size(), 2u);
  EXPECT_EQ(ticket.parts[0].part, 1);
  EXPECT_THAT(Counts(bench_.StepWithParts()), ElementsAre(6));
  for (const PartTicket& part : ticket.parts) Deliver(receives_, part);
  EXPECT_TRUE(bench_.prompt_parts.Ready(kMain));
}

TEST_F(PartReceivesTest, PartsBeyondTheLimitAreComputedHere) {
  const TransferTicket ticket = Expect(few_);
  ASSERT_EQ(ticket.parts.size(), 1u);
  Deliver(few_, ticket.parts[0]);
  EXPECT_THAT(Counts(bench_.StepWithParts()), ElementsAre(9, 4));
  EXPECT_TRUE(bench_.prompt_parts.Ready(kMain));
}

TEST_F(PartReceivesTest, TransfersEndWithTheirRequestAndKeepTheirBlocksUntilThen) {
  const TransferTicket ticket = Expect(receives_);
  bench_.End(kMain);
  receives_.Cancel(kMain);
  receives_.Cancel(kMain);
  EXPECT_EQ(bench_.cache.Stats().blocks.in_transfer, 6);
  for (const PartTicket& part : ticket.parts) {
    EXPECT_EQ(bench_.transport.receives.at(part.transfer_id).cancels, 1);
    Fail(receives_, part, /*landed=*/0);
  }
  EXPECT_EQ(bench_.cache.Stats().blocks.in_transfer, 0);
  EXPECT_EQ(bench_.cache.Stats().blocks.owned, 0);
}

TEST_F(PartReceivesTest, AnotherRequestComputesThePartOfACancelledTransfer) {
  const TransferTicket ticket = Expect(receives_);
  EXPECT_THAT(Expect(receives_, kOther).parts, IsEmpty()) << "a part is not sent twice";
  bench_.End(kMain);
  receives_.Cancel(kMain);
  Deliver(receives_, ticket.parts[0]);  // it had landed already
  Fail(receives_, ticket.parts[1], /*landed=*/2);
  Fail(receives_, ticket.parts[2], /*landed=*/0);
  EXPECT_THAT(Counts(bench_.StepWithParts()), ElementsAre(1, 4));
  EXPECT_TRUE(bench_.prompt_parts.Ready(kOther));
}

TEST_F(PartReceivesTest, GivingUpATicketCancelsWhatIsStillWaiting) {
  const TransferTicket ticket = Expect(receives_);
  Deliver(receives_, ticket.parts[2]);
  EXPECT_FALSE(receives_.GiveUp(78));
  EXPECT_TRUE(receives_.GiveUp(77));
  EXPECT_FALSE(receives_.GiveUp(77));
  for (const int i : {0, 1}) {
    EXPECT_EQ(bench_.transport.receives.at(ticket.parts[i].transfer_id).cancels, 1);
    Fail(receives_, ticket.parts[i], /*landed=*/0);
  }
}

TEST_F(PartReceivesTest, OtherEventsAreIgnored) {
  const TransferTicket ticket = Expect(receives_);
  bench_.transport.Progress(ticket.parts[0].transfer_id);
  EXPECT_TRUE(receives_.OnEvent(bench_.Poll()));
  TransferEvent other{};
  other.id = 9;
  for (const auto kind : {TransferEvent::Kind::kReceiving, TransferEvent::Kind::kReceived}) {
    other.kind = kind;
    EXPECT_FALSE(receives_.OnEvent(other));
  }
  other.id = ticket.parts[0].transfer_id;
  other.kind = TransferEvent::Kind::kSent;
  EXPECT_FALSE(receives_.OnEvent(other));
  EXPECT_TRUE(receives_.IsReceiving(ticket.parts[0].transfer_id));
  for (const PartTicket& part : ticket.parts) Deliver(receives_, part);
}

}  // namespace
}  // namespace baton
