// The TCP transport against peers that lie, stall, vanish or send garbage. What it does with honest
// ones: transport_contract_test.cc.

#include <random>
#include <thread>

#include "common/crc32c.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvtransfer/transport.h"
#include "tests/kvtransfer/raw_peer.h"
#include "tests/kvtransfer/transfer_test_worker.h"

namespace baton {
namespace {

using ::testing::HasSubstr;
using Kind = TransferEvent::Kind;

constexpr int32_t kTokens = 40;  // three blocks of 16, the last part full

TransportFactory Tcp(TcpOptions tcp = {}, std::string listen = "127.0.0.1:0") {
  return [=](TransportOptions options) {
    return CreateTcpTransport(listen, "", std::move(options), tcp);
  };
}

ReceiveSpec Spec(uint64_t id) {
  return {.transfer_id = id, .blocks = MakeBlocks(5, 3), .tokens = kTokens};
}

AnnounceFrame Announcement(uint64_t id) {
  return {.transfer_id = id,
          .receiver_epoch = Epoch(2),
          .sender_transfer = 1,
          .first_block = 0,
          .block_count = 3,
          .tokens = kTokens,
          .available = 3,
          .final = true,
          .manifest = "m"};
}

HelloReplyFrame Accept(uint64_t epoch) {
  return {.accepted = true, .epoch = Epoch(epoch), .reason = ""};
}

struct RawBlock {
  BlockFrame frame;
  std::string payload;
};

RawBlock MakeRawBlock(const KvLayout& layout, uint64_t id, int32_t block) {
  const int32_t valid = ValidTokens(layout, kTokens, block);
  RawBlock raw{{.transfer_id = id,
                .receiver_epoch = Epoch(2),
                .sender_transfer = 1,
                .block = block,
                .valid_tokens = valid,
                .payload_bytes = BlockValidBytes(layout, valid),
                .piece_crcs = {}},
               {}};
  const size_t piece_bytes = PieceValidBytes(layout, valid);
  for (int32_t piece = 0; piece < PieceCount(layout); ++piece) {
    const std::string bytes(piece_bytes, static_cast<char>('a' + piece + block));
    raw.frame.piece_crcs.push_back(Crc32c(bytes));
    raw.payload += bytes;
  }
  return raw;
}

class HostileSender : public ::testing::Test {
 protected:
  void Begin(uint64_t id) {
    ASSERT_TRUE(b_.transport().Expect(Spec(id)).ok());
    peer_.emplace(b_.transport().address());
    peer_->Hello();
    peer_->Send(Announcement(id));
    const auto pull = peer_->Read<PullFrame>();
    ASSERT_TRUE(pull.has_value());
    EXPECT_EQ(pull->first, 0);
    EXPECT_EQ(pull->count, 3);
  }
  void SendBlock(const RawBlock& raw) {
    peer_->Send(raw.frame);
    peer_->SendBytes(raw.payload);
  }
  RawBlock Block(uint64_t id, int32_t block) { return MakeRawBlock(b_.layout(), id, block); }
  absl::Status ReceiveStatus(uint64_t id) {
    const TransferEvent event = b_.WaitReceived(id);
    EXPECT_EQ(event.kind, Kind::kReceiveFailed);
    EXPECT_EQ(b_.TerminalEvents(id, true), 1);
    return event.status;
  }
  // The transport still serves an honest peer.
  void ExpectAlive() {
    RawPeer honest(b_.transport().address());
    honest.Hello();
  }

