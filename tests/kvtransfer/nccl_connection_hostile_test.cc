// NCCL connections with a sender that breaks the protocol, and with a receiver that is slow to
// offer.
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

// The test's own listener acts as a receiver. It accepts the sender, and makes no offer yet.
class SlowNcclReceiver : public NcclConnectionTest {
 protected:
  // Returns the connection when the sender has read the greeting and announced its blocks.
  RawPeer Greet() {
    const TransferTicket ticket{.transfer_id = 41,
                                .receiver_epoch = Epoch(2),
                                .address = FormatTcpAddress(*LocalAddress(listener_)),
                                .block_count = 3};
    EXPECT_TRUE(
        a_.transport().StartSend({.sender_transfer = 1, .ticket = ticket, .tokens = kTokens}).ok());
    a_.transport().Announce(1, MakeBlocks(0, 3), true, "m");
    pollfd wait{listener_.get(), POLLIN, 0};
    EXPECT_EQ(poll(&wait, 1, 10'000), 1) << "the sender does not connect";
    RawPeer peer(FileDescriptor(accept(listener_.get(), nullptr, nullptr)));
    EXPECT_TRUE(peer.Read<HelloFrame>().has_value());
    peer.Send(Accept(2));
    EXPECT_TRUE(peer.Read<AnnounceFrame>().has_value());
    return peer;
  }

  const PullFrame pull_{.transfer_id = 41, .sender_transfer = 1, .first = 0, .count = 3};
  FileDescriptor listener_ = *ListenTcp(*ResolveHostPort("127.0.0.1:0"));
  TestWorker a_{Nccl(fallbacks_.Into(PatientNccl())), {}, 1};
};

// The offer precedes all pulls. So a sender without a pull does not know yet whether one comes.
TEST_F(SlowNcclReceiver, AnOfferThatComesLongAfterTheGreetingIsNoFallback) {
  RawPeer peer = Greet();
  EXPECT_TRUE(fallbacks_.seen().empty()) << fallbacks_.seen().front();
  peer.Send(NcclOfferFrame{.nccl_version = 22809, .window = 1, .batch_bytes = Bytes(a_, 1)});
  peer.Send(pull_);
  EXPECT_TRUE(Eventually([&] { return sender().create_calls == 1; }));
  EXPECT_TRUE(fallbacks_.seen().empty()) << fallbacks_.seen().front();
}

TEST_F(SlowNcclReceiver, APullBeforeAnOfferShowsThatNoneComes) {
  RawPeer peer = Greet();
  EXPECT_TRUE(fallbacks_.seen().empty()) << fallbacks_.seen().front();
  peer.Send(pull_);
  EXPECT_TRUE(peer.Read<BlockFrame>().has_value());
  ASSERT_EQ(fallbacks_.seen().size(), 1u);
  EXPECT_THAT(std::string(fallbacks_.seen()[0].message()),
              HasSubstr("the receiver offers no NCCL"));
}

}  // namespace
}  // namespace baton
