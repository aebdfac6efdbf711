// The TCP transport's connections: whom it lets in, for how long, and how it comes back. What it
// does with honest peers: transport_contract_test.cc; with hostile ones: tcp_hostile_*_test.cc.

#include <optional>
#include <string>

#include "gtest/gtest.h"
#include "tests/kvtransfer/hostile_peer.h"

namespace baton {
namespace {

using Kind = TransferEvent::Kind;

// Only the header comes: its type alone ends the connection, long before the deadline.
TEST(TcpTransport, AStrangersFirstHeaderMustBeAHello) {
  TestWorker b(Tcp({.handshake_timeout_ms = 3'600'000, .frame_timeout_ms = 3'600'000}), {}, 2);
  RawPeer peer(b.transport().address());
  peer.SendBytes(EncodeFrame(Announcement(1)).substr(0, kFrameHeaderBytes));
  EXPECT_TRUE(peer.Closed());
}

TEST(TcpTransport, AnAcceptedConnectionIsClosedWhenIdleButNotDuringATransfer) {
  TestWorker b(Tcp({.silence_timeout_ms = 3'600'000, .idle_timeout_ms = 50}), {}, 2);
  RawPeer idle(b.transport().address());
  idle.Hello();
  EXPECT_TRUE(idle.Closed());
  ASSERT_TRUE(b.transport().Expect(Spec(1)).ok());
  RawPeer sends(b.transport().address());
  const HelloFrame hello{.fingerprint = MakeFingerprint({}), .epoch = Epoch(1), .node = "raw"};
  sends.SendBytes(EncodeFrame(hello) + EncodeFrame(Announcement(1)));  // at once: never idle
  ASSERT_TRUE(sends.Read<PullFrame>().has_value());
  RawPeer later(b.transport().address());  // its end says that the idle time has passed
  later.Hello();
  EXPECT_TRUE(later.Closed());
  for (int32_t i = 0; i < 3; ++i) {
    const RawBlock raw = MakeRawBlock(b.layout(), 1, i);
    sends.Send(raw.frame);
    sends.SendBytes(raw.payload);
  }
  EXPECT_EQ(b.WaitReceived(1).kind, Kind::kReceived);
  EXPECT_TRUE(sends.Closed());
}

TEST(TcpTransport, ConnectionsPastTheLimitAreClosed) {
  TestWorker b(Tcp({.max_connections = 2}), {}, 2);
  RawPeer first(b.transport().address());
  first.Hello();
  std::optional<RawPeer> second(b.transport().address());
  second->Hello();
  RawPeer third(b.transport().address());
  EXPECT_TRUE(third.Closed());
  second->Close();
  // Room again once the transport has noticed.
  bool accepted = false;
  for (int i = 0; i < 100 && !accepted; ++i) {
    RawPeer next(b.transport().address());
    next.Send(HelloFrame{.fingerprint = MakeFingerprint({}), .epoch = Epoch(1), .node = "raw"});
    accepted = next.Read<HelloReplyFrame>().has_value();
  }
  EXPECT_TRUE(accepted);
}

TEST(TcpTransport, ReconnectsToAReceiverRestartedAtTheSameAddress) {
  TestWorker a(Tcp(), {}, 1);
  std::string listen = "127.0.0.1:0";
  for (uint64_t epoch = 2; epoch < 6; ++epoch) {
    TestWorker b(Tcp({}, listen), {}, epoch);
    listen = b.transport().address().substr(4);
    const ReceiveSpec spec = Spec(epoch);
    ASSERT_TRUE(b.transport().Expect(spec).ok());
    TransferTicket stale = b.Ticket(spec);
    stale.receiver_epoch = Epoch(epoch - 1);
    const auto start = [&](uint64_t id, const TransferTicket& ticket) {
      ASSERT_TRUE(a.transport()
                      .StartSend({.sender_transfer = id, .ticket = ticket, .tokens = kTokens})
                      .ok());
      a.transport().Announce(id, MakeBlocks(0, 3), true, "m");
    };
    // The first may still meet the old connection, which then turns out to be dead.
    start(epoch * 10, stale);
    EXPECT_EQ(a.WaitSent(epoch * 10).kind, Kind::kSendFailed);
    start(epoch * 10 + 1, b.Ticket(spec));
    EXPECT_EQ(a.WaitSent(epoch * 10 + 1).kind, Kind::kSent);
    EXPECT_EQ(b.WaitReceived(epoch).kind, Kind::kReceived);
  }
}

TEST(TcpTransport, RefusesToAdvertiseAWildcard) {
  TransportOptions options;
  std::byte byte{};
  options.pool = {&byte, MakeLayout({})};
  EXPECT_EQ(CreateTcpTransport("0.0.0.0:0", "", options).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(CreateTcpTransport("0.0.0.0:0", "127.0.0.1", options).ok());
  EXPECT_FALSE(CreateTcpTransport("127.0.0.1", "", options).ok());
}

}  // namespace
}  // namespace baton
