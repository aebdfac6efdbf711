#include "kvtransfer/transfer_plan.h"

#include <random>

#include "common/crc32c.h"
#include "gtest/gtest.h"
#include "tests/kvtransfer/transfer_test_worker.h"

namespace baton {
namespace {

TEST(TransferPlan, CountsBlocksAndValidTokens) {
  const KvLayout layout = MakeLayout({.block_size = 16});
  EXPECT_EQ(BlocksForTokens(layout, 1), 1);
  EXPECT_EQ(BlocksForTokens(layout, 16), 1);
  EXPECT_EQ(BlocksForTokens(layout, 17), 2);
  EXPECT_EQ(BlocksForTokens(layout, INT32_MAX), (int64_t{INT32_MAX} + 15) / 16);
  EXPECT_EQ(ValidTokens(layout, 17, 0), 16);
  EXPECT_EQ(ValidTokens(layout, 17, 1), 1);
  EXPECT_EQ(ValidTokens(layout, 32, 1), 16);
}

TEST(TransferPlan, AFullBlockOfABlockMajorPoolIsOneRun) {
  const KvLayout layout = MakeLayout({.layout = KvLayoutKind::kBlockMajor});
  const std::vector<ByteRun> runs = BlockRuns(layout, BlockId(3), 16);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0], (ByteRun{3 * layout.bytes_per_block(), layout.bytes_per_block()}));
}

TEST(TransferPlan, OtherBlocksAreOneRunForEachPieceInCanonicalOrder) {
  const KvLayout layout = MakeLayout({.layout = KvLayoutKind::kLayerMajor});
  const std::vector<ByteRun> runs = BlockRuns(layout, BlockId(3), 16);
  ASSERT_EQ(runs.size(), 6u);
  for (int32_t piece = 0; piece < 6; ++piece) {
    EXPECT_EQ(runs[piece].offset, layout.PieceOffset(piece / 2, piece % 2 == 1, 3));
    EXPECT_EQ(runs[piece].bytes, layout.piece_bytes());
  }
  EXPECT_EQ(BlockRuns(MakeLayout({.layout = KvLayoutKind::kBlockMajor}), BlockId(3), 5).size(), 6u);
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
      for (const ByteRun& run : BlockRuns(layout, BlockId(2), valid)) {
        expected.insert(expected.end(), pool.begin() + run.offset,
                        pool.begin() + run.offset + run.bytes);
      }
      ASSERT_EQ(expected.size(), static_cast<size_t>(BlockValidBytes(layout, valid)));
      BlockCursor cursor({pool.data(), layout}, BlockId(2), valid);
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

}  // namespace
}  // namespace baton
