// The shared-memory transport as a receiver of peers that lie, vanish or pass invalid files.

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvtransfer/sockets/create_socket_transport.h"
#include "kvtransfer/sockets/unix_socket.h"
#include "tests/kvtransfer/hostile_peer.h"

namespace baton {
namespace {

using ::testing::HasSubstr;
using Kind = TransferEvent::Kind;

constexpr int32_t kPoolBlocks = 8;

// A sender's end built by the test. Piece p of block b in its pool is filled with 'a' + p + b, as
// in MakeRawBlock. All generations are 0.
// The parameter is the memory of the receiver's pool.
class ShmHostileSender : public ::testing::TestWithParam<PoolMemory> {
 protected:
  explicit ShmHostileSender(TcpOptions tcp = kPatient)
      : b_{WithSharedMemory([this, tcp](TransportOptions options) {
             options.waker = [this, wake = options.waker] {
               unread_when_woken_ = Unread();
               wake();
             };
             return Shm(tcp)(std::move(options));
           }),
           {},
           2} {
    for (int32_t block = 0; block < 3; ++block) {
      for (int32_t piece = 0; piece < PieceCount(layout_); ++piece) {
        std::memset(Piece(block, piece), 'a' + piece + block, layout_.group(0).piece_bytes());
      }
    }
  }

  static TransportFactory Shm(TcpOptions tcp = {}) {
    return [=](TransportOptions options) {
      return CreateSocketTransport(
          {.tcp_listen = "", .tcp_advertise_host = "", .shm_name = UniqueShmName()},
          std::move(options), tcp);
    };
  }
  static TransportSource WithSharedMemory(TransportFactory make) {
    TransportSource source(std::move(make), GetParam());
    source.shared = true;
    return source;
  }
  std::byte* Piece(int32_t block, int32_t piece) {
    return pool_.data() + layout_.PieceOffset(piece / 2, piece % 2 == 1, block);
  }
  uint64_t* Generations() { return reinterpret_cast<uint64_t*>(generations_.data()); }

  void Connect() {
    FileDescriptor socket = *ConnectUnix(*ParseShmAddress(b_.transport().address()));
    socket_ = socket.get();
    peer_.emplace(std::move(socket));
    peer_->Hello();
  }
  void SendPool(std::vector<int> files, int64_t num_blocks = kPoolBlocks) {
    SendFiles(SharedPoolFrame{.num_blocks = num_blocks}, std::move(files));
  }
  void SendFiles(const Frame& frame, std::vector<int> files) {
    std::string bytes = EncodeFrame(frame);
    iovec buffer{bytes.data(), bytes.size()};
    ASSERT_EQ(SendWithFiles(socket_, std::span(&buffer, 1), files),
              static_cast<ssize_t>(bytes.size()));
  }
  // Bytes that the peer has not read yet.
  int Unread() const {
    int bytes = 0;
    return ioctl(socket_, FIONREAD, &bytes) == 0 ? bytes : 0;
  }
  // Runs the transfer up to the announcement.
  void Begin(uint64_t id) {
    ASSERT_TRUE(b_.transport().Expect(Spec(id)).ok());
    if (!peer_) {
      Connect();
      SendPool({pool_.fd(), generations_.fd()});
    }
    peer_->Send(Announcement(id));
  }
  SharedBlockFrame Block(uint64_t id, int32_t block) {
    return {.block = MakeRawBlock(layout_, id, block).frame,
            .place = {.pool_block = block, .generation = 0}};
  }
  absl::Status ReceiveStatus(uint64_t id) {
    const TransferEvent event = b_.WaitReceived(id);
    EXPECT_EQ(event.kind, Kind::kReceiveFailed);
    EXPECT_EQ(b_.TerminalEvents(id, true), 1);
    return event.status;
  }
  // Checks that the transport still serves an honest peer.
  void ExpectAlive() {
    peer_.reset();
    constexpr uint64_t kId = 1000;
    Begin(kId);
    for (int32_t i = 0; i < 3; ++i) peer_->Send(Block(kId, i));
    EXPECT_EQ(b_.WaitReceived(kId).kind, Kind::kReceived);
  }

