#include "kvtransfer/protocol/transfer_sender.h"

#include "gtest/gtest.h"
#include "tests/kvtransfer/transfer_test_worker.h"

namespace baton {
namespace {

using Kind = TransferEvent::Kind;
constexpr PeerId kPeer{5};
constexpr char kAddress[] = "tcp:1.2.3.4:5";

class TransferSenderTest : public ::testing::Test {
 protected:
  void Start(uint64_t id, int32_t blocks, uint64_t epoch = 2, int64_t ticket_ms = 0,
             int32_t priority = 0) {
    sender_.Start({.sender_transfer = id,
                   .ticket = {.transfer_id = id + 50,
                              .receiver_epoch = Epoch(epoch),
                              .address = kAddress,
                              .first_block = 3,
                              .block_count = blocks,
                              .timeout_ms = ticket_ms},
                   .tokens = blocks + 3,
                   .timeout_ms = 1000,
                   .priority = priority},
                  now_us_);
  }
  void Open() { sender_.OnLinkOpen(kAddress, kPeer, Epoch(2)); }
  void Pull(uint64_t id, int32_t first, int32_t count) {
    sender_.OnPull(kPeer, {id + 50, id, first, count}, now_us_);
  }
  template <typename T>
  std::vector<T> Frames() {
    std::vector<T> found;
    for (const OutgoingFrame& out : sender_.TakeFrames(now_us_)) {
      if (const T* frame = std::get_if<T>(&out.frame)) found.push_back(*frame);
    }
    return found;
  }
  absl::StatusCode OnlyFailure() {
    const std::vector<TransferEvent> events = sender_.TakeEvents();
    EXPECT_EQ(events.size(), 1u);
    if (events.size() != 1) return absl::StatusCode::kOk;
    EXPECT_EQ(events[0].kind, Kind::kSendFailed);
    return events[0].status.code();
  }

  const KvPoolLayout layout_ = MakeLayout({.block_size = 1});
  TransferSender sender_{layout_};
  int64_t now_us_ = 1'000'000;
};

TEST_F(TransferSenderTest, AsksForOneLinkAndAnnouncesOnceWhenItOpens) {
  Start(1, 2);
  Start(2, 2);
  EXPECT_EQ(sender_.TakeConnects(), std::vector<std::string>{kAddress});
  sender_.Announce(1, MakeBlocks(0, 1), false, "", now_us_);
  sender_.Announce(1, MakeBlocks(1, 1), true, "m", now_us_);
  EXPECT_TRUE(Frames<AnnounceFrame>().empty());
  Open();
  const std::vector<AnnounceFrame> frames = Frames<AnnounceFrame>();
  ASSERT_EQ(frames.size(), 2u);
  EXPECT_EQ(frames[0].available, 2);
  EXPECT_TRUE(frames[0].final);
  EXPECT_EQ(frames[0].manifest, "m");
  EXPECT_EQ(frames[1].available, 0);
}

TEST_F(TransferSenderTest, WherePullsAreImpliedAnAnnouncementSendsWhatItNames) {
  Start(1, 3);
  sender_.OnLinkOpen(kAddress, kPeer, Epoch(2), PullMode::kImplied);
  sender_.Announce(1, MakeBlocks(10, 2), false, "", now_us_);
  EXPECT_FALSE(sender_.NextBlock(kPeer).has_value());  // not before the announcement
  EXPECT_EQ(Frames<AnnounceFrame>().size(), 1u);
  EXPECT_EQ(sender_.NextBlock(kPeer)->blocks[0], BlockId(10));
  EXPECT_EQ(sender_.NextBlock(kPeer)->blocks[0], BlockId(11));
  EXPECT_FALSE(sender_.HasBlocksFor(kPeer));
  sender_.Announce(1, MakeBlocks(12, 1), true, "m", now_us_);
  EXPECT_EQ(Frames<AnnounceFrame>().size(), 1u);
  EXPECT_EQ(sender_.NextBlock(kPeer)->blocks[0], BlockId(12));
  Pull(1, 3, 1);  // nothing is left to request
  EXPECT_EQ(OnlyFailure(), absl::StatusCode::kOutOfRange);
}

TEST_F(TransferSenderTest, TransfersTakeTurnsBlockByBlock) {
  Start(1, 4);
  Start(2, 2);
  Open();
  sender_.Announce(1, MakeBlocks(10, 4), true, "", now_us_);
  sender_.Announce(2, MakeBlocks(20, 2), true, "", now_us_);
  Pull(1, 3, 4);
  Pull(2, 3, 2);
  std::vector<BlockId> order;
  while (const auto dispatch = sender_.NextBlock(kPeer)) {
    order.push_back(dispatch->blocks[0]);
    sender_.OnBlockSent(*dispatch, now_us_);
  }
  EXPECT_EQ(order, (std::vector<BlockId>{BlockId(10), BlockId(20), BlockId(11), BlockId(21),
                                         BlockId(12), BlockId(13)}));
  now_us_ += 250;
  sender_.OnDone(kPeer, {52, 2}, now_us_);
  sender_.OnDone(kPeer, {51, 1}, now_us_);
  const std::vector<TransferEvent> events = sender_.TakeEvents();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].kind, Kind::kSent);
  EXPECT_EQ(events[0].exposed_us, 250);
  EXPECT_EQ(events[1].kind, Kind::kSent);
  EXPECT_FALSE(sender_.HasTransfersWith(kPeer));
}

