// Connections of the socket transports: which ones are accepted and for how long, reconnects, and
// the choice of medium. Honest peers: transport_contract_test.cc. Hostile peers:
// tcp_hostile_*_test.cc and shm_hostile_sender_test.cc.

#include <poll.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "gtest/gtest.h"
#include "kvtransfer/sockets/create_socket_transport.h"
#include "kvtransfer/sockets/unix_socket.h"
#include "tests/kvtransfer/hostile_peer.h"
#include "tests/kvtransfer/raw_peer.h"

namespace baton {
namespace {

using Kind = TransferEvent::Kind;

// Only the header arrives. Its type alone ends the connection, long before the deadline.
TEST(SocketTransport, TheFirstHeaderOfAConnectionMustBeAHello) {
  TestWorker b(Tcp({.handshake_timeout_ms = 3'600'000, .frame_timeout_ms = 3'600'000}), {}, 2);
  RawPeer peer(b.transport().address());
  peer.SendBytes(EncodeFrame(Announcement(1)).substr(0, kFrameHeaderBytes));
  EXPECT_TRUE(peer.Closed());
}

TEST(SocketTransport, AnAcceptedConnectionIsClosedWhenIdleButNotDuringATransfer) {
  TestWorker b(Tcp({.silence_timeout_ms = 3'600'000, .idle_timeout_ms = 50}), {}, 2);
  RawPeer idle(b.transport().address());
  idle.Hello();
  EXPECT_TRUE(idle.Closed());
  ASSERT_TRUE(b.transport().Expect(Spec(1)).ok());
  RawPeer sends(b.transport().address());
  const HelloFrame hello{.fingerprint = MakeFingerprint({}), .epoch = Epoch(1), .node = "raw"};
  sends.SendBytes(EncodeFrame(hello) + EncodeFrame(Announcement(1)));  // in one write: never idle
  ASSERT_TRUE(sends.Read<PullFrame>().has_value());
  RawPeer later(b.transport().address());  // when it ends, the idle time has passed
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

// Runs one transfer. Returns false if it failed at the sender.
bool Delivers(TestWorker& from, TestWorker& to, const std::string& address, uint64_t id) {
  const ReceiveSpec spec = Spec(id);
  EXPECT_TRUE(to.transport().Expect(spec).ok());
  TransferTicket ticket = to.Ticket(spec);
  ticket.address = address;
  EXPECT_TRUE(from.transport()
                  .StartSend({.sender_transfer = id, .ticket = ticket, .tokens = kTokens})
                  .ok());
  from.transport().Announce(id, MakeBlocks(0, 3), true, "m");
  if (from.WaitSent(id).kind != Kind::kSent) {
    to.transport().CancelReceive(id);
    to.WaitReceived(id);
    return false;
  }
  EXPECT_EQ(to.WaitReceived(id).kind, Kind::kReceived);
  return true;
}

TransportFactory PatientTcp(int32_t max_connections) {
  TcpOptions tcp = kPatient;
  tcp.max_connections = max_connections;
  return Tcp(tcp);
}

// Makes the peer name a transfer that is expected there.
void Introduce(RawPeer& peer, TestWorker& to, uint64_t id) {
  ASSERT_TRUE(to.transport().Expect(Spec(id)).ok());
  peer.Hello();
  peer.Send(Announcement(id));
  ASSERT_TRUE(peer.Read<PullFrame>().has_value());
}

TEST(SocketTransport, ConnectionsPastTheLimitAreClosed) {
  TestWorker b(PatientTcp(2), {}, 2);
  RawPeer first(b.transport().address());
  Introduce(first, b, 1);
  std::optional<RawPeer> second(b.transport().address());
  Introduce(*second, b, 2);
  RawPeer third(b.transport().address());
  EXPECT_TRUE(third.Closed());
  second->Close();
  // There is room again once the transport has noticed.
  bool accepted = false;
  for (int i = 0; i < 100 && !accepted; ++i) {
    RawPeer next(b.transport().address());
    next.Send(HelloFrame{.fingerprint = MakeFingerprint({}), .epoch = Epoch(1), .node = "raw"});
    accepted = next.Read<HelloReplyFrame>().has_value();
  }
  EXPECT_TRUE(accepted);
}

TEST(SocketTransport, AConnectionWithoutATransferIsClosedForANewOneAndOneWithATransferIsNot) {
  TestWorker b(PatientTcp(3), {}, 2);
  RawPeer member(b.transport().address());
  Introduce(member, b, 1);
  RawPeer stranger(b.transport().address());
  stranger.Hello();
  RawPeer half_greeted(b.transport().address());
  RawPeer another(b.transport().address());
  another.Hello();
  EXPECT_TRUE(stranger.Closed()) << "the oldest connection without a transfer is closed";
  TestWorker a(Tcp(), {}, 1);
  EXPECT_TRUE(Delivers(a, b, b.transport().address(), 5));
  EXPECT_TRUE(half_greeted.Closed());
  const RawBlock raw = MakeRawBlock(b.layout(), 1, 0);  // the member is served as before
  member.Send(raw.frame);
  member.SendBytes(raw.payload);
  b.transport().CancelReceive(1);
  EXPECT_TRUE(member.Read<AbortFrame>().has_value());
}

TEST(SocketTransport, ReconnectsToAReceiverRestartedAtTheSameAddress) {
  TestWorker a(Tcp(), {}, 1);
  std::string listen = "127.0.0.1:0";
  for (uint64_t epoch = 2; epoch < 6; ++epoch) {
    TestWorker b(Tcp(kPatient, listen), {}, epoch);
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
    // The first transfer may still use the old connection, which then turns out to be dead.
    start(epoch * 10, stale);
    EXPECT_EQ(a.WaitSent(epoch * 10).kind, Kind::kSendFailed);
    start(epoch * 10 + 1, b.Ticket(spec));
    EXPECT_EQ(a.WaitSent(epoch * 10 + 1).kind, Kind::kSent);
    EXPECT_EQ(b.WaitReceived(epoch).kind, Kind::kReceived);
  }
}

TEST(SocketTransport, RefusesToAdvertiseAWildcard) {
  TransportOptions options;
  std::byte byte{};
  options.fingerprint = MakeFingerprint({});
  HostPool pool(&byte, MakeLayout({}));
  options.pool = &pool;
  EXPECT_EQ(CreateTcpTransport("0.0.0.0:0", "", options).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(CreateTcpTransport("0.0.0.0:0", "127.0.0.1", options).ok());
  EXPECT_FALSE(CreateTcpTransport("127.0.0.1", "", options).ok());
}

TransportFactory ShmOrTcp(const std::string& name, TcpOptions tcp = kPatient) {
  return [=](TransportOptions options) {
    return CreateSocketTransport(
        {.tcp_listen = "127.0.0.1:0", .tcp_advertise_host = "", .shm_name = name},
        std::move(options), tcp);
  };
}

TEST(SocketTransport, AdvertisesSharedMemoryBeforeTcp) {
  const std::string name = UniqueShmName();
  TestWorker b(ShmOrTcp(name), {}, 2);
  EXPECT_TRUE(b.transport().address().starts_with("shm:" + name + ",tcp:127.0.0.1:"));
}

TEST(SocketTransport, ASenderUsesATransportThatItSupports) {
  TestWorker b(ShmOrTcp(UniqueShmName()), {}, 2);
  const std::string address = b.transport().address();
  TestWorker tcp_only(Tcp(), {}, 1);
  EXPECT_TRUE(Delivers(tcp_only, b, address, 1));
  TestWorker both(ShmOrTcp(UniqueShmName()), {}, 3);
  EXPECT_TRUE(Delivers(both, b, address, 2));
  EXPECT_TRUE(Delivers(both, b, address.substr(0, address.find(',')), 3));   // shared memory only
  EXPECT_TRUE(Delivers(both, b, address.substr(address.find(',') + 1), 4));  // TCP only
  TransferTicket shm_only{.transfer_id = 9,
                          .receiver_epoch = Epoch(2),
                          .address = address.substr(0, address.find(',')),
                          .block_count = 3};
  EXPECT_EQ(tcp_only.transport()
                .StartSend({.sender_transfer = 9, .ticket = shm_only, .tokens = kTokens})
                .code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(SocketTransport, FallsBackToTcpWhenNoProcessOnThisHostHasThatName) {
  TestWorker a(ShmOrTcp(UniqueShmName()), {}, 1);
  TestWorker b(Tcp(), {}, 2);
  EXPECT_TRUE(Delivers(a, b, "shm:" + UniqueShmName() + "," + b.transport().address(), 1));
}

// A process owns the name but does not speak.
TEST(SocketTransport, FallsBackToTcpWhenSharedMemoryDoesNotOpen) {
  TestWorker a(ShmOrTcp(UniqueShmName(), {}), {}, 1);
  TestWorker b(Tcp(), {}, 2);
  const std::string name = UniqueShmName();
  const absl::StatusOr<FileDescriptor> deaf = ListenUnix(name);
  ASSERT_TRUE(deaf.ok()) << deaf.status();
  EXPECT_TRUE(Delivers(a, b, "shm:" + name + "," + b.transport().address(), 1));
}

// Returns true if a receiver learns of a started transfer before its first announcement. The
// sender's engine only polls a few times; then the sender is destroyed.
bool HeardOfBeforeAnAnnouncement() {
  const std::string name = UniqueShmName();
  const absl::StatusOr<FileDescriptor> listener = ListenUnix(name);
  EXPECT_TRUE(listener.ok()) << listener.status();
  TestWorker a(ShmOrTcp(UniqueShmName()), {}, 1);
  const auto start = [&](uint64_t id) {
    const TransferTicket ticket{
        .transfer_id = id, .receiver_epoch = Epoch(2), .address = "shm:" + name, .block_count = 3};
    EXPECT_TRUE(
        a.transport().StartSend({.sender_transfer = id, .ticket = ticket, .tokens = kTokens}).ok());
  };
  start(1);
  pollfd arrival{listener->get(), POLLIN, 0};
  EXPECT_EQ(poll(&arrival, 1, 10'000), 1);
  absl::StatusOr<std::optional<FileDescriptor>> socket = AcceptUnix(*listener);
  EXPECT_TRUE(socket.ok() && socket->has_value());
  RawPeer receiver(**std::move(socket));
  receiver.Send(Accept(2));
  EXPECT_TRUE(receiver.Read<AnnounceFrame>().has_value());
  a.transport().CancelSend(1);
  a.WaitSent(1);
  start(2);
  // The I/O thread may be running at that moment; Poll then leaves the work to it.
  for (int i = 0; i < 20; ++i) {
    a.Poll();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  a.Destroy();
  return receiver.Read<AnnounceFrame>().has_value();
}

TEST(SocketTransport, AReceiverLearnsOfATransferWhenItsSenderPolls) {
  bool heard = false;
  for (int i = 0; i < 20 && !heard; ++i) heard = HeardOfBeforeAnAnnouncement();
  EXPECT_TRUE(heard);
}

TEST(SocketTransport, ANameIsTakenUntilItsTransportEnds) {
  const std::string name = UniqueShmName();
  SharedPageBuffer pool = *SharedPageBuffer::Allocate(MakeLayout({}).pool_bytes(), "pool");
  HostPool lender(pool.data(), MakeLayout({}), pool.fd());
  TransportOptions options{
      .fingerprint = MakeFingerprint({}), .epoch = Epoch(1), .pool = &lender, .waker = {}};
  const SocketEndpoints endpoints{.tcp_listen = "", .tcp_advertise_host = "", .shm_name = name};
  auto first = CreateSocketTransport(endpoints, options);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(CreateSocketTransport(endpoints, options).status().code(),
            absl::StatusCode::kAlreadyExists);
  first->reset();
  EXPECT_TRUE(CreateSocketTransport(endpoints, options).ok());
}

TEST(SocketTransport, RefusesAnAddressThatItCannotListenAt) {
  std::byte byte{};
  TransportOptions options;
  options.fingerprint = MakeFingerprint({});
  HostPool pool(&byte, MakeLayout({}));
  options.pool = &pool;
  const auto code = [&](const SocketEndpoints& endpoints) {
    return CreateSocketTransport(endpoints, options).status().code();
  };
  using absl::StatusCode;
  EXPECT_EQ(code({}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.tcp_listen = "", .tcp_advertise_host = "", .shm_name = "a/b"}),
            StatusCode::kInvalidArgument);
  // The pool is not in a file.
  EXPECT_EQ(code({.tcp_listen = "", .tcp_advertise_host = "", .shm_name = "a"}),
            StatusCode::kInvalidArgument);
}

// A pool without a landing buffer until it is opened. It counts the requests for one.
class LateBuffers final : public TransferPool {
 public:
  explicit LateBuffers(const TestShape& shape)
      : TransferPool(MakeLayout(shape)), memory_(static_cast<size_t>(layout().pool_bytes())) {}
  PoolMemory memory() const override { return PoolMemory::kDevice; }
  std::optional<PoolLease> Acquire(PoolAccess, LandingParts parts, LayerRange layers) override {
    ++asked;
    if (!open) return std::nullopt;
    return PoolLease(PieceBytes(memory_.data(), layout(), std::move(parts), layers));
  }
  bool Settled() override { return true; }
  std::optional<PoolExport> exported() const override { return std::nullopt; }
  std::byte* AddressForCopyEngine() const override { return nullptr; }

  std::atomic<bool> open = false;
  std::atomic<int64_t> asked = 0;

 private:
  std::vector<std::byte> memory_;
};

// The connection waits for the pool. It notices the peer's end only when the pool has memory, and
// uses no CPU until then.
TEST(SocketTransport, APeerThatDisconnectsDuringAPoolWaitCausesNoBusyLoop) {
  LateBuffers pool({});
  auto transport = CreateTcpTransport(
      "127.0.0.1:0", "",
      {.fingerprint = MakeFingerprint({}), .epoch = Epoch(2), .pool = &pool, .waker = {}},
      kPatient);
  ASSERT_TRUE(transport.ok()) << transport.status();
  ASSERT_TRUE((*transport)->Expect(Spec(1)).ok());
  RawPeer peer((*transport)->address());
  peer.Hello();
  peer.Send(Announcement(1));
  ASSERT_TRUE(peer.Read<PullFrame>().has_value());
  peer.Send(MakeRawBlock(pool.layout(), 1, 0).frame);
  while (pool.asked == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  peer.Reset();
  const int64_t before = pool.asked;
  const auto begin = std::chrono::steady_clock::now();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const int64_t asked = pool.asked - before;
  // About one per millisecond, also if this thread sleeps longer. A spinning thread would make
  // thousands.
  EXPECT_LT(asked, 5 * ((std::chrono::steady_clock::now() - begin) / std::chrono::milliseconds(1)));
}

// Layers 0 and 1 belong to a window, and nothing of its first block is needed. That block's slice
// has no bytes, so the frame has ended. The peer may then wait before the next frame.
TEST(SocketTransport, AnEmptySliceThatWaitedForThePoolIsNoStalledFrame) {
  const TestShape shape{.block_size = 4, .groups = "wwfwf"};
  LateBuffers pool(shape);
  TcpOptions tcp = kPatient;
  tcp.frame_timeout_ms = 100;
  auto transport = CreateTcpTransport(
      "127.0.0.1:0", "",
      {.fingerprint = MakeFingerprint(shape), .epoch = Epoch(2), .pool = &pool, .waker = {}}, tcp);
  ASSERT_TRUE(transport.ok()) << transport.status();
  ReceiveSpec spec{.transfer_id = 1, .window_first_blocks = {0}, .blocks = {}, .tokens = 61};
  for (int32_t block = 0; block < 16; ++block) {
    spec.blocks.push_back(BlockId(block));
    spec.blocks.push_back(block < 9 ? kNoBlock : BlockId(block));
  }
  ASSERT_TRUE((*transport)->Expect(spec).ok());
  RawPeer peer((*transport)->address());
  peer.Hello(shape);
  peer.Send(AnnounceFrame{.transfer_id = 1,
                          .receiver_epoch = Epoch(2),
                          .sender_transfer = 1,
                          .block_count = 16,
                          .tokens = 61,
                          .manifest = "",
                          .layers = 2,
                          .window_first_blocks = {0}});
  const std::optional<PullFrame> pull = peer.Read<PullFrame>();
  ASSERT_TRUE(pull.has_value());
  EXPECT_EQ(pull->layers, (LayerRange{.first = 0, .count = 2}));
  peer.Send(BlockFrame{.transfer_id = 1,
                       .receiver_epoch = Epoch(2),
                       .sender_transfer = 1,
                       .valid_tokens = 4,
                       .piece_crcs = {},
                       .layers = pull->layers});
  while (pool.asked == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  pool.open = true;
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  for (const TransferEvent& event : (*transport)->Poll()) ADD_FAILURE() << event.status;
  (*transport)->CancelReceive(1);
}

}  // namespace
}  // namespace baton
