#include "kvtransfer/nccl/nccl_receive_channel.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvtransfer/nccl/nccl_options.h"
#include "tests/kvtransfer/nccl_channel_script.h"

namespace baton {
namespace {

using Kind = NcclReport::Kind;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

class NcclReceiveChannelTest : public ::testing::Test {
 protected:
  absl::Status Say(Frame frame) { return channel_.OnFrame(std::move(frame), now_us_); }
  absl::Status Join() { return Say(NcclJoinFrame{std::string(kNcclUniqueIdBytes, 'u')}); }
  absl::Status Stop(bool closed) {
    return Say(NcclStopFrame{
        .closed = closed, .landed = 0, .code = absl::StatusCode::kUnavailable, .reason = "r"});
  }
  std::optional<NcclReceiveChannel::Arrival> Report(Kind kind, absl::Status status = {}) {
    return channel_.OnReport(driver_.Report(kind, std::move(status)), now_us_);
  }
  void Open() {
    channel_.Offer();
    ASSERT_TRUE(Join().ok());
    Report(Kind::kReady);
    EXPECT_THAT(TakeNames(channel_), ElementsAre("NcclOffer", "NcclReady"));
    driver_.Take();
  }
  absl::Status Batch(uint64_t sequence, std::vector<int64_t> sizes = {100}) {
    NcclBatchFrame batch{.sequence = sequence, .blocks = {}};
    for (const int64_t bytes : sizes) {
      batch.blocks.push_back(
          {.block = static_cast<int32_t>(sequence), .payload_bytes = bytes, .piece_crcs = {}});
    }
    return Say(std::move(batch));
  }
  // Takes the only frame, which must be a Stop.
  NcclStopFrame TakeStop() {
    const std::vector<Frame> frames = channel_.TakeFrames();
    EXPECT_EQ(frames.size(), 1u);
    if (frames.empty()) return {};
    EXPECT_STREQ(FrameName(frames[0]), "NcclStop");
    return std::get<NcclStopFrame>(frames[0]);
  }
  void Later(int64_t ms) {
    now_us_ += ms * 1000;
    channel_.OnTimer(now_us_);
  }

  NotedDriver driver_;
  const NcclOptions options_ = ScriptedNccl();
  NcclReceiveChannel channel_{PeerId(5),           options_, kScriptedVersion, /*least_bytes=*/1,
                              kScriptedBlockBytes, driver_};
  int64_t now_us_ = 1'000'000;
};

TEST_F(NcclReceiveChannelTest, AJoinedOfferMakesACommunicatorAndReportsWhenItIsReady) {
  channel_.Offer();
  const std::vector<Frame> frames = channel_.TakeFrames();
  ASSERT_EQ(frames.size(), 1u);
  EXPECT_EQ(std::get<NcclOfferFrame>(frames[0]), (NcclOfferFrame{kScriptedVersion, 2, 250}));
  EXPECT_EQ(channel_.NextTimerUs(), kNever);
  ASSERT_TRUE(Join().ok());
  EXPECT_THAT(driver_.Take(), ElementsAre("create 1 as 1 with an id"));
  EXPECT_THAT(TakeNames(channel_), IsEmpty());
  Report(Kind::kReady);
  EXPECT_THAT(TakeNames(channel_), ElementsAre("NcclReady"));
}

TEST_F(NcclReceiveChannelTest, BatchesArriveInOrderAndAreAcknowledged) {
  Open();
  ASSERT_TRUE(Batch(0, {100, 40}).ok());
  ASSERT_TRUE(Batch(1).ok());
  EXPECT_THAT(driver_.Take(), ElementsAre("post 140 in 0 of 1", "post 100 in 1 of 1"));
  const auto first = Report(Kind::kDone);
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->blocks.size(), 2u);
  EXPECT_EQ(first->staged, &driver_.memory[0]);
  EXPECT_EQ(std::get<NcclLandedFrame>(channel_.TakeFrames().at(0)).batches, 1u);
  const auto second = Report(Kind::kDone);
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->staged, &driver_.memory[1]);
  EXPECT_EQ(std::get<NcclLandedFrame>(channel_.TakeFrames().at(0)).batches, 2u);
}

