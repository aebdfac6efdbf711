// Contract tests of KvTransport (kvtransfer/transport.h), run with every transport: transfers
// between pools of different block sizes or layouts. A literal model that knows tokens but no
// blocks gives the expected bytes.

#include <algorithm>
#include <cstring>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvtransfer/transport.h"
#include "tests/kvtransfer/transport_contract.h"

namespace baton {
namespace {

using ::testing::HasSubstr;
using Kind = TransferEvent::Kind;

constexpr int64_t kSlots = 512;  // of each pool, for any block size

TestShape Shape(KvLayoutKind layout, int32_t block_size) {
  return {.layout = layout, .block_size = block_size, .num_blocks = kSlots / block_size};
}

// Returns the address of a token's row in a piece.
std::byte* Row(TestWorker& worker, BlockId block, int32_t slot, int32_t piece) {
  const LandingPart one{.blocks = block, .block_token = slot, .tokens = 1};
  return PieceBytes(worker.pool().data(), worker.layout(), {one}, {})
      .Part(PieceAt(piece), 0)
      .data();
}

std::byte Value(uint64_t key, int32_t token, int32_t piece, int64_t i) {
  return static_cast<std::byte>((key * 131 + token * 29 + piece * 17 + i * 7) % 239);
}

struct Prompt {
  int32_t tokens = 0;
  int32_t first_block = 0;  // that the receiver lacks
  int32_t chunk = 1;        // blocks announced at a time
  int32_t sent_blocks = INT32_MAX;
};

class TransportReshapeContract : public TransportContract {
 protected:
  // Runs one transfer with random blocks in both pools and compares the receiver's whole pool with
  // the model. The sent tokens that it lacked are in their slots, and nothing else was written.
  void Reshape(TestWorker& from, TestWorker& to, uint64_t id, const Prompt& prompt) {
    const int32_t theirs = from.layout().block_size();
    const int32_t ours = to.layout().block_size();
    const int32_t first_token = prompt.first_block * ours;
    ReceiveSpec spec{.transfer_id = id,
                     .first_block = prompt.first_block,
                     .blocks = Draw(to, BlocksForTokens(ours, prompt.tokens) - prompt.first_block),
                     .tokens = prompt.tokens,
                     .may_end_early = prompt.sent_blocks != INT32_MAX};
    const SequenceBlocks range = BlocksHolding(first_token, prompt.tokens, theirs);
    const std::vector<BlockId> source = Draw(from, std::min(range.count, prompt.sent_blocks));
    const auto end = std::min<int32_t>(
        prompt.tokens, (range.first + static_cast<int32_t>(source.size())) * theirs);
    std::memset(from.pool().data(), 0x11, from.pool().size());
    std::memset(to.pool().data(), 0xEE, to.pool().size());
    Fill(from, source, range.first * theirs, range.first * theirs, end, id);

    ASSERT_TRUE(to.transport().Expect(spec).ok());
    ASSERT_TRUE(from.transport()
                    .StartSend({.sender_transfer = id + 7000,
                                .ticket = to.Ticket(spec),
                                .tokens = prompt.tokens,
                                .may_end_early = spec.may_end_early})
                    .ok());
    const auto count = static_cast<int32_t>(source.size());
    for (int32_t at = 0; at < count || at == 0; at += prompt.chunk) {
      const int32_t n = std::min(prompt.chunk, count - at);
      const bool final = at + n == count;
      from.transport().Announce(id + 7000, std::span(source).subspan(at, n), final,
                                final ? "manifest" : "");
      if (final) break;
    }
    const TransferEvent received = to.WaitReceived(id);
    ASSERT_EQ(received.kind, Kind::kReceived) << received.status;
    EXPECT_EQ(received.manifest, "manifest");
    const int32_t whole = end == prompt.tokens ? static_cast<int32_t>(spec.blocks.size())
                                               : std::max(0, end / ours - prompt.first_block);
    EXPECT_EQ(received.blocks_done, whole);
    EXPECT_EQ(received.bytes,
              count == 0 ? 0 : BlockValidBytes(from.layout(), 1) * (end - range.first * theirs));
    const TransferEvent sent = from.WaitSent(id + 7000);
    EXPECT_EQ(sent.kind, Kind::kSent) << sent.status;
    EXPECT_EQ(sent.blocks_done, count);
    ExpectProgress(to, id, whole);

    const std::vector<std::byte> got(to.pool().data(), to.pool().data() + to.pool().size());
    std::memset(to.pool().data(), 0xEE, to.pool().size());
    Fill(to, spec.blocks, first_token, first_token, end, id);
    EXPECT_EQ(std::memcmp(got.data(), to.pool().data(), got.size()), 0);
  }

  std::mt19937 random_{kSeed};
  static constexpr uint32_t kSeed = 23;

 private:
  std::vector<BlockId> Draw(TestWorker& worker, int32_t count) {
    std::vector<BlockId> blocks =
        MakeBlocks(0, static_cast<int32_t>(worker.layout().group(0).num_blocks()));
    std::shuffle(blocks.begin(), blocks.end(), random_);
    blocks.resize(static_cast<size_t>(count));
    return blocks;
  }

