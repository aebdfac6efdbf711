#include "kvtransfer/nccl/nccl_send_channel.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvtransfer/nccl/nccl_options.h"
#include "tests/kvtransfer/nccl_channel_script.h"

namespace baton {
namespace {

using Kind = NcclReport::Kind;
using Way = NcclSendChannel::Way;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

class NcclSendChannelTest : public ::testing::Test {
 protected:
  absl::Status Offer(uint32_t version = kScriptedVersion, int32_t window = 2,
                     int64_t batch_bytes = 250) {
    return channel_.OnFrame(NcclOfferFrame{version, window, batch_bytes}, now_us_);
  }
  absl::Status Say(const Frame& frame) { return channel_.OnFrame(frame, now_us_); }
  void Report(Kind kind, absl::Status status = {}) {
    channel_.OnReport(driver_.Report(kind, std::move(status)), now_us_);
  }
  void Open() {
    ASSERT_TRUE(Offer().ok());
    Report(Kind::kUniqueId);
    Report(Kind::kReady);
    ASSERT_TRUE(Say(NcclReadyFrame{}).ok());
    ASSERT_EQ(channel_.way(), Way::kBatch);
    channel_.TakeFrames();
    driver_.Take();
  }
  // Sends a batch of one block, identified by its number.
  void Send(int32_t block) {
    BlockDispatch dispatch{
        .serial = 1, .blocks = BlockId(block), .frame = {.block = block, .piece_crcs = {7}}};
    channel_.StartBatch({dispatch}, 100, now_us_);
  }
  void Later(int64_t ms) {
    now_us_ += ms * 1000;
    channel_.OnTimer(now_us_);
  }
  static absl::Status Stop(NcclSendChannel& channel, bool closed, uint64_t landed) {
    return channel.OnFrame(NcclStopFrame{.closed = closed,
                                         .landed = landed,
                                         .code = absl::StatusCode::kUnavailable,
                                         .reason = "r"},
                           0);
  }
  std::vector<int32_t> Landed() { return Numbers(channel_.TakeLanded()); }
  std::vector<int32_t> Unlanded() {
    std::vector<BlockDispatch> blocks;
    while (auto block = channel_.TakeUnlanded()) blocks.push_back(*block);
    return Numbers(blocks);
  }
  static std::vector<int32_t> Numbers(const std::vector<BlockDispatch>& blocks) {
    std::vector<int32_t> numbers;
    for (const BlockDispatch& block : blocks) numbers.push_back(block.blocks[0].value());
    return numbers;
  }

