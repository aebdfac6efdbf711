// NCCL connections with a sender that breaks the protocol.
#include <optional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvtransfer/nccl/nccl_connection.h"
#include "tests/kvtransfer/nccl_connection_fixture.h"

namespace baton {
namespace {

using Kind = TransferEvent::Kind;
using ::testing::HasSubstr;

class HostileNcclSender : public NcclConnectionTest {
 protected:
  HostileNcclSender() {
    peer_.emplace(b_.transport().address());
    peer_->Hello();
    EXPECT_TRUE(peer_->Read<NcclOfferFrame>().has_value());
  }
  // Acts as a sender that creates its rank of the communicator but sends nothing.
  void JoinAndBeReady() {
    sender().hangs_at_operation = 0;
    NcclUniqueId id{};
    ASSERT_EQ(GetUniqueId(&id), kNcclSuccess);
    NcclConfig config;
    config.blocking = 0;
    ASSERT_EQ(Create(&comm_, 2, id, kNcclSenderRank, &config), kNcclInProgress);
    peer_->Send(NcclJoinFrame{std::string(id.internal, sizeof(id.internal))});
    ASSERT_TRUE(peer_->Read<NcclReadyFrame>().has_value());
  }
  ~HostileNcclSender() override {
    if (comm_ != nullptr) api_.CommAbort(comm_);
  }
  NcclResult GetUniqueId(NcclUniqueId* id) { return api_.GetUniqueId(id); }
  NcclResult Create(NcclComm** comm, int ranks, NcclUniqueId id, int rank, NcclConfig* config) {
    return api_.CommInitRankConfig(comm, ranks, id, rank, config);
  }

  const NcclApi api_ = *LoadNccl({FakeNcclPath()});
  TestWorker b_{Nccl(PatientNccl()), {}, 2};
  std::optional<RawPeer> peer_;
  NcclComm* comm_ = nullptr;
};

TEST_F(HostileNcclSender, FramesOutOfTurnEndTheConnection) {
  const RawBlock raw = MakeRawBlock(b_.layout(), 1, 0);
  for (const Frame& frame :
       std::vector<Frame>{NcclBatchFrame{.sequence = 0, .blocks = {raw.frame}},
                          NcclOfferFrame{.nccl_version = 22809, .window = 1, .batch_bytes = 1},
                          NcclReadyFrame{}, NcclLandedFrame{.batches = 1}}) {
    SCOPED_TRACE(FrameName(frame));
    RawPeer peer(b_.transport().address());
    peer.Hello();
    peer.Send(frame);
    EXPECT_TRUE(peer.Closed());
  }
}

TEST_F(HostileNcclSender, AUniqueIdOfTheWrongSizeEndsTheConnection) {
  std::string bytes = EncodeFrame(NcclJoinFrame{std::string(kNcclUniqueIdBytes, 'u')});
  bytes.pop_back();
  const std::string body = std::string("\x7f\0\0\0", 4) + std::string(127, 'u');
  const auto put = [&](size_t at, uint32_t value) {
    for (int i = 0; i < 4; ++i) bytes[at + i] = static_cast<char>(value >> (8 * i));
  };
  bytes.replace(kFrameHeaderBytes, std::string::npos, body);
  put(8, static_cast<uint32_t>(body.size()));
  put(12, Crc32c(body));
  put(16, Crc32c(std::string_view(bytes).substr(0, 16)));
  peer_->SendBytes(bytes);
  EXPECT_TRUE(peer_->Closed());
  EXPECT_EQ(receiver().created, 0);
}

TEST_F(HostileNcclSender, WrongCountsEndTheConnection) {
  RawBlock raw = MakeRawBlock(b_.layout(), 1, 0);
  const std::vector<std::function<void(NcclBatchFrame&)>> lies = {
      [](NcclBatchFrame& batch) { batch.sequence = 1; },
      [](NcclBatchFrame& batch) { batch.blocks.clear(); },
      [](NcclBatchFrame& batch) { batch.blocks[0].payload_bytes = 0; },
      [&](NcclBatchFrame& batch) { batch.blocks[0].payload_bytes = Bytes(b_, 1) + 1; }};
  for (size_t i = 0; i < lies.size(); ++i) {
    SCOPED_TRACE(i);
    peer_.emplace(b_.transport().address());
    peer_->Hello();
    JoinAndBeReady();
    NcclBatchFrame batch{.sequence = 0, .blocks = {raw.frame}};
    lies[i](batch);
    peer_->Send(batch);
    EXPECT_TRUE(peer_->Closed());
    api_.CommAbort(std::exchange(comm_, nullptr));
  }
}

TEST_F(HostileNcclSender, MoreBatchesThanTheWindowEndTheConnection) {
  JoinAndBeReady();
  const RawBlock raw = MakeRawBlock(b_.layout(), 1, 0);
  for (uint64_t i = 0; i < 3; ++i)
    peer_->Send(NcclBatchFrame{.sequence = i, .blocks = {raw.frame}});
  EXPECT_TRUE(peer_->Closed());
  EXPECT_TRUE(Eventually([&] { return receiver().aborted == 1; }));
}

TEST_F(HostileNcclSender, ABatchForATransferThatIsNotExpectedPublishesNothing) {
  JoinAndBeReady();
  const RawBlock raw = MakeRawBlock(b_.layout(), 77, 0);
  peer_->Send(NcclBatchFrame{.sequence = 0, .blocks = {raw.frame}});
  EXPECT_TRUE(Eventually([&] { return receiver().operations == 1; }));
  TestWorker a(Nccl(PatientNccl()), {}, 1);
  sender().hangs_at_operation = -1;
  Deliver(a, b_, 1);  // on its own connection
  EXPECT_EQ(b_.TerminalEvents(77, true), 0);
}

}  // namespace
}  // namespace baton
