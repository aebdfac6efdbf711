// Contract tests of KvTransport (kvtransfer/transport.h), run with every transport: failures of
// transfers.

#include <random>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvtransfer/transport.h"
#include "tests/kvtransfer/transport_contract.h"

namespace baton {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Kind = TransferEvent::Kind;

class TransportFailureContract : public TransportContract {};

INSTANTIATE_TEST_SUITE_P(Each, TransportFailureContract, EveryMedium(), MediumName);

class TransportCopyContract : public TransportFailureContract {};
INSTANTIATE_TEST_SUITE_P(Each, TransportCopyContract, EveryMediumWithCopies(), MediumName);

TEST_P(TransportFailureContract, ReceiverTimesOutWithoutASender) {
  TestWorker b(Factory(), {}, 2);
  ASSERT_TRUE(
      b.transport()
          .Expect({.transfer_id = 5, .blocks = MakeBlocks(0, 2), .tokens = 32, .timeout_ms = 30})
          .ok());
  const TransferEvent event = b.WaitReceived(5);
  EXPECT_EQ(event.kind, Kind::kReceiveFailed);
  EXPECT_EQ(event.status.code(), absl::StatusCode::kDeadlineExceeded) << event.status;
}

TEST_P(TransportFailureContract, BothSidesTimeOutWhenTheSenderNeverFinishes) {
  TestWorker a(Factory(), {}, 1), b(Factory(), {}, 2);
  ReceiveSpec spec{.transfer_id = 5, .blocks = MakeBlocks(0, 2), .tokens = 32, .timeout_ms = 300};
  ASSERT_TRUE(b.transport().Expect(spec).ok());
  TransferTicket ticket = b.Ticket(spec);
  ASSERT_TRUE(a.transport().StartSend({.sender_transfer = 1, .ticket = ticket, .tokens = 32}).ok());
  a.transport().Announce(1, MakeBlocks(0, 1), false, "");
  const TransferEvent received = b.WaitReceived(5);
  EXPECT_EQ(received.status.code(), absl::StatusCode::kDeadlineExceeded) << received.status;
  EXPECT_EQ(a.WaitSent(1).status.code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_P(TransportFailureContract, UnknownTransferFailsTheSenderOnly) {
  TestWorker a(Factory(), {}, 1), b(Factory(), {}, 2);
  TransferTicket ticket{.transfer_id = 99,
                        .receiver_epoch = Epoch(2),
                        .address = b.transport().address(),
                        .block_count = 2};
  ASSERT_TRUE(a.transport().StartSend({.sender_transfer = 1, .ticket = ticket, .tokens = 32}).ok());
  const TransferEvent event = a.WaitSent(1);
  EXPECT_EQ(event.status.code(), absl::StatusCode::kNotFound) << event.status;
  Transfer(a, b, 2, 64, 0, 4);
}

TEST_P(TransportFailureContract, WrongEpochIsRefused) {
  TestWorker a(Factory(), {}, 1), b(Factory(), {}, 2);
  const ReceiveSpec spec{.transfer_id = 3, .blocks = MakeBlocks(0, 2), .tokens = 32};
  ASSERT_TRUE(b.transport().Expect(spec).ok());
  TransferTicket ticket = b.Ticket(spec);
  ticket.receiver_epoch = Epoch(1);
  ASSERT_TRUE(a.transport().StartSend({.sender_transfer = 1, .ticket = ticket, .tokens = 32}).ok());
  const TransferEvent event = a.WaitSent(1);
  EXPECT_EQ(event.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(event.status.message()), HasSubstr("receiver_epoch"));
}

TEST_P(TransportFailureContract, HandshakeNamesTheFieldThatDiffers) {
  TestWorker b(Factory(), {}, 2);
  const auto refused = [&](const char* field, const std::function<void(KvFingerprint&)>& change,
                           const TestShape& shape = {}) {
    SCOPED_TRACE(field);
    KvFingerprint fingerprint = MakeFingerprint(shape);
    change(fingerprint);
    TestWorker a(Factory(), shape, 1, 0, fingerprint);
    const TransferTicket ticket{.transfer_id = 1,
                                .receiver_epoch = Epoch(2),
                                .address = b.transport().address(),
                                .block_count = 1};
    ASSERT_TRUE(
        a.transport().StartSend({.sender_transfer = 1, .ticket = ticket, .tokens = 1}).ok());
    const TransferEvent event = a.WaitSent(1);
    EXPECT_EQ(event.status.code(), absl::StatusCode::kFailedPrecondition) << event.status;
    EXPECT_THAT(std::string(event.status.message()),
                AllOf(HasSubstr(std::string(field) + ": ours "), HasSubstr(", theirs ")));
  };
  refused("protocol_version", [](KvFingerprint& f) { f.protocol = {.oldest = 8, .newest = 9}; });
  refused("protocol_version", [](KvFingerprint& f) { f.protocol = {.oldest = 3, .newest = 4}; });
  refused("model", [](KvFingerprint& f) { f.model = "other"; });
  refused("backend", [](KvFingerprint& f) { f.backend = "cuda"; });
  refused("numerics", [](KvFingerprint& f) { f.numerics = "r2"; });
  refused("numerics", [](KvFingerprint& f) { f.numerics = "half"; });
  refused("kv_type", [](KvFingerprint& f) { f.kv_type = "f32"; });
  refused("layers", [](KvFingerprint& f) { f.layers = 4; });
  refused("kv_heads", [](KvFingerprint& f) { f.kv_heads = 1; });
  refused("head_dim", [](KvFingerprint& f) { f.head_dim = 16; });
  refused("rope", [](KvFingerprint& f) { f.rope = "neox theta=500000"; });
}

TEST_P(TransportFailureContract, AReceiverThatGoesAwayFailsTheSender) {
  TestWorker a(Factory(), {}, 1);
  TestWorker b(Factory(), {}, 2);
  const ReceiveSpec spec{.transfer_id = 5, .blocks = MakeBlocks(0, 2), .tokens = 32};
  ASSERT_TRUE(b.transport().Expect(spec).ok());
  ASSERT_TRUE(
      a.transport().StartSend({.sender_transfer = 1, .ticket = b.Ticket(spec), .tokens = 32}).ok());
  a.transport().Announce(1, MakeBlocks(0, 1), false, "");
  b.WaitFor(5, Kind::kReceiving);
  b.Destroy();
  const TransferEvent event = a.WaitSent(1);
  EXPECT_EQ(event.kind, Kind::kSendFailed);
  EXPECT_EQ(event.status.code(), absl::StatusCode::kUnavailable) << event.status;
}

TEST_P(TransportFailureContract, ASenderThatGoesAwayFailsTheReceiver) {
  TestWorker a(Factory(), {}, 1);
  TestWorker b(Factory(), {}, 2);
  const ReceiveSpec spec{.transfer_id = 5, .blocks = MakeBlocks(0, 2), .tokens = 32};
  ASSERT_TRUE(b.transport().Expect(spec).ok());
  ASSERT_TRUE(
      a.transport().StartSend({.sender_transfer = 1, .ticket = b.Ticket(spec), .tokens = 32}).ok());
  a.transport().Announce(1, MakeBlocks(0, 1), false, "");
  b.WaitFor(5, Kind::kReceiving);
  a.Destroy();
  const TransferEvent event = b.WaitReceived(5);
  EXPECT_EQ(event.kind, Kind::kReceiveFailed);
  EXPECT_EQ(event.status.code(), absl::StatusCode::kUnavailable) << event.status;
}

TEST_P(TransportFailureContract, WrongAnnouncementsFailTheTransferAtBothSides) {
  TestWorker a(Factory(), {}, 1), b(Factory(), {}, 2);
  uint64_t id = 0;
  const auto fails = [&](const std::vector<BlockId>& blocks, bool final, std::string manifest) {
    ++id;
    const ReceiveSpec spec{.transfer_id = id, .blocks = MakeBlocks(0, 2), .tokens = 32};
    ASSERT_TRUE(b.transport().Expect(spec).ok());
    ASSERT_TRUE(a.transport()
                    .StartSend({.sender_transfer = id, .ticket = b.Ticket(spec), .tokens = 32})
                    .ok());
    a.transport().Announce(id, MakeBlocks(0, 1), false, "");
    b.WaitFor(id, Kind::kReceiving);
    a.transport().Announce(id, blocks, final, std::move(manifest));
    EXPECT_EQ(a.WaitSent(id).status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(b.WaitReceived(id).status.code(), absl::StatusCode::kInvalidArgument);
  };
  fails(MakeBlocks(1, 2), true, "");  // too many
  fails({}, true, "");                // too few
  fails({BlockId(64)}, false, "");    // outside the pool
  fails({kNoBlock}, false, "");
  fails({BlockId(1)}, true, std::string(kMaxManifestBytes + 1, 'm'));  // manifest over its limit
}

TEST_P(TransportFailureContract, PostsAreCheckedAtOnce) {
  TestWorker b(Factory(), {}, 2, 0, {}, /*max_transfers=*/2);
  KvTransport& t = b.transport();
  const auto code = [&](const ReceiveSpec& spec) { return t.Expect(spec).code(); };
  using absl::StatusCode;
  EXPECT_EQ(code({.transfer_id = 1, .blocks = MakeBlocks(0, 3), .tokens = 32}),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.transfer_id = 1, .blocks = {BlockId(0), BlockId(64)}, .tokens = 32}),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.transfer_id = 1, .blocks = {BlockId(3), BlockId(3)}, .tokens = 32}),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.transfer_id = 1, .first_block = -1, .blocks = MakeBlocks(0, 3), .tokens = 32}),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.transfer_id = 1, .blocks = {}, .tokens = 0}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.transfer_id = 1, .blocks = MakeBlocks(0, 2), .tokens = 32, .timeout_ms = -1}),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.transfer_id = 1, .blocks = MakeBlocks(0, 2), .tokens = 32}), StatusCode::kOk);
  EXPECT_EQ(code({.transfer_id = 1, .blocks = MakeBlocks(2, 2), .tokens = 32}),
            StatusCode::kAlreadyExists);
  EXPECT_EQ(code({.transfer_id = 2, .blocks = MakeBlocks(2, 2), .tokens = 32}), StatusCode::kOk);
  EXPECT_EQ(code({.transfer_id = 3, .blocks = MakeBlocks(4, 2), .tokens = 32}),
            StatusCode::kResourceExhausted);
  // A polled terminal event frees a place, even for the same id.
  t.CancelReceive(1);
  EXPECT_EQ(b.WaitReceived(1).status.code(), StatusCode::kCancelled);
  EXPECT_EQ(code({.transfer_id = 1, .blocks = MakeBlocks(0, 2), .tokens = 32}), StatusCode::kOk);

  TransferTicket ticket{
      .transfer_id = 9, .receiver_epoch = Epoch(4), .address = "", .block_count = 2};
  for (const char* address :
       {"", "pigeon:7", "tcp:", "tcp:127.0.0.1", "tcp:127.0.0.1:", "tcp::1", "tcp:127.0.0.1:99999",
        "tcp:127.0.0.1:-1", "tcp:a.host:1", "shm:", "shm:a/b", "shm:a,", "shm:a,tcp:", ","}) {
    ticket.address = address;
    EXPECT_EQ(t.StartSend({.sender_transfer = 1, .ticket = ticket, .tokens = 32}).code(),
              StatusCode::kInvalidArgument)
        << address;
  }
  ticket.address = t.address();
  ticket.block_count = 3;
  EXPECT_EQ(t.StartSend({.sender_transfer = 1, .ticket = ticket, .tokens = 32}).code(),
            StatusCode::kInvalidArgument);
}

