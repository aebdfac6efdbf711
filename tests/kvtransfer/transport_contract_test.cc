// Contract tests of KvTransport (kvtransfer/transport.h), run with every transport: the bytes that
// arrive, and the owner of each block at each time.

#include "tests/kvtransfer/transport_contract.h"

#include <random>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvtransfer/transport.h"

namespace baton {
namespace {

using Kind = TransferEvent::Kind;

INSTANTIATE_TEST_SUITE_P(Each, TransportContract, EveryMedium(), MediumName);

class TransportMixedContract : public TransportContract {};
INSTANTIATE_TEST_SUITE_P(Each, TransportMixedContract, EveryMediumWithCopies(), MediumName);

TEST_P(TransportContract, CarriesAWholePrompt) {
  TestWorker a(Factory(), {}, 1), b(Factory(), {}, 2);
  Transfer(a, b, 1, 16 * 8, 0, 8);
}

TEST_P(TransportContract, CarriesOnlyTheValidTokensOfAPartFullLastBlock) {
  for (const KvLayoutKind layout : {KvLayoutKind::kBlockMajor, KvLayoutKind::kLayerMajor}) {
    TestWorker a(Factory(), {.layout = layout}, 1), b(Factory(), {.layout = layout}, 2);
    Transfer(a, b, 1, 16 * 3 + 5, 0, 4);
    // Slots past the prompt were not written.
    const BlockId last(4);
    std::byte* piece = b.pool().data() + b.layout().PieceOffset(2, true, last.value());
    for (int64_t i = PieceValidBytes(b.layout(), {}, 5); i < b.layout().group(0).piece_bytes();
         ++i) {
      ASSERT_EQ(piece[i], std::byte{0xEE}) << i;
    }
  }
}

TEST_P(TransportContract, CarriesEveryBlockSizeInBothLayouts) {
  for (const KvLayoutKind layout : {KvLayoutKind::kBlockMajor, KvLayoutKind::kLayerMajor}) {
    for (int32_t block_size = 1; block_size <= 128; block_size *= 2) {
      SCOPED_TRACE(block_size);
      const TestShape shape{.layout = layout, .block_size = block_size};
      TestWorker a(Factory(), shape, 1), b(Factory(), shape, 2);
      Transfer(a, b, 1, block_size * 11, 0, 11);
      Transfer(a, b, 2, block_size * 11 + 1, 3, 2);
      if (block_size > 1) Transfer(a, b, 3, block_size * 4 - 1, 0, 3);
    }
  }
}

TEST_P(TransportContract, CarriesOnlyBlocksAfterAPrefixTheReceiverHas) {
  TestWorker a(Factory(), {}, 1), b(Factory(), {}, 2);
  Transfer(a, b, 1, 16 * 10 + 3, 6, 10);
}

TEST_P(TransportContract, CarriesTheManifestAloneWhenNoBlockIsMissing) {
  TestWorker a(Factory(), {}, 1), b(Factory(), {}, 2);
  Transfer(a, b, 1, 16 * 4, 4, 1);
}

TEST_P(TransportContract, EndsEarlyOnlyWhereBothSidesAgreedToIt) {
  for (const bool agreed : {true, false}) {
    TestWorker a(Factory(), {}, 1), b(Factory(), {}, 2);
    const ReceiveSpec spec{.transfer_id = 9,
                           .first_block = 2,
                           .blocks = MakeBlocks(1, 6, 1),
                           .tokens = 16 * 8,
                           .may_end_early = agreed};
    ASSERT_TRUE(b.transport().Expect(spec).ok());
    const std::vector<BlockId> source = MakeBlocks(20, 4, -1);
    for (int32_t i = 0; i < 4; ++i) a.FillBlock(source[i], 900 + i);
    ASSERT_TRUE(a.transport()
                    .StartSend({.sender_transfer = 5,
                                .ticket = b.Ticket(spec),
                                .tokens = spec.tokens,
                                .may_end_early = true})
                    .ok());
    a.transport().Announce(5, source, /*final=*/true, "");
    const TransferEvent received = b.WaitReceived(9);
    if (!agreed) {
      EXPECT_EQ(received.kind, Kind::kReceiveFailed);
      EXPECT_EQ(a.WaitSent(5).kind, Kind::kSendFailed);
      continue;
    }
    ASSERT_EQ(received.kind, Kind::kReceived) << received.status;
    EXPECT_EQ(received.blocks_done, 4);
    for (int32_t i = 0; i < 4; ++i) EXPECT_EQ(b.Differences(spec.blocks[i], 900 + i, 16), 0);
    EXPECT_EQ(a.WaitSent(5).kind, Kind::kSent);
  }
}

TEST_P(TransportContract, CarriesChunksAnnouncedOneByOne) {
  TestWorker a(Factory(), {}, 1), b(Factory(), {}, 2);
  Transfer(a, b, 1, 16 * 20 + 1, 0, 1);
}

TEST_P(TransportContract, CarriesToItself) {
  TestWorker a(Factory(), {}, 1);
  Transfer(a, a, 1, 16 * 5, 0, 5);
}

TEST_P(TransportContract, CarriesBothWaysAtOnce) {
  TestWorker a(Factory(), {}, 1), b(Factory(), {}, 2);
  for (uint64_t id = 1; id <= 5; ++id) {
    Transfer(a, b, id, 16 * 4, 0, 2);
    Transfer(b, a, id, 16 * 4, 0, 2);
  }
}

TEST_P(TransportContract, CarriesThirtyTwoTransfersAtOnce) {
  const TestShape shape{.num_blocks = 32 * 8};
  TestWorker a(Factory(), shape, 1), b(Factory(), shape, 2);
  const int32_t tokens = 16 * 7 + 9;
  std::vector<ReceiveSpec> specs;
  for (int32_t t = 0; t < 32; ++t) {
    specs.push_back(
        {.transfer_id = 10 + uint64_t(t), .blocks = MakeBlocks(t * 8, 8), .tokens = tokens});
    ASSERT_TRUE(b.transport().Expect(specs[t]).ok());
    for (int32_t i = 0; i < 8; ++i) a.FillBlock(BlockId(i * 32 + t), t * 10 + i);
    ASSERT_TRUE(
        a.transport()
            .StartSend(
                {.sender_transfer = uint64_t(t), .ticket = b.Ticket(specs[t]), .tokens = tokens})
            .ok());
  }
  for (int32_t i = 0; i < 8; ++i) {
    for (int32_t t = 0; t < 32; ++t) {
      a.transport().Announce(t, MakeBlocks(i * 32 + t, 1), i == 7, i == 7 ? std::to_string(t) : "");
    }
  }
  for (int32_t t = 0; t < 32; ++t) {
    const TransferEvent event = b.WaitReceived(10 + t);
    ASSERT_EQ(event.kind, Kind::kReceived) << event.status;
    EXPECT_EQ(event.manifest, std::to_string(t));
    for (int32_t i = 0; i < 8; ++i) {
      EXPECT_EQ(b.Differences(BlockId(t * 8 + i), t * 10 + i, i == 7 ? 9 : 16), 0);
    }
    EXPECT_EQ(a.WaitSent(t).kind, Kind::kSent);
  }
}

TEST_P(TransportContract, BlocksAreNotTouchedAfterACancelAtEitherSide) {
  constexpr uint32_t kSeed = 77;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  const TestShape shape{.num_blocks = 32, .layers = 8, .kv_heads = 4, .head_dim = 32};
  TestWorker a(Factory(), shape, 1), b(Factory(), shape, 2);
  int cancelled = 0;
  for (uint64_t id = 1; id <= 40; ++id) {
    const ReceiveSpec spec{.transfer_id = id, .blocks = MakeBlocks(0, 32), .tokens = 16 * 32};
    ASSERT_TRUE(b.transport().Expect(spec).ok());
    for (int32_t i = 0; i < 32; ++i) a.FillBlock(BlockId(i), id + i);
    ASSERT_TRUE(a.transport()
                    .StartSend({.sender_transfer = id, .ticket = b.Ticket(spec), .tokens = 512})
                    .ok());
    const bool whole = id % 4 != 0;  // the others cannot end before they are cancelled
    a.transport().Announce(id, MakeBlocks(0, whole ? 32 : 31), whole, whole ? "m" : "");
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 1500));
    const auto expect_leading_blocks = [&](const TransferEvent& event) {
      for (int32_t i = 0; i < event.blocks_done; ++i) {
        EXPECT_EQ(b.Differences(BlockId(i), id + i, 16), 0) << "block " << i;
      }
    };
    const bool at_receiver = random() % 2 == 0;
    if (at_receiver) {
      b.transport().CancelReceive(id);
      const TransferEvent event = b.WaitReceived(id);
      expect_leading_blocks(event);
      // The blocks now belong to the engine: anything written must stay.
      for (int32_t i = 0; i < 32; ++i) b.FillRaw(BlockId(i), std::byte{0x5A});
      a.WaitSent(id);
      if (event.kind == Kind::kReceiveFailed) {
        EXPECT_EQ(event.status.code(), absl::StatusCode::kCancelled) << event.status;
        ++cancelled;
      }
      for (int32_t i = 0; i < 32; ++i) ASSERT_TRUE(b.IsRaw(BlockId(i), std::byte{0x5A})) << id;
    } else {
      a.transport().CancelSend(id);
      const TransferEvent sent = a.WaitSent(id);
      // The receiver must never publish the new bytes of the sender's reused blocks.
      for (int32_t i = 0; i < 32; ++i) a.FillRaw(BlockId(i), std::byte{0x33});
      const bool unbound = sent.kind == Kind::kSendFailed && sent.bytes == 0;
      if (unbound) b.transport().CancelReceive(id);  // it may not know the transfer
      const TransferEvent event = b.WaitReceived(id);
      expect_leading_blocks(event);
      if (event.kind == Kind::kReceiveFailed) {
        // A receiver that copies from the sender's pool may notice the reused blocks before the
        // Abort arrives.
        const bool told = event.status.code() == absl::StatusCode::kCancelled;
        EXPECT_TRUE(told || event.status.code() == absl::StatusCode::kFailedPrecondition)
            << event.status;
        ++cancelled;
      }
    }
    ASSERT_EQ(b.TerminalEvents(id, true), 1);
    ASSERT_EQ(a.TerminalEvents(id, false), 1);
  }
  EXPECT_GT(cancelled, 0);
  Transfer(a, b, 1000, 16 * 8, 0, 8);  // the link still works
}