TEST_F(TransferSenderTest, ExposedTimeEndsAtTheReportedLanding) {
  Open();
  const auto exposed_us = [&](uint64_t id, int64_t landed_after_us) {
    const int64_t announced_us = now_us_;
    Start(id, 1);
    sender_.Announce(id, MakeBlocks(10, 1), true, "", announced_us);
    Pull(id, 3, 1);
    sender_.OnBlockSent(*sender_.NextBlock(kPeer), announced_us);
    now_us_ += 250;
    sender_.OnDone(kPeer, {50 + id, id, announced_us + landed_after_us}, now_us_);
    return sender_.TakeEvents().back().exposed_us;
  };
  EXPECT_EQ(exposed_us(1, 90), 90);
  // An impossible time is clamped to the nearest possible one.
  EXPECT_EQ(exposed_us(2, 900), 250);
  EXPECT_EQ(exposed_us(3, -900), 0);
}

TEST_F(TransferSenderTest, AHigherPriorityIsSentFirstEvenIfRequestedLast) {
  for (const PullMode pulls : {PullMode::kRequested, PullMode::kImplied}) {
    TransferSender sender(layout_);
    for (const auto& [id, priority] : {std::pair(1u, -3), {2u, 0}, {3u, 50}}) {
      sender.Start({.sender_transfer = id,
                    .ticket = {.transfer_id = id + 50,
                               .receiver_epoch = Epoch(2),
                               .address = kAddress,
                               .first_block = 0,
                               .block_count = 2},
                    .tokens = 2,
                    .priority = priority},
                   now_us_);
      sender.Announce(id, MakeBlocks(10 * static_cast<int32_t>(id), 2), true, "", now_us_);
    }
    sender.OnLinkOpen(kAddress, kPeer, Epoch(2), pulls);
    sender.TakeFrames(now_us_);
    for (const uint64_t id : {1, 2, 3}) {
      if (pulls == PullMode::kRequested) sender.OnPull(kPeer, {id + 50, id, 0, 2}, now_us_);
    }
    std::vector<BlockId> order;
    while (const auto dispatch = sender.NextBlock(kPeer)) order.push_back(dispatch->blocks[0]);
    EXPECT_EQ(order, (std::vector<BlockId>{BlockId(30), BlockId(31), BlockId(20), BlockId(21),
                                           BlockId(10), BlockId(11)}));
  }
}

TEST_F(TransferSenderTest, ALongTransferOfHigherPriorityDoesNotStarveAnother) {
  Start(1, 24, 2, 0, /*priority=*/7);
  Start(2, 2);
  Open();
  sender_.Announce(1, MakeBlocks(0, 24), true, "", now_us_);
  sender_.Announce(2, MakeBlocks(30, 2), true, "", now_us_);
  Pull(1, 3, 24);
  Pull(2, 3, 2);
  std::vector<BlockId> first;
  for (int i = 0; i < 16; ++i) first.push_back(sender_.NextBlock(kPeer)->blocks[0]);
  EXPECT_EQ(first[7], BlockId(30));
  EXPECT_EQ(first[15], BlockId(31));
}

