// Transports that move payload over the fake NCCL, and over TCP if that fails. Timeouts are real,
// but nothing is measured: a test waits for events.

#include "kvtransfer/nccl/nccl_connection.h"

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvtransfer/nccl/nccl_options.h"
#include "tests/kvtransfer/nccl_connection_fixture.h"

namespace baton {
namespace {

using Kind = TransferEvent::Kind;
using ::testing::HasSubstr;

TEST_F(NcclConnectionTest, PayloadOfManyTransfersGoesThroughOneCommunicator) {
  TestWorker a(Nccl(fallbacks_.Into(PatientNccl())), {}, 1), b(Nccl(PatientNccl()), {}, 2);
  std::vector<Transfer> transfers;
  for (uint64_t id = 1; id <= 10; ++id) {
    transfers.push_back(Start(a, b, id, static_cast<int32_t>(id) * 5, 5));
  }
  for (const Transfer& t : transfers) ExpectDelivered(a, b, t);
  // The sender counts an operation when it sees its end. Its transfers end when the receiver says
  // so, which may be earlier.
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

TEST_F(NcclConnectionTest, WithoutALibraryPayloadGoesByTcpAndTheReasonIsLoggedOnce) {
  NcclOptions missing = PatientNccl();
  missing.nccl_libraries = {"libnccl-that-nobody-has.so"};
  TestWorker a(Nccl(fallbacks_.Into(missing)), {}, 1), b(Nccl(PatientNccl()), {}, 2);
  for (uint64_t id = 1; id <= 3; ++id) Deliver(a, b, id);
  for (uint64_t id = 4; id <= 6; ++id) Deliver(b, a, id);
  EXPECT_EQ(sender().created, 0);
  WaitForAFallback();
  ASSERT_EQ(fallbacks_.seen().size(), 1u);
  EXPECT_EQ(fallbacks_.seen()[0].code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(fallbacks_.seen()[0].message()), HasSubstr("that-nobody-has"));
}

TEST_F(NcclConnectionTest, BlocksOfAnotherSizeGoByTcpAndTheReasonIsLogged) {
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
  WaitForAFallback();
  ASSERT_EQ(fallbacks_.seen().size(), 1u);
  EXPECT_EQ(fallbacks_.seen()[0],
            absl::UnimplementedError("block_size: ours 16, theirs 32; NCCL needs equal block "
                                     "sizes"));
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

TEST_F(NcclConnectionTest, ASenderLogsOnceThatAReceiverHasNoNccl) {
  TestWorker a(Nccl(fallbacks_.Into(PatientNccl())), {}, 1), b(Tcp(), {}, 2);
  for (uint64_t id = 1; id <= 3; ++id) Deliver(a, b, id);
  EXPECT_EQ(sender().created, 0);
  WaitForAFallback();
  ASSERT_EQ(fallbacks_.seen().size(), 1u);
  EXPECT_THAT(std::string(fallbacks_.seen()[0].message()),
              HasSubstr("the receiver offers no NCCL"));
}

TEST_F(NcclConnectionTest, DifferentVersionsOfNcclAreNamedAndDoWithoutIt) {
  TestWorker b(Nccl(PatientNccl()), {}, 2);
  fake_.version = 22703;
  TestWorker a(Nccl(fallbacks_.Into(PatientNccl())), {}, 1);
  Deliver(a, b, 1);
  WaitForAFallback();
  ASSERT_EQ(fallbacks_.seen().size(), 1u);
  EXPECT_EQ(fallbacks_.seen()[0],
            absl::FailedPreconditionError("nccl_version: ours 22703, theirs 22809"));
  EXPECT_EQ(sender().created, 0);
}

// Every way in which creation can fail, on either side.
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

TEST_F(NcclConnectionTest, ACommunicatorThatIsNotMadeInTimeIsAbandoned) {
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

// The thread that calls NCCL hangs forever; the transport's own thread does not.
TEST_F(NcclConnectionTest, ACallThatDoesNotReturnBlocksNoOtherThread) {
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
    a.Destroy();  // abandons the thread
  }
  sender().create_call_hangs = false;
  EXPECT_TRUE(Eventually([&] { return sender().aborted == 1; }));  // the call returned after all
}

}  // namespace
}  // namespace baton