TEST_F(NcclReceiveChannelTest, APauseTakesBackBatchesInFlightAndResumesOnceTheyEnd) {
  Open();
  ASSERT_TRUE(Batch(0).ok());
  ASSERT_TRUE(Batch(1).ok());
  Report(Kind::kDone);
  channel_.TakeFrames();
  driver_.Take();
  ASSERT_TRUE(Stop(/*closed=*/false).ok());
  const NcclStopFrame stop = TakeStop();
  EXPECT_FALSE(stop.closed);
  EXPECT_EQ(stop.landed, 1u);
  Later(3'600'000);  // no timeout applies
  EXPECT_THAT(TakeNames(channel_), IsEmpty());
  EXPECT_FALSE(Report(Kind::kDone).has_value());  // too late: it comes within the stream
  EXPECT_THAT(TakeNames(channel_), ElementsAre("NcclReady"));
  ASSERT_TRUE(Batch(2).ok());
  EXPECT_THAT(driver_.Take(), ElementsAre("post 100 in 0 of 1"));
  EXPECT_TRUE(Report(Kind::kDone).has_value());
  EXPECT_EQ(std::get<NcclLandedFrame>(channel_.TakeFrames().at(0)).batches, 3u);
}

TEST_F(NcclReceiveChannelTest, APauseWithoutBatchesInFlightIsReadyAtOnce) {
  Open();
  ASSERT_TRUE(Batch(0).ok());
  Report(Kind::kDone);
  channel_.TakeFrames();
  ASSERT_TRUE(Stop(/*closed=*/false).ok());
  EXPECT_THAT(TakeNames(channel_), ElementsAre("NcclStop", "NcclReady"));
}