TEST_F(TransferSenderTest, ACancelledTransferLosesItsTurnAndTellsTheReceiver) {
  Start(1, 2);
  Start(2, 2);
  Open();
  sender_.Announce(1, MakeBlocks(10, 2), true, "", now_us_);
  sender_.Announce(2, MakeBlocks(20, 2), true, "", now_us_);
  Pull(1, 3, 2);
  Pull(2, 3, 2);
  const BlockDispatch first = *sender_.NextBlock(kPeer);
  sender_.Cancel(1);
  EXPECT_FALSE(sender_.IsLive(first));
  sender_.OnBlockSent(first, now_us_);
  EXPECT_EQ(OnlyFailure(), absl::StatusCode::kCancelled);
  EXPECT_EQ(sender_.NextBlock(kPeer)->blocks[0], BlockId(20));
  EXPECT_EQ(sender_.NextBlock(kPeer)->blocks[0], BlockId(21));
  EXPECT_FALSE(sender_.NextBlock(kPeer).has_value());
  EXPECT_EQ(Frames<AbortFrame>().size(), 1u);
}

TEST_F(TransferSenderTest, AbortsOfUnannouncedTransfersFirstIntroduceTheTransfer) {
  Start(1, 2);
  sender_.Announce(1, MakeBlocks(10, 2), true, "m", now_us_);
  sender_.Cancel(1);  // before the link is open
  Start(2, 2, /*epoch=*/9);
  sender_.Cancel(2);  // for another incarnation of the receiver
  EXPECT_TRUE(sender_.TakeFrames(now_us_).empty());
  Open();
  Start(3, 2);
  sender_.Cancel(3);  // before anything was announced on the link
  const std::vector<OutgoingFrame> frames = sender_.TakeFrames(now_us_);
  ASSERT_EQ(frames.size(), 4u);
  for (const size_t i : {0, 2}) {
    const auto& introduction = std::get<AnnounceFrame>(frames[i].frame);
    const auto& abort = std::get<AbortFrame>(frames[i + 1].frame);
    EXPECT_EQ(introduction.transfer_id, i == 0 ? 51u : 53u);
    EXPECT_EQ(introduction.available, 0);
    EXPECT_FALSE(introduction.final);
    EXPECT_EQ(introduction.manifest, "");
    EXPECT_EQ(abort.transfer_id, introduction.transfer_id);
    EXPECT_EQ(abort.sender_transfer, introduction.sender_transfer);
    EXPECT_EQ(abort.code, absl::StatusCode::kCancelled);
  }
}

TEST_F(TransferSenderTest, PullsOutOfRangeOrOrderFail) {
  for (const auto& [first, count] : {std::pair{3, 3}, {4, 1}, {2, 1}, {3, 0}, {0, INT32_MAX}}) {
    Start(1, 4);
    Open();
    sender_.Announce(1, MakeBlocks(0, 2), false, "", now_us_);
    Pull(1, first, count);
    EXPECT_EQ(OnlyFailure(), absl::StatusCode::kOutOfRange) << first << " " << count;
  }
}

TEST_F(TransferSenderTest, MessagesOfAnotherPeerOrTransferAreIgnored) {
  Start(1, 1);
  Open();
  sender_.Announce(1, MakeBlocks(0, 1), true, "", now_us_);
  sender_.OnPull(PeerId(6), {51, 1, 3, 1}, now_us_);
  sender_.OnPull(kPeer, {77, 1, 3, 1}, now_us_);
  sender_.OnDone(kPeer, {77, 1}, now_us_);
  sender_.OnAbort(PeerId(6), {51, 1, absl::StatusCode::kAborted, ""});
  EXPECT_TRUE(sender_.TakeEvents().empty());
  EXPECT_FALSE(sender_.NextBlock(kPeer).has_value());
}

TEST_F(TransferSenderTest, AStaleTicketFailsWhenTheLinkShowsTheEpoch) {
  Start(1, 1, /*epoch=*/1);
  Open();
  EXPECT_EQ(OnlyFailure(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(TransferSenderTest, ALostLinkFailsItsTransfersAndTheNextStartAsksAgain) {
  Start(1, 1);
  sender_.TakeConnects();
  Open();
  sender_.OnLinkDown(kAddress, absl::UnavailableError("gone"));
  EXPECT_EQ(OnlyFailure(), absl::StatusCode::kUnavailable);
  Start(2, 1);
  EXPECT_EQ(sender_.TakeConnects().size(), 1u);
}

TEST_F(TransferSenderTest, TheShorterOfTheTwoDeadlinesApplies) {
  Start(1, 1, 2, /*ticket_ms=*/20);
  EXPECT_EQ(sender_.NextDeadlineUs(), now_us_ + 20'000);
  sender_.OnTimer(now_us_ + 20'000);
  EXPECT_EQ(OnlyFailure(), absl::StatusCode::kDeadlineExceeded);
  Start(2, 1);
  EXPECT_EQ(sender_.NextDeadlineUs(), now_us_ + 1'000'000);
}

}  // namespace
}  // namespace baton
