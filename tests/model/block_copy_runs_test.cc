#include "model/block_copy_runs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

namespace baton {
namespace {

constexpr int32_t kBlocks = 6;
constexpr int32_t kBlockSize = 16;

// Two KV groups, the second one with a window.
KvPoolLayout Layout(KvLayoutKind kind, KvType type) {
  const KvGroupSpec full{
      .layers = 2, .kv_heads = 2, .head_dim = 8, .type = type, .model_layers = {1, 3}};
  KvGroupSpec window = full;
  window.kind = KvGroupKind::kSlidingWindow;
  window.layers = 3;
  window.window = 24;
  window.model_layers = {0, 2, 4};
  const int64_t blocks[] = {kBlocks, kBlocks};
  return *KvPoolLayout::Create({.groups = {full, window}}, kind, kBlockSize, blocks);
}

std::vector<BlockCopy> RandomCopies(std::mt19937_64& random) {
  std::vector<BlockCopy> copies;
  for (uint64_t count = random() % 9; count > 0; --count) {
    const auto from = static_cast<int32_t>(random() % kBlocks);
    const auto to = static_cast<int32_t>((from + 1 + random() % (kBlocks - 1)) % kBlocks);
    copies.push_back({.from = BlockId(from),
                      .to = BlockId(to),
                      .tokens = static_cast<int32_t>(random() % (kBlockSize + 1)),
                      .group = static_cast<int32_t>(random() % 2)});
  }
  return copies;
}

// Copies block by block, in order, with the pieces of the layout.
void CopyNaively(const std::vector<BlockCopy>& copies, const KvPoolLayout& layout,
                 std::vector<uint8_t>& pool) {
  for (const BlockCopy& copy : copies) {
    for (int32_t layer = 0; layer < layout.layers(); ++layer) {
      if (!layout.IsOf(copy.group, layer)) continue;
      const KvLayout& group = layout.group(copy.group);
      for (int32_t plane = 0; plane < group.planes(); ++plane) {
        const int64_t bytes = group.piece_bytes(plane) / kBlockSize * copy.tokens;
        const int64_t from = layout.PieceOffset(layer, plane, copy.from.value());
        const int64_t to = layout.PieceOffset(layer, plane, copy.to.value());
        std::copy_n(pool.begin() + from, bytes, pool.begin() + to);
      }
    }
  }
}

TEST(BlockCopyRuns, TheRunsOfAListMayBeCopiedInAnyOrder) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const KvPoolLayout layout =
        Layout(seed % 2 == 0 ? KvLayoutKind::kBlockMajor : KvLayoutKind::kLayerMajor,
               seed % 3 == 0 ? KvType::kInt8 : KvType::kF16);
    const std::vector<BlockCopy> copies = RandomCopies(random);
    std::vector<uint8_t> pool(static_cast<size_t>(layout.pool_bytes()));
    for (size_t i = 0; i + 8 <= pool.size(); i += 8) {
      const uint64_t bits = random();
      std::memcpy(&pool[i], &bits, 8);
    }
    std::vector<uint8_t> expected = pool;
    CopyNaively(copies, layout, expected);
    for (std::vector<ByteRun> runs : BlockCopyRuns(copies, layout)) {
      std::shuffle(runs.begin(), runs.end(), random);
      for (const ByteRun& run : runs) {
        std::copy_n(pool.begin() + run.from, run.bytes, pool.begin() + run.to);
      }
    }
    ASSERT_TRUE(pool == expected);
  }
}

TEST(BlockCopyRuns, IndependentCopiesShareAList) {
  const KvPoolLayout layout = Layout(KvLayoutKind::kBlockMajor, KvType::kF16);
  const auto copy = [](int32_t from, int32_t to, int32_t group) {
    return BlockCopy{.from = BlockId(from), .to = BlockId(to), .tokens = 3, .group = group};
  };
  // One prompt's last block for several choices; the same numbers in another group.
  EXPECT_EQ(BlockCopyRuns(std::vector{copy(0, 1, 0), copy(0, 2, 0), copy(1, 0, 1)}, layout).size(),
            1u);
  EXPECT_EQ(BlockCopyRuns(std::vector{copy(0, 1, 0), copy(1, 2, 0)}, layout).size(), 2u);
  EXPECT_EQ(BlockCopyRuns(std::vector{copy(0, 1, 0), copy(2, 0, 0)}, layout).size(), 2u);
  EXPECT_EQ(BlockCopyRuns(std::vector{copy(0, 1, 0), copy(2, 1, 0)}, layout).size(), 2u);
  EXPECT_TRUE(BlockCopyRuns({}, layout).empty());
}

}  // namespace
}  // namespace baton
