#include "kvtransfer/protocol/transfer_receiver.h"

#include "gtest/gtest.h"
#include "tests/kvtransfer/transfer_test_worker.h"

namespace baton {
namespace {

using Kind = TransferEvent::Kind;
constexpr PeerId kPeer{5};

class TransferReceiverTest : public ::testing::Test {
 protected:
  // Expects 20 blocks of one token. The pull window is 256 blocks, because they are so small.
  void Expect(uint64_t id, int64_t timeout_ms = 1000) {
    receiver_.Expect(
        {.transfer_id = id, .blocks = MakeBlocks(0, 20), .tokens = 20, .timeout_ms = timeout_ms},
        now_us_);
  }
  void Announce(uint64_t id, int32_t available, bool final, PeerId peer = kPeer,
                PullMode pulls = PullMode::kRequested, bool shares_clock = false) {
    receiver_.OnAnnounce(peer, {.pulls = pulls, .block_size = 1, .shares_clock = shares_clock},
                         {.transfer_id = id,
                          .receiver_epoch = Epoch(2),
                          .sender_transfer = id + 100,
                          .first_block = 0,
                          .block_count = 20,
                          .tokens = 20,
                          .available = available,
                          .final = final,
                          .manifest = final ? "m" : ""},
                         now_us_);
  }
  std::optional<BlockPlacement> Block(uint64_t id, int32_t block) {
    return receiver_.OnBlock(kPeer, {.transfer_id = id,
                                     .receiver_epoch = Epoch(2),
                                     .sender_transfer = id + 100,
                                     .block = block,
                                     .valid_tokens = 1,
                                     .payload_bytes = layout_.bytes_per_block(),
                                     .piece_crcs = std::vector<uint32_t>(PieceCount(layout_))});
  }
  void Land(const BlockPlacement& placement) {
    receiver_.OnBlockLanded(placement, layout_.bytes_per_block(), absl::OkStatus(), now_us_);
  }
  template <typename T>
  std::vector<T> Frames() {
    std::vector<T> found;
    for (const OutgoingFrame& out : receiver_.TakeFrames()) {
      if (const T* frame = std::get_if<T>(&out.frame)) found.push_back(*frame);
    }
    return found;
  }
  TransferEvent LastEvent() {
    const std::vector<TransferEvent> events = receiver_.TakeEvents();
    EXPECT_FALSE(events.empty());
    return events.empty() ? TransferEvent{} : events.back();
  }

