#include "kernels/cuda/attention_cost.h"

#include <gtest/gtest.h>

#include <vector>

namespace baton {
namespace {

constexpr Numerics kNumerics = Numerics::kT1Sm90;

PagedAttentionArgs Shape(KvType type = KvType::kBF16, int64_t query_heads = 32) {
  return {.query_heads = query_heads, .kv_heads = 8, .head_dim = 128, .kv = {.type = type}};
}

// `rows` rows that share `shared` slots and have `rest` slots each.
int64_t Saved(int rows, int32_t shared, int32_t rest, const PagedAttentionArgs& shape = Shape()) {
  std::vector<int32_t> slots(rows, shared + rest);
  std::vector<int32_t> segments(rows, shared / kAttentionSegment);
  segments[0] = 0;
  return ClocksSavedBySharing(shape, kNumerics, slots, segments);
}

TEST(AttentionCost, ALongPrefixOfManyRowsIsReadOnce) {
  for (const KvType type : {KvType::kF16, KvType::kBF16, KvType::kInt8, KvType::kFp8}) {
    EXPECT_GT(Saved(64, 8192, 1, Shape(type)), 0);
    EXPECT_GT(Saved(64, 8192, 256, Shape(type)), 0);
  }
  EXPECT_GT(Saved(8, 8192, 256), 0);
}

TEST(AttentionCost, WhatIsNotSharedIsReadByTheKernelForDecode) {
  EXPECT_LT(Saved(64, 0, 8192), 0);
  EXPECT_LT(Saved(64, 0, 1), 0);
  EXPECT_LT(Saved(1, 2048, 100), 0);
  EXPECT_LT(Saved(64, 2048, 60'000, Shape(KvType::kInt8)), 0);
}

// No unit would be divided, so few blocks would have work.
TEST(AttentionCost, RestsWhosePiecesDoNotFitAreReadByTheKernelForDecode) {
  EXPECT_GT(Saved(64, 8192, 6'000), 0);
  EXPECT_LT(Saved(64, 8192, 7'000), 0);
  EXPECT_GT(Saved(32, 8192, 7'000), 0);
  EXPECT_LT(Saved(128, 2048, 3'072), 0);
  EXPECT_LT(Saved(96, 8192, 4'096), 0);
  EXPECT_LT(Saved(192, 2048, 1'024), 0);
  EXPECT_LT(Saved(256, 2048, 1'280), 0);
}

// Sharing wins even if no unit is divided.
TEST(AttentionCost, ShortRestsOfManyRowsAreReadByTheKernelForChunks) {
  EXPECT_GT(Saved(256, 8192, 256), 0);
}

// Row 33 is alone in its tile, so it shares with no other row.
TEST(AttentionCost, ATileReadsASharedPrefixForItself) {
  const int64_t of_32 = Saved(32, 8192, 64);
  const int64_t of_33 = Saved(33, 8192, 64);
  EXPECT_LT(of_33, of_32);
  EXPECT_GT(Saved(34, 8192, 64), of_33);
}

// In clocks of decision 26 and from bytes: 64 slots of 512 bytes at 25 bytes a clock; tiles of
// 1,400 clocks; 5,000 for each part.
TEST(AttentionCost, CountsTilesAndParts) {
  EXPECT_EQ(Saved(2, 2048, 64), 2 * 33 * 1310 - (34 * 1400 + 3 * 5000) * 11 / 10);
}

TEST(AttentionCost, AWarpPlansEachTile) {
  EXPECT_TRUE(PlansRowsFast(Shape(), kNumerics, 256));
  EXPECT_FALSE(PlansRowsFast(Shape(), kNumerics, 257));
  EXPECT_TRUE(PlansRowsFast(Shape(KvType::kBF16, 64), kNumerics, 128));  // tiles of 16 tokens
  EXPECT_FALSE(PlansRowsFast(Shape(KvType::kBF16, 64), kNumerics, 129));
  EXPECT_TRUE(PlansRowsFast(Shape(KvType::kBF16, 8), kNumerics, 256));  // at most 32 tokens
  EXPECT_FALSE(PlansRowsFast(Shape(KvType::kBF16, 8), kNumerics, 257));
}

}  // namespace
}  // namespace baton
