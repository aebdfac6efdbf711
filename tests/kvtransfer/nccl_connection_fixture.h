// Fixture for tests of NCCL connections: two transports over the fake NCCL, and transfers between
// them.
#pragma once

#include <chrono>
#include <functional>
#include <thread>

#include "gtest/gtest.h"
#include "kvtransfer/nccl/nccl_options.h"
#include "tests/kvtransfer/fake_nccl_script.h"
#include "tests/kvtransfer/hostile_peer.h"

namespace baton {

inline bool Eventually(const std::function<bool()>& what) {
  for (int i = 0; i < 30'000; ++i) {
    if (what()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

class NcclConnectionTest : public ::testing::Test {
 protected:
  // The receiver may report its KV before the sender's thread has logged.
  void WaitForAFallback() {
    EXPECT_TRUE(Eventually([&] { return !fallbacks_.seen().empty(); }));
  }
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
  // Starts a transfer of `count` blocks, from block `at` on in both pools.
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
    ASSERT_EQ(received.kind, TransferEvent::Kind::kReceived) << received.status;
    EXPECT_EQ(received.manifest, "m");
    for (size_t i = 0; i < t.spec.blocks.size(); ++i) {
      EXPECT_EQ(to.Differences(t.spec.blocks[i], t.id * 10 + i, 16), 0) << "block " << i;
    }
    const TransferEvent sent = from.WaitSent(t.id);
    EXPECT_EQ(sent.kind, TransferEvent::Kind::kSent) << sent.status;
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

// Returns options for hundreds of small batches, so that many are in flight and many still wait.
inline NcclOptions SmallBatches() {
  NcclOptions options = PatientNccl();
  options.batch_bytes = 1;  // raised to one block
  return options;
}

}  // namespace baton