  const KvPoolLayout layout_ = MakeLayout({.block_size = 1});
  TransferReceiver receiver_{layout_, Epoch(2)};
  int64_t now_us_ = 1'000'000;
};

TEST_F(TransferReceiverTest, WherePullsAreImpliedNoneIsSentAndAnnouncedBlocksMayCome) {
  Expect(1);
  Announce(1, 2, false, kPeer, PullMode::kImplied);
  EXPECT_TRUE(Frames<PullFrame>().empty());
  for (int32_t i = 0; i < 2; ++i) {
    const auto placement = Block(1, i);
    ASSERT_TRUE(placement.has_value());
    EXPECT_EQ(placement->transfer_bytes, 20 * layout_.bytes_per_block());
    Land(*placement);
  }
  EXPECT_FALSE(Block(1, 2).has_value());  // not announced
  EXPECT_EQ(LastEvent().status.code(), absl::StatusCode::kOutOfRange);
}

TEST_F(TransferReceiverTest, TellsASenderWithTheSameClockWhenTheLastBlockLanded) {
  for (const bool shares_clock : {true, false}) {
    const uint64_t id = shares_clock ? 1 : 2;
    Expect(id);
    const int64_t begin_us = now_us_;
    Announce(id, 20, true, kPeer, PullMode::kImplied, shares_clock);
    for (int32_t i = 0; i < 20; ++i) {
      now_us_ += 10;
      Land(*Block(id, i));
    }
    EXPECT_EQ(Frames<DoneFrame>(),
              (std::vector<DoneFrame>{{id, id + 100, shares_clock ? begin_us + 200 : 0}}));
  }
}

TEST_F(TransferReceiverTest, PullsAnnouncedBlocksOnceAndInOrder) {
  Expect(1);
  Announce(1, 0, false);
  EXPECT_TRUE(Frames<PullFrame>().empty());
  Announce(1, 4, false);
  EXPECT_EQ(Frames<PullFrame>(), (std::vector<PullFrame>{{1, 101, 0, 4}}));
  Announce(1, 4, false);
  EXPECT_TRUE(Frames<PullFrame>().empty());
  Announce(1, 20, true);
  EXPECT_EQ(Frames<PullFrame>(), (std::vector<PullFrame>{{1, 101, 4, 16}}));
  for (int32_t i = 0; i < 20; ++i) {
    const auto placement = Block(1, i);
    ASSERT_TRUE(placement.has_value());
    EXPECT_EQ(placement->parts, (LandingParts{{.blocks = BlockId(i), .tokens = 1}}));
    now_us_ += 10;
    Land(*placement);
  }
  EXPECT_EQ(Frames<DoneFrame>().size(), 1u);
  const TransferEvent event = LastEvent();
  EXPECT_EQ(event.kind, Kind::kReceived);
  EXPECT_EQ(event.busy_us, 200);
  EXPECT_EQ(event.bytes, 20 * layout_.bytes_per_block());
  EXPECT_FALSE(receiver_.HasTransfersWith(kPeer));
}

// 20 blocks: 18 whole ones, then the layers of the last two.
TEST_F(TransferReceiverTest, SlicesAreRequestedAndABlockCountsWithItsLastLayer) {
  const auto announce = [&](int32_t available, int32_t layers, bool final = false) {
    AnnounceFrame frame{.transfer_id = 1,
                        .receiver_epoch = Epoch(2),
                        .sender_transfer = 101,
                        .block_count = 20,
                        .tokens = 20,
                        .available = available,
                        .final = final,
                        .manifest = ""};
    frame.layers = layers;
    receiver_.OnAnnounce(kPeer, {.block_size = 1}, frame, now_us_);
  };
  const auto land = [&](int32_t block, LayerRange layers) {
    const int64_t bytes = BlockValidBytes(layout_, 1, layers);
    const auto placement =
        receiver_.OnBlock(kPeer, {.transfer_id = 1,
                                  .receiver_epoch = Epoch(2),
                                  .sender_transfer = 101,
                                  .block = block,
                                  .valid_tokens = 1,
                                  .payload_bytes = bytes,
                                  .piece_crcs = std::vector<uint32_t>(PieceCount(layout_, layers)),
                                  .layers = layers});
    ASSERT_TRUE(placement.has_value());
    receiver_.OnBlockLanded(*placement, bytes, absl::OkStatus(), now_us_);
  };
  constexpr LayerRange kFirst{.first = 0, .count = 1};
  constexpr LayerRange kOthers{.first = 1, .count = 2};
  Expect(1);
  announce(18, 1);
  EXPECT_EQ(Frames<PullFrame>(),
            (std::vector<PullFrame>{{1, 101, 0, 18, {}}, {1, 101, 18, 2, kFirst}}));
  for (int32_t block = 0; block < 18; ++block) land(block, {});
  EXPECT_EQ(LastEvent().blocks_done, 18);
  land(18, kFirst);
  land(19, kFirst);
  EXPECT_TRUE(receiver_.TakeEvents().empty()) << "no block is whole";
  announce(20, 0, /*final=*/true);
  EXPECT_EQ(Frames<PullFrame>(), (std::vector<PullFrame>{{1, 101, 18, 2, kOthers}}));
  land(18, kOthers);
  EXPECT_EQ(LastEvent().blocks_done, 19);
  land(19, kOthers);
  const TransferEvent event = LastEvent();
  EXPECT_EQ(event.kind, Kind::kReceived);
  EXPECT_EQ(event.bytes, 20 * layout_.bytes_per_block());
}

TEST_F(TransferReceiverTest, OnlyTheFirstSenderEndsATransferByTooSmallBlocks) {
  const KvPoolLayout layout = MakeLayout({.block_size = 4, .groups = "wwfwf"});
  TransferReceiver receiver(layout, Epoch(2));
  const ReceiveSpec spec{.transfer_id = 1,
                         .window_first_blocks = {0},
                         .blocks = {BlockId(0), BlockId(0), BlockId(1), BlockId(1)},
                         .tokens = 8,
                         .timeout_ms = 1000};
  receiver.Expect(spec, now_us_);
  const auto announce = [&](PeerId peer, int32_t block_size) {
    const int32_t count = 8 / block_size;
    receiver.OnAnnounce(peer, {.block_size = block_size},
                        {.transfer_id = 1,
                         .receiver_epoch = Epoch(2),
                         .sender_transfer = 101,
                         .block_count = count,
                         .tokens = 8,
                         .manifest = "",
                         .window_first_blocks = {0}},
                        now_us_);
  };
  announce(kPeer, 4);
  EXPECT_TRUE(receiver.TakeEvents().empty());
  announce(PeerId(6), 2);
  EXPECT_TRUE(receiver.TakeEvents().empty()) << "the first sender's transfer continues";
  EXPECT_TRUE(receiver.HasTransfersWith(kPeer));
  EXPECT_FALSE(receiver.HasTransfersWith(PeerId(6)));
  receiver.Cancel(1);
  receiver.TakeEvents();
  receiver.TakeFrames();
  receiver.Expect(spec, now_us_);
  announce(kPeer, 2);
  const std::vector<TransferEvent> events = receiver.TakeEvents();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(receiver.HasTransfersWith(kPeer));
  EXPECT_EQ(receiver.TakeFrames().size(), 1u);
}

TEST_F(TransferReceiverTest, InvalidLayersEndTheTransfer) {
  struct Said {
    int32_t available, layers;
    bool final = false;
  };
  const std::vector<std::vector<Said>> cases = {{{20, 1}},           // no block is left
                                                {{18, 4}},           // the model has three
                                                {{18, 2}, {18, 1}},  // fewer than before
                                                {{18, 2}, {19, 2}},  // for other blocks
                                                {{18, 2}, {18, 0}},  // taken back
                                                {{20, 1, true}}};
  for (const std::vector<Said>& announcements : cases) {
    Expect(1);
    for (const Said& said : announcements) {
      AnnounceFrame frame{.transfer_id = 1,
                          .receiver_epoch = Epoch(2),
                          .sender_transfer = 101,
                          .block_count = 20,
                          .tokens = 20,
                          .available = said.available,
                          .final = said.final,
                          .manifest = ""};
      frame.layers = said.layers;
      receiver_.OnAnnounce(kPeer, {.block_size = 1}, frame, now_us_);
    }
    EXPECT_EQ(LastEvent().status.code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(TransferReceiverTest, BusyTimeLeavesOutWaitingForTheSendersCompute) {
  Expect(1);
  Announce(1, 1, false);
  now_us_ += 30;
  Land(*Block(1, 0));
  now_us_ += 500'000;
  Announce(1, 2, false);
  now_us_ += 12;
  Land(*Block(1, 1));
  EXPECT_EQ(LastEvent().busy_us, 42);
}

TEST_F(TransferReceiverTest, ALandingOfAnEndedTransferChangesNothing) {
  Expect(1);
  Announce(1, 20, true);
  const BlockPlacement placement = *Block(1, 0);
  EXPECT_TRUE(receiver_.IsLive(placement));
  receiver_.Cancel(1);
  EXPECT_FALSE(receiver_.IsLive(placement));
  EXPECT_EQ(receiver_.TakeEvents().size(), 1u);
  Expect(1);  // the same id again names a new transfer
  EXPECT_FALSE(receiver_.IsLive(placement));
  Land(placement);
  EXPECT_TRUE(receiver_.TakeEvents().empty());
}

// blocks_done tells the engine how many blocks of a failed transfer it may keep.
TEST_F(TransferReceiverTest, AFailureCountsTheLeadingBlocksThatWereVerified) {
  Expect(1);
  Announce(1, 20, true);
  for (int32_t i = 0; i < 3; ++i) Land(*Block(1, i));
  receiver_.TakeEvents();
  const BlockPlacement placement = *Block(1, 3);
  receiver_.OnBlockLanded(placement, layout_.bytes_per_block(), absl::DataLossError("CRC"),
                          now_us_);
  const TransferEvent damaged = LastEvent();
  EXPECT_EQ(damaged.kind, Kind::kReceiveFailed);
  EXPECT_EQ(damaged.blocks_done, 3);
  Expect(2);
  Announce(2, 20, true);
  Land(*Block(2, 0));
  ASSERT_TRUE(Block(2, 1).has_value());  // in flight
  receiver_.Cancel(2);
  EXPECT_EQ(LastEvent().blocks_done, 1);
}

TEST_F(TransferReceiverTest, DeadlinesFireInOrderAndTellTheBoundPeer) {
  Expect(1, 300);
  Expect(2, 100);
  Announce(1, 0, false);
  EXPECT_EQ(receiver_.NextDeadlineUs(), 1'100'000);
  receiver_.OnTimer(1'099'999);
  EXPECT_TRUE(receiver_.TakeEvents().empty());
  receiver_.OnTimer(1'100'000);
  EXPECT_EQ(LastEvent().id, 2u);
  EXPECT_TRUE(Frames<AbortFrame>().empty());
  receiver_.OnTimer(9'000'000);
  EXPECT_EQ(LastEvent().status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Frames<AbortFrame>().size(), 1u);
  EXPECT_EQ(receiver_.NextDeadlineUs(), INT64_MAX);
}

TEST_F(TransferReceiverTest, ALostPeerFailsItsTransfersAndNoOthers) {
  Expect(1);
  Expect(2);
  Expect(3);
  Announce(1, 1, false);
  Announce(2, 1, false, PeerId(6));
  receiver_.OnPeerLost(kPeer, absl::UnavailableError("gone"));
  const std::vector<TransferEvent> events = receiver_.TakeEvents();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].id, 1u);
  EXPECT_TRUE(receiver_.HasTransfersWith(PeerId(6)));
}

TEST_F(TransferReceiverTest, AWrongEpochOrAnUnknownTransferIsAnsweredAndHarmsNothing) {
  Expect(1);
  receiver_.OnAnnounce(kPeer, {.block_size = 1},
                       {.transfer_id = 1, .receiver_epoch = Epoch(1), .manifest = ""}, now_us_);
  Announce(9, 1, false);
  const std::vector<AbortFrame> aborts = Frames<AbortFrame>();
  ASSERT_EQ(aborts.size(), 2u);
  EXPECT_EQ(aborts[0].code, absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(aborts[1].code, absl::StatusCode::kNotFound);
  EXPECT_TRUE(receiver_.TakeEvents().empty());
  Announce(1, 20, true);
  EXPECT_EQ(Frames<PullFrame>().size(), 1u);
}

TEST_F(TransferReceiverTest, AnAbortCountsOnlyFromTheBoundPeer) {
  Expect(1);
  Announce(1, 1, false);
  const AbortFrame abort{.transfer_id = 1,
                         .sender_transfer = 101,
                         .code = absl::StatusCode::kAborted,
                         .reason = "why"};
  receiver_.OnAbort(PeerId(6), abort);
  EXPECT_TRUE(receiver_.TakeEvents().empty());
  receiver_.OnAbort(kPeer, abort);
  EXPECT_EQ(LastEvent().status, absl::AbortedError("sender: why"));
}

// A copy into the pool failed, and no lease can say which block it was.
TEST_F(TransferReceiverTest, AfterALostStoreNoTransferHasLandedBlocks) {
  for (const uint64_t id : {1, 2}) {
    Expect(id);
    Announce(id, 20, true);
    for (int32_t block = 0; block < (id == 1 ? 20 : 7); ++block) Land(*Block(id, block));
  }
  Expect(3);
  const std::optional<BlockPlacement> late = Block(2, 7);
  receiver_.OnStoreFailed(absl::InternalError("device lost"));
  EXPECT_FALSE(receiver_.IsLive(*late));
  const std::vector<TransferEvent> events = receiver_.TakeEvents();
  ASSERT_EQ(events.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(events[i].id, i + 1);
    EXPECT_EQ(events[i].kind, Kind::kReceiveFailed);
    EXPECT_EQ(events[i].status, absl::InternalError("device lost"));
    EXPECT_EQ(events[i].blocks_done, 0);
    EXPECT_EQ(events[i].manifest, "");
  }
  const std::vector<AbortFrame> aborts = Frames<AbortFrame>();
  ASSERT_EQ(aborts.size(), 1u) << "one sender still sends";
  EXPECT_EQ(aborts[0].transfer_id, 2u);
}

}  // namespace
}  // namespace baton
