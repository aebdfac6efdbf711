// Changes of K and V against the words of NUMERICS §7: what was stored, in every type.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/cpu/plain_kernels.h"
#include "kernels/fp8.h"
#include "kernels/half.h"
#include "tests/kernels/random_inputs.h"

namespace baton {
namespace {

constexpr uint64_t kSeed = 20261124;
constexpr int64_t kHeads = 2, kHeadDim = 40, kStride = 2 * kHeads * kHeadDim + 3, kTokens = 5;

// A pool of 8 slots whose blocks have 2^log2 of them.
struct Pool {
  Pool(KvType type, int32_t log2) : bytes(size_t(8 * kPlane * 2 * KvTypeBytes(type))) {
    kv = {.base = bytes.data(),
          .type = type,
          .block_size_log2 = log2,
          .block_stride = (int64_t{1} << log2) * kPlane * 2,
          .token_stride = kPlane,
          .head_stride = kHeadDim,
          .value_offset = (int64_t{1} << log2) * kPlane,
          .scale_offset = kHeads * kHeadDim};
  }
  static constexpr int64_t kPlane = kHeads * kHeadDim + 4 * kHeads;  // with scales
  std::vector<std::byte> bytes;
  KvLayerView kv;

  // The number that the bytes of (slot, K or V, head, d) stand for.
  float At(int64_t slot, bool value, int64_t head, int64_t d) const {
    const int64_t in_block = slot & ((1 << kv.block_size_log2) - 1);
    const int64_t row = (slot >> kv.block_size_log2) * kv.block_stride +
                        in_block * kv.token_stride + (value ? kv.value_offset : 0);
    const std::byte* at = bytes.data() + (row + head * kHeadDim + d) * KvTypeBytes(kv.type);
    float scale = 1;
    if (HasScales(kv.type)) {
      std::memcpy(&scale, bytes.data() + row + kv.scale_offset + 4 * head, sizeof(scale));
    }
    uint16_t half;
    float wide;
    std::memcpy(&half, at, sizeof(half));
    std::memcpy(&wide, at, sizeof(wide));
    switch (kv.type) {
      case KvType::kF32:
        return wide;
      case KvType::kF16:
        return F16ToF32(half);
      case KvType::kBF16:
        return BF16ToF32(half);
      case KvType::kInt8:
        return static_cast<float>(static_cast<int8_t>(*at)) * scale;
      case KvType::kFp8:
        return Fp8ToF32(static_cast<uint8_t>(*at)) * scale;
    }
    return 0;
  }
};

class CompareKvPlain : public testing::TestWithParam<KvType> {};

TEST_P(CompareKvPlain, SumsTheSquaredDifferencesFromTheStoredNumbersHeadByHead) {
  std::mt19937_64 random(kSeed);
  const std::vector<float> stored = RandomFloats(random, kTokens * kStride);
  const std::vector<float> fresh = RandomFloats(random, kTokens * kStride);
  const std::vector<int64_t> slots = {6, 0, 3, 7, 4};
  const std::vector<int64_t> compared = {6, -1, 3, 7, 4};
  const int64_t v = kHeads * kHeadDim;
  std::vector<float> first;
  for (const int32_t log2 : {0, 1, 2, 3}) {
    Pool pool(GetParam(), log2);
    plain::KvWrite({stored.data(), stored.data() + v, kStride, kHeads, kHeadDim, slots.data(),
                    pool.kv, kTokens},
                   0, kTokens);
    std::vector<float> changes(kTokens * 2 * kHeads, -7);
    const CompareKvArgs args{.k = fresh.data(),
                             .v = fresh.data() + v,
                             .stride = kStride,
                             .kv_heads = kHeads,
                             .head_dim = kHeadDim,
                             .slots = compared.data(),
                             .kv = pool.kv,
                             .changes = changes.data(),
                             .tokens = kTokens};
    plain::CompareKv(args, 0, 3);
    plain::CompareKv(args, 3, kTokens);
    for (int64_t t = 0; t < kTokens; ++t) {
      for (int64_t head = 0; head < kHeads; ++head) {
        for (const bool value : {false, true}) {
          // Sixteen lanes and their tree, as in §1.
          float lanes[16] = {};
          for (int64_t d = 0; d < kHeadDim; ++d) {
            const float x = fresh[t * kStride + (value ? v : 0) + head * kHeadDim + d] -
                            pool.At(slots[t], value, head, d);
            lanes[d % 16] = std::fma(x, x, lanes[d % 16]);
          }
          for (int width = 8; width > 0; width /= 2) {
            for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
          }
          EXPECT_EQ(changes[(t * kHeads + head) * 2 + (value ? 1 : 0)], t == 1 ? 0 : lanes[0])
              << "token " << t << " head " << head << " seed " << kSeed;
        }
      }
    }
    if (first.empty()) first = changes;
    EXPECT_EQ(changes, first) << "blocks of " << (1 << log2);
    EXPECT_GT(changes[0], 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CompareKvPlain,
                         testing::Values(KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kInt8,
                                         KvType::kFp8),
                         [](const auto& type) { return std::string(KvTypeName(type.param)); });

TEST(CompareKvPlainRows, EqualRowsHaveNoChange) {
  std::mt19937_64 random(kSeed);
  const std::vector<float> rows = RandomFloats(random, kTokens * kStride);
  const std::vector<int64_t> slots = {6, 0, 3, 7, 4};
  Pool pool(KvType::kF32, 1);
  const float* const v = rows.data() + kHeads * kHeadDim;
  plain::KvWrite({rows.data(), v, kStride, kHeads, kHeadDim, slots.data(), pool.kv, kTokens}, 0,
                 kTokens);
  std::vector<float> changes(kTokens * 2 * kHeads, -7);
  plain::CompareKv({.k = rows.data(),
                    .v = v,
                    .stride = kStride,
                    .kv_heads = kHeads,
                    .head_dim = kHeadDim,
                    .slots = slots.data(),
                    .kv = pool.kv,
                    .changes = changes.data(),
                    .tokens = kTokens},
                   0, kTokens);
  EXPECT_EQ(changes, std::vector<float>(kTokens * 2 * kHeads, 0));
}

}  // namespace
}  // namespace baton