  TestWorker b_{Tcp({.handshake_timeout_ms = 300, .frame_timeout_ms = 300}), {}, 2};
  std::optional<RawPeer> peer_;
};

TEST_F(HostileSender, AnHonestRawPeerSucceeds) {
  Begin(1);
  for (int32_t i = 0; i < 3; ++i) SendBlock(Block(1, i));
  EXPECT_TRUE(peer_->Read<DoneFrame>().has_value());
  const TransferEvent event = b_.WaitReceived(1);
  EXPECT_EQ(event.kind, Kind::kReceived) << event.status;
  EXPECT_EQ(event.manifest, "m");
}

TEST_F(HostileSender, AFlippedPayloadBitIsNamedByLayerKindAndBlock) {
  constexpr uint32_t kSeed = 5;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  for (uint64_t id = 1; id <= 20; ++id) {
    Begin(id);
    SendBlock(Block(id, 0));
    RawBlock bad = Block(id, 1);
    const size_t at = random() % bad.payload.size();
    bad.payload[at] ^= static_cast<char>(1 << random() % 8);
    SendBlock(bad);
    const absl::Status status = ReceiveStatus(id);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    const auto piece = static_cast<int32_t>(at / PieceValidBytes(b_.layout(), 16));
    EXPECT_THAT(std::string(status.message()), HasSubstr("block 1 " + PieceName(piece)));
    const auto abort = peer_->Read<AbortFrame>();
    ASSERT_TRUE(abort.has_value());
    EXPECT_EQ(abort->code, absl::StatusCode::kDataLoss);
  }
}

TEST_F(HostileSender, WrongBlockFieldsFailTheTransferAndKeepTheConnection) {
  const std::function<void(BlockFrame&)> lies[] = {
      [](BlockFrame& f) { f.block = 2; },
      [](BlockFrame& f) { f.block = 0; },  // again
      [](BlockFrame& f) { f.block = 1 << 30; },
      [](BlockFrame& f) { f.valid_tokens = 7; },
      [](BlockFrame& f) { f.payload_bytes -= 1; },
      [](BlockFrame& f) { f.piece_crcs.pop_back(); },
      [](BlockFrame& f) { f.piece_crcs.push_back(1); },
      [](BlockFrame& f) { f.receiver_epoch = Epoch(1); },
      [](BlockFrame& f) { f.piece_crcs[3] ^= 1; },
  };
  uint64_t id = 0;
  for (const auto& lie : lies) {
    SCOPED_TRACE(++id);
    Begin(id);
    SendBlock(Block(id, 0));
    RawBlock bad = Block(id, 1);
    lie(bad.frame);
    bad.payload.resize(bad.frame.payload_bytes);
    SendBlock(bad);
    EXPECT_FALSE(ReceiveStatus(id).ok());
    ASSERT_TRUE(peer_->Read<AbortFrame>().has_value());
    // The stream is still in step: the next transfer works on the same connection.
    ASSERT_TRUE(b_.transport().Expect(Spec(id + 100)).ok());
    peer_->Send(Announcement(id + 100));
    ASSERT_TRUE(peer_->Read<PullFrame>().has_value());
    for (int32_t i = 0; i < 3; ++i) SendBlock(Block(id + 100, i));
    EXPECT_EQ(b_.WaitReceived(id + 100).kind, Kind::kReceived);
  }
}

TEST_F(HostileSender, BlocksNobodyAskedForAreThrownAway) {
  Begin(1);
  SendBlock(Block(77, 0));  // no such transfer
  RawPeer other(b_.transport().address());
  other.Hello();
  RawBlock stolen = Block(1, 0);  // a transfer of another connection
  std::fill(stolen.payload.begin(), stolen.payload.end(), 'X');
  other.Send(stolen.frame);
  other.SendBytes(stolen.payload);
  for (int32_t i = 0; i < 3; ++i) SendBlock(Block(1, i));
  EXPECT_EQ(b_.WaitReceived(1).kind, Kind::kReceived);
}

TEST_F(HostileSender, ASecondSenderOfATransferIsRefusedAndTheFirstGoesOn) {
  Begin(1);
  RawPeer other(b_.transport().address());
  other.Hello();
  other.Send(Announcement(1));
  const auto abort = other.Read<AbortFrame>();
  ASSERT_TRUE(abort.has_value());
  EXPECT_EQ(abort->code, absl::StatusCode::kFailedPrecondition);
  for (int32_t i = 0; i < 3; ++i) SendBlock(Block(1, i));
  EXPECT_EQ(b_.WaitReceived(1).kind, Kind::kReceived);
}

TEST_F(HostileSender, APayloadLongerThanABlockEndsTheConnection) {
  Begin(1);
  RawBlock bad = Block(1, 0);
  bad.frame.payload_bytes = int64_t{1} << 40;
  peer_->Send(bad.frame);
  EXPECT_TRUE(peer_->Closed());
  EXPECT_FALSE(ReceiveStatus(1).ok());
  ExpectAlive();
}

TEST_F(HostileSender, AnAnnouncementThatDoesNotFitFails) {
  const std::function<void(AnnounceFrame&)> lies[] = {
      [](AnnounceFrame& f) { f.first_block = 1; }, [](AnnounceFrame& f) { f.tokens = 41; },
      [](AnnounceFrame& f) { f.block_count = 4; }, [](AnnounceFrame& f) { f.available = 2; }};
  uint64_t id = 0;
  for (const auto& lie : lies) {
    SCOPED_TRACE(++id);
    ASSERT_TRUE(b_.transport().Expect(Spec(id)).ok());
    RawPeer peer(b_.transport().address());
    peer.Hello();
    AnnounceFrame frame = Announcement(id);
    lie(frame);
    peer.Send(frame);
    EXPECT_EQ(ReceiveStatus(id).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(peer.Read<AbortFrame>().has_value());
  }
}

TEST_F(HostileSender, AFrameCutAnywhereFailsTheTransferWhenThePeerVanishes) {
  const RawBlock block = MakeRawBlock(b_.layout(), 1, 0);
  const size_t length = EncodeFrame(block.frame).size() + block.payload.size();
  uint64_t id = 0;
  for (size_t cut = 0; cut < length; cut += 97) {
    ++id;
    SCOPED_TRACE(cut);
    Begin(id);
    const RawBlock whole = Block(id, 0);
    peer_->SendBytes((EncodeFrame(whole.frame) + whole.payload).substr(0, cut));
    if (id % 2 == 0) {
      peer_->Reset();
    } else {
      peer_->Close();
    }
    EXPECT_EQ(ReceiveStatus(id).code(), absl::StatusCode::kUnavailable);
  }
  ExpectAlive();
}

TEST_F(HostileSender, AStallInsideAFrameIsCut) {
  for (const size_t cut : {size_t{7}, size_t{30}, size_t{700}}) {
    SCOPED_TRACE(cut);
    Begin(cut);
    const RawBlock whole = Block(cut, 0);
    peer_->SendBytes((EncodeFrame(whole.frame) + whole.payload).substr(0, cut));
    EXPECT_TRUE(peer_->Closed());
    EXPECT_EQ(ReceiveStatus(cut).code(), absl::StatusCode::kUnavailable);
  }
}

TEST_F(HostileSender, ASilentPeerWithAnOpenTransferIsFound) {
  Begin(1);
  const absl::Status status = ReceiveStatus(1);  // it answers no ping
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("nothing heard"));
}

TEST_F(HostileSender, ASlowLorisGetsNoFurtherThanTheHandshakeDeadline) {
  RawPeer slow(b_.transport().address());
  const std::string hello = EncodeFrame(
      HelloFrame{.fingerprint = MakeFingerprint({}), .epoch = Epoch(1), .node = "slow"});
  std::thread drip([&] {
    for (const char c : hello) {
      slow.SendBytes(std::string(1, c));
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
  EXPECT_TRUE(slow.Closed());
  drip.join();
  RawPeer mute(b_.transport().address());
  EXPECT_TRUE(mute.Closed());
  ExpectAlive();
}

TEST_F(HostileSender, GarbageEndsTheConnectionOnly) {
  constexpr uint32_t kSeed = 11;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  std::vector<std::string> openings = {"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
                                       std::string(100, '\0'),
                                       std::string(100, '\xff'),
                                       EncodeFrame(PingFrame{}),
                                       EncodeFrame(Announcement(1)),
                                       EncodeFrame(Accept(0))};
  const std::string hello =
      EncodeFrame(HelloFrame{.fingerprint = MakeFingerprint({}), .epoch = Epoch(1), .node = "raw"});
  for (int i = 0; i < 40; ++i) {
    std::string flipped = hello;
    flipped[random() % flipped.size()] ^= static_cast<char>(1 << random() % 8);
    openings.push_back(flipped);
  }
  for (const std::string& opening : openings) {
    RawPeer peer(b_.transport().address());
    peer.SendBytes(opening);
    EXPECT_TRUE(peer.Closed());
  }
  // Once open, frames that only a receiver may send, and a second Hello.
  for (const Frame& frame :
       std::initializer_list<Frame>{PullFrame{}, DoneFrame{}, HelloFrame{}, HelloReplyFrame{}}) {
    RawPeer peer(b_.transport().address());
    peer.Hello();
    peer.Send(frame);
    EXPECT_TRUE(peer.Closed()) << FrameName(frame);
  }
  ExpectAlive();
}

TEST_F(HostileSender, AnotherFingerprintIsRefusedByNameOnTheWire) {
  RawPeer peer(b_.transport().address());
  KvFingerprint other = MakeFingerprint({});
  other.kv_type = "f32";
  peer.Send(HelloFrame{.fingerprint = other, .epoch = Epoch(1), .node = "raw"});
  const auto reply = peer.Read<HelloReplyFrame>();
  ASSERT_TRUE(reply.has_value());
  EXPECT_FALSE(reply->accepted);
  EXPECT_EQ(reply->reason, "kv_type: ours f16, theirs f32");
  EXPECT_EQ(reply->epoch, Epoch(0)) << "a stranger learns no epoch";
  EXPECT_TRUE(peer.Closed());
}

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

// A listener of the test's own plays the receiver.
class HostileReceiver : public ::testing::Test {
 protected:
  // The sender's next connection.
  RawPeer Next() {
    pollfd wait{listener_.get(), POLLIN, 0};
    EXPECT_EQ(poll(&wait, 1, 10'000), 1) << "nobody connects";
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
  // Starts a send of three blocks on a new connection; returns that after the Hello.
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
  TestWorker a_{Tcp({.handshake_timeout_ms = 300, .frame_timeout_ms = 300}), {}, 1};
};

TEST_F(HostileReceiver, LiesInPullAndDoneFailTheTransfer) {
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

TEST_F(HostileReceiver, NoHandshakeOrGarbageFailsTheTransfer) {
  RawPeer mute = Begin(1);
  EXPECT_EQ(SendCode(1), absl::StatusCode::kUnavailable);
  RawPeer loud = Begin(2);
  loud.SendBytes(std::string(64, 'x'));
  EXPECT_EQ(SendCode(2), absl::StatusCode::kInvalidArgument);
  RawPeer gone = Begin(3);
  gone.Close();
  EXPECT_EQ(SendCode(3), absl::StatusCode::kUnavailable);
}

TEST_F(HostileReceiver, AReceiverThatFallsSilentIsFound) {
  RawPeer peer = BeginOpen(1);
  EXPECT_EQ(SendCode(1), absl::StatusCode::kUnavailable);
}

TEST_F(HostileReceiver, BlocksAreNotReadAfterACancelInTheMiddleOfOne) {
  // Blocks far larger than the socket's buffers, and a receiver that does not read: the sender is
  // stuck inside a block.
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
  for (int32_t i = 0; i < 3; ++i) a.FillRaw(BlockId(i), std::byte{0xDD});  // ours again
  std::string payload;
  ASSERT_TRUE(peer.ReadBytes(block->payload_bytes, payload));
  const size_t piece = PieceValidBytes(a.layout(), 128);
  for (size_t i = 0; i < block->piece_crcs.size(); ++i) {
    EXPECT_EQ(Crc32c(std::string_view(payload).substr(i * piece, piece)), block->piece_crcs[i]);
  }
  const auto abort = peer.Read<AbortFrame>();
  ASSERT_TRUE(abort.has_value());
  EXPECT_EQ(abort->code, absl::StatusCode::kCancelled);
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