  // Fills tokens [begin, end), where blocks[0] begins with token `first`.
  static void Fill(TestWorker& worker, const std::vector<BlockId>& blocks, int32_t first,
                   int32_t begin, int32_t end, uint64_t key) {
    const int32_t size = worker.layout().block_size();
    const int64_t row = PieceValidBytes(worker.layout(), {}, 1);
    for (int32_t token = begin; token < end; ++token) {
      for (int32_t piece = 0; piece < PieceCount(worker.layout()); ++piece) {
        std::byte* const at =
            Row(worker, blocks[static_cast<size_t>((token - first) / size)], token % size, piece);
        for (int64_t i = 0; i < row; ++i) at[i] = Value(key, token, piece, i);
      }
    }
  }

  // Checks that reported progress never shrinks and never exceeds the final count.
  static void ExpectProgress(const TestWorker& to, uint64_t id, int32_t whole) {
    int32_t before = 0;
    for (const TransferEvent& event : to.events()) {
      if (event.id != id || event.kind != Kind::kReceiving) continue;
      EXPECT_GE(event.blocks_done, before);
      EXPECT_LE(event.blocks_done, whole);
      before = event.blocks_done;
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Each, TransportReshapeContract, EveryMedium(), MediumName);

constexpr KvLayoutKind kLayouts[] = {KvLayoutKind::kBlockMajor, KvLayoutKind::kLayerMajor};

TEST_P(TransportReshapeContract, CarriesBetweenAnyTwoBlockSizesAndLayouts) {
  uint64_t id = 0;
  for (const KvLayoutKind one : kLayouts) {
    for (const KvLayoutKind other : kLayouts) {
      for (const auto& [theirs, ours] : std::vector<std::pair<int32_t, int32_t>>{
               {16, 16}, {16, 32}, {32, 16}, {1, 128}, {128, 1}, {8, 64}, {64, 8}}) {
        SCOPED_TRACE(testing::Message() << KvLayoutKindName(one) << " " << theirs << " to "
                                        << KvLayoutKindName(other) << " " << ours);
        TestWorker a(Factory(), Shape(one, theirs), 1), b(Factory(), Shape(other, ours), 2);
        Reshape(a, b, ++id, {.tokens = 256, .chunk = 2});
        Reshape(a, b, ++id, {.tokens = 200, .chunk = 100});
        Reshape(a, b, ++id, {.tokens = 131, .first_block = 64 / ours, .chunk = 1});
      }
    }
  }
}

TEST_P(TransportReshapeContract, RandomPromptsLandAsTheModelSays) {
  SCOPED_TRACE(kSeed);
  uint64_t id = 0;
  for (int pair = 0; pair < 12; ++pair) {
    const TestShape theirs = Shape(kLayouts[random_() % 2], 1 << random_() % 8);
    const TestShape ours = Shape(kLayouts[random_() % 2], 1 << random_() % 8);
    TestWorker a(Factory(), theirs, 1), b(Factory(), ours, 2);
    for (int round = 0; round < 10; ++round) {
      const auto tokens = static_cast<int32_t>(1 + random_() % kSlots);
      const int32_t blocks = BlocksForTokens(ours.block_size, tokens);
      Prompt prompt{.tokens = tokens,
                    .first_block = static_cast<int32_t>(random_() % (blocks + 1)),
                    .chunk = static_cast<int32_t>(1 + random_() % 7)};
      if (random_() % 3 == 0) prompt.sent_blocks = static_cast<int32_t>(random_() % 9);
      SCOPED_TRACE(testing::Message()
                   << KvLayoutKindName(theirs.layout) << " " << theirs.block_size << " to "
                   << KvLayoutKindName(ours.layout) << " " << ours.block_size << ", " << tokens
                   << " tokens from block " << prompt.first_block << ", " << prompt.sent_blocks);
      Reshape(a, b, ++id, prompt);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(TransportReshapeContract, ABlockWithADamagedPieceIsNeverPublished) {
  // 64 tokens in blocks of 16. The first two of the sender's blocks are correct.
  TestWorker a(Factory(), Shape(KvLayoutKind::kLayerMajor, 32), 1);
  TestWorker b(Factory(), Shape(KvLayoutKind::kBlockMajor, 16), 2);
  for (int32_t i = 0; i < 3; ++i) a.FillBlock(BlockId(i), 5);
  a.transport().Written(MakeBlocks(0, 3), {}, /*group=*/0);
  ReceiveSpec spec{.transfer_id = 1, .first_block = 1, .blocks = MakeBlocks(0, 5), .tokens = 96};
  ASSERT_TRUE(b.transport().Expect(spec).ok());
  SendSpec send{.sender_transfer = 1, .ticket = b.Ticket(spec), .tokens = 96};
  ASSERT_TRUE(a.transport().StartSend(send).ok());
  a.transport().Announce(1, MakeBlocks(0, 3), true, "m");
  EXPECT_EQ(b.WaitReceived(1).kind, Kind::kReceived);  // checksums are kept from now on
  a.WaitSent(1);
  // In the second half of block 1: a token that lands in the receiver's block 3.
  *Row(a, BlockId(1), 20, 2) ^= std::byte{1};
  spec.transfer_id = send.sender_transfer = 2;
  ASSERT_TRUE(b.transport().Expect(spec).ok());
  send.ticket = b.Ticket(spec);
  ASSERT_TRUE(a.transport().StartSend(send).ok());
  a.transport().Announce(2, MakeBlocks(0, 3), true, "m");
  const TransferEvent event = b.WaitReceived(2);
  EXPECT_EQ(event.status.code(), absl::StatusCode::kDataLoss) << event.status;
  EXPECT_THAT(std::string(event.status.message()), HasSubstr("block 1 layer 1 K"));
  EXPECT_EQ(event.blocks_done, 1) << "half a block does not count";
  a.WaitSent(2);
}

TEST_P(TransportReshapeContract, ATokenThatTheReceiverHasIsCheckedAndNotWritten) {
  TestWorker a(Factory(), Shape(KvLayoutKind::kBlockMajor, 64), 1);
  TestWorker b(Factory(), Shape(KvLayoutKind::kBlockMajor, 16), 2);
  a.FillBlock(BlockId(0), 5);
  a.transport().Written(MakeBlocks(0, 1), {}, /*group=*/0);
  ReceiveSpec spec{.transfer_id = 1, .first_block = 1, .blocks = MakeBlocks(8, 3), .tokens = 64};
  for (const uint64_t id : {1, 2}) {
    spec.transfer_id = id;
    std::memset(b.pool().data(), 0xEE, b.pool().size());
    ASSERT_TRUE(b.transport().Expect(spec).ok());
    ASSERT_TRUE(
        a.transport()
            .StartSend({.sender_transfer = id, .ticket = b.Ticket(spec), .tokens = spec.tokens})
            .ok());
    a.transport().Announce(id, MakeBlocks(0, 1), true, "m");
    const TransferEvent event = b.WaitReceived(id);
    EXPECT_EQ(event.status.code(), id == 1 ? absl::StatusCode::kOk : absl::StatusCode::kDataLoss);
    for (int32_t block = 0; block < 8; ++block) {
      EXPECT_TRUE(b.IsRaw(BlockId(block), std::byte{0xEE})) << block;
    }
    a.WaitSent(id);
    *Row(a, BlockId(0), 3, 0) ^= std::byte{1};  // before the first missing token
  }
}

TEST_P(TransportReshapeContract, BlocksAreNotTouchedAfterACancelAtEitherSide) {
  SCOPED_TRACE(kSeed);
  TestWorker a(Factory(), Shape(KvLayoutKind::kLayerMajor, 4), 1);
  TestWorker b(Factory(), Shape(KvLayoutKind::kBlockMajor, 64), 2);
  for (uint64_t id = 1; id <= 30; ++id) {
    const ReceiveSpec spec{.transfer_id = id, .blocks = MakeBlocks(0, 8), .tokens = 512};
    ASSERT_TRUE(b.transport().Expect(spec).ok());
    ASSERT_TRUE(a.transport()
                    .StartSend({.sender_transfer = id, .ticket = b.Ticket(spec), .tokens = 512})
                    .ok());
    a.transport().Announce(id, MakeBlocks(0, 100), false, "");
    if (id % 3 > 0) b.WaitFor(id, Kind::kReceiving);
    if (id % 2 == 0) a.transport().CancelSend(id);
    b.transport().CancelReceive(id);
    const TransferEvent event = b.WaitReceived(id);
    EXPECT_EQ(event.kind, Kind::kReceiveFailed);
    EXPECT_LE(event.blocks_done, 6) << "100 blocks of 4 fill only six blocks of 64";
    for (int32_t i = 0; i < 8; ++i) b.FillRaw(BlockId(i), std::byte{0x5A});
    a.WaitSent(id);
    for (int32_t i = 0; i < 8; ++i) ASSERT_TRUE(b.IsRaw(BlockId(i), std::byte{0x5A})) << id;
  }
  Reshape(a, b, 1000, {.tokens = 300, .chunk = 4});  // the link still works
}

TEST_P(TransportReshapeContract, ATicketWithoutABlockSizeUsesTheSenders) {
  TestWorker a(Factory(), Shape(KvLayoutKind::kBlockMajor, 16), 1);
  TestWorker b(Factory(), Shape(KvLayoutKind::kBlockMajor, 32), 2);
  const ReceiveSpec spec{.transfer_id = 1, .blocks = MakeBlocks(0, 2), .tokens = 64};
  ASSERT_TRUE(b.transport().Expect(spec).ok());
  SendSpec send{.sender_transfer = 1, .ticket = b.Ticket(spec), .tokens = 64};
  send.ticket.block_size = 0;
  EXPECT_EQ(a.transport().StartSend(send).code(), absl::StatusCode::kInvalidArgument);
  for (const int32_t block_size : {-32, 24, 256, INT32_MAX}) {
    send.ticket.block_size = block_size;
    const absl::Status status = a.transport().StartSend(send);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::to_string(block_size)));
  }
}

}  // namespace
}  // namespace baton