TEST_F(NcclReceiveChannelTest, AnNcclErrorClosesTheChannelAndANewOfferComesLater) {
  Open();
  ASSERT_TRUE(Batch(0).ok());
  driver_.Take();
  Report(Kind::kFailed, absl::UnavailableError("broken"));
  EXPECT_THAT(driver_.Take(), ElementsAre("abort 1"));
  const NcclStopFrame stop = TakeStop();
  EXPECT_TRUE(stop.closed);
  EXPECT_EQ(stop.landed, 0u);
  EXPECT_EQ(stop.reason, "broken");
  EXPECT_TRUE(Batch(1).ok());               // the sender does not know yet
  EXPECT_TRUE(Stop(/*closed=*/true).ok());  // still does not know
  EXPECT_THAT(TakeNames(channel_), IsEmpty());
  Later(29'999);
  EXPECT_THAT(TakeNames(channel_), IsEmpty());
  Later(1);
  EXPECT_THAT(TakeNames(channel_), ElementsAre("NcclOffer"));
  EXPECT_TRUE(Batch(2).ok());  // still ignored
  ASSERT_TRUE(Join().ok());
  EXPECT_THAT(driver_.Take(), ElementsAre("create 2 as 1 with an id"));
  Report(Kind::kReady);
  ASSERT_TRUE(Batch(0).ok());
  EXPECT_THAT(driver_.Take(), ElementsAre("post 100 in 0 of 2"));
}

TEST_F(NcclReceiveChannelTest, ASenderThatClosesGetsTheLandedBatches) {
  Open();
  ASSERT_TRUE(Batch(0).ok());
  ASSERT_TRUE(Batch(1).ok());
  Report(Kind::kDone);
  channel_.TakeFrames();
  driver_.Take();
  ASSERT_TRUE(Stop(/*closed=*/true).ok());
  EXPECT_THAT(driver_.Take(), ElementsAre("abort 1"));
  const NcclStopFrame stop = TakeStop();
  EXPECT_TRUE(stop.closed);
  EXPECT_EQ(stop.landed, 1u);
  EXPECT_FALSE(Report(Kind::kDone).has_value());  // reported before the abort
}

TEST_F(NcclReceiveChannelTest, ACommunicatorThatIsNotMadeInTimeIsAborted) {
  channel_.Offer();
  ASSERT_TRUE(Join().ok());
  driver_.Take();
  channel_.TakeFrames();
  Later(9'999);
  EXPECT_THAT(driver_.Take(), IsEmpty());
  Later(1);
  EXPECT_THAT(driver_.Take(), ElementsAre("abort 1"));
  EXPECT_TRUE(TakeStop().closed);
  EXPECT_EQ(channel_.TakeFallbacks().size(), 1u);
}

TEST_F(NcclReceiveChannelTest, ARefusedOfferIsNotRepeated) {
  channel_.Offer();
  channel_.TakeFrames();
  ASSERT_TRUE(Stop(/*closed=*/true).ok());
  EXPECT_THAT(channel_.TakeFallbacks(), ElementsAre(absl::UnavailableError("sender: r")));
  EXPECT_EQ(channel_.NextTimerUs(), kNever);
  EXPECT_FALSE(Join().ok());
}

TEST_F(NcclReceiveChannelTest, DestructionAbortsTheCommunicator) {
  {
    NcclReceiveChannel channel(PeerId(6), options_, kScriptedVersion, /*least_bytes=*/1,
                               kScriptedBlockBytes, driver_);
    channel.Offer();
    ASSERT_TRUE(channel.OnFrame(NcclJoinFrame{std::string(kNcclUniqueIdBytes, 'u')}, 0).ok());
    driver_.Take();
  }
  EXPECT_THAT(driver_.Take(), ElementsAre("abort 1"));
}

// Slices of layers that belong to no KV group of the block have no bytes. The operation has one.
TEST(NcclReceiveChannel, ABatchMayHaveNoPayload) {
  NotedDriver driver;
  const NcclOptions options = ScriptedNccl();
  NcclReceiveChannel channel(PeerId(5), options, kScriptedVersion, /*least_bytes=*/0,
                             kScriptedBlockBytes, driver);
  channel.Offer();
  ASSERT_TRUE(channel.OnFrame(NcclJoinFrame{std::string(kNcclUniqueIdBytes, 'u')}, 0).ok());
  channel.OnReport(driver.Report(Kind::kReady, {}), 0);
  driver.Take();
  ASSERT_TRUE(channel.OnFrame(NcclBatchFrame{.sequence = 0, .blocks = {BlockFrame{}}}, 0).ok());
  EXPECT_THAT(driver.Take(), ElementsAre("post 1 in 0 of 1"));
}

TEST_F(NcclReceiveChannelTest, InvalidFramesFailByName) {
  const auto said = [](const absl::Status& status) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(said(Join()), HasSubstr("without an open offer"));
  EXPECT_THAT(said(Batch(0)), HasSubstr("before the communicator is ready"));
  EXPECT_THAT(said(Say(NcclLandedFrame{1})), HasSubstr("unexpected NcclLanded"));
  Open();
  EXPECT_THAT(said(Join()), HasSubstr("without an open offer"));
  EXPECT_THAT(said(Batch(1)), HasSubstr("sequence 1, expected 0"));
  EXPECT_THAT(said(Batch(0, {})), HasSubstr("0 blocks with 0 bytes, limit 250"));
  EXPECT_THAT(said(Batch(0, {0})), HasSubstr("payload_bytes 0 of block 0 is outside [1, 100]"));
  EXPECT_THAT(said(Batch(0, {101})), HasSubstr("payload_bytes 101"));
  EXPECT_THAT(said(Batch(0, {100, 100, 51})), HasSubstr("3 blocks with 251 bytes, limit 250"));
  ASSERT_TRUE(Batch(0).ok());
  ASSERT_TRUE(Batch(1).ok());
  EXPECT_THAT(said(Batch(2)), HasSubstr("2 batches are in flight, which is the limit"));
}

TEST_F(NcclReceiveChannelTest, APauseBeforeTheChannelIsOpenIsAProtocolError) {
  channel_.Offer();
  ASSERT_TRUE(Join().ok());
  EXPECT_EQ(Stop(/*closed=*/false).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace baton
