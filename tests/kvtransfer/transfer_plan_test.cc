#include "kvtransfer/protocol/transfer_plan.h"

#include <algorithm>
#include <random>

#include "common/crc32c.h"
#include "gtest/gtest.h"
#include "tests/kvtransfer/transfer_test_worker.h"

namespace baton {
namespace {

TEST(TransferPlan, CountsBlocksAndValidTokens) {
  EXPECT_EQ(BlocksForTokens(16, 1), 1);
  EXPECT_EQ(BlocksForTokens(16, 16), 1);
  EXPECT_EQ(BlocksForTokens(16, 17), 2);
  EXPECT_EQ(BlocksForTokens(16, INT32_MAX), (int64_t{INT32_MAX} + 15) / 16);
  EXPECT_EQ(ValidTokens(16, 17, 0), 16);
  EXPECT_EQ(ValidTokens(16, 17, 1), 1);
  EXPECT_EQ(ValidTokens(16, 32, 1), 16);
}

TEST(TransferPlan, AFullBlockOfABlockMajorPoolIsOneRun) {
  const KvLayout layout = MakeLayout({.layout = KvLayoutKind::kBlockMajor});
  std::vector<std::byte> pool(layout.pool_bytes());
  const std::vector<iovec> runs = BlockRuns({pool.data(), layout}, BlockId(3), 16);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].iov_base, pool.data() + 3 * layout.bytes_per_block());
  EXPECT_EQ(runs[0].iov_len, static_cast<size_t>(layout.bytes_per_block()));
}

TEST(TransferPlan, OtherBlocksAreOneRunForEachPieceInCanonicalOrder) {
  const KvLayout layout = MakeLayout({.layout = KvLayoutKind::kLayerMajor});
  std::vector<std::byte> pool(layout.pool_bytes());
  const std::vector<iovec> runs = BlockRuns({pool.data(), layout}, BlockId(3), 16);
  ASSERT_EQ(runs.size(), 6u);
  for (int32_t piece = 0; piece < 6; ++piece) {
    EXPECT_EQ(runs[piece].iov_base, pool.data() + layout.PieceOffset(piece / 2, piece % 2 == 1, 3));
    EXPECT_EQ(runs[piece].iov_len, static_cast<size_t>(layout.piece_bytes()));
  }
  const KvLayout block_major = MakeLayout({.layout = KvLayoutKind::kBlockMajor});
  EXPECT_EQ(BlockRuns({pool.data(), block_major}, BlockId(3), 5).size(), 6u);
}

TEST(TransferPlan, ChecksumsCoverExactlyTheValidTokensOfEachPiece) {
  const KvLayout layout = MakeLayout({});
  std::vector<std::byte> pool(layout.pool_bytes());
  for (size_t i = 0; i < pool.size(); ++i) pool[i] = static_cast<std::byte>(i * 37 >> 3);
  const RegisteredPool registered{pool.data(), layout};
  const std::vector<uint32_t> before = PieceChecksums(registered, BlockId(2), 5);
  ASSERT_EQ(before.size(), 6u);
  const int64_t at = layout.PieceOffset(1, true, 2);
  pool[at + PieceValidBytes(layout, 5)] ^= std::byte{1};  // token 5 is not valid
  EXPECT_EQ(PieceChecksums(registered, BlockId(2), 5), before);
  pool[at + PieceValidBytes(layout, 5) - 1] ^= std::byte{1};
  std::vector<uint32_t> after = PieceChecksums(registered, BlockId(2), 5);
  EXPECT_NE(after[3], before[3]);
  after[3] = before[3];
  EXPECT_EQ(after, before);
  EXPECT_EQ(PieceName(3), "layer 1 V");
  EXPECT_EQ(PieceName(4), "layer 2 K");
}

TEST(TransferPlan, ACursorWalksTheSameBytesInAnySteps) {
  constexpr uint32_t kSeed = 9;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  for (const KvLayoutKind kind : {KvLayoutKind::kBlockMajor, KvLayoutKind::kLayerMajor}) {
    const KvLayout layout = MakeLayout({.layout = kind, .num_blocks = 4});
    std::vector<std::byte> pool(layout.pool_bytes());
    for (size_t i = 0; i < pool.size(); ++i) pool[i] = static_cast<std::byte>(random());
    for (const int32_t valid : {1, 7, 16}) {
      std::vector<std::byte> expected;
      const RegisteredPool registered{pool.data(), layout};
      for (const iovec& run : BlockRuns(registered, BlockId(2), valid)) {
        const auto* const at = static_cast<const std::byte*>(run.iov_base);
        expected.insert(expected.end(), at, at + run.iov_len);
      }
      ASSERT_EQ(expected.size(), static_cast<size_t>(BlockValidBytes(layout, valid)));
      BlockCursor cursor(BlockRuns(registered, BlockId(2), valid));
      std::vector<std::byte> walked;
      while (!cursor.done()) {
        iovec runs[3];
        const int count = cursor.Fill(std::span(runs).first(1 + random() % 3));
        size_t step = 0;
        const int whole = static_cast<int>(random() % (count + 1));
        for (int i = 0; i < whole; ++i) step += runs[i].iov_len;
        if (whole < count) step += random() % runs[whole].iov_len;
        size_t left = step;
        for (int i = 0; i < count && left > 0; ++i) {
          const size_t n = std::min(left, runs[i].iov_len);
          const auto* from = static_cast<const std::byte*>(runs[i].iov_base);
          walked.insert(walked.end(), from, from + n);
          left -= n;
        }
        cursor.Advance(static_cast<int64_t>(step));
      }
      EXPECT_EQ(walked, expected);
    }
  }
}

