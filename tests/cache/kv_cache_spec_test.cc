#include "cache/kv_cache_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <utility>

namespace baton {
namespace {

using ::testing::HasSubstr;

KvGroupSpec SmallGroup() {
  return {.kind = KvGroupKind::kFullAttention,
          .layers = 3,
          .kv_heads = 2,
          .head_dim = 4,
          .type = KvType::kF16,
          .window = 0};
}

TEST(KvLayout, PiecesTileThePoolExactlyOnceInBothLayouts) {
  for (const KvLayoutKind kind : {KvLayoutKind::kBlockMajor, KvLayoutKind::kLayerMajor}) {
    const auto layout = KvLayout::Create(SmallGroup(), kind, 8, 5);
    ASSERT_TRUE(layout.ok()) << layout.status();
    EXPECT_EQ(layout->piece_bytes(), 8 * 2 * 4 * 2);
    EXPECT_EQ(layout->bytes_per_block(), 2 * 3 * layout->piece_bytes());
    EXPECT_EQ(layout->pool_bytes(), 5 * layout->bytes_per_block());
    std::set<int64_t> offsets;
    for (int32_t layer = 0; layer < 3; ++layer) {
      for (const bool value : {false, true}) {
        for (int64_t block = 0; block < 5; ++block) {
          const int64_t offset = layout->PieceOffset(layer, value, block);
          EXPECT_EQ(offset % layout->piece_bytes(), 0);
          EXPECT_LE(offset + layout->piece_bytes(), layout->pool_bytes());
          EXPECT_TRUE(offsets.insert(offset).second) << KvLayoutKindName(kind);
        }
      }
    }
    EXPECT_EQ(offsets.size(), 30u);
  }
}

TEST(KvLayout, ABlockIsOneRunInBlockMajorAndALayersKeysAreOneRunInLayerMajor) {
  const auto block_major = KvLayout::Create(SmallGroup(), KvLayoutKind::kBlockMajor, 16, 9);
  const auto layer_major = KvLayout::Create(SmallGroup(), KvLayoutKind::kLayerMajor, 16, 9);
  ASSERT_TRUE(block_major.ok() && layer_major.ok());
  EXPECT_EQ(block_major->PieceOffset(0, false, 4), 4 * block_major->bytes_per_block());
  EXPECT_EQ(block_major->PieceOffset(2, true, 4),
            5 * block_major->bytes_per_block() - block_major->piece_bytes());
  EXPECT_EQ(layer_major->PieceOffset(1, true, 4) + layer_major->piece_bytes(),
            layer_major->PieceOffset(1, true, 5));
  EXPECT_EQ(layer_major->PieceOffset(1, true, 0),
            layer_major->PieceOffset(1, false, 8) + layer_major->piece_bytes());
  EXPECT_EQ(layer_major->block_size_log2(), 4);
}

TEST(KvLayout, ARowOfBytesCarriesItsScalesAndIsPaddedToSixteenBytes) {
  for (const KvType type : {KvType::kInt8, KvType::kFp8}) {
    KvGroupSpec group = SmallGroup();
    group.type = type;
    const auto layout = KvLayout::Create(group, KvLayoutKind::kLayerMajor, 8, 5);
    ASSERT_TRUE(layout.ok()) << layout.status();
    EXPECT_EQ(layout->scale_offset(), 8);
    EXPECT_EQ(layout->token_stride(), 16);  // 8 values and 2 scales
    EXPECT_EQ(layout->piece_bytes(), 8 * 16);
    group.kv_heads = 3;
    group.head_dim = 64;
    const auto real = KvLayout::Create(group, KvLayoutKind::kBlockMajor, 16, 5);
    ASSERT_TRUE(real.ok()) << real.status();
    EXPECT_EQ(real->token_stride(), 208);  // 192 values and 3 scales: 204
    EXPECT_EQ(real->value_offset(), 16 * 208);
    EXPECT_EQ(real->pool_bytes(), 5 * real->bytes_per_block());
  }
}

TEST(KvLayout, OffsetsPastTwoToThe31AreExact) {
  KvGroupSpec group = SmallGroup();
  group.layers = 80;
  group.kv_heads = 8;
  group.head_dim = 128;
  const auto layout = KvLayout::Create(group, KvLayoutKind::kLayerMajor, 128, 100'000);
  ASSERT_TRUE(layout.ok());
  EXPECT_EQ(layout->PieceOffset(79, true, 99'999), layout->pool_bytes() - layout->piece_bytes());
  EXPECT_GT(layout->pool_bytes(), int64_t{1} << 40);
}

TEST(KvLayout, RefusalsNameTheField) {
  const auto refused = [](auto change, int32_t block_size, int64_t num_blocks) {
    KvGroupSpec group = SmallGroup();
    change(group);
    return std::string(KvLayout::Create(group, KvLayoutKind::kBlockMajor, block_size, num_blocks)
                           .status()
                           .message());
  };
  const auto same = [](KvGroupSpec&) {};
  for (const int32_t size : {-16, 0, 3, 24, 256}) {
    EXPECT_THAT(refused(same, size, 1), HasSubstr("block_size is " + std::to_string(size)));
    EXPECT_THAT(refused(same, size, 1), HasSubstr("set with --block-size"));
  }
  EXPECT_THAT(refused(same, 16, 0), HasSubstr("num_blocks"));
  EXPECT_THAT(refused([](auto& g) { g.layers = 0; }, 16, 1), HasSubstr("layers"));
  EXPECT_THAT(refused([](auto& g) { g.kv_heads = -1; }, 16, 1), HasSubstr("kv_heads"));
  EXPECT_THAT(refused([](auto& g) { g.head_dim = 0; }, 16, 1), HasSubstr("head_dim"));
  EXPECT_THAT(refused([](auto& g) { g.planes = 0; }, 16, 1), HasSubstr("planes is 0"));
  EXPECT_THAT(refused([](auto& g) { g.planes = 3; }, 16, 1), HasSubstr("planes is 3"));
  EXPECT_THAT(refused([](auto& g) { g.value_head_dim = -1; }, 16, 1),
              HasSubstr("value_head_dim is -1"));
  EXPECT_THAT(refused(same, 128, INT64_MAX), HasSubstr("larger than"));
  for (const KvType type : {KvType::kF32, KvType::kInt8, KvType::kFp8}) {
    const auto largest = [&](KvGroupSpec& g) {
      g.layers = g.kv_heads = g.head_dim = INT32_MAX;
      g.type = type;
    };
    EXPECT_THAT(refused(largest, 128, 1), HasSubstr("larger than"));
  }
}

TEST(KvLayout, PlanesHaveRowsOfTheirOwnSizeAndTileThePool) {
  KvGroupSpec two = SmallGroup();
  two.value_head_dim = 2;
  KvGroupSpec latent = SmallGroup();
  latent.planes = 1;
  for (const KvType type : {KvType::kF16, KvType::kInt8, KvType::kFp8}) {
    for (KvGroupSpec group : {two, latent}) {
      group.type = type;
      for (const KvLayoutKind kind : {KvLayoutKind::kBlockMajor, KvLayoutKind::kLayerMajor}) {
        const auto layout = KvLayout::Create(group, kind, 8, 5);
        ASSERT_TRUE(layout.ok()) << layout.status();
        std::map<int64_t, int64_t> pieces;  // piece offset to piece size, in bytes
        for (int32_t layer = 0; layer < 3; ++layer) {
          for (int32_t plane = 0; plane < layout->planes(); ++plane) {
            for (int64_t block = 0; block < 5; ++block) {
              pieces[layout->PieceOffset(layer, plane, block)] = layout->piece_bytes(plane);
            }
          }
        }
        EXPECT_EQ(pieces.size(), size_t(3 * layout->planes() * 5));
        int64_t end = 0;
        for (const auto& [offset, bytes] : pieces) {
          EXPECT_EQ(offset, end) << KvLayoutKindName(kind);
          end = offset + bytes;
        }
        EXPECT_EQ(end, layout->pool_bytes());
      }
    }
  }
  two.type = KvType::kF16;
  const auto layout = KvLayout::Create(two, KvLayoutKind::kBlockMajor, 8, 5);
  EXPECT_EQ(layout->token_stride(0), 8);
  EXPECT_EQ(layout->token_stride(1), 4);
  EXPECT_EQ(layout->plane_offset(1), 8 * 8);
  EXPECT_EQ(layout->bytes_per_block(), 3 * 8 * (8 + 4) * 2);
}

KvCacheSpec TwoGroups() {
  KvGroupSpec full = SmallGroup(), window = SmallGroup();
  full.layers = 1;
  full.model_layers = {1};
  window.kind = KvGroupKind::kSlidingWindow;
  window.layers = 2;
  window.model_layers = {0, 2};
  window.window = 16;
  return {.groups = {full, window}};
}

TEST(KvCacheSpec, RefusalsNameTheGroupAndTheField) {
  const auto refused = [](auto change) {
    KvCacheSpec spec = TwoGroups();
    change(spec.groups);
    return CheckKvCacheSpec(spec).ToString();
  };
  EXPECT_TRUE(CheckKvCacheSpec(TwoGroups()).ok());
  EXPECT_TRUE(CheckKvCacheSpec({.groups = {SmallGroup()}}).ok());
  EXPECT_THAT(refused([](auto& g) { g.clear(); }), HasSubstr("0 groups; [1, 4]"));
  EXPECT_THAT(refused([](auto& g) { g.resize(5, g[1]); }), HasSubstr("5 groups; [1, 4]"));
  EXPECT_THAT(refused([](auto& g) { std::swap(g[0], g[1]); }), HasSubstr("KV group 0 (window)"));
  EXPECT_THAT(refused([](auto& g) { g[1].kind = g[0].kind; }), HasSubstr("is group 1"));
  EXPECT_THAT(refused([](auto& g) { g[1].window = 0; }), HasSubstr("at least 1, is 0"));
  EXPECT_THAT(refused([](auto& g) { g[1].model_layers = {0}; }), HasSubstr("length is 1"));
  EXPECT_THAT(refused([](auto& g) { g[1].model_layers = {}; }), HasSubstr("does not name"));
  EXPECT_THAT(refused([](auto& g) { g[1].model_layers = {0, 1}; }), HasSubstr("repeated layer 1"));
  EXPECT_THAT(refused([](auto& g) {
                g.push_back(g[1]);
                g[2].model_layers = {3, 4};
              }),
              HasSubstr("two groups have the window 16"));
  EXPECT_EQ(CheckKvCacheSpec({.groups = {{.kind = KvGroupKind::kRecurrentState}}}).code(),
            absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace baton