TEST_P(TransportContract, CancelEndsATransferInEveryStateWithOneEvent) {
  enum State { kExpected, kAnnounced, kSomeLanded, kAllLanded };
  TestWorker a(Factory(), {}, 1), b(Factory(), {}, 2);
  uint64_t id = 0;
  for (const State state : {kExpected, kAnnounced, kSomeLanded, kAllLanded}) {
    for (const bool at_receiver : {true, false}) {
      SCOPED_TRACE(std::to_string(state) + (at_receiver ? " receiver" : " sender"));
      ++id;
      const ReceiveSpec spec{.transfer_id = id, .blocks = MakeBlocks(0, 4), .tokens = 64};
      ASSERT_TRUE(b.transport().Expect(spec).ok());
      if (state > kExpected) {
        ASSERT_TRUE(a.transport()
                        .StartSend({.sender_transfer = id, .ticket = b.Ticket(spec), .tokens = 64})
                        .ok());
        a.transport().Announce(id, {}, false, "");
      }
      const int32_t landed = state == kSomeLanded ? 2 : state == kAllLanded ? 4 : 0;
      for (int32_t i = 0; i < landed; ++i) {
        a.transport().Announce(id, MakeBlocks(i, 1), false, "");
      }
      if (landed > 0) b.WaitFor(id, Kind::kReceiving);
      if (at_receiver) {
        b.transport().CancelReceive(id);
      } else {
        a.transport().CancelSend(id);
      }
      // A receiver that does not know its sender yet is not told about the sender's end.
      if (!at_receiver && landed == 0) b.transport().CancelReceive(id);
      const TransferEvent event = b.WaitReceived(id);
      EXPECT_EQ(event.kind, Kind::kReceiveFailed);
      EXPECT_LE(event.blocks_done, landed);
      if (state > kExpected) {
        EXPECT_EQ(a.WaitSent(id).kind, Kind::kSendFailed);
      }
      // Both sides know the end: another cancel has no effect.
      b.transport().CancelReceive(id);
      a.transport().CancelSend(id);
      Transfer(a, b, 1000 + id, 64, 0, 4);
      EXPECT_EQ(b.TerminalEvents(id, true), 1);
      EXPECT_EQ(a.TerminalEvents(id, false), state > kExpected ? 1 : 0);
    }
  }
}