TEST(TransferPlan, BlocksHoldingWhatIsMissingBeginInTheMiddleOfOne) {
  EXPECT_EQ(BlocksHolding(0, 33, 16), (SequenceBlocks{0, 3}));
  EXPECT_EQ(BlocksHolding(16, 33, 32), (SequenceBlocks{0, 2}));
  EXPECT_EQ(BlocksHolding(32, 33, 32), (SequenceBlocks{1, 1}));
  EXPECT_EQ(BlocksHolding(48, 33, 16), (SequenceBlocks{3, 0})) << "nothing is missing";
  EXPECT_EQ(BlocksHolding(int64_t{1} << 31, INT32_MAX, 128), (SequenceBlocks{1 << 24, 0}));
  TransferTicket ticket;
  ticket.first_block = 3;
  ticket.block_count = 2;
  EXPECT_EQ(SenderBlocks(ticket, 80, 16), (SequenceBlocks{3, 2})) << "as the sender's";
  ticket.block_size = 8;
  EXPECT_EQ(SenderBlocks(ticket, 40, 16), (SequenceBlocks{1, 2}));
}

TEST(TransferPlan, EqualBlocksLandWhole) {
  const std::vector<BlockId> blocks = MakeBlocks(7, 3);
  const LandingParts parts = PlaceTokens(48, 16, 32, 16, blocks);
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0], (LandingPart{BlockId(8), 0, 0, 16}));
}

// Whatever the sizes: each token that the receiver lacks lands once, in the block and the slot that
// its number says, from its own place in the payload.
TEST(TransferPlan, EveryMissingTokenLandsOnceWhereItsNumberSays) {
  constexpr uint32_t kSeed = 41;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  for (int round = 0; round < 3000; ++round) {
    const int32_t theirs = 1 << random() % 8;
    const int32_t ours = 1 << random() % 8;
    const auto tokens = static_cast<int32_t>(1 + random() % 700);
    const int32_t whole = BlocksForTokens(ours, tokens);
    const auto first_block = static_cast<int32_t>(random() % (whole + 1));
    SCOPED_TRACE(testing::Message() << theirs << " to " << ours << ", " << tokens << " tokens from "
                                    << first_block * ours);
    std::vector<BlockId> blocks = MakeBlocks(0, whole - first_block);
    std::shuffle(blocks.begin(), blocks.end(), random);
    TransferTicket ticket;
    ticket.first_block = first_block;
    ticket.block_count = whole - first_block;
    ticket.block_size = ours;
    const SequenceBlocks sent = SenderBlocks(ticket, tokens, theirs);
    std::vector<int> landed(tokens, 0);
    for (int32_t block = sent.first; block < sent.first + sent.count; ++block) {
      const int32_t valid = ValidTokens(theirs, tokens, block);
      ASSERT_TRUE(valid >= 1 && valid <= theirs);
      int32_t next = -1;
      for (const LandingPart& part :
           PlaceTokens(block * theirs, valid, first_block * ours, ours, blocks)) {
        ASSERT_GE(part.tokens, 1);
        ASSERT_TRUE(next == -1 || part.payload_token == next) << "a gap behind the first part";
        next = part.payload_token + part.tokens;
        for (int32_t i = 0; i < part.tokens; ++i) {
          const int32_t token = block * theirs + part.payload_token + i;
          ASSERT_LT(token, tokens);
          ASSERT_EQ(part.block, blocks[token / ours - first_block]);
          ASSERT_EQ(part.block_token + i, token % ours);
          ++landed[token];
        }
      }
      ASSERT_EQ(next, valid) << "the payload's end landed nowhere";
    }
    for (int32_t token = 0; token < tokens; ++token) {
      ASSERT_EQ(landed[token], token >= first_block * ours ? 1 : 0) << token;
    }
  }
}

TEST(TransferPlan, RunsOfALandingCoalesceAndBeginWithWhatIsDropped) {
  const KvLayout layout = MakeLayout({.layout = KvLayoutKind::kLayerMajor, .num_blocks = 8});
  std::vector<std::byte> pool(layout.pool_bytes());
  const RegisteredPool registered{pool.data(), layout};
  const std::vector<BlockId> blocks = {BlockId(2), BlockId(3), BlockId(6)};
  // Tokens 8 to 63 in a block of 64; blocks 2 and 3 lie side by side in a layer.
  const LandingParts parts = PlaceTokens(0, 64, 16, 16, blocks);
  std::vector<std::byte> dropped(PieceValidBytes(layout, 16) * PieceCount(layout));
  const std::vector<iovec> runs = LandingRuns(registered, parts, dropped);
  ASSERT_EQ(runs.size(), 18u);
  size_t bytes = 0;
  for (const iovec& run : runs) bytes += run.iov_len;
  EXPECT_EQ(bytes, static_cast<size_t>(BlockValidBytes(layout, 16) * 4));
  EXPECT_EQ(runs[0].iov_base, dropped.data());
  EXPECT_EQ(runs[1].iov_base, pool.data() + layout.PieceOffset(0, false, 2));
  EXPECT_EQ(runs[1].iov_len, static_cast<size_t>(2 * layout.piece_bytes()));
  EXPECT_EQ(runs[2].iov_base, pool.data() + layout.PieceOffset(0, false, 6));
}

}  // namespace
}  // namespace baton