TEST_P(TransportFailureContract, AnAddressWithoutAListenerFailsTheTransfer) {
  TestWorker a(Factory(), {}, 1);
  TransferTicket ticket{
      .transfer_id = 9, .receiver_epoch = Epoch(4), .address = "", .block_count = 2};
  const std::map<Medium, std::string> nobody = {{Medium::kLoopback, "loopback:nobody"},
                                                {Medium::kTcp, "tcp:127.0.0.1:1"},
                                                {Medium::kTls, "tcp:127.0.0.1:1"},
                                                {Medium::kShm, "shm:nobody"},
                                                {Medium::kShmOrTcp, "shm:nobody,tcp:127.0.0.1:1"},
                                                {Medium::kNccl, "tcp:127.0.0.1:1"}};
  ticket.address = nobody.at(medium());
  ASSERT_TRUE(a.transport().StartSend({.sender_transfer = 1, .ticket = ticket, .tokens = 32}).ok());
  EXPECT_EQ(a.WaitSent(1).status.code(), absl::StatusCode::kUnavailable);
}

TEST_P(TransportCopyContract, ACopyThatFailsFailsItsTransferAlone) {
  for (const bool at_the_sender : {true, false}) {
    TestWorker a(Factory(), {}, 1), b(Factory(), {}, 2);
    const ReceiveSpec spec{.transfer_id = 5, .blocks = MakeBlocks(0, 2), .tokens = 32};
    ASSERT_TRUE(b.transport().Expect(spec).ok());
    (at_the_sender ? a : b).pool().copies().begin_result = absl::UnavailableError("no stream");
    ASSERT_TRUE(a.transport()
                    .StartSend({.sender_transfer = 1, .ticket = b.Ticket(spec), .tokens = 32})
                    .ok());
    a.transport().Announce(1, MakeBlocks(0, 2), true, "");
    for (const TransferEvent& event : {a.WaitSent(1), b.WaitReceived(5)}) {
      EXPECT_EQ(event.status.code(), absl::StatusCode::kUnavailable);
      EXPECT_THAT(std::string(event.status.message()), HasSubstr("no stream"));
    }
    EXPECT_EQ(b.WaitReceived(5).blocks_done, 0);
    (at_the_sender ? a : b).pool().copies().begin_result = absl::OkStatus();
    // A failed gather aborts the communicator, so blocks go over TCP.
    if (medium() == Medium::kNccl && at_the_sender) continue;
    Transfer(a, b, 2, 64, 0, 4);
  }
}

