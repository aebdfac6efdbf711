#include "engine/part_sends.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/part_tickets.h"
#include "tests/engine/parts_bench.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint64_t kFirst = PartSends::kFirstTransfer;

class PartSendsTest : public testing::Test {
 protected:
  static constexpr RequestHandle kRequest = 3;
  static constexpr SequenceId kMain{kRequest};

  static TransferTicket Ticket() {
    return {.transfer_id = 77,
            .receiver_epoch = Epoch(9),
            .address = "fake:there",
            .timeout_ms = 40,
            .parts = {{.part = 0, .transfer_id = 10, .first_block = 1, .block_count = 1},
                      {.part = 2, .transfer_id = 12, .block_count = 1}}};
  }
  // Admits the request. Its parts are not computed yet.
  void Admit(PartSends& sends, TransferTicket ticket = Ticket()) {
    SequenceSpec spec = bench_.Add(kMain, PartsBench::TwoChunks(), PromptParts::Use::kSent);
    ASSERT_TRUE(CheckPartTickets(ticket, *bench_.layout, 4).ok());
    ASSERT_TRUE(bench_.scheduler.Add(std::move(spec)).ok());
    sends.Start(kRequest, ticket, *bench_.layout, /*priority=*/5);
  }
  void TearDown() override {
    bench_.End(kMain);
    sends_.Cancel(kRequest);
    few_.Cancel(kRequest);
    for (PartSends* sends : {&sends_, &few_}) {
      while (!bench_.transport.sends.empty()) End(*sends, bench_.transport.sends.begin()->first);
    }
    std::vector<BlockId> held;
    sends_.AppendHeld(held);
    few_.AppendHeld(held);
    EXPECT_THAT(held, IsEmpty());
    EXPECT_TRUE(bench_.cache.CheckTransferHolds(held).ok());
    EXPECT_TRUE(bench_.cache.CheckConservation().ok()) << bench_.cache.CheckConservation();
  }
  bool End(PartSends& sends, uint64_t id, const absl::Status& status = absl::OkStatus()) {
    bench_.transport.EndSend(id, status);
    return sends.OnEvent(bench_.Poll());
  }

  PartsBench bench_;
  PartSends sends_{
      {.timeout_ms = 50}, &bench_.cache, &bench_.transport, &bench_.prompt_parts, &bench_.clock};
  PartSends few_{{.timeout_ms = 50, .max_transfers = 1},
                 &bench_.cache,
                 &bench_.transport,
                 &bench_.prompt_parts,
                 &bench_.clock};
};

TEST_F(PartSendsTest, SendsThePartsThatTheTicketNamesWhenTheyAreDone) {
  Admit(sends_);
  bench_.scheduler.Schedule();  // admitted
  sends_.SendDone(kRequest);
  EXPECT_THAT(bench_.transport.sends, IsEmpty());
  bench_.StepWithParts();
  EXPECT_THAT(bench_.prompt_parts.TakeProgress(), ElementsAre(kMain));
  sends_.SendDone(kRequest);
  sends_.SendDone(kRequest);
  ASSERT_EQ(bench_.transport.sends.size(), 2u);
  const FakeTransport::Send& system = bench_.transport.sends.at(kFirst);
  EXPECT_EQ(system.spec.ticket.transfer_id, 10u);
  EXPECT_EQ(system.spec.ticket.address, "fake:there");
  EXPECT_EQ(system.spec.ticket.receiver_epoch, Epoch(9));
  EXPECT_EQ(system.spec.ticket.timeout_ms, 40);
  EXPECT_EQ(system.spec.tokens, 6);
  EXPECT_EQ(system.spec.priority, 5);
  EXPECT_TRUE(system.final);
  EXPECT_EQ(system.blocks.size(), 1u) << "the receiver has the first block";
  EXPECT_EQ(bench_.transport.sends.at(kFirst + 1).spec.tokens, 4);
  EXPECT_EQ(sends_.ProgressOf(kRequest).left, 2);
  EXPECT_TRUE(End(sends_, kFirst));
  EXPECT_THAT(sends_.TakeEnded(), ElementsAre(kRequest));
  EXPECT_TRUE(End(sends_, kFirst + 1, absl::UnavailableError("lost")));
  EXPECT_EQ(sends_.ProgressOf(kRequest).left, 0);
  EXPECT_EQ(sends_.ProgressOf(kRequest).moved.bytes(), 1000) << "of the one that succeeded";
}

