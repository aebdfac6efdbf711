// NCCL connections between pools in device memory: blocks never pass host memory, and a transfer
// may end while its blocks are copied.
#include <chrono>
#include <limits>
#include <memory>
#include <string>
#include <thread>
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

// The checksums of a block that was sent before are kept, so they do not match its new bytes.
TEST_F(NcclConnectionTest, DamageInADevicePoolBetweenTwoSendsIsFound) {
  TestWorker a(OnDevice(PatientNccl()), {}, 1), b(OnDevice(PatientNccl()), {}, 2);
  const auto send = [&](uint64_t id) {
    const ReceiveSpec spec{.transfer_id = id, .blocks = MakeBlocks(20, 4), .tokens = 64};
    EXPECT_TRUE(b.transport().Expect(spec).ok());
    EXPECT_TRUE(a.transport()
                    .StartSend({.sender_transfer = id, .ticket = b.Ticket(spec), .tokens = 64})
                    .ok());
    a.transport().Announce(id, MakeBlocks(0, 4), true, "");
    a.WaitSent(id);
    return b.WaitReceived(id);
  };
  for (int32_t i = 0; i < 4; ++i) a.FillBlock(BlockId(i), 70 + i);
  a.transport().Written(MakeBlocks(0, 4), {}, /*group=*/0);
  EXPECT_EQ(send(1).kind, Kind::kReceived);
  std::byte* const damaged = a.pool().data() + a.layout().PieceOffset(1, 1, 2) + 5;
  *damaged ^= std::byte{0x10};
  const TransferEvent event = send(2);
  EXPECT_EQ(event.status.code(), absl::StatusCode::kDataLoss) << event.status;
  EXPECT_THAT(std::string(event.status.message()), HasSubstr("transfer 2 block 2 layer 1 V"));
  EXPECT_EQ(event.blocks_done, 2);
  *damaged ^= std::byte{0x10};
  EXPECT_EQ(send(3).kind, Kind::kReceived);
  EXPECT_EQ(ThroughHost(a) + ThroughHost(b), 0);
}

// Two transfers share a batch. One is cancelled and its block is written again before the batch is
// gathered. The checksums of the old bytes must not be kept for the new ones.
TEST_F(NcclConnectionTest, ABlockThatIsWrittenAgainWhileItsBatchIsGatheredHasNewChecksums) {
  bool shared = false;
  for (uint64_t attempt = 1; attempt <= 50 && !shared; ++attempt) {
    SCOPED_TRACE(attempt);
    TestWorker a(OnDevice(PatientNccl()), {}, 2 * attempt);
    TestWorker b(OnDevice(PatientNccl()), {}, 2 * attempt + 1);
    a.pool().copies().held_from = 2;
    sender().create_hangs = true;
    const int64_t sent = sender().operations;
    Start(a, b, 1, 0, 1);
    const Transfer other = Start(a, b, 2, 10, 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(10 * attempt));  // until both are pulled
    sender().create_hangs = false;
    EXPECT_TRUE(Eventually([&] { return a.pool().copies().begun_on_device == 2; }));
    shared = sender().operations == sent;
    a.transport().CancelSend(1);
    if (!shared) a.pool().copies().held_from = std::numeric_limits<uint64_t>::max();
    const bool cancelled = a.WaitSent(1).kind == Kind::kSendFailed;
    b.WaitReceived(1);
    a.FillBlock(BlockId(0), 77);
    a.transport().Written(MakeBlocks(0, 1), {}, /*group=*/0);
    a.pool().copies().held_from = std::numeric_limits<uint64_t>::max();
    ExpectDelivered(a, b, other);
    shared = shared && cancelled;
    const ReceiveSpec spec{.transfer_id = 3, .blocks = MakeBlocks(20, 1), .tokens = 16};
    ASSERT_TRUE(b.transport().Expect(spec).ok());
    ASSERT_TRUE(a.transport()
                    .StartSend({.sender_transfer = 3, .ticket = b.Ticket(spec), .tokens = 16})
                    .ok());
    a.transport().Announce(3, MakeBlocks(0, 1), true, "");
    const TransferEvent event = b.WaitReceived(3);
    EXPECT_EQ(event.kind, Kind::kReceived) << event.status;
    EXPECT_EQ(b.Differences(BlockId(20), 77, 16), 0);
    a.WaitSent(3);
  }
  EXPECT_TRUE(shared) << "the two blocks never shared a batch";
}

// The sender announces layers of all blocks while it computes the later ones.
TEST_F(NcclConnectionTest, LayersTravelBeforeTheLaterOnesAreWritten) {
  for (const PoolMemory memory : {PoolMemory::kDevice, PoolMemory::kHost}) {
    const auto source = [&](const NcclOptions& options) {
      return memory == PoolMemory::kDevice ? OnDevice(options) : TransportSource(Nccl(options));
    };
    TestWorker a(source(PatientNccl()), {}, 1);
    TestWorker b(source(PatientNccl()), {.layout = KvLayoutKind::kLayerMajor}, 2);
    const int64_t before = receiver().bytes;
    const Transfer t = Start(a, b, 1, 0, 4, /*announce=*/false);
    a.transport().AnnounceLayers(1, MakeBlocks(0, 4), 2);
    const int64_t two = 4 * BlockValidBytes(a.layout(), 16, {.first = 0, .count = 2});
    EXPECT_TRUE(Eventually([&] { return receiver().bytes == before + two; }));
    b.Poll();
    EXPECT_EQ(b.events().size(), 0u);  // no block is whole
    a.transport().Announce(1, MakeBlocks(0, 4), true, "m");
    ExpectDelivered(a, b, t);
    EXPECT_EQ(receiver().bytes, before + Bytes(a, 4));
    EXPECT_EQ(ThroughHost(a) + ThroughHost(b), 0);
  }
}

// A slot holds one whole block, so it holds the layers of three blocks.
TEST_F(NcclConnectionTest, LayersOfSeveralBlocksShareABatch) {
  TestWorker a(OnDevice(SmallBatches()), {}, 1), b(OnDevice(SmallBatches()), {}, 2);
  Deliver(a, b, 1);
  const int64_t before = sender().operations;
  const Transfer t = Start(a, b, 2, 10, 6, /*announce=*/false);
  a.transport().AnnounceLayers(2, MakeBlocks(10, 6), 1);
  EXPECT_TRUE(Eventually([&] { return receiver().operations == before + 2; }));
  a.transport().Announce(2, MakeBlocks(10, 6), true, "m");
  ExpectDelivered(a, b, t);
  EXPECT_EQ(sender().operations, before + 2 + 6);  // two layers are most of a slot
}

TEST_F(NcclConnectionTest, DamagedLayersAreFound) {
  TestWorker a(OnDevice(PatientNccl()), {}, 1), b(OnDevice(PatientNccl()), {}, 2);
  sender().spoils_at_operation = 0;
  Start(a, b, 1, 0, 4, /*announce=*/false);
  a.transport().AnnounceLayers(1, MakeBlocks(0, 4), 2);
  const TransferEvent event = b.WaitReceived(1);
  EXPECT_EQ(event.status.code(), absl::StatusCode::kDataLoss) << event.status;
  EXPECT_EQ(a.WaitSent(1).status.code(), absl::StatusCode::kDataLoss);
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
