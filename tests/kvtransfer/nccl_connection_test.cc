// Transports that move payload over a NCCL that hangs, fails and dies: what becomes of transfers,
// and of their neighbours on the same communicator. Time limits are real ones, but nothing is
// measured: a test waits for events.

#include "kvtransfer/nccl_connection.h"

#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kvtransfer/fake_nccl_script.h"
#include "tests/kvtransfer/hostile_peer.h"

namespace baton {
namespace {

using Kind = TransferEvent::Kind;
using ::testing::HasSubstr;

bool Eventually(const std::function<bool()>& what) {
  for (int i = 0; i < 30'000; ++i) {
    if (what()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

class NcclConnectionTest : public ::testing::Test {
 protected:
  NcclConnectionTest() { ResetFakeNccl(); }
  ~NcclConnectionTest() override {
    EXPECT_EQ(fake_.calls_from_two_threads, 0);
    ResetFakeNccl();
  }

  FakeNcclSide& sender() { return fake_.sides[0]; }
  FakeNcclSide& receiver() { return fake_.sides[1]; }

  struct Transfer {
    uint64_t id = 0;
    ReceiveSpec spec;
  };
  // `count` blocks from `at` on in both pools.
  Transfer Start(TestWorker& from, TestWorker& to, uint64_t id, int32_t at, int32_t count,
                 bool announce = true) {
    Transfer t{id, {.transfer_id = id, .blocks = MakeBlocks(at, count), .tokens = 16 * count}};
    EXPECT_TRUE(to.transport().Expect(t.spec).ok());
    for (int32_t i = 0; i < count; ++i) {
      from.FillBlock(BlockId(at + i), id * 10 + i);
      to.FillRaw(BlockId(at + i), std::byte{0xEE});
    }
    EXPECT_TRUE(
        from.transport()
            .StartSend(
                {.sender_transfer = id, .ticket = to.Ticket(t.spec), .tokens = t.spec.tokens})
            .ok());
    if (announce) from.transport().Announce(id, MakeBlocks(at, count), true, "m");
    return t;
  }
  void ExpectDelivered(TestWorker& from, TestWorker& to, const Transfer& t) {
    const TransferEvent received = to.WaitReceived(t.id);
    ASSERT_EQ(received.kind, Kind::kReceived) << received.status;
    EXPECT_EQ(received.manifest, "m");
    for (size_t i = 0; i < t.spec.blocks.size(); ++i) {
      EXPECT_EQ(to.Differences(t.spec.blocks[i], t.id * 10 + i, 16), 0) << "block " << i;
    }
    const TransferEvent sent = from.WaitSent(t.id);
    EXPECT_EQ(sent.kind, Kind::kSent) << sent.status;
    EXPECT_EQ(to.TerminalEvents(t.id, true), 1);
    EXPECT_EQ(from.TerminalEvents(t.id, false), 1);
  }
  void Deliver(TestWorker& from, TestWorker& to, uint64_t id) {
    ExpectDelivered(from, to, Start(from, to, id, 0, 4));
  }
  int64_t Bytes(const TestWorker& worker, int32_t blocks) {
    return blocks * worker.layout().bytes_per_block();
  }

  FakeNccl& fake_ = TheFakeNccl();
  Fallbacks fallbacks_;
};

// Hundreds of small batches: what is under way, and what becomes of the rest.
NcclOptions SmallBatches() {
  NcclOptions options = PatientNccl();
  options.batch_bytes = 1;  // a block
  return options;
}

TEST_F(NcclConnectionTest, PayloadOfManyTransfersGoesThroughOneCommunicator) {
  TestWorker a(Nccl(fallbacks_.Into(PatientNccl())), {}, 1), b(Nccl(PatientNccl()), {}, 2);
  std::vector<Transfer> transfers;
  for (uint64_t id = 1; id <= 10; ++id) {
    transfers.push_back(Start(a, b, id, static_cast<int32_t>(id) * 5, 5));
  }
  for (const Transfer& t : transfers) ExpectDelivered(a, b, t);
  // It counts what it has seen to its end, and its transfers end by the receiver's word.
  EXPECT_TRUE(Eventually([&] { return sender().bytes == Bytes(a, 50); })) << sender().bytes;
  EXPECT_EQ(receiver().bytes, Bytes(a, 50));
  EXPECT_EQ(sender().created, 1);
  EXPECT_EQ(receiver().created, 1);
  EXPECT_TRUE(fallbacks_.seen().empty());
}

TEST_F(NcclConnectionTest, AnOperationThatIsIssuedLateIsWaitedFor) {
  sender().issue_polls = 3;
  receiver().issue_polls = 5;
  TestWorker a(Nccl(SmallBatches()), {}, 1), b(Nccl(SmallBatches()), {}, 2);
  for (uint64_t id = 1; id <= 3; ++id) Deliver(a, b, id);
  EXPECT_EQ(receiver().bytes, Bytes(a, 12));
}

TEST_F(NcclConnectionTest, BothWaysHaveACommunicatorOfTheirOwn) {
  TestWorker a(Nccl(SmallBatches()), {}, 1), b(Nccl(SmallBatches()), {}, 2);
  const Transfer there = Start(a, b, 1, 0, 8);
  const Transfer back = Start(b, a, 2, 20, 8);
  ExpectDelivered(a, b, there);
  ExpectDelivered(b, a, back);
  EXPECT_EQ(sender().created, 2);
  EXPECT_TRUE(Eventually([&] { return sender().bytes == Bytes(a, 16); })) << sender().bytes;
}

TEST_F(NcclConnectionTest, AConnectionsEndEndsItsCommunicatorAtBothSides) {
  TestWorker a(Nccl(PatientNccl()), {}, 1);
  TestWorker b(Nccl(PatientNccl()), {}, 2);
  Deliver(a, b, 1);
  b.Destroy();
  EXPECT_TRUE(Eventually([&] { return sender().aborted == 1 && receiver().aborted == 1; }));
}

TEST_F(NcclConnectionTest, WithoutALibraryPayloadGoesByTcpAndTheReasonIsToldOnce) {
  NcclOptions missing = PatientNccl();
  missing.nccl_libraries = {"libnccl-that-nobody-has.so"};
  TestWorker a(Nccl(fallbacks_.Into(missing)), {}, 1), b(Nccl(PatientNccl()), {}, 2);
  for (uint64_t id = 1; id <= 3; ++id) Deliver(a, b, id);
  for (uint64_t id = 4; id <= 6; ++id) Deliver(b, a, id);
  EXPECT_EQ(sender().created, 0);
  ASSERT_EQ(fallbacks_.seen().size(), 1u);
  EXPECT_EQ(fallbacks_.seen()[0].code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(fallbacks_.seen()[0].message()), HasSubstr("that-nobody-has"));
}

TEST_F(NcclConnectionTest, BlocksOfAnotherSizeGoByTcpAndTheReasonIsTold) {
  TestWorker a(Nccl(PatientNccl()), {.block_size = 32}, 1);
  TestWorker b(Nccl(fallbacks_.Into(PatientNccl())), {}, 2);
  const ReceiveSpec spec{.transfer_id = 1, .blocks = MakeBlocks(0, 4), .tokens = 64};
  ASSERT_TRUE(b.transport().Expect(spec).ok());
  ASSERT_TRUE(
      a.transport().StartSend({.sender_transfer = 1, .ticket = b.Ticket(spec), .tokens = 64}).ok());
  a.transport().Announce(1, MakeBlocks(0, 2), true, "m");
  const TransferEvent received = b.WaitReceived(1);
  EXPECT_EQ(received.kind, Kind::kReceived) << received.status;
  EXPECT_EQ(sender().created, 0);
  ASSERT_EQ(fallbacks_.seen().size(), 1u);
  EXPECT_EQ(fallbacks_.seen()[0],
            absl::UnimplementedError("block_size: ours 16, theirs 32; NCCL moves blocks of one "
                                     "size"));
}

TEST_F(NcclConnectionTest, BlocksOfAnotherLayoutGoThroughACommunicator) {
  TestWorker a(Nccl(PatientNccl()), {.layout = KvLayoutKind::kLayerMajor}, 1);
  TestWorker b(Nccl(PatientNccl()), {}, 2);
  Deliver(a, b, 1);
  EXPECT_EQ(receiver().bytes, Bytes(a, 4));
}

TEST_F(NcclConnectionTest, ASenderWithoutNcclRefusesTheOffer) {
  TestWorker a(Tcp(), {}, 1), b(Nccl(fallbacks_.Into(PatientNccl())), {}, 2);
  for (uint64_t id = 1; id <= 3; ++id) Deliver(a, b, id);
  EXPECT_TRUE(Eventually([&] { return fallbacks_.Has(absl::StatusCode::kUnimplemented); }));
  EXPECT_EQ(fallbacks_.seen().size(), 1u);
}

TEST_F(NcclConnectionTest, DifferentVersionsOfNcclAreNamedAndDoWithoutIt) {
  TestWorker b(Nccl(PatientNccl()), {}, 2);
  fake_.version = 22703;
  TestWorker a(Nccl(fallbacks_.Into(PatientNccl())), {}, 1);
  Deliver(a, b, 1);
  ASSERT_EQ(fallbacks_.seen().size(), 1u);
  EXPECT_EQ(fallbacks_.seen()[0],
            absl::FailedPreconditionError("nccl_version: ours 22703, theirs 22809"));
  EXPECT_EQ(sender().created, 0);
}

// Every way in which creating can fail, at either side.
TEST_F(NcclConnectionTest, ACommunicatorThatCannotBeMadeLeavesItToTcp) {
  const std::vector<std::function<void()>> faults = {
      [&] { fake_.unique_id_result = kNcclSystemError; },
      [&] { sender().create_result = kNcclSystemError; },
      [&] { receiver().create_result = kNcclInvalidUsage; },
      [&] { sender().create_async_result = kNcclSystemError; },
      [&] { receiver().create_async_result = kNcclRemoteError; }};
  for (size_t i = 0; i < faults.size(); ++i) {
    SCOPED_TRACE(i);
    ResetFakeNccl();
    faults[i]();
    Fallbacks fallbacks;
    // The side that does not fail would wait for an hour.
    TestWorker a(Nccl(fallbacks.Into(PatientNccl())), {}, 1);
    TestWorker b(Nccl(PatientNccl()), {}, 2);
    for (uint64_t id = 1; id <= 3; ++id) Deliver(a, b, id);
    EXPECT_TRUE(fallbacks.Has(absl::StatusCode::kUnavailable));
    EXPECT_EQ(receiver().bytes, 0);
  }
}

TEST_F(NcclConnectionTest, ACommunicatorThatIsNotMadeInTimeIsGivenUp) {
  for (const bool at_sender : {true, false}) {
    SCOPED_TRACE(at_sender);
    ResetFakeNccl();
    (at_sender ? sender() : receiver()).create_hangs = true;
    NcclOptions options = PatientNccl();
    options.create_timeout_ms = 50;
    Fallbacks fallbacks;
    TestWorker a(Nccl(fallbacks.Into(options)), {}, 1), b(Nccl(options), {}, 2);
    Deliver(a, b, 1);
    EXPECT_TRUE(fallbacks.Has(absl::StatusCode::kDeadlineExceeded));
    EXPECT_TRUE(Eventually([&] { return sender().aborted == sender().created; }));
    EXPECT_TRUE(Eventually([&] { return receiver().aborted == receiver().created; }));
  }
}

TEST_F(NcclConnectionTest, BlocksWaitForACommunicatorOnlySoLongAndUseItWhenItComes) {
  receiver().create_hangs = true;
  NcclOptions options = PatientNccl();
  options.patience_ms = 20;
  TestWorker a(Nccl(fallbacks_.Into(options)), {}, 1), b(Nccl(options), {}, 2);
  Deliver(a, b, 1);
  EXPECT_EQ(receiver().bytes, 0);
  EXPECT_TRUE(fallbacks_.Has(absl::StatusCode::kDeadlineExceeded));
  receiver().create_hangs = false;
  uint64_t id = 2;
  EXPECT_TRUE(Eventually([&] {
    Deliver(a, b, id++);
    return receiver().bytes > 0;
  }));
}

// The thread that calls NCCL is stuck for good; the transport's own is not.
TEST_F(NcclConnectionTest, ACallThatDoesNotReturnBlocksNobody) {
  sender().create_call_hangs = true;
  NcclOptions options = PatientNccl();
  options.patience_ms = 10;
  options.create_timeout_ms = 50;
  {
    TestWorker a(Nccl(options), {}, 1), b(Nccl(options), {}, 2);
    TestWorker c(Tcp(), {}, 3);
    Deliver(a, b, 1);
    Deliver(c, a, 2);
    Deliver(a, c, 3);
    a.Destroy();  // leaves the thread behind
  }
  sender().create_call_hangs = false;
  EXPECT_TRUE(Eventually([&] { return sender().aborted == 1; }));  // it ends after all
}

TEST_F(NcclConnectionTest, ABatchThatHangsGoesByTcpAndSoDoItsNeighbours) {
  for (const bool at_sender : {true, false}) {
    SCOPED_TRACE(at_sender);
    ResetFakeNccl();
    FakeNcclSide& side = at_sender ? sender() : receiver();
    NcclOptions options = SmallBatches();
    options.batch_timeout_ms = 50;
    Fallbacks fallbacks;
    TestWorker a(Nccl(fallbacks.Into(options)), {}, 1), b(Nccl(options), {}, 2);
    Deliver(a, b, 1);
    const int64_t before = receiver().bytes;
    EXPECT_GT(before, 0);
    side.hangs_at_operation = side.operations + 3;
    std::vector<Transfer> transfers;
    for (uint64_t id = 2; id <= 6; ++id) {
      transfers.push_back(Start(a, b, id, static_cast<int32_t>(id) * 6, 6));
    }
    for (const Transfer& t : transfers) ExpectDelivered(a, b, t);
    EXPECT_TRUE(fallbacks.Has(absl::StatusCode::kDeadlineExceeded));
    // It is late, not dead: nobody aborted it, and once it moves again it is used again.
    EXPECT_EQ(sender().aborted + receiver().aborted, 0);
    side.hangs_at_operation = -1;
    uint64_t id = 100;
    const int64_t landed = receiver().bytes;
    EXPECT_TRUE(Eventually([&] {
      Deliver(a, b, id++);
      return receiver().bytes > landed + Bytes(a, 8);  // more than what was under way
    }));
    EXPECT_EQ(sender().created, 1);
  }
}

TEST_F(NcclConnectionTest, ATransferThatEndsInABatchLeavesItsNeighboursAlone) {
  sender().hangs_at_operation = 0;
  TestWorker a(Nccl(PatientNccl()), {}, 1), b(Nccl(PatientNccl()), {}, 2);
  const Transfer first = Start(a, b, 1, 0, 2);
  EXPECT_TRUE(Eventually([&] { return receiver().operations == 1; }));
  // All of these share batches behind it.
  const Transfer cancelled = Start(a, b, 2, 10, 4);
  const Transfer stays = Start(a, b, 3, 20, 4);
  const Transfer given_up = Start(a, b, 4, 30, 4);
  b.transport().CancelReceive(cancelled.id);
  EXPECT_EQ(b.WaitReceived(cancelled.id).status.code(), absl::StatusCode::kCancelled);
  b.FillRaw(BlockId(10), std::byte{0x5A});  // ours from here on
  a.transport().CancelSend(given_up.id);
  EXPECT_EQ(a.WaitSent(given_up.id).status.code(), absl::StatusCode::kCancelled);
  for (int32_t i = 0; i < 4; ++i) a.FillRaw(BlockId(30 + i), std::byte{0x33});
  sender().hangs_at_operation = -1;
  ExpectDelivered(a, b, first);
  ExpectDelivered(a, b, stays);
  // Its receiver may never have heard of it: then it gives up by itself.
  b.transport().CancelReceive(given_up.id);
  EXPECT_EQ(b.WaitReceived(given_up.id).kind, Kind::kReceiveFailed);
  EXPECT_TRUE(b.IsRaw(BlockId(10), std::byte{0x5A}));
  EXPECT_EQ(sender().aborted + receiver().aborted, 0);
  Deliver(a, b, 9);
  EXPECT_EQ(sender().created, 1);
}

TEST_F(NcclConnectionTest, ATransfersDeadlineEndsItWhileItsBatchHangs) {
  receiver().hangs_at_operation = 0;
  TestWorker a(Nccl(PatientNccl()), {}, 1), b(Nccl(PatientNccl()), {}, 2);
  const ReceiveSpec spec{
      .transfer_id = 1, .blocks = MakeBlocks(0, 2), .tokens = 32, .timeout_ms = 100};
  ASSERT_TRUE(b.transport().Expect(spec).ok());
  ASSERT_TRUE(
      a.transport().StartSend({.sender_transfer = 1, .ticket = b.Ticket(spec), .tokens = 32}).ok());
  a.transport().Announce(1, MakeBlocks(0, 2), true, "m");
  EXPECT_EQ(b.WaitReceived(1).status.code(), absl::StatusCode::kDeadlineExceeded);
  b.FillRaw(BlockId(0), std::byte{0x5A});
  EXPECT_EQ(a.WaitSent(1).kind, Kind::kSendFailed);
  receiver().hangs_at_operation = -1;
  Deliver(a, b, 2);  // behind the one that nobody wants
  EXPECT_EQ(sender().aborted + receiver().aborted, 0);
}

// What NCCL itself calls broken is aborted; its batches go by TCP, and another is made.
TEST_F(NcclConnectionTest, AnErrorInMidTransferGoesOnByTcpAndThenByANewCommunicator) {
  const std::vector<std::function<void()>> faults = {
      [&] { sender().fails_at_operation = 5; },
      [&] { receiver().fails_at_operation = 5; },
      [&] { sender().dies_at_operation = 5; },
      [&] { receiver().dies_at_operation = 5; },
      [&] { sender().issue_result = kNcclInvalidUsage; },
      [&] { receiver().issue_result = kNcclSystemError; },
      [&] { fake_.copy_result = 1; }};
  for (size_t i = 0; i < faults.size(); ++i) {
    SCOPED_TRACE(i);
    ResetFakeNccl();
    NcclOptions options = SmallBatches();
    options.retry_ms = 20;
    Fallbacks fallbacks;
    TestWorker a(Nccl(fallbacks.Into(options)), {}, 1), b(Nccl(options), {}, 2);
    faults[i]();
    std::vector<Transfer> transfers;
    for (uint64_t id = 1; id <= 3; ++id) {
      transfers.push_back(Start(a, b, id, static_cast<int32_t>(id) * 6, 6));
    }
    for (const Transfer& t : transfers) ExpectDelivered(a, b, t);
    EXPECT_TRUE(fallbacks.Has(absl::StatusCode::kUnavailable));
    ResetFakeNccl();
    uint64_t id = 10;
    EXPECT_TRUE(Eventually([&] {
      Deliver(a, b, id++);
      return receiver().bytes > 0;
    }));
  }
}

TEST_F(NcclConnectionTest, AnErrorThatComesWhileNothingIsUnderWayIsFoundAllTheSame) {
  TestWorker a(Nccl(fallbacks_.Into(PatientNccl())), {}, 1), b(Nccl(PatientNccl()), {}, 2);
  Deliver(a, b, 1);
  sender().async_error = kNcclRemoteError;
  EXPECT_TRUE(Eventually([&] { return sender().aborted == 1 && receiver().aborted == 1; }));
  Deliver(a, b, 2);
  EXPECT_TRUE(fallbacks_.Has(absl::StatusCode::kUnavailable));
}

TEST_F(NcclConnectionTest, ABlockThatWasSpoiledOnItsWayFailsItsTransferAlone) {
  sender().spoils_at_operation = 2;
  TestWorker a(Nccl(SmallBatches()), {}, 1), b(Nccl(SmallBatches()), {}, 2);
  const Transfer spoiled = Start(a, b, 1, 0, 8, /*announce=*/false);
  a.transport().Announce(1, MakeBlocks(0, 8), true, "m");
  const TransferEvent event = b.WaitReceived(1);
  EXPECT_EQ(event.status.code(), absl::StatusCode::kDataLoss) << event.status;
  EXPECT_THAT(std::string(event.status.message()), HasSubstr("transfer 1 block 2 layer"));
  EXPECT_EQ(event.blocks_done, 2);
  EXPECT_EQ(a.WaitSent(1).status.code(), absl::StatusCode::kDataLoss);
  Deliver(a, b, 2);
  EXPECT_EQ(sender().created, 1);
}

// A process that sends one transfer of four blocks to the address that it is told. It begins before
// this one has threads.
class SenderProcess {
 public:
  SenderProcess(uint64_t id, bool hangs) : id_(id) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    child_ = fork();
    if (child_ == 0) {
      close(ends[1]);
      Run(ends[0], hangs);
    }
    close(ends[0]);
    address_ = FileDescriptor(ends[1]);
  }
  ~SenderProcess() { Wait(); }

  void Begin(const std::string& address) {
    EXPECT_EQ(write(address_.get(), address.data(), address.size()),
              static_cast<ssize_t>(address.size()));
    address_ = FileDescriptor();
  }
  void Kill() { kill(child_, SIGKILL); }
  int Wait() {
    address_ = FileDescriptor();
    if (child_ > 0) waitpid(std::exchange(child_, 0), &status_, 0);
    return status_;
  }

 private:
  [[noreturn]] void Run(int pipe_end, bool hangs) {
    char address[256] = {};
    if (read(pipe_end, address, sizeof(address) - 1) <= 0) _exit(3);
    if (hangs) TheFakeNccl().sides[0].hangs_at_operation = 1;
    TestWorker a(Nccl(SmallBatches()), {}, id_);
    for (int32_t i = 0; i < 4; ++i) a.FillBlock(BlockId(i), id_ * 10 + i);
    const TransferTicket ticket{
        .transfer_id = id_, .receiver_epoch = Epoch(2), .address = address, .block_count = 4};
    const SendSpec spec{.sender_transfer = id_, .ticket = ticket, .tokens = 64};
    if (!a.transport().StartSend(spec).ok()) _exit(2);
    a.transport().Announce(id_, MakeBlocks(0, 4), true, "m");
    _exit(a.WaitSent(id_).kind == Kind::kSent ? 0 : 1);
  }

  uint64_t id_;
  pid_t child_ = 0;
  int status_ = 0;
  FileDescriptor address_;
};

TEST_F(NcclConnectionTest, AKilledPeersCommunicatorIsAbortedAndItsSuccessorGetsANewOne) {
  SenderProcess first(1, /*hangs=*/true), second(2, /*hangs=*/false);
  TestWorker b(Nccl(PatientNccl()), {}, 2);
  const auto expect = [&](uint64_t id) {
    ASSERT_TRUE(
        b.transport().Expect({.transfer_id = id, .blocks = MakeBlocks(0, 4), .tokens = 64}).ok());
  };
  expect(1);
  first.Begin(b.transport().address());
  b.WaitFor(1, Kind::kReceiving);
  first.Kill();
  EXPECT_EQ(b.WaitReceived(1).status.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(Eventually([&] { return receiver().aborted == 1; }));
  expect(2);
  second.Begin(b.transport().address());
  EXPECT_EQ(b.WaitReceived(2).kind, Kind::kReceived);
  for (int32_t i = 0; i < 4; ++i) EXPECT_EQ(b.Differences(BlockId(i), 20 + i, 16), 0);
  EXPECT_EQ(second.Wait(), 0);
  EXPECT_EQ(receiver().created, 2);
  EXPECT_GE(receiver().bytes, Bytes(b, 5));
}

// ---- hostile peers ----

class HostileNcclSender : public NcclConnectionTest {
 protected:
  HostileNcclSender() {
    peer_.emplace(b_.transport().address());
    peer_->Hello();
    EXPECT_TRUE(peer_->Read<NcclOfferFrame>().has_value());
  }
  // As a sender that makes its rank of the communicator, and no sends.
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

TEST_F(HostileNcclSender, WhatComesOutOfTurnEndsTheConnection) {
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
  Deliver(a, b_, 1);  // on a connection of its own
  EXPECT_EQ(b_.TerminalEvents(77, true), 0);
}

}  // namespace
}  // namespace baton
