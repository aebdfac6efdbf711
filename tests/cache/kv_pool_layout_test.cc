#include "cache/kv_pool_layout.h"

#include <set>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

// Layer 1 of four has full attention. The others have a window of 24 tokens.
KvCacheSpec TwoGroups() {
  const KvGroupSpec full{
      .layers = 1, .kv_heads = 2, .head_dim = 8, .type = KvType::kF16, .model_layers = {1}};
  KvGroupSpec window = full;
  window.kind = KvGroupKind::kSlidingWindow;
  window.layers = 3;
  window.window = 24;
  window.model_layers = {0, 2, 3};
  return {.groups = {full, window}};
}

KvPoolLayout Layout(KvLayoutKind kind) {
  const int64_t blocks[] = {5, 7};
  return *KvPoolLayout::Create(TwoGroups(), kind, 16, blocks);
}

TEST(KvPoolLayout, APoolOfOneGroupIsThatGroupsLayout) {
  const KvGroupSpec group{.layers = 3, .kv_heads = 2, .head_dim = 8};
  const KvLayout layout = *KvLayout::Create(group, KvLayoutKind::kLayerMajor, 16, 9);
  const KvPoolLayout pool = layout;
  EXPECT_EQ(pool.groups(), 1);
  EXPECT_EQ(pool.layers(), 3);
  EXPECT_EQ(pool.pool_bytes(), layout.pool_bytes());
  EXPECT_EQ(pool.bytes_per_block(), layout.bytes_per_block());
  EXPECT_EQ(pool.total_blocks(), 9);
  for (int32_t layer = 0; layer < 3; ++layer) {
    EXPECT_EQ(pool.place(layer), (KvLayerPlace{0, layer}));
    EXPECT_EQ(pool.PieceOffset(layer, 1, 4), layout.PieceOffset(layer, 1, 4));
  }
}

TEST(KvPoolLayout, MapsEachModelLayerToItsGroup) {
  const KvPoolLayout pool = Layout(KvLayoutKind::kBlockMajor);
  EXPECT_EQ(pool.layers(), 4);
  EXPECT_EQ(pool.place(0), (KvLayerPlace{1, 0}));
  EXPECT_EQ(pool.place(1), (KvLayerPlace{0, 0}));
  EXPECT_EQ(pool.place(2), (KvLayerPlace{1, 1}));
  EXPECT_EQ(pool.place(3), (KvLayerPlace{1, 2}));
  EXPECT_TRUE(pool.IsOf(1, 3));
  EXPECT_FALSE(pool.IsOf(0, 3));
  EXPECT_EQ(pool.first_block(1), 5);
  EXPECT_EQ(pool.total_blocks(), 12);
}

TEST(KvPoolLayout, NoTwoPiecesShareAByteInEitherLayout) {
  for (const KvLayoutKind kind : {KvLayoutKind::kBlockMajor, KvLayoutKind::kLayerMajor}) {
    const KvPoolLayout pool = Layout(kind);
    std::set<std::pair<int64_t, int64_t>> pieces;  // begin and end
    for (int32_t layer = 0; layer < pool.layers(); ++layer) {
      const KvLayout& layout = pool.layout_of(layer);
      for (int32_t plane = 0; plane < layout.planes(); ++plane) {
        for (int64_t block = 0; block < layout.num_blocks(); ++block) {
          const int64_t begin = pool.PieceOffset(layer, plane, block);
          pieces.emplace(begin, begin + layout.piece_bytes(plane));
        }
      }
    }
    EXPECT_EQ(pieces.size(), 2 * (5 * 1 + 7 * 3));
    int64_t end = 0;
    for (const auto& [begin, piece_end] : pieces) {
      EXPECT_GE(begin, end);
      end = piece_end;
    }
    EXPECT_EQ(end, pool.pool_bytes());
    EXPECT_EQ(pool.offset(1) % KvPoolLayout::kGroupAlignment, 0);
  }
}

TEST(KvPoolLayout, RefusesGroupsThatLeaveOutALayer) {
  KvCacheSpec spec = TwoGroups();
  spec.groups[1].model_layers = {0, 2, 4};
  const int64_t blocks[] = {5, 7};
  const auto pool = KvPoolLayout::Create(spec, KvLayoutKind::kBlockMajor, 16, blocks);
  EXPECT_EQ(pool.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(pool.status().message(), HasSubstr("model layer 4"));
}

TEST(KvPoolLayout, RefusesPoolsPastTheLimitTogether) {
  const int64_t blocks[] = {int64_t{1} << 52, int64_t{1} << 51};
  const auto pool = KvPoolLayout::Create(TwoGroups(), KvLayoutKind::kBlockMajor, 16, blocks);
  EXPECT_EQ(pool.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(KvPoolLayout, RecutIsTheSameGroupsInOtherBlocks) {
  const KvPoolLayout pool = Layout(KvLayoutKind::kBlockMajor);
  const int64_t blocks[] = {3, 2};
  const KvPoolLayout recut = *pool.Recut(KvLayoutKind::kLayerMajor, 4, blocks, /*alignment=*/64);
  EXPECT_EQ(recut.kind(), KvLayoutKind::kLayerMajor);
  EXPECT_EQ(recut.block_size(), 4);
  EXPECT_EQ(recut.total_blocks(), 5);
  // Group 0's bytes are a multiple of kGroupAlignment, so there is no padding.
  EXPECT_EQ(recut.offset(1), recut.group(0).pool_bytes());
  for (int32_t layer = 0; layer < 4; ++layer) EXPECT_EQ(recut.place(layer), pool.place(layer));
  EXPECT_EQ(pool.Recut(KvLayoutKind::kLayerMajor, 4, blocks)->offset(1),
            KvPoolLayout::kGroupAlignment);
  const int64_t none[] = {3, 0};
  EXPECT_EQ(pool.Recut(KvLayoutKind::kLayerMajor, 4, none).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace baton