  NotedDriver driver_;
  const NcclOptions options_ = ScriptedNccl();
  NcclSendChannel channel_{PeerId(5), options_, kScriptedVersion, kScriptedBlockBytes, driver_};
  int64_t now_us_ = 1'000'000;
};

TEST_F(NcclSendChannelTest, BlocksGoWithinTheStreamUntilAnOfferComes) {
  EXPECT_EQ(channel_.way(), Way::kStream);
  EXPECT_EQ(channel_.NextTimerUs(), kNever);
}

TEST_F(NcclSendChannelTest, AnOfferIsJoinedAndOpenOnceBothSidesAreReady) {
  ASSERT_TRUE(Offer().ok());
  EXPECT_THAT(driver_.Take(), ElementsAre("create 1 as 0"));
  EXPECT_EQ(channel_.way(), Way::kWait);
  Report(Kind::kUniqueId);
  const std::vector<Frame> frames = channel_.TakeFrames();
  ASSERT_EQ(frames.size(), 1u);
  EXPECT_EQ(std::get<NcclJoinFrame>(frames[0]).unique_id.size(), kNcclUniqueIdBytes);
  Report(Kind::kReady);
  EXPECT_EQ(channel_.way(), Way::kWait);
  ASSERT_TRUE(Say(NcclReadyFrame{}).ok());
  EXPECT_EQ(channel_.way(), Way::kBatch);
  EXPECT_EQ(channel_.FreeSlot(), &driver_.memory[0]);
}

TEST_F(NcclSendChannelTest, TheSmallerOfBothSidesLimitsCounts) {
  ASSERT_TRUE(Offer(kScriptedVersion, 1, 120).ok());
  EXPECT_EQ(channel_.batch_bytes(), 120);
  Report(Kind::kReady);
  ASSERT_TRUE(Say(NcclReadyFrame{}).ok());
  Send(1);
  EXPECT_EQ(channel_.FreeSlot(), nullptr);
}

TEST_F(NcclSendChannelTest, AnotherVersionIsRefusedByName) {
  ASSERT_TRUE(Offer(22703).ok());
  EXPECT_THAT(driver_.Take(), IsEmpty());
  EXPECT_THAT(TakeNames(channel_), ElementsAre("NcclStop"));
  EXPECT_THAT(channel_.TakeFallbacks(),
              ElementsAre(absl::FailedPreconditionError("nccl_version: ours 22809, theirs 22703")));
  EXPECT_EQ(channel_.way(), Way::kStream);
}

TEST_F(NcclSendChannelTest, BlocksWaitOnlySoLongForACommunicatorWhichIsUsedWhenItComes) {
  ASSERT_TRUE(Offer().ok());
  EXPECT_EQ(channel_.NextTimerUs(), now_us_ + 1'000'000);
  Later(999);
  EXPECT_EQ(channel_.way(), Way::kWait);
  Later(1);
  EXPECT_EQ(channel_.way(), Way::kStream);
  EXPECT_EQ(channel_.TakeFallbacks().size(), 1u);
  Report(Kind::kReady);
  ASSERT_TRUE(Say(NcclReadyFrame{}).ok());
  EXPECT_EQ(channel_.way(), Way::kBatch);
}

TEST_F(NcclSendChannelTest, ACommunicatorThatIsNotMadeInTimeIsAborted) {
  ASSERT_TRUE(Offer().ok());
  Later(9'999);
  driver_.Take();
  Later(1);
  EXPECT_THAT(driver_.Take(), ElementsAre("abort 1"));
  EXPECT_THAT(TakeNames(channel_), ElementsAre("NcclStop"));
  EXPECT_EQ(channel_.way(), Way::kStream);
  EXPECT_EQ(channel_.NextTimerUs(), kNever);
  // Late frames and reports change nothing.
  Report(Kind::kReady);
  ASSERT_TRUE(Say(NcclReadyFrame{}).ok());
  ASSERT_TRUE(Stop(channel_, true, 0).ok());
  EXPECT_EQ(channel_.way(), Way::kStream);
}

TEST_F(NcclSendChannelTest, TheWindowCountsBatchesThatHaveNeitherEndedNorLanded) {
  Open();
  Send(1);
  EXPECT_EQ(channel_.FreeSlot(), &driver_.memory[1]);
  Send(2);
  EXPECT_THAT(driver_.Take(), ElementsAre("post 100 in 0 of 1", "post 100 in 1 of 1"));
  EXPECT_EQ(channel_.FreeSlot(), nullptr);
  Report(Kind::kDone);
  EXPECT_EQ(channel_.FreeSlot(), nullptr);
  ASSERT_TRUE(Say(NcclLandedFrame{1}).ok());
  EXPECT_EQ(channel_.FreeSlot(), &driver_.memory[0]);
  EXPECT_THAT(Landed(), ElementsAre(1));
  ASSERT_TRUE(Say(NcclLandedFrame{2}).ok());  // Landed may arrive before our own operation ends
  Send(3);
  EXPECT_EQ(channel_.FreeSlot(), nullptr);
  Report(Kind::kDone);
  EXPECT_EQ(channel_.FreeSlot(), &driver_.memory[1]);
}

TEST_F(NcclSendChannelTest, ABatchHasItsTimeFromWhenItIsTheOldest) {
  Open();
  Send(1);
  Later(1000);
  Send(2);
  Later(900);
  ASSERT_TRUE(Say(NcclLandedFrame{1}).ok());
  Later(1999);
  EXPECT_EQ(channel_.way(), Way::kBatch);
  Later(1);
  EXPECT_EQ(channel_.way(), Way::kWait);  // stopping: the landed count is not known yet
}

TEST_F(NcclSendChannelTest, ALateBatchPausesAndResumesWhenBothSidesHaveDrained) {
  Open();
  Send(1);
  Send(2);
  Report(Kind::kDone);
  channel_.TakeFrames();
  driver_.Take();
  Later(2000);
  const std::vector<Frame> frames = channel_.TakeFrames();
  ASSERT_EQ(frames.size(), 1u);
  EXPECT_FALSE(std::get<NcclStopFrame>(frames[0]).closed);
  ASSERT_TRUE(Stop(channel_, false, 1).ok());
  EXPECT_EQ(channel_.way(), Way::kStream);
  EXPECT_THAT(Landed(), ElementsAre(1));
  EXPECT_THAT(Unlanded(), ElementsAre(2));
  EXPECT_EQ(channel_.NextTimerUs(), kNever);
  Later(3'600'000);
  ASSERT_TRUE(Say(NcclReadyFrame{}).ok());
  EXPECT_EQ(channel_.way(), Way::kStream);
  Report(Kind::kDone);
  EXPECT_EQ(channel_.way(), Way::kBatch);
  EXPECT_THAT(driver_.Take(), IsEmpty());  // not aborted
  Send(3);
  EXPECT_EQ(channel_.FreeSlot(), &driver_.memory[1]);
}

TEST_F(NcclSendChannelTest, UnlandedBlocksGoWithinTheStreamBeforeBatchesGoOn) {
  Open();
  Send(1);
  Later(2000);
  ASSERT_TRUE(Stop(channel_, false, 0).ok());
  Report(Kind::kDone);
  ASSERT_TRUE(Say(NcclReadyFrame{}).ok());
  EXPECT_EQ(channel_.way(), Way::kStream);
  EXPECT_THAT(Unlanded(), ElementsAre(1));
  EXPECT_EQ(channel_.way(), Way::kBatch);
}

TEST_F(NcclSendChannelTest, AnNcclErrorAbortsTheCommunicatorAndTheReceiverReportsTheLandedBatches) {
  Open();
  Send(1);
  Send(2);
  driver_.Take();
  channel_.TakeFrames();
  Report(Kind::kFailed, absl::UnavailableError("broken"));
  EXPECT_THAT(driver_.Take(), ElementsAre("abort 1"));
  EXPECT_THAT(TakeNames(channel_), ElementsAre("NcclStop"));
  EXPECT_EQ(channel_.way(), Way::kWait);
  ASSERT_TRUE(Say(NcclLandedFrame{1}).ok());  // it was in flight
  ASSERT_TRUE(Stop(channel_, true, 1).ok());
  EXPECT_EQ(channel_.way(), Way::kStream);
  EXPECT_THAT(Landed(), ElementsAre(1));
  EXPECT_THAT(Unlanded(), ElementsAre(2));
}

TEST_F(NcclSendChannelTest, AReceiverThatClosesIsFollowedAndMayOfferAgainWithoutAWait) {
  Open();
  Send(1);
  Send(2);
  ASSERT_TRUE(Stop(channel_, true, 0).ok());
  EXPECT_EQ(channel_.way(), Way::kStream);
  EXPECT_THAT(Unlanded(), ElementsAre(1, 2));
  ASSERT_TRUE(Offer().ok());
  EXPECT_EQ(channel_.way(), Way::kStream);  // blocks do not wait for a second communicator
  Report(Kind::kReady);
  ASSERT_TRUE(Say(NcclReadyFrame{}).ok());
  EXPECT_EQ(channel_.way(), Way::kBatch);
  driver_.Take();
  Send(3);
  EXPECT_THAT(driver_.Take(), ElementsAre("post 100 in 0 of 2"));
}

TEST_F(NcclSendChannelTest, BlocksThatCouldNotBeGatheredFollowTheBatchesInFlight) {
  Open();
  Send(1);
  channel_.OnGatherFailed({{.serial = 1, .blocks = BlockId(2), .frame = {}}},
                          absl::UnavailableError("copy"));
  EXPECT_EQ(channel_.way(), Way::kWait);
  ASSERT_TRUE(Stop(channel_, true, 0).ok());
  EXPECT_THAT(Unlanded(), ElementsAre(1, 2));
}

TEST_F(NcclSendChannelTest, ReportsOfAnEarlierCommunicatorAreNotMistakenForThisOnes) {
  Open();
  const NcclReport old = driver_.Report(Kind::kFailed, absl::UnavailableError("old"));
  ASSERT_TRUE(Stop(channel_, true, 0).ok());
  ASSERT_TRUE(Offer().ok());
  driver_.Take();
  channel_.OnReport(old, now_us_);
  EXPECT_THAT(driver_.Take(), IsEmpty());
  Report(Kind::kReady);
  ASSERT_TRUE(Say(NcclReadyFrame{}).ok());
  EXPECT_EQ(channel_.way(), Way::kBatch);
}

TEST_F(NcclSendChannelTest, DestructionAbortsTheCommunicator) {
  {
    NcclSendChannel channel(PeerId(6), options_, kScriptedVersion, kScriptedBlockBytes, driver_);
    ASSERT_TRUE(channel.OnFrame(NcclOfferFrame{kScriptedVersion, 2, 250}, 0).ok());
    driver_.Take();
  }
  EXPECT_THAT(driver_.Take(), ElementsAre("abort 1"));
}

TEST_F(NcclSendChannelTest, InvalidFramesFailByName) {
  const auto said = [](const absl::Status& status) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(said(Offer(kScriptedVersion, 2, 99)),
              HasSubstr("batch_bytes 99, but a block has 100"));
  EXPECT_THAT(said(Say(NcclLandedFrame{1})), HasSubstr("no batch is in flight"));
  EXPECT_THAT(said(Say(NcclBatchFrame{})), HasSubstr("unexpected NcclBatch"));
  Open();
  EXPECT_THAT(said(Offer()), HasSubstr("an earlier offer is open"));
  EXPECT_THAT(said(Say(NcclReadyFrame{})), HasSubstr("NcclReady twice"));
  Send(1);
  EXPECT_THAT(said(Say(NcclLandedFrame{0})), HasSubstr("batches 0 is outside (0, 1]"));
  EXPECT_THAT(said(Say(NcclLandedFrame{2})), HasSubstr("batches 2 is outside (0, 1]"));
  EXPECT_THAT(said(Stop(channel_, true, 2)), HasSubstr("landed 2 is outside [0, 1]"));
  EXPECT_THAT(said(Stop(channel_, false, 0)), HasSubstr("that the sender did not ask for"));
}

}  // namespace
}  // namespace baton
