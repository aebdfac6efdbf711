// NCCL connections between pools in device memory: blocks never pass host memory, and a transfer
// may end while its blocks are copied.
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvtransfer/nccl/nccl_connection.h"
#include "kvtransfer/nccl/nccl_options.h"
#include "tests/kvtransfer/nccl_connection_fixture.h"

namespace baton {
namespace {

using Kind = TransferEvent::Kind;
using ::testing::HasSubstr;

// Source of workers with pools in the memory of the emulated device.
TransportSource OnDevice(const NcclOptions& options) {
  TransportSource source(Nccl(options), PoolMemory::kDevice);
  source.introduce = IntroduceToTheFakeDevice;
  return source;
}

int64_t ThroughHost(TestWorker& worker) { return worker.pool().lender().BytesThroughHost(); }

TEST_F(NcclConnectionTest, BlocksOfDevicePoolsDoNotPassHostMemory) {
  for (const KvLayoutKind layout : {KvLayoutKind::kBlockMajor, KvLayoutKind::kLayerMajor}) {
    TestWorker a(OnDevice(PatientNccl()), {.layout = layout}, 1);
    TestWorker b(OnDevice(PatientNccl()), {}, 2);
    for (uint64_t id = 1; id <= 3; ++id) {
      Deliver(a, b, id);
      Deliver(b, a, id + 10);
    }
    EXPECT_EQ(ThroughHost(a) + ThroughHost(b), 0);
    EXPECT_EQ(a.pool().copies().begun_on_device, 24);
    EXPECT_EQ(b.pool().copies().begun_on_device, 24);
  }
}

// The counter counts.
TEST_F(NcclConnectionTest, BlocksOfDevicePoolsPassHostMemoryOverTcp) {
  TestWorker a(TransportSource(Tcp(), PoolMemory::kDevice), {}, 1);
  TestWorker b(TransportSource(Tcp(), PoolMemory::kDevice), {}, 2);
  Deliver(a, b, 1);
  EXPECT_EQ(ThroughHost(a), Bytes(a, 4));
  EXPECT_EQ(ThroughHost(b), Bytes(b, 4));
}

TEST_F(NcclConnectionTest, ADevicePoolAndAHostPoolExchangeBlocks) {
  TestWorker a(OnDevice(PatientNccl()), {}, 1), b(Nccl(PatientNccl()), {}, 2);
  Deliver(a, b, 1);
  EXPECT_EQ(receiver().bytes, Bytes(a, 4));
  Deliver(b, a, 2);
  EXPECT_EQ(receiver().bytes, Bytes(a, 8));
  EXPECT_EQ(ThroughHost(a), 0);
}

TEST_F(NcclConnectionTest, ABatchIsSentWhenItsBlocksAreGathered) {
  TestWorker a(OnDevice(PatientNccl()), {}, 1), b(OnDevice(PatientNccl()), {}, 2);
  a.pool().copies().held = true;
  const Transfer t = Start(a, b, 1, 0, 4);
  EXPECT_TRUE(Eventually([&] { return a.pool().copies().begun_on_device == 4; }));
  EXPECT_EQ(sender().operations, 0);
  a.pool().copies().held = false;
  ExpectDelivered(a, b, t);
}

TEST_F(NcclConnectionTest, ABlockIsScatteredWhenItsBatchHasArrived) {
  receiver().polls_per_operation = 20;
  TestWorker a(OnDevice(SmallBatches()), {}, 1), b(OnDevice(SmallBatches()), {}, 2);
  for (uint64_t id = 1; id <= 3; ++id) Deliver(a, b, id);
  EXPECT_EQ(receiver().bytes, Bytes(a, 12));
}

TEST_F(NcclConnectionTest, ATransferThatEndsWhileItIsGatheredKeepsItsBlocksUntilThen) {
  TestWorker a(OnDevice(PatientNccl()), {}, 1), b(OnDevice(PatientNccl()), {}, 2);
  a.pool().copies().held = true;
  const Transfer cancelled = Start(a, b, 1, 0, 4);
  EXPECT_TRUE(Eventually([&] { return a.pool().copies().begun_on_device == 4; }));
  a.transport().CancelSend(1);
  EXPECT_EQ(b.WaitReceived(1).kind, Kind::kReceiveFailed);  // so the sender has cancelled it
  a.Poll();
  EXPECT_EQ(a.TerminalEvents(1, false), 0);
  a.pool().copies().held = false;
  EXPECT_EQ(a.WaitSent(1).status.code(), absl::StatusCode::kCancelled);
  Deliver(a, b, 2);
  EXPECT_EQ(sender().created, 1);
  EXPECT_EQ(ThroughHost(a) + ThroughHost(b), 0);
}

TEST_F(NcclConnectionTest, ATransferThatEndsWhileItLandsKeepsItsBlocksUntilThen) {
  TestWorker a(OnDevice(PatientNccl()), {}, 1), b(OnDevice(PatientNccl()), {}, 2);
  b.pool().copies().held = true;
  const Transfer cancelled = Start(a, b, 1, 0, 4);
  EXPECT_TRUE(Eventually([&] { return b.pool().copies().begun_on_device == 1; }));
  b.transport().CancelReceive(1);
  EXPECT_EQ(a.WaitSent(1).kind, Kind::kSendFailed);  // so the receiver has cancelled it
  b.Poll();
  EXPECT_EQ(b.TerminalEvents(1, true), 0);
  b.pool().copies().held = false;
  EXPECT_EQ(b.WaitReceived(1).status.code(), absl::StatusCode::kCancelled);
  for (int32_t i = 0; i < 4; ++i) b.FillRaw(BlockId(i), std::byte{0x5A});
  ExpectDelivered(a, b, Start(a, b, 2, 10, 4));
  for (int32_t i = 0; i < 4; ++i) EXPECT_TRUE(b.IsRaw(BlockId(i), std::byte{0x5A}));
  EXPECT_EQ(receiver().created, 1);
}

TEST_F(NcclConnectionTest, BlocksThatAreBeingGatheredGoByTcpIfTheCommunicatorFails) {
  TestWorker a(OnDevice(fallbacks_.Into(PatientNccl())), {}, 1);
  TestWorker b(OnDevice(PatientNccl()), {}, 2);
  Deliver(a, b, 1);
  a.pool().copies().held = true;
  const Transfer t = Start(a, b, 2, 10, 4);
  EXPECT_TRUE(Eventually([&] { return a.pool().copies().begun_on_device == 8; }));
  sender().async_error = kNcclRemoteError;
  EXPECT_TRUE(Eventually([&] { return fallbacks_.Has(absl::StatusCode::kUnavailable); }));
  a.pool().copies().held = false;
  ExpectDelivered(a, b, t);
  EXPECT_EQ(ThroughHost(a), Bytes(a, 4));
}

// A connection ends while its pools copy.
TEST_F(NcclConnectionTest, APeerMayEndWhileBlocksAreCopied) {
  for (const bool gather : {true, false}) {
    TestWorker a(OnDevice(PatientNccl()), {}, 1), b(OnDevice(PatientNccl()), {}, 2);
    TestWorker& holding = gather ? a : b;
    TestWorker& ending = gather ? b : a;
    holding.pool().copies().held = true;
    Start(a, b, 1, 0, 4);
    EXPECT_TRUE(Eventually([&] { return holding.pool().copies().begun_on_device > 0; }));
    ending.Destroy();
    holding.pool().copies().held = false;
    const TransferEvent ended = gather ? holding.WaitSent(1) : holding.WaitReceived(1);
    if (ended.kind == Kind::kReceived) {  // its batch had arrived
      for (int32_t i = 0; i < 4; ++i) EXPECT_EQ(b.Differences(BlockId(i), 10 + i, 16), 0);
    } else {
      EXPECT_EQ(ended.status.code(), absl::StatusCode::kUnavailable) << ended.status;
    }
  }
}

TEST_F(NcclConnectionTest, DamageOnTheWayToADevicePoolIsFound) {
  sender().spoils_at_operation = 2;
  TestWorker a(OnDevice(SmallBatches()), {}, 1), b(OnDevice(SmallBatches()), {}, 2);
  Start(a, b, 1, 0, 8);
  const TransferEvent event = b.WaitReceived(1);
  EXPECT_EQ(event.status.code(), absl::StatusCode::kDataLoss) << event.status;
  EXPECT_THAT(std::string(event.status.message()), HasSubstr("transfer 1 block 2 layer"));
  EXPECT_EQ(a.WaitSent(1).status.code(), absl::StatusCode::kDataLoss);
  Deliver(a, b, 2);
}

TEST_F(NcclConnectionTest, AGatherThatFailsLeavesTheBlocksToTcp) {
  TestWorker a(OnDevice(fallbacks_.Into(PatientNccl())), {}, 1);
  TestWorker b(OnDevice(PatientNccl()), {}, 2);
  TheCallFaults().copy_result = kCuInvalidValue;
  const Transfer t = Start(a, b, 1, 0, 4);
  ExpectDelivered(a, b, t);  // copies to staging memory of the host do not fail in this test
  EXPECT_TRUE(fallbacks_.Has(absl::StatusCode::kUnavailable));
  EXPECT_EQ(receiver().bytes, 0);
}

}  // namespace
}  // namespace baton
