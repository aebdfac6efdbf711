// Effects on transfers, and on other transfers of the same communicator, when NCCL hangs or fails
// or its peer is killed.
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <optional>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvtransfer/nccl/nccl_connection.h"
#include "kvtransfer/nccl/nccl_options.h"
#include "tests/kvtransfer/nccl_connection_fixture.h"

namespace baton {
namespace {

using Kind = TransferEvent::Kind;
using ::testing::HasSubstr;

TEST_F(NcclConnectionTest, ABatchThatHangsGoesByTcpAndSoDoItsNeighbours) {
  for (const bool at_sender : {true, false}) {
    SCOPED_TRACE(at_sender);
    ResetFakeNccl();
    FakeNcclSide& side = at_sender ? sender() : receiver();
    NcclOptions options = SmallBatches();
    options.batch_timeout_ms = 50;
    Fallbacks fallbacks;
    TestWorker a(Nccl(fallbacks.Into(options)), {}, 1), b(Nccl(options), {}, 2);
    uint64_t id = 100;
    EXPECT_TRUE(Eventually([&] {  // a busy machine may need more than 50 ms for a batch
      Deliver(a, b, id++);
      return receiver().bytes > 0;
    }));
    side.hangs_at_operation = side.operations + 3;
    std::vector<Transfer> transfers;
    for (uint64_t late = 2; late <= 6; ++late) {
      transfers.push_back(Start(a, b, late, static_cast<int32_t>(late) * 6, 6));
    }
    for (const Transfer& t : transfers) ExpectDelivered(a, b, t);
    EXPECT_TRUE(fallbacks.Has(absl::StatusCode::kDeadlineExceeded));
    // It is late, not dead. No side aborts it, and it is used again when it moves again.
    EXPECT_EQ(sender().aborted + receiver().aborted, 0);
    side.hangs_at_operation = -1;
    const int64_t landed = receiver().bytes;
    EXPECT_TRUE(Eventually([&] {
      Deliver(a, b, id++);
      return receiver().bytes > landed + Bytes(a, 8);  // more than was in flight
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
  b.FillRaw(BlockId(10), std::byte{0x5A});  // the blocks belong to the engine again
  a.transport().CancelSend(given_up.id);
  EXPECT_EQ(a.WaitSent(given_up.id).status.code(), absl::StatusCode::kCancelled);
  for (int32_t i = 0; i < 4; ++i) a.FillRaw(BlockId(30 + i), std::byte{0x33});
  sender().hangs_at_operation = -1;
  ExpectDelivered(a, b, first);
  ExpectDelivered(a, b, stays);
  // The receiver may not know the transfer yet. Then it must cancel it itself.
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
  Deliver(a, b, 2);  // behind the batch that is no longer wanted
  EXPECT_EQ(sender().aborted + receiver().aborted, 0);
}

// A communicator that NCCL reports as broken is aborted. Its batches go over TCP, and a new one is
// created.
TEST_F(NcclConnectionTest, AnErrorInMidTransferGoesOnByTcpAndThenByANewCommunicator) {
  const std::vector<std::function<void()>> faults = {
      [&] { sender().fails_at_operation = 5; },
      [&] { receiver().fails_at_operation = 5; },
      [&] { sender().dies_at_operation = 5; },
      [&] { receiver().dies_at_operation = 5; },
      [&] { sender().issue_result = kNcclInvalidUsage; },
      [&] { receiver().issue_result = kNcclSystemError; },
      [&] { TheCallFaults().copy_result = kCuInvalidValue; }};
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

TEST_F(NcclConnectionTest, AnErrorWithoutTransfersInFlightIsFound) {
  TestWorker a(Nccl(fallbacks_.Into(PatientNccl())), {}, 1), b(Nccl(PatientNccl()), {}, 2);
  Deliver(a, b, 1);
  sender().async_error = kNcclRemoteError;
  EXPECT_TRUE(Eventually([&] { return sender().aborted == 1 && receiver().aborted == 1; }));
  Deliver(a, b, 2);
  EXPECT_TRUE(fallbacks_.Has(absl::StatusCode::kUnavailable));
}

TEST_F(NcclConnectionTest, ACorruptedBlockFailsOnlyItsTransfer) {
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

// A process that sends one transfer of four blocks to a given address. It is forked before this
// process has threads.
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

}  // namespace
}  // namespace baton