  const KvPoolLayout layout_ = MakeLayout({.num_blocks = kPoolBlocks});
  SharedPageBuffer pool_ = *SharedPageBuffer::Allocate(layout_.pool_bytes(), "raw pool");
  SharedPageBuffer generations_ = *SharedPageBuffer::Allocate(kPoolBlocks * 8, "raw generations");
  std::atomic<int> socket_ = -1;
  std::atomic<int> unread_when_woken_ = 0;
  TestWorker b_;
  std::optional<RawPeer> peer_;
};

std::string MemoryName(const ::testing::TestParamInfo<PoolMemory>& info) {
  return info.param == PoolMemory::kHost ? "Host" : "Device";
}
INSTANTIATE_TEST_SUITE_P(To, ShmHostileSender,
                         ::testing::Values(PoolMemory::kHost, PoolMemory::kDevice), MemoryName);

TEST_P(ShmHostileSender, AnHonestRawPeerSucceeds) {
  Begin(1);
  for (int32_t i = 0; i < 3; ++i) peer_->Send(Block(1, i));
  EXPECT_TRUE(peer_->Read<DoneFrame>().has_value());
  const TransferEvent event = b_.WaitReceived(1);
  EXPECT_EQ(event.kind, Kind::kReceived) << event.status;
  EXPECT_EQ(event.manifest, "m");
  EXPECT_EQ(std::memcmp(b_.pool().data() + b_.layout().PieceOffset(1, true, 6), Piece(1, 3),
                        layout_.group(0).piece_bytes()),
            0);
}

TEST_P(ShmHostileSender, TheSenderGetsDoneBeforeTheEngineIsWoken) {
  Begin(1);
  const int unread = Unread();
  for (int32_t i = 0; i < 3; ++i) peer_->Send(Block(1, i));
  EXPECT_EQ(b_.WaitReceived(1).kind, Kind::kReceived);
  b_.Destroy();  // its thread has woken the engine by now
  EXPECT_GE(unread_when_woken_, unread + static_cast<int>(EncodeFrame(DoneFrame{}).size()));
  const std::optional<DoneFrame> done = peer_->Read<DoneFrame>();
  ASSERT_TRUE(done.has_value());
  EXPECT_GT(done->landed_us, 0);
}

TEST_P(ShmHostileSender, ADamagedByteIsNamedByLayerKindAndBlock) {
  Begin(1);
  peer_->Send(Block(1, 0));
  *Piece(1, 4) ^= std::byte{4};
  peer_->Send(Block(1, 1));
  const absl::Status status = ReceiveStatus(1);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("block 1 layer 2 K"));
  const auto abort = peer_->Read<AbortFrame>();
  ASSERT_TRUE(abort.has_value());
  EXPECT_EQ(abort->code, absl::StatusCode::kDataLoss);
  *Piece(1, 4) ^= std::byte{4};
  ExpectAlive();
}

TEST_P(ShmHostileSender, ABlockOfAnotherGenerationIsNotPublished) {
  Begin(1);
  Generations()[1] = 5;
  peer_->Send(Block(1, 0));
  peer_->Send(Block(1, 1));
  const TransferEvent event = b_.WaitReceived(1);
  EXPECT_EQ(event.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(event.blocks_done, 1);
  EXPECT_THAT(std::string(event.status.message()), HasSubstr("generation 0"));
}

TEST_P(ShmHostileSender, BlocksThatItDoesNotHaveOrThatWereNotAskedForFailTheTransfer) {
  uint64_t id = 0;
  const auto fails = [&](const std::function<void(SharedBlockFrame&)>& change) {
    Begin(++id);
    SharedBlockFrame frame = Block(id, 0);
    change(frame);
    peer_->Send(frame);
    EXPECT_FALSE(ReceiveStatus(id).ok());
  };
  fails([](SharedBlockFrame& f) { f.place.pool_block = kPoolBlocks; });
  fails([](SharedBlockFrame& f) { f.block.block = 1; });
  fails([](SharedBlockFrame& f) { f.block.valid_tokens = 15; });
  fails([](SharedBlockFrame& f) { f.block.payload_bytes -= 1; });
  fails([](SharedBlockFrame& f) { f.block.piece_crcs.pop_back(); });
  fails([](SharedBlockFrame& f) { f.block.receiver_epoch = Epoch(1); });
  peer_->Send(Block(77, 0));  // of an unknown transfer: ignored
  ExpectAlive();
}

TEST_P(ShmHostileSender, FilesThatCannotBeTrustedEndTheConnection) {
  const FileDescriptor unsealed(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(unsealed.get(), layout_.pool_bytes()), 0);
  const auto closes = [&](std::vector<int> files, int64_t num_blocks) {
    Connect();
    SendPool(std::move(files), num_blocks);
    EXPECT_TRUE(peer_->Closed());
  };
  const int pool = pool_.fd();
  const int words = generations_.fd();
  closes({}, kPoolBlocks);
  closes({pool}, kPoolBlocks);
  closes({unsealed.get(), words}, kPoolBlocks);
  closes({pool, unsealed.get()}, kPoolBlocks);
  closes({socket_, words}, kPoolBlocks);
  closes({words, pool}, kPoolBlocks);
  closes({pool, words}, 0);
  closes({pool, words}, 1000);
  closes({pool, words}, INT32_MAX);
  ExpectAlive();
}

TEST_P(ShmHostileSender, FramesOutOfPlaceEndTheConnection) {
  Connect();
  peer_->Send(Block(1, 0));  // before SharedPool
  EXPECT_TRUE(peer_->Closed());
  Connect();
  SendPool({pool_.fd(), generations_.fd()});
  SendPool({pool_.fd(), generations_.fd()});  // a second time
  EXPECT_TRUE(peer_->Closed());
  Connect();
  SendPool({pool_.fd(), generations_.fd()});
  peer_->Send(MakeRawBlock(layout_, 1, 0).frame);  // a payload in the stream
  EXPECT_TRUE(peer_->Closed());
  TestWorker tcp(Tcp(), {}, 3);
  RawPeer over_tcp(tcp.transport().address());
  over_tcp.Hello();
  over_tcp.Send(Block(1, 0));
  EXPECT_TRUE(over_tcp.Closed());
  ExpectAlive();
}

// The hostile peer plays a sender whose pool cannot be mapped.
TEST_P(ShmHostileSender, EverySlotIsGivenBackOnce) {
  ASSERT_TRUE(b_.transport().Expect(Spec(1)).ok());
  Connect();
  SendFiles(SharedSlotsFrame{kPoolBlocks}, {pool_.fd(), generations_.fd()});
  peer_->Send(Block(77, 0));  // of an unknown transfer
  peer_->Send(Announcement(1));
  for (int32_t i = 0; i < 2; ++i) peer_->Send(Block(1, i));
  *Piece(2, 4) ^= std::byte{4};
  peer_->Send(Block(1, 2));
  for (uint64_t taken = 1; taken <= 4; ++taken) {
    const auto frame = peer_->Read<SharedTakenFrame>();
    ASSERT_TRUE(frame.has_value());
    EXPECT_EQ(frame->blocks, taken);
  }
  EXPECT_EQ(ReceiveStatus(1).code(), absl::StatusCode::kDataLoss);
  *Piece(2, 4) ^= std::byte{4};
  ExpectAlive();
}

TEST_P(ShmHostileSender, ImpossibleSlotsEndTheConnection) {
  for (const int32_t slots : {0, kPoolBlocks + 100'000, INT32_MAX}) {
    Connect();
    SendFiles(SharedSlotsFrame{slots}, {pool_.fd(), generations_.fd()});
    EXPECT_TRUE(peer_->Closed()) << slots;
  }
  Connect();
  SendPool({pool_.fd(), generations_.fd()});
  SendFiles(SharedSlotsFrame{kPoolBlocks}, {pool_.fd(), generations_.fd()});
  EXPECT_TRUE(peer_->Closed());
  ExpectAlive();
}

// A slot is given back before the pool has the block, and the transfer ends after that.
TEST_P(ShmHostileSender, ASlotDoesNotWaitForThePoolButTheEndDoes) {
  if (GetParam() == PoolMemory::kHost) return;
  b_.pool().copies().held = true;
  ASSERT_TRUE(b_.transport().Expect(Spec(1)).ok());
  Connect();
  SendFiles(SharedSlotsFrame{kPoolBlocks}, {pool_.fd(), generations_.fd()});
  peer_->Send(Announcement(1));
  peer_->Send(Block(1, 0));
  const auto taken = peer_->Read<SharedTakenFrame>();
  ASSERT_TRUE(taken.has_value());
  EXPECT_EQ(taken->blocks, 1u);
  peer_->Send(Block(1, 1));
  EXPECT_FALSE(peer_->Read<SharedTakenFrame>(/*wait_ms=*/50).has_value());
  b_.transport().CancelReceive(1);
  EXPECT_TRUE(peer_->Read<AbortFrame>().has_value());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  b_.Poll();
  EXPECT_EQ(b_.TerminalEvents(1, true), 0) << "the copy to the pool still runs";
  EXPECT_EQ(peer_->Read<SharedTakenFrame>()->blocks, 2u);
  b_.pool().copies().held = false;
  EXPECT_EQ(ReceiveStatus(1).code(), absl::StatusCode::kCancelled);
  ExpectAlive();
}

class ShmSlowGreeting : public ShmHostileSender {
 protected:
  ShmSlowGreeting() : ShmHostileSender({.handshake_timeout_ms = 300}) {}
};

INSTANTIATE_TEST_SUITE_P(To, ShmSlowGreeting,
                         ::testing::Values(PoolMemory::kHost, PoolMemory::kDevice), MemoryName);

TEST_P(ShmSlowGreeting, EndsTheConnection) {
  FileDescriptor socket = *ConnectUnix(*ParseShmAddress(b_.transport().address()));
  RawPeer silent(std::move(socket));
  EXPECT_TRUE(silent.Closed());  // no greeting in time
  RawPeer garbage(*ConnectUnix(*ParseShmAddress(b_.transport().address())));
  garbage.SendBytes(std::string(100, 'x'));
  EXPECT_TRUE(garbage.Closed());
  EXPECT_TRUE(IsHeard(
      [this] { return RawPeer(*ConnectUnix(*ParseShmAddress(b_.transport().address()))); }));
}

TEST_P(ShmHostileSender, ASenderThatDisconnectsFailsItsTransfers) {
  Begin(1);
  peer_->Send(Block(1, 0));
  b_.WaitFor(1, Kind::kReceiving);
  peer_.reset();
  const TransferEvent event = b_.WaitReceived(1);
  EXPECT_EQ(event.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(event.blocks_done, 1);
  ExpectAlive();
}

TEST_P(ShmHostileSender, ASilentSenderIsCut) {
  TestWorker c(WithSharedMemory(Shm({.ping_interval_ms = 20, .silence_timeout_ms = 100})), {}, 2);
  ASSERT_TRUE(c.transport().Expect(Spec(1)).ok());
  RawPeer silent(*ConnectUnix(*ParseShmAddress(c.transport().address())));
  silent.Hello();
  silent.Send(Announcement(1));
  EXPECT_EQ(c.WaitReceived(1).status.code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace baton
