#include "kvtransfer/pool/piece_bytes.h"

#include <random>

#include "common/crc32c.h"
#include "gtest/gtest.h"
#include "kvtransfer/protocol/transfer_plan.h"
#include "tests/kvtransfer/transfer_test_worker.h"

namespace baton {
namespace {

PieceBytes Block(std::vector<std::byte>& pool, const KvPoolLayout& layout, int32_t block,
                 int32_t valid, LayerRange layers = {}) {
  return PieceBytes(pool.data(), layout, LeadingTokens(BlockId(block), valid), layers);
}

TEST(PieceBytes, AFullBlockOfABlockMajorPoolIsOneRun) {
  const KvPoolLayout layout = MakeLayout({.layout = KvLayoutKind::kBlockMajor});
  std::vector<std::byte> pool(layout.pool_bytes());
  const std::vector<iovec> runs = Block(pool, layout, 3, 16).Runs();
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].iov_base, pool.data() + 3 * layout.bytes_per_block());
  EXPECT_EQ(runs[0].iov_len, static_cast<size_t>(layout.bytes_per_block()));
}

TEST(PieceBytes, OtherBlocksAreOneRunForEachPieceInCanonicalOrder) {
  const KvPoolLayout layout = MakeLayout({.layout = KvLayoutKind::kLayerMajor});
  std::vector<std::byte> pool(layout.pool_bytes());
  const std::vector<iovec> runs = Block(pool, layout, 3, 16).Runs();
  ASSERT_EQ(runs.size(), 6u);
  for (int32_t piece = 0; piece < 6; ++piece) {
    EXPECT_EQ(runs[piece].iov_base, pool.data() + layout.PieceOffset(piece / 2, piece % 2 == 1, 3));
    EXPECT_EQ(runs[piece].iov_len, static_cast<size_t>(layout.group(0).piece_bytes()));
  }
  const KvPoolLayout block_major = MakeLayout({.layout = KvLayoutKind::kBlockMajor});
  EXPECT_EQ(Block(pool, block_major, 3, 5).Runs().size(), 6u);
}

TEST(PieceBytes, ChecksumsCoverExactlyTheValidTokensOfEachPiece) {
  const KvPoolLayout layout = MakeLayout({});
  std::vector<std::byte> pool(layout.pool_bytes());
  for (size_t i = 0; i < pool.size(); ++i) pool[i] = static_cast<std::byte>(i * 37 >> 3);
  const std::vector<uint32_t> before = Block(pool, layout, 2, 5).Checksums();
  ASSERT_EQ(before.size(), 6u);
  const int64_t at = layout.PieceOffset(1, true, 2);
  pool[at + PieceValidBytes(layout, {}, 5)] ^= std::byte{1};  // token 5 is not valid
  EXPECT_EQ(Block(pool, layout, 2, 5).Checksums(), before);
  pool[at + PieceValidBytes(layout, {}, 5) - 1] ^= std::byte{1};
  std::vector<uint32_t> after = Block(pool, layout, 2, 5).Checksums();
  EXPECT_NE(after[3], before[3]);
  after[3] = before[3];
  EXPECT_EQ(after, before);
  EXPECT_EQ(PieceName(layout, PieceAt(3)), "layer 1 V");
  EXPECT_EQ(PieceName(layout, PieceAt(4)), "layer 2 K");
}