TEST_P(TransportContract, APublishedBlockStaysWhenTheSenderReusesIt) {
  TestWorker a(Factory(), {}, 1), b(Factory(), {}, 2);
  for (uint64_t id = 1; id <= 20; ++id) {
    const ReceiveSpec spec{.transfer_id = id, .blocks = MakeBlocks(0, 3), .tokens = 48};
    ASSERT_TRUE(b.transport().Expect(spec).ok());
    for (int32_t i = 0; i < 3; ++i) a.FillBlock(BlockId(i), id + i);
    ASSERT_TRUE(a.transport()
                    .StartSend({.sender_transfer = id, .ticket = b.Ticket(spec), .tokens = 48})
                    .ok());
    a.transport().Announce(id, MakeBlocks(0, 3), true, "");
    ASSERT_EQ(a.WaitSent(id).kind, Kind::kSent);
    for (int32_t i = 0; i < 3; ++i) a.FillRaw(BlockId(i), std::byte{0x77});
    ASSERT_EQ(b.WaitReceived(id).kind, Kind::kReceived);
    for (int32_t i = 0; i < 3; ++i) EXPECT_EQ(b.Differences(BlockId(i), id + i, 16), 0);
  }
}

TEST_P(TransportContract, BlocksReportedAsWrittenTravelAsTheyAreNow) {
  TestWorker a(Factory(), {}, 1), b(Factory(), {}, 2);
  for (uint64_t id = 1; id <= 10; ++id) {
    const ReceiveSpec spec{.transfer_id = id, .blocks = MakeBlocks(0, 3), .tokens = 40};
    ASSERT_TRUE(b.transport().Expect(spec).ok());
    const uint64_t key = id / 3;  // blocks are sent again both unchanged and changed
    for (int32_t i = 0; i < 3; ++i) a.FillBlock(BlockId(i), key + i);
    if (id % 3 == 0 || id == 1) {
      a.transport().Written(MakeBlocks(0, 2), MakeBlocks(2, 1), /*group=*/0);
    }
    ASSERT_TRUE(a.transport()
                    .StartSend({.sender_transfer = id, .ticket = b.Ticket(spec), .tokens = 40})
                    .ok());
    a.transport().Announce(id, MakeBlocks(0, 3), true, "");
    const TransferEvent event = b.WaitReceived(id);
    ASSERT_EQ(event.kind, Kind::kReceived) << event.status;
    for (int32_t i = 0; i < 3; ++i) {
      EXPECT_EQ(b.Differences(BlockId(i), key + i, i == 2 ? 8 : 16), 0);
    }
    EXPECT_EQ(a.WaitSent(id).kind, Kind::kSent);
  }
}

