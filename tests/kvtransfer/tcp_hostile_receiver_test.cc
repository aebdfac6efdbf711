// The TCP transport as a sender to peers that lie, fall silent or send invalid requests.

#include <string>

#include "gtest/gtest.h"
#include "kvtransfer/sockets/tcp_options.h"
#include "tests/kvtransfer/hostile_peer.h"

namespace baton {
namespace {

using Kind = TransferEvent::Kind;

// The test's own listener acts as the receiver.
class HostileReceiver : public ::testing::Test {
 protected:
  explicit HostileReceiver(TcpOptions tcp = kPatient) : a_{Tcp(tcp), {}, 1} {}

  // Accepts the sender's next connection.
  RawPeer Next() {
    pollfd wait{listener_.get(), POLLIN, 0};
    EXPECT_EQ(poll(&wait, 1, 10'000), 1) << "the sender does not connect";
    return RawPeer(FileDescriptor(accept(listener_.get(), nullptr, nullptr)));
  }
  void Start(uint64_t id) {
    const TransferTicket ticket{.transfer_id = 40 + id,
                                .receiver_epoch = Epoch(2),
                                .address = FormatTcpAddress(*LocalAddress(listener_)),
                                .block_count = 3};
    EXPECT_TRUE(a_.transport()
                    .StartSend({.sender_transfer = id, .ticket = ticket, .tokens = kTokens})
                    .ok());
    a_.transport().Announce(id, MakeBlocks(0, 3), true, "m");
  }
  // Starts a send of three blocks on a new connection. Returns the connection after the Hello.
  RawPeer Begin(uint64_t id) {
    Start(id);
    RawPeer peer = Next();
    EXPECT_TRUE(peer.Read<HelloFrame>().has_value());
    return peer;
  }
  RawPeer BeginOpen(uint64_t id) {
    RawPeer peer = Begin(id);
    peer.Send(Accept(2));
    EXPECT_TRUE(peer.Read<AnnounceFrame>().has_value());
    return peer;
  }
  absl::StatusCode SendCode(uint64_t id) {
    const TransferEvent event = a_.WaitSent(id);
    EXPECT_EQ(event.kind, Kind::kSendFailed);
    EXPECT_EQ(a_.TerminalEvents(id, false), 1);
    return event.status.code();
  }

  FileDescriptor listener_ = *ListenTcp(*ResolveHostPort("127.0.0.1:0"));
  TestWorker a_;
};

class SilentReceiver : public HostileReceiver {
 protected:
  SilentReceiver() : HostileReceiver({.handshake_timeout_ms = 60'000}) {}
};

class MuteReceiver : public HostileReceiver {
 protected:
  MuteReceiver() : HostileReceiver({.handshake_timeout_ms = 300}) {}
};

TEST_F(HostileReceiver, InvalidPullsAndDonesFailTheTransfer) {
  RawPeer peer = BeginOpen(1);
  peer.Send(PullFrame{.transfer_id = 41, .sender_transfer = 1, .first = 0, .count = 4});
  EXPECT_EQ(SendCode(1), absl::StatusCode::kOutOfRange);
  Start(2);  // on the same connection
  ASSERT_TRUE(peer.Read<AnnounceFrame>().has_value());
  peer.Send(PullFrame{.transfer_id = 42, .sender_transfer = 2, .first = 1, .count = 1});
  EXPECT_EQ(SendCode(2), absl::StatusCode::kOutOfRange);
  Start(3);
  ASSERT_TRUE(peer.Read<AnnounceFrame>().has_value());
  peer.Send(DoneFrame{.transfer_id = 43, .sender_transfer = 3});
  EXPECT_EQ(SendCode(3), absl::StatusCode::kFailedPrecondition);
}

TEST_F(HostileReceiver, AnotherEpochInTheReplyFailsTheTransfer) {
  RawPeer peer = Begin(1);
  peer.Send(Accept(3));
  EXPECT_EQ(SendCode(1), absl::StatusCode::kFailedPrecondition);
}

TEST_F(MuteReceiver, FailsTheTransfer) {
  RawPeer mute = Begin(1);
  EXPECT_EQ(SendCode(1), absl::StatusCode::kUnavailable);
}

TEST_F(HostileReceiver, GarbageAndAnEndOfTheConnectionFailTheTransfer) {
  RawPeer loud = Begin(2);
  loud.SendBytes(std::string(64, 'x'));
  EXPECT_EQ(SendCode(2), absl::StatusCode::kInvalidArgument);
  RawPeer gone = Begin(3);
  gone.Close();
  EXPECT_EQ(SendCode(3), absl::StatusCode::kUnavailable);
}

TEST_F(SilentReceiver, IsDetected) {
  RawPeer peer = BeginOpen(1);
  EXPECT_EQ(SendCode(1), absl::StatusCode::kUnavailable);
}

TEST_F(HostileReceiver, BlocksAreNotReadAfterACancelInTheMiddleOfOne) {
  // The blocks are much larger than the socket's buffers, and the receiver does not read. So the
  // sender is stuck inside a block.
  const TestShape shape{
      .block_size = 128, .num_blocks = 3, .layers = 16, .kv_heads = 8, .head_dim = 128};
  TestWorker a(Tcp({.silence_timeout_ms = 20'000}), shape, 1);
  for (int32_t i = 0; i < 3; ++i) a.FillBlock(BlockId(i), 9);
  const TransferTicket ticket{.transfer_id = 50,
                              .receiver_epoch = Epoch(2),
                              .address = FormatTcpAddress(*LocalAddress(listener_)),
                              .block_count = 3};
  ASSERT_TRUE(
      a.transport().StartSend({.sender_transfer = 1, .ticket = ticket, .tokens = 384}).ok());
  a.transport().Announce(1, MakeBlocks(0, 3), true, "m");
  RawPeer peer = Next();
  ASSERT_TRUE(peer.Read<HelloFrame>().has_value());
  peer.Send(Accept(2));
  ASSERT_TRUE(peer.Read<AnnounceFrame>().has_value());
  peer.Send(PullFrame{.transfer_id = 50, .sender_transfer = 1, .first = 0, .count = 3});
  const auto block = peer.Read<BlockFrame>();
  ASSERT_TRUE(block.has_value());
  a.transport().CancelSend(1);
  EXPECT_EQ(a.WaitSent(1).status.code(), absl::StatusCode::kCancelled);
  // The blocks belong to the engine again.
  for (int32_t i = 0; i < 3; ++i) a.FillRaw(BlockId(i), std::byte{0xDD});
  std::string payload;
  ASSERT_TRUE(peer.ReadBytes(block->payload_bytes, payload));
  const size_t piece = PieceValidBytes(a.layout(), {}, 128);
  for (size_t i = 0; i < block->piece_crcs.size(); ++i) {
    EXPECT_EQ(Crc32c(std::string_view(payload).substr(i * piece, piece)), block->piece_crcs[i]);
  }
  const auto abort = peer.Read<AbortFrame>();
  ASSERT_TRUE(abort.has_value());
  EXPECT_EQ(abort->code, absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace baton
