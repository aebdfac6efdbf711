// The shared-memory transport as a sender whose pool the host cannot read: slots and the order of
// copies, and receivers that take nothing, lie or vanish.

#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvtransfer/shm/shared_pool.h"
#include "kvtransfer/sockets/create_socket_transport.h"
#include "kvtransfer/sockets/unix_socket.h"
#include "tests/kvtransfer/hostile_peer.h"

namespace baton {
namespace {

using Kind = TransferEvent::Kind;

constexpr int32_t kSlots = 4;
constexpr int32_t kBlocks = 8;  // of a transfer

TransportFactory Shm() {
  return [](TransportOptions options) {
    return CreateSocketTransport(
        {.tcp_listen = "", .tcp_advertise_host = "", .shm_name = UniqueShmName()},
        std::move(options), kPatient);
  };
}

TransportSource WithSlots() {
  TransportSource source(Shm(), PoolMemory::kDevice);
  source.shared = true;
  source.limits = {.read_buffers = kSlots, .land_buffers = 2};
  return source;
}

// A receiver's end built by the test.
class RawReceiver {
 public:
  RawReceiver() = default;

  TransferTicket Ticket(uint64_t id) const {
    return {.transfer_id = 40 + id,
            .receiver_epoch = Epoch(2),
            .address = FormatShmAddress(name_),
            .block_count = kBlocks};
  }
  // Accepts the sender's connection and maps its slots.
  void Accept() {
    pollfd wait{listener_.get(), POLLIN, 0};
    ASSERT_EQ(poll(&wait, 1, 10'000), 1) << "the sender does not connect";
    FileDescriptor socket = **AcceptUnix(listener_);
    const int fd = socket.get();
    peer_.emplace(std::move(socket));
    ASSERT_TRUE(peer_->Read<HelloFrame>().has_value());
    peer_->Send(baton::Accept(2));
    const std::string frame = EncodeFrame(SharedSlotsFrame{});
    std::string bytes(frame.size(), '\0');
    std::vector<FileDescriptor> files;
    wait = {fd, POLLIN, 0};
    ASSERT_EQ(poll(&wait, 1, 10'000), 1);
    ASSERT_EQ(ReceiveWithFiles(fd, std::as_writable_bytes(std::span(bytes)), files),
              static_cast<ssize_t>(bytes.size()));
    ASSERT_EQ(files.size(), 2u);
    const KvGeometry geometry{KvLayoutKind::kBlockMajor, 16};
    view_.emplace(*PeerPool::Map(layout_, geometry, SharedSlotsFrame{kSlots}, files[0].get(),
                                 files[1].get()));
  }
  // Returns the next block, or nothing if none comes for a while.
  std::optional<SharedBlockFrame> Block(int wait_ms = 10'000) {
    return peer_->Read<SharedBlockFrame>(wait_ms);
  }
  absl::Status Copy(const SharedBlockFrame& frame) {
    return view_->Copy(frame, Target(), CopyStores::kCached);
  }
  const PieceBytes& Target() {
    if (!target_) {
      target_.emplace(memory_.data(), layout_, LeadingTokens(BlockId(0), 16), LayerRange{});
    }
    return *target_;
  }
  RawPeer& peer() { return *peer_; }
  void Close() { peer_.reset(); }

 private:
  const KvPoolLayout layout_ = MakeLayout({.num_blocks = 1});
  const std::string name_ = UniqueShmName();
  FileDescriptor listener_ = *ListenUnix(name_);
  std::optional<RawPeer> peer_;
  std::optional<PeerPool> view_;
  std::vector<std::byte> memory_ =
      std::vector<std::byte>(static_cast<size_t>(layout_.pool_bytes()));
  std::optional<PieceBytes> target_;
};

class StagedShm : public ::testing::Test {
 protected:
  StagedShm() {
    for (int32_t i = 0; i < kBlocks; ++i) a_.FillBlock(BlockId(i), 100 + i);
  }
  void Start(uint64_t id, const TransferTicket& ticket, int64_t timeout_ms = 30'000) {
    ASSERT_TRUE(a_.transport()
                    .StartSend({.sender_transfer = id,
                                .ticket = ticket,
                                .tokens = 16 * kBlocks,
                                .timeout_ms = timeout_ms})
                    .ok());
    a_.transport().Announce(id, MakeBlocks(0, kBlocks), true, "m");
  }
  // A transfer to the raw receiver, up to the mapped slots.
  void Begin(uint64_t id) {
    Start(id, raw_.Ticket(id));
    raw_.Accept();
  }
  // A whole transfer to an honest worker.
  void ExpectAlive(uint64_t id) {
    TestWorker b(WithSlots(), {}, 3);
    const ReceiveSpec spec{
        .transfer_id = id, .blocks = MakeBlocks(20, kBlocks), .tokens = 16 * kBlocks};
    ASSERT_TRUE(b.transport().Expect(spec).ok());
    Start(id, b.Ticket(spec));
    const TransferEvent received = b.WaitReceived(id);
    EXPECT_EQ(received.kind, Kind::kReceived) << received.status;
    for (int32_t i = 0; i < kBlocks; ++i) EXPECT_EQ(b.Differences(BlockId(20 + i), 100 + i, 16), 0);
    EXPECT_EQ(a_.WaitSent(id).kind, Kind::kSent);
  }
  absl::StatusCode SendCode(uint64_t id) {
    const TransferEvent event = a_.WaitSent(id);
    EXPECT_EQ(event.kind, Kind::kSendFailed);
    return event.status.code();
  }

  TestWorker a_{WithSlots(), {}, 1};
  RawReceiver raw_;
};

TEST_F(StagedShm, HalfOfTheSlotsAreLentUntilTheyAreTaken) {
  Begin(1);
  std::vector<SharedBlockFrame> blocks;
  for (int32_t taken = 0; taken < kBlocks; ++taken) {
    while (blocks.size() < std::min<size_t>(kBlocks, taken + kSlots / 2)) {
      const std::optional<SharedBlockFrame> block = raw_.Block();
      ASSERT_TRUE(block.has_value());
      blocks.push_back(*block);
    }
    if (blocks.size() < kBlocks) {
      EXPECT_FALSE(raw_.Block(/*wait_ms=*/20).has_value());
    }
    const SharedBlockFrame& block = blocks[static_cast<size_t>(taken)];
    EXPECT_EQ(block.block.block, taken);
    EXPECT_TRUE(raw_.Copy(block).ok());
    EXPECT_EQ(raw_.Target().Checksums(), a_.pool().Bytes(BlockId(taken), 16).Checksums());
    raw_.peer().Send(SharedTakenFrame{static_cast<uint64_t>(taken) + 1});
  }
  raw_.peer().Send(DoneFrame{.transfer_id = 41, .sender_transfer = 1});
  EXPECT_EQ(a_.WaitSent(1).kind, Kind::kSent);
}

TEST_F(StagedShm, ABlockIsAnnouncedOnlyWhenItsSlotHasIt) {
  a_.pool().copies().held = true;
  Begin(1);
  EXPECT_TRUE(raw_.peer().Read<AnnounceFrame>().has_value());
  EXPECT_FALSE(raw_.Block(/*wait_ms=*/50).has_value());
  a_.pool().copies().held = false;
  const std::optional<SharedBlockFrame> block = raw_.Block();
  ASSERT_TRUE(block.has_value());
  EXPECT_TRUE(raw_.Copy(*block).ok());
  EXPECT_EQ(raw_.Target().Checksums(), a_.pool().Bytes(BlockId(0), 16).Checksums());
}

// The receiver may still copy from a slot of a transfer that has ended. It must then notice.
TEST_F(StagedShm, SlotsOfATransferThatEndsAreFreeAndNoLongerReadable) {
  Begin(1);
  const std::optional<SharedBlockFrame> block = raw_.Block();
  ASSERT_TRUE(block.has_value());
  EXPECT_TRUE(raw_.Copy(*block).ok());
  a_.transport().CancelSend(1);
  EXPECT_EQ(SendCode(1), absl::StatusCode::kCancelled);
  EXPECT_EQ(raw_.Copy(*block).code(), absl::StatusCode::kFailedPrecondition);
  for (uint64_t id = 10; id < 14; ++id) ExpectAlive(id);
  EXPECT_EQ(raw_.Copy(*block).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(StagedShm, AReceiverThatTakesNothingDelaysOnlyItsOwnTransfers) {
  Start(1, raw_.Ticket(1), /*timeout_ms=*/2000);
  raw_.Accept();
  Start(2, raw_.Ticket(2), /*timeout_ms=*/2000);
  for (int32_t i = 0; i < kSlots / 2; ++i) ASSERT_TRUE(raw_.Block().has_value());
  ExpectAlive(10);
  EXPECT_FALSE(raw_.Block(/*wait_ms=*/20).has_value());
  EXPECT_EQ(SendCode(1), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(SendCode(2), absl::StatusCode::kDeadlineExceeded);
  // It takes them in the end, and may go on.
  raw_.peer().Send(SharedTakenFrame{kSlots / 2});
  Start(3, raw_.Ticket(3));
  EXPECT_TRUE(raw_.Block().has_value());
}

TEST_F(StagedShm, AReceiverThatVanishesFreesItsSlots) {
  Begin(1);
  ASSERT_TRUE(raw_.Block().has_value());
  raw_.Close();
  EXPECT_EQ(SendCode(1), absl::StatusCode::kUnavailable);
  ExpectAlive(10);
  // While copies run.
  a_.pool().copies().held = true;
  Begin(2);
  raw_.Close();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  a_.pool().copies().held = false;
  EXPECT_EQ(SendCode(2), absl::StatusCode::kUnavailable);
  ExpectAlive(11);
}

TEST_F(StagedShm, ACopyThatFailsFailsItsTransfer) {
  Begin(1);
  ASSERT_TRUE(raw_.Block().has_value());
  ASSERT_TRUE(raw_.Block().has_value());
  a_.pool().copies().end_result = absl::InternalError("device lost");
  raw_.peer().Send(SharedTakenFrame{2});
  EXPECT_EQ(SendCode(1), absl::StatusCode::kInternal);
  const std::optional<AbortFrame> abort = raw_.peer().Read<AbortFrame>();
  ASSERT_TRUE(abort.has_value());
  EXPECT_EQ(abort->code, absl::StatusCode::kInternal);
}

TEST_F(StagedShm, ImpossibleCountsEndTheConnection) {
  uint64_t id = 0;
  for (const std::vector<uint64_t>& counts :
       std::vector<std::vector<uint64_t>>{{0}, {3}, {UINT64_MAX}, {1, 1}, {2, 1}}) {
    Begin(++id);
    for (int32_t i = 0; i < 2; ++i) ASSERT_TRUE(raw_.Block().has_value());
    for (const uint64_t count : counts) raw_.peer().Send(SharedTakenFrame{count});
    EXPECT_TRUE(raw_.peer().Closed()) << id;
    EXPECT_EQ(SendCode(id), absl::StatusCode::kInvalidArgument);
  }
  ExpectAlive(100);
}

}  // namespace
}  // namespace baton
