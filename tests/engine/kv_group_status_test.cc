#include "engine/kv_group_status.h"

#include <gtest/gtest.h>

#include "common/clock.h"

namespace baton {
namespace {

TEST(KvGroupStatus, EachGroupReportsItsOwnPool) {
  const KvCacheSpec spec{
      .groups = {{.layers = 1, .kv_heads = 2, .head_dim = 8, .model_layers = {1}},
                 {.kind = KvGroupKind::kSlidingWindow,
                  .layers = 3,
                  .kv_heads = 2,
                  .head_dim = 8,
                  .window = 9,
                  .model_layers = {0, 2, 3}}}};
  const int64_t num_blocks[] = {31, 11};
  const KvPoolLayout layout = *KvPoolLayout::Create(spec, KvLayoutKind::kBlockMajor, 4, num_blocks);
  const SystemClock clock;
  KvCacheManager cache({.num_blocks = 20,
                        .max_blocks = 30,
                        .block_size = 4,
                        .windows = {{.window = 9, .num_blocks = 10, .max_blocks = 10}},
                        .max_step_tokens = 4},
                       &clock);
  const std::vector<CacheUnit> units(24, CacheUnit(5));
  const SequenceId id(1);
  ASSERT_TRUE(cache.Begin(id, CacheNamespace(), units, 24).ok());
  for (int32_t begin = 0; begin < 24; begin += 4) {
    ASSERT_TRUE(cache.Reserve(id, 24).ok());
    cache.Commit(id, std::span(units).subspan(begin, 4));
    cache.FreeBehindWindows(id);
  }
  const auto groups = KvGroupStatuses(layout, cache, cache.Stats());
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].kind, KvGroupKind::kFullAttention);
  EXPECT_EQ(groups[0].window, 0);
  EXPECT_EQ(groups[0].layers, 1);
  EXPECT_EQ(groups[0].bytes_per_block, 1 * 2 * 4 * 2 * 8 * 2);
  EXPECT_EQ(groups[0].size.limit, 20);
  EXPECT_EQ(groups[0].size.reserved, 30);
  EXPECT_EQ(groups[0].blocks.owned, 6);
  EXPECT_EQ(groups[0].blocks.free, 14);
  EXPECT_EQ(groups[1].kind, KvGroupKind::kSlidingWindow);
  EXPECT_EQ(groups[1].window, 9);
  EXPECT_EQ(groups[1].layers, 3);
  EXPECT_EQ(groups[1].bytes_per_block, 3 * groups[0].bytes_per_block);
  EXPECT_EQ(groups[1].size.limit, 10);
  EXPECT_EQ(groups[1].size.reserved, 10);
  EXPECT_EQ(groups[1].blocks.owned, 2) << "only slots 16 to 23";
  EXPECT_EQ(groups[1].blocks.free, 8);
  cache.Release(id, /*keep=*/true);
}

}  // namespace
}  // namespace baton