TEST_P(TransportContract, ABlockThatWasWrittenAndNotReportedIsNeverPublished) {
  TestWorker a(Factory(), {}, 1), b(Factory(), {}, 2);
  a.transport().Written(MakeBlocks(0, 2), {}, /*group=*/0);
  for (uint64_t id = 1; id <= 2; ++id) {
    const ReceiveSpec spec{.transfer_id = id, .blocks = MakeBlocks(0, 2), .tokens = 32};
    ASSERT_TRUE(b.transport().Expect(spec).ok());
    for (int32_t i = 0; i < 2; ++i) a.FillBlock(BlockId(i), id + i);
    ASSERT_TRUE(a.transport()
                    .StartSend({.sender_transfer = id, .ticket = b.Ticket(spec), .tokens = 32})
                    .ok());
    a.transport().Announce(id, MakeBlocks(0, 2), true, "");
    const TransferEvent event = b.WaitReceived(id);
    const bool published = id == 1;
    EXPECT_EQ(event.status.code(), published ? absl::StatusCode::kOk : absl::StatusCode::kDataLoss);
    EXPECT_EQ(event.blocks_done, published ? 2 : 0);
    for (int32_t i = 0; published && i < 2; ++i) {
      EXPECT_EQ(b.Differences(BlockId(i), id + i, 16), 0);
    }
    a.WaitSent(id);
  }
}

