#include "model/kv_heads.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/cpu/cpu_device.h"
#include "kernels/ops.h"

namespace baton {
namespace {

constexpr int32_t kHeads = 6;
constexpr int32_t kHeadDim = 8;
constexpr int32_t kBlockSize = 4;
constexpr int64_t kBlocks = 3;

KvPoolLayout LayoutOf(KvType type, KvLayoutKind kind) {
  const KvGroupSpec group{.layers = 2, .kv_heads = kHeads, .head_dim = kHeadDim, .type = type};
  const int64_t blocks[] = {kBlocks};
  return *KvPoolLayout::Create({.groups = {group}}, kind, kBlockSize, blocks);
}

struct Pool {
  explicit Pool(const KvPoolLayout& layout)
      : layout(layout), bytes(static_cast<size_t>(layout.pool_bytes())) {}
  KvLayerView View(int32_t layer) {
    const KvLayout& group = layout.group(0);
    return {.base = bytes.data() + layout.PieceOffset(layer, 0, 0),
            .type = group.group().type,
            .block_size_log2 = group.block_size_log2(),
            .block_stride = group.block_stride(),
            .token_stride = group.token_stride(),
            .head_stride = group.head_stride(),
            .value_offset = group.value_offset(),
            .scale_offset = group.scale_offset()};
  }
  KvPoolLayout layout;
  std::vector<std::byte> bytes;
};

class KvHeadsTest : public ::testing::TestWithParam<std::tuple<KvType, KvLayoutKind>> {
 protected:
  const KvPoolLayout layout_ = LayoutOf(std::get<0>(GetParam()), std::get<1>(GetParam()));
  const std::unique_ptr<Device> device_ = *CreateCpuDevice({.threads = 1});
  const std::unique_ptr<Stream> stream_ = device_->CreateStream();
};

INSTANTIATE_TEST_SUITE_P(
    Pools, KvHeadsTest,
    ::testing::Combine(::testing::Values(KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kInt8,
                                         KvType::kFp8),
                       ::testing::Values(KvLayoutKind::kBlockMajor, KvLayoutKind::kLayerMajor)));

TEST_P(KvHeadsTest, TheHeadsOfAllRanksTogetherAreThePool) {
  const int64_t tokens = 5;
  const int64_t cols = kHeads * kHeadDim;
  std::vector<float> k, v;
  for (int64_t i = 0; i < tokens * cols; ++i) {
    k.push_back(static_cast<float>(i % 37) - 11.5f);
    v.push_back(static_cast<float>(i % 23) * 0.75f);
  }
  const std::vector<int64_t> slots = {9, 2, 11, 0, 5};
  Pool whole(layout_);
  const auto write = [&](Pool& pool, KvHeads heads) {
    for (int32_t layer = 0; layer < 2; ++layer) {
      device_->ops().RopeKvWrite(*stream_, {.qk = k.data() + heads.first * kHeadDim,
                                            .v = v.data() + heads.first * kHeadDim,
                                            .stride = cols,
                                            .kv_heads = heads.count,
                                            .head_dim = kHeadDim,
                                            .slot_mapping = slots.data(),
                                            .kv = FromHead(pool.View(layer), heads.first),
                                            .tokens = tokens});
    }
  };
  write(whole, {.first = 0, .count = kHeads});
  for (const int32_t degree : {1, 2, 3, 6}) {
    Pool parts(layout_);
    for (int32_t rank = 0; rank < degree; ++rank) {
      const KvHeads heads = HeadsOf({.rank = rank, .degree = degree}, layout_.group(0));
      EXPECT_EQ(heads.count, kHeads / degree);
      write(parts, heads);
    }
    EXPECT_EQ(parts.bytes, whole.bytes) << degree;
  }
}

// Rows have padding behind the scales of an int8 pool. Copies of some heads do not touch it.
TEST_P(KvHeadsTest, CopiesOfAllRanksTogetherCopyTheLeadingSlots) {
  Pool before(layout_);
  for (size_t i = 0; i < before.bytes.size(); ++i) {
    before.bytes[i] = static_cast<std::byte>(i * 7 % 251);
  }
  const BlockCopy copy{.from = BlockId(2), .to = BlockId(0), .tokens = 3};
  const KvLayout& group = layout_.group(0);
  const int64_t row = group.token_stride() * KvTypeBytes(group.group().type);
  const int64_t used = kHeads * (kHeadDim * KvTypeBytes(group.group().type) +
                                 (HasScales(group.group().type) ? 4 : 0));
  for (const int32_t degree : {1, 2, 3, 6}) {
    Pool pool = before;
    Pool expected = before;
    for (int32_t layer = 0; layer < 2; ++layer) {
      for (int32_t plane = 0; plane < 2; ++plane) {
        for (int32_t token = 0; token < copy.tokens; ++token) {
          std::memcpy(expected.bytes.data() + layout_.PieceOffset(layer, plane, 0) + token * row,
                      before.bytes.data() + layout_.PieceOffset(layer, plane, 2) + token * row,
                      static_cast<size_t>(degree == 1 ? row : used));
        }
      }
    }
    for (int32_t rank = 0; rank < degree; ++rank) {
      const KvHeads heads = HeadsOf({.rank = rank, .degree = degree}, group);
      std::vector<ByteRun> runs;
      AppendKvHeadRuns(layout_, copy, heads, runs);
      device_->ops().CopyRuns(*stream_,
                              {.from = pool.bytes.data(), .to = pool.bytes.data(), .runs = runs});
    }
    EXPECT_EQ(pool.bytes, expected.bytes) << degree;
  }
}

TEST(KvHeads, ARankHasAPartOfASharedPoolOrAllOfItsOwn) {
  const TensorRank second{.rank = 1, .degree = 3};
  const KvPoolLayout shared = LayoutOf(KvType::kInt8, KvLayoutKind::kBlockMajor);
  EXPECT_EQ(RankInPool(second, shared, kHeads).rank, 1);
  EXPECT_EQ(RankInPool(second, shared, kHeads).degree, 3);
  const KvCacheSpec spec = OfOneRank({.groups = {shared.group(0).group()}}, 3);
  EXPECT_EQ(spec.groups[0].kv_heads, kHeads / 3);
  const int64_t blocks[] = {kBlocks};
  const KvPoolLayout own =
      *KvPoolLayout::Create(spec, KvLayoutKind::kBlockMajor, kBlockSize, blocks);
  const TensorRank all = RankInPool(second, own, kHeads);
  EXPECT_EQ(HeadsOf(all, own.group(0)).first, 0);
  EXPECT_EQ(HeadsOf(all, own.group(0)).count, kHeads / 3);
}

}  // namespace
}  // namespace baton