TEST(PieceBytes, ACursorWalksTheSameBytesInAnySteps) {
  constexpr uint32_t kSeed = 9;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  for (const KvLayoutKind kind : {KvLayoutKind::kBlockMajor, KvLayoutKind::kLayerMajor}) {
    const KvPoolLayout layout = MakeLayout({.layout = kind, .num_blocks = 4});
    std::vector<std::byte> pool(layout.pool_bytes());
    for (size_t i = 0; i < pool.size(); ++i) pool[i] = static_cast<std::byte>(random());
    for (const int32_t valid : {1, 7, 16}) {
      std::vector<std::byte> expected;
      for (const iovec& run : Block(pool, layout, 2, valid).Runs()) {
        const auto* const at = static_cast<const std::byte*>(run.iov_base);
        expected.insert(expected.end(), at, at + run.iov_len);
      }
      ASSERT_EQ(expected.size(), static_cast<size_t>(BlockValidBytes(layout, valid)));
      BlockCursor cursor(Block(pool, layout, 2, valid).Runs());
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

TEST(PieceBytes, RunsOfALandingCoalesceAndBeginWithWhatIsDropped) {
  const KvPoolLayout layout = MakeLayout({.layout = KvLayoutKind::kLayerMajor, .num_blocks = 8});
  std::vector<std::byte> pool(layout.pool_bytes());
  const std::vector<BlockId> blocks = {BlockId(2), BlockId(3), BlockId(6)};
  // Tokens 8 to 63 in a block of 64. Blocks 2 and 3 are neighbours within a layer.
  const LandingParts parts = PlaceTokens(0, 64, 16, 16, 1, blocks);
  std::vector<std::byte> dropped(PieceValidBytes(layout, {}, 16) * PieceCount(layout));
  const std::vector<iovec> runs = PieceBytes(pool.data(), layout, parts, {}).Runs(dropped);
  ASSERT_EQ(runs.size(), 18u);
  size_t bytes = 0;
  for (const iovec& run : runs) bytes += run.iov_len;
  EXPECT_EQ(bytes, static_cast<size_t>(BlockValidBytes(layout, 16) * 4));
  EXPECT_EQ(runs[0].iov_base, dropped.data());
  EXPECT_EQ(runs[1].iov_base, pool.data() + layout.PieceOffset(0, false, 2));
  EXPECT_EQ(runs[1].iov_len, static_cast<size_t>(2 * layout.group(0).piece_bytes()));
  EXPECT_EQ(runs[2].iov_base, pool.data() + layout.PieceOffset(0, false, 6));
}

// The pieces of a layer range, and the parts of a piece, have the same bytes as the whole block.
TEST(PieceBytes, ALayerRangeAndSeveralPartsAreTheSameBytes) {
  const KvPoolLayout layout = MakeLayout({.layout = KvLayoutKind::kLayerMajor, .num_blocks = 8});
  std::vector<std::byte> pool(layout.pool_bytes());
  for (size_t i = 0; i < pool.size(); ++i) pool[i] = static_cast<std::byte>(i * 37 >> 3);
  const std::vector<uint32_t> whole = Block(pool, layout, 2, 16).Checksums();
  const std::vector<uint32_t> range =
      Block(pool, layout, 2, 16, {.first = 1, .count = 2}).Checksums();
  EXPECT_EQ(range, std::vector<uint32_t>(whole.begin() + 2, whole.end()));
  const LandingParts halves = {
      {.blocks = BlockId(2), .block_token = 0, .tokens = 5},
      {.blocks = BlockId(2), .block_token = 5, .payload_token = 5, .tokens = 11}};
  EXPECT_EQ(PieceBytes(pool.data(), layout, halves, {}).Checksums(), whole);
}

// Layers 0, 1 and 3 belong to a window with one plane of 12; layer 2 has full attention.
TEST(PieceBytes, PiecesBelongToTheGivenGroups) {
  const KvPoolLayout layout = MakeLayout({.block_size = 4, .groups = "vvfv"});
  std::vector<std::byte> pool(layout.pool_bytes());
  const auto names = [&](const GroupBlocks& blocks, LayerRange layers) {
    std::vector<std::string> names;
    const PieceBytes bytes(pool.data(), layout, LeadingTokens(blocks, 3), layers);
    int64_t size = 0;
    for (const Piece piece : bytes.pieces()) {
      names.push_back(PieceName(layout, piece));
      size += static_cast<int64_t>(bytes.Part(piece, 0).size());
    }
    EXPECT_EQ(names.size(), static_cast<size_t>(PieceCount(layout, layers, bytes.groups())));
    EXPECT_EQ(size, BlockValidBytes(layout, 3, layers, bytes.groups()));
    return names;
  };
  using Names = std::vector<std::string>;
  GroupBlocks both(BlockId(5));
  EXPECT_EQ(names(both, {}), (Names{"layer 2 K", "layer 2 V"}));
  EXPECT_EQ(names(both, {.first = 0, .count = 2}), Names{});
  both.Set(1, BlockId(6));
  EXPECT_EQ(names(both, {}), (Names{"layer 0 plane 0", "layer 1 plane 0", "layer 2 K", "layer 2 V",
                                    "layer 3 plane 0"}));
  EXPECT_EQ(names(both, {.first = 1, .count = 2}),
            (Names{"layer 1 plane 0", "layer 2 K", "layer 2 V"}));
  const PieceBytes bytes(pool.data(), layout, LeadingTokens(both, 3), {});
  EXPECT_EQ(bytes.Part({.layer = 3, .plane = 0}, 0).data(),
            pool.data() + layout.offset(1) + layout.group(1).PieceOffset(2, 0, 6));
}

TEST(PieceBytes, TokensOfAGroupWithoutABlockAreDroppedForItAlone) {
  const KvPoolLayout layout = MakeLayout({.block_size = 4, .groups = "wf"});
  std::vector<std::byte> pool(layout.pool_bytes());
  GroupBlocks last(BlockId(2));
  last.Set(1, BlockId(7));
  const LandingParts parts = {{.blocks = BlockId(1), .payload_token = 2, .tokens = 4},
                              {.blocks = last, .payload_token = 6, .tokens = 3}};
  const PieceBytes bytes(pool.data(), layout, parts, {});
  const Piece window{.layer = 0, .plane = 1};
  const Piece full{.layer = 1, .plane = 0};
  EXPECT_TRUE(bytes.Part(window, 0).empty());
  EXPECT_EQ(bytes.Part(window, 1).size(), PieceValidBytes(layout, window, 3));
  EXPECT_EQ(bytes.DroppedBytes(window), PieceValidBytes(layout, window, 6));
  EXPECT_EQ(bytes.DroppedBytes(full), PieceValidBytes(layout, full, 2));
  EXPECT_EQ(bytes.DroppedBytes(), 2 * (bytes.DroppedBytes(window) + bytes.DroppedBytes(full)));
  std::vector<std::byte> dropped(static_cast<size_t>(bytes.DroppedBytes()));
  size_t size = 0;
  for (const iovec& run : bytes.Runs(dropped)) size += run.iov_len;
  EXPECT_EQ(size, static_cast<size_t>(BlockValidBytes(layout, 9)));
}

}  // namespace
}  // namespace baton