TEST_P(TransportContract, OneBlockGoesToSeveralReceiversAtOnce) {
  TestWorker a(Factory(), {}, 1), b(Factory(), {}, 2), c(Factory(), {}, 3);
  for (int32_t i = 0; i < 4; ++i) a.FillBlock(BlockId(i), 40 + i);
  const ReceiveSpec spec{.transfer_id = 9, .blocks = MakeBlocks(8, 4), .tokens = 64};
  uint64_t id = 0;
  for (TestWorker* to : {&b, &c}) {
    ASSERT_TRUE(to->transport().Expect(spec).ok());
    ASSERT_TRUE(a.transport()
                    .StartSend({.sender_transfer = ++id, .ticket = to->Ticket(spec), .tokens = 64})
                    .ok());
  }
  for (uint64_t sent = 1; sent <= id; ++sent) {
    a.transport().Announce(sent, MakeBlocks(0, 4), true, "");
  }
  for (TestWorker* to : {&b, &c}) {
    EXPECT_EQ(to->WaitReceived(9).kind, Kind::kReceived);
    for (int32_t i = 0; i < 4; ++i) EXPECT_EQ(to->Differences(BlockId(8 + i), 40 + i, 16), 0);
  }
  for (uint64_t sent = 1; sent <= id; ++sent) EXPECT_EQ(a.WaitSent(sent).kind, Kind::kSent);
}

TEST_P(TransportMixedContract, CarriesBetweenAHostPoolAndOneThatTheHostCannotRead) {
  TestWorker host(Factory(PoolMemory::kHost), {}, 1), device(Factory(PoolMemory::kDevice), {}, 2);
  Transfer(host, device, 1, 16 * 9 + 3, 0, 3);
  Transfer(device, host, 2, 16 * 9 + 3, 2, 4);
}

// More transfers than a pool has staging buffers, in both directions at once: each waits for its
// turn.
TEST_P(TransportContract, ManyTransfersShareAPoolsBuffers) {
  constexpr int kReceivers = 5;
  TestWorker a(Factory(), {.num_blocks = 128}, 1);
  std::vector<std::unique_ptr<TestWorker>> others;
  for (int i = 0; i < kReceivers; ++i) {
    others.push_back(std::make_unique<TestWorker>(Factory(), TestShape{}, 2 + i));
  }
  const auto post = [](TestWorker& from, TestWorker& to, uint64_t id, int32_t source,
                       int32_t target) {
    const ReceiveSpec spec{.transfer_id = id, .blocks = MakeBlocks(target, 8), .tokens = 16 * 8};
    ASSERT_TRUE(to.transport().Expect(spec).ok());
    for (int32_t i = 0; i < 8; ++i) from.FillBlock(BlockId(source + i), id * 10 + i);
    ASSERT_TRUE(from.transport()
                    .StartSend({.sender_transfer = id, .ticket = to.Ticket(spec), .tokens = 128})
                    .ok());
    from.transport().Announce(id, MakeBlocks(source, 8), true, "");
  };
  for (int i = 0; i < kReceivers; ++i) {
    post(a, *others[i], 100 + i, 8 * i, 0);
    post(*others[i], a, 200 + i, 16, 8 * (kReceivers + i));
  }
  for (int i = 0; i < kReceivers; ++i) {
    EXPECT_EQ(others[i]->WaitReceived(100 + i).kind, Kind::kReceived);
    EXPECT_EQ(a.WaitReceived(200 + i).kind, Kind::kReceived);
    for (int32_t block = 0; block < 8; ++block) {
      EXPECT_EQ(others[i]->Differences(BlockId(block), (100 + i) * 10 + block, 16), 0);
      EXPECT_EQ(a.Differences(BlockId(8 * (kReceivers + i) + block), (200 + i) * 10 + block, 16),
                0);
    }
    EXPECT_EQ(a.WaitSent(100 + i).kind, Kind::kSent);
    EXPECT_EQ(others[i]->WaitSent(200 + i).kind, Kind::kSent);
  }
}

}  // namespace
}  // namespace baton