TEST_F(PartSendsTest, CachedPartsAreSentAtAdmission) {
  Admit(sends_);
  bench_.StepWithParts();
  bench_.End(kMain);
  sends_.Cancel(kRequest);
  Admit(sends_);
  bench_.scheduler.Schedule();
  sends_.SendDone(kRequest);
  EXPECT_EQ(bench_.transport.sends.size(), 2u);
}

TEST_F(PartSendsTest, BlocksStayHeldUntilTheTransferHasEnded) {
  Admit(sends_);
  bench_.StepWithParts();
  sends_.SendDone(kRequest);
  bench_.End(kMain);
  sends_.Cancel(kRequest);
  bench_.prompt_parts.Clear(std::nullopt);
  EXPECT_EQ(bench_.transport.sends.at(kFirst).cancels, 1);
  EXPECT_EQ(bench_.cache.Stats().blocks.in_transfer, 2);
  EXPECT_TRUE(End(sends_, kFirst, absl::CancelledError("over")));
  EXPECT_TRUE(End(sends_, kFirst + 1));
  EXPECT_THAT(sends_.TakeEnded(), IsEmpty());
  EXPECT_EQ(bench_.cache.Stats().blocks.in_transfer, 0);
}

TEST_F(PartSendsTest, TransfersBeyondTheLimitWaitAndKeepTheirBlocks) {
  Admit(few_);
  bench_.StepWithParts();
  few_.SendDone(kRequest);
  EXPECT_EQ(bench_.transport.sends.size(), 1u);
  EXPECT_EQ(bench_.cache.Stats().blocks.in_transfer, 2);
  EXPECT_EQ(few_.active(), 2);
  EXPECT_TRUE(End(few_, kFirst));
  EXPECT_EQ(bench_.transport.sends.size(), 1u);
  EXPECT_TRUE(End(few_, kFirst + 1));
  EXPECT_EQ(few_.ProgressOf(kRequest).left, 0);
}

TEST_F(PartSendsTest, ACancelledRequestLeavesTheQueue) {
  Admit(few_);
  bench_.StepWithParts();
  few_.SendDone(kRequest);
  few_.Cancel(kRequest);
  EXPECT_EQ(few_.active(), 1) << "the one that was started";
  EXPECT_TRUE(End(few_, kFirst));
  EXPECT_THAT(bench_.transport.sends, IsEmpty());
}

TEST_F(PartSendsTest, ATransferThatCannotBeStartedIsReported) {
  Admit(sends_);
  bench_.StepWithParts();
  bench_.transport.next_post = absl::ResourceExhaustedError("full");
  sends_.SendDone(kRequest);
  EXPECT_EQ(bench_.transport.sends.size(), 1u);
  EXPECT_THAT(sends_.TakeEnded(), ElementsAre(kRequest));
  EXPECT_EQ(sends_.ProgressOf(kRequest).started, absl::ResourceExhaustedError("full"));
}

TEST_F(PartSendsTest, LargerBlocksOfTheReceiverBeginInsideOurs) {
  TransferTicket ticket = Ticket();
  ticket.block_size = 8;
  ticket.parts = {{.part = 1, .transfer_id = 11, .first_block = 1, .block_count = 1}};
  Admit(sends_, ticket);
  bench_.StepWithParts();
  sends_.SendDone(kRequest);
  EXPECT_EQ(bench_.transport.sends.at(kFirst).blocks.size(), 1u) << "tokens 8 to 9";
}

TEST_F(PartSendsTest, OtherEventsAreIgnored) {
  TransferEvent other{};
  other.id = kFirst;
  for (const auto kind : {TransferEvent::Kind::kSent, TransferEvent::Kind::kReceived}) {
    other.kind = kind;
    EXPECT_FALSE(sends_.OnEvent(other));
  }
}

}  // namespace
}  // namespace baton