// When a transfer is cancelled, its event comes only after the running copy of its blocks has
// ended. So whatever the engine then writes there stays.
TEST_P(TransportCopyContract, NoEventComesWhileACopyOfItsBlocksRuns) {
  for (const bool at_the_sender : {true, false}) {
    TestWorker a(Factory(), {}, 1), b(Factory(), {}, 2);
    TestWorker& waits = at_the_sender ? a : b;
    SlowCopies& copies = waits.pool().copies();
    const ReceiveSpec spec{.transfer_id = 5, .blocks = MakeBlocks(0, 4), .tokens = 64};
    ASSERT_TRUE(b.transport().Expect(spec).ok());
    copies.held = true;
    ASSERT_TRUE(a.transport()
                    .StartSend({.sender_transfer = 5, .ticket = b.Ticket(spec), .tokens = 64})
                    .ok());
    a.transport().Announce(5, MakeBlocks(0, 4), true, "");
    while (copies.begun == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    a.transport().CancelSend(5);
    b.transport().CancelReceive(5);
    TestWorker& other = at_the_sender ? b : a;
    at_the_sender ? other.WaitReceived(5) : other.WaitSent(5);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    waits.Poll();
    EXPECT_EQ(waits.TerminalEvents(5, !at_the_sender), 0);
    copies.held = false;
    at_the_sender ? waits.WaitSent(5) : waits.WaitReceived(5);
    for (int32_t i = 0; i < 4; ++i) waits.FillRaw(BlockId(i), std::byte{0x5A});
    Transfer(a, b, 1000, 64, 0, 4);  // into blocks 1 to 4
    EXPECT_TRUE(waits.IsRaw(BlockId(0), std::byte{0x5A}));
  }
}

}  // namespace
}  // namespace baton
