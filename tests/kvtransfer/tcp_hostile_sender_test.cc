// The TCP transport as a receiver of peers that lie, stall, vanish or send garbage.

#include <optional>
#include <random>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvtransfer/sockets/tcp_options.h"
#include "tests/kvtransfer/hostile_peer.h"

namespace baton {
namespace {

using ::testing::HasSubstr;
using Kind = TransferEvent::Kind;

class HostileSender : public ::testing::Test {
 protected:
  explicit HostileSender(TcpOptions tcp = kPatient) : b_{Tcp(tcp), {}, 2} {}

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
  // Checks that the transport still serves an honest peer.
  void ExpectAlive() {
    RawPeer honest(b_.transport().address());
    honest.Hello();
  }

  TestWorker b_;
  std::optional<RawPeer> peer_;
};

class StalledSender : public HostileSender {
 protected:
  StalledSender()
      : HostileSender({.handshake_timeout_ms = 60'000,
                       .frame_timeout_ms = 300,
                       .silence_timeout_ms = 60'000}) {}
};

class SilentSender : public HostileSender {
 protected:
  SilentSender() : HostileSender({.handshake_timeout_ms = 60'000, .frame_timeout_ms = 60'000}) {}
};

class SlowGreeting : public HostileSender {
 protected:
  SlowGreeting() : HostileSender({.handshake_timeout_ms = 300}) {}
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
    const auto piece = static_cast<int32_t>(at / PieceValidBytes(b_.layout(), {}, 16));
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("block 1 " + PieceName(b_.layout(), PieceAt(piece))));
    const auto abort = peer_->Read<AbortFrame>();
    ASSERT_TRUE(abort.has_value());
    EXPECT_EQ(abort->code, absl::StatusCode::kDataLoss);
  }
}

TEST_F(HostileSender, WrongBlockFieldsFailTheTransferAndKeepTheConnection) {
  const std::function<void(BlockFrame&)> lies[] = {
      [](BlockFrame& f) { f.block = 2; },
      [](BlockFrame& f) { f.block = 0; },  // a repeated block
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
    // The stream is still in sync: the next transfer works on the same connection.
    ASSERT_TRUE(b_.transport().Expect(Spec(id + 100)).ok());
    peer_->Send(Announcement(id + 100));
    ASSERT_TRUE(peer_->Read<PullFrame>().has_value());
    for (int32_t i = 0; i < 3; ++i) SendBlock(Block(id + 100, i));
    EXPECT_EQ(b_.WaitReceived(id + 100).kind, Kind::kReceived);
  }
}

TEST_F(HostileSender, UnrequestedBlocksAreDropped) {
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

TEST_F(HostileSender, ASecondSenderOfATransferIsRefusedAndTheFirstContinues) {
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
      [](AnnounceFrame& f) { f.block_count = 4; }, [](AnnounceFrame& f) { f.available = 2; },
      [](AnnounceFrame& f) { f.window_first_blocks = {0}; }};
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

TEST_F(StalledSender, IsCutInsideAFrame) {
  for (const size_t cut : {size_t{7}, size_t{30}, size_t{700}}) {
    SCOPED_TRACE(cut);
    Begin(cut);
    const RawBlock whole = Block(cut, 0);
    peer_->SendBytes((EncodeFrame(whole.frame) + whole.payload).substr(0, cut));
    EXPECT_TRUE(peer_->Closed());
    EXPECT_EQ(ReceiveStatus(cut).code(), absl::StatusCode::kUnavailable);
  }
}

TEST_F(SilentSender, IsDetectedWhileATransferIsOpen) {
  Begin(1);
  const absl::Status status = ReceiveStatus(1);  // the peer answers no ping
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("nothing heard"));
}

TEST_F(SlowGreeting, GetsNoFurtherThanTheHandshakeDeadline) {
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
  EXPECT_TRUE(IsHeard([this] { return RawPeer(b_.transport().address()); }));
}

TEST_F(SlowGreeting, OfGarbageEndsTheConnectionOnly) {
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
  EXPECT_TRUE(IsHeard([this] { return RawPeer(b_.transport().address()); }));
}

TEST_F(HostileSender, FramesOfAReceiverAndASecondHelloEndTheConnection) {
  for (const Frame& frame :
       std::initializer_list<Frame>{PullFrame{}, DoneFrame{}, HelloFrame{}, HelloReplyFrame{}}) {
    RawPeer peer(b_.transport().address());
    peer.Hello();
    peer.Send(frame);
    EXPECT_TRUE(peer.Closed()) << FrameName(frame);
  }
  ExpectAlive();
}

TEST_F(HostileSender, AnImpossiblePoolIsRefusedByNameOnTheWire) {
  const auto reason = [this](const std::function<void(KvFingerprint&)>& change) {
    RawPeer peer(b_.transport().address());
    KvFingerprint other = MakeFingerprint({});
    change(other);
    peer.Send(HelloFrame{.fingerprint = other, .epoch = Epoch(1), .node = "raw"});
    const auto reply = peer.Read<HelloReplyFrame>();
    EXPECT_TRUE(reply.has_value() && !reply->accepted);
    EXPECT_TRUE(peer.Closed());
    return reply.has_value() ? reply->reason : "";
  };
  EXPECT_EQ(reason([](KvFingerprint& f) { f.block_size = 0; }),
            "block_size 0 is not a power of two in [1, 128]");
  EXPECT_EQ(reason([](KvFingerprint& f) { f.block_size = -16; }),
            "block_size -16 is not a power of two in [1, 128]");
  EXPECT_EQ(reason([](KvFingerprint& f) { f.block_size = 24; }),
            "block_size 24 is not a power of two in [1, 128]");
  EXPECT_EQ(reason([](KvFingerprint& f) { f.block_size = 256; }),
            "block_size 256 is not a power of two in [1, 128]");
  EXPECT_EQ(reason([](KvFingerprint& f) { f.layout = "diagonal"; }),
            "layout \"diagonal\" is neither block-major nor layer-major");
  EXPECT_EQ(reason([](KvFingerprint& f) { f.layers = INT32_MAX; }),
            "layers: ours 3, theirs 2147483647");
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
  EXPECT_EQ(reply->epoch, Epoch(0)) << "a refused peer learns no epoch";
  EXPECT_TRUE(peer.Closed());
}

}  // namespace
}  // namespace baton
