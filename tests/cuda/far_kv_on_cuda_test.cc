// Rotation, KV writes and comparison beyond 2^31 elements on the emulator, against the plain CPU
// kernels.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/plain_kernels.h"
#include "kernels/cuda/launch_kv.h"
#include "tests/cuda/chosen_launcher.h"
#include "tests/kernels/fast_kernels.h"
#include "tests/kernels/random_inputs.h"
#include "tests/kernels/sparse_buffer.h"

namespace baton {
namespace {

constexpr uint64_t kSeed = 16007;

// Rows, and a pool of K and V, of which most lies beyond 2^31 elements.
struct FarKv {
  explicit FarKv(KvType type)
      : type(type),
        rows(kTokens * kStride),
        pool(2 * kFarBlocks * kFarStride * KvTypeBytes(type)) {}
  bool ok() const { return rows.ok() && pool.ok(); }
  KvLayerView view() const {
    return {.base = pool.data(),
            .type = type,
            .block_size_log2 = 1,
            .block_stride = kFarStride,
            .token_stride = kHeads * kDim + (HasScales(type) ? 4 * kHeads : 0),
            .head_stride = kDim,
            .value_offset = kFarBlocks * kFarStride,
            .scale_offset = kHeads * kDim};
  }
  // The row of K or of V in a slot, with its scales.
  std::vector<std::byte> Row(int64_t slot, bool is_value) const {
    const KvLayerView v = view();
    const auto bytes = static_cast<int64_t>(KvTypeBytes(type));
    const int64_t at =
        slot / 2 * v.block_stride + slot % 2 * v.token_stride + (is_value ? v.value_offset : 0);
    return pool.Get(at * bytes, v.token_stride * bytes);
  }

  static constexpr int64_t kTokens = 4, kHeads = 2, kDim = 64;
  static constexpr int64_t kStride = (int64_t{1} << 30) + 4, kFarStride = (int64_t{1} << 28) + 64;
  static constexpr int64_t kFarBlocks = 13;  // 2^31 elements lie before the ninth
  const KvType type;
  const std::vector<int64_t> slots = {18, 0, 25, 20};
  Sparse<float> rows;  // heads of Q, K and V
  Sparse<std::byte> pool;
};

class CudaFarKv : public testing::TestWithParam<KvType> {
 protected:
  void SetUp() override {
    if (ChosenDeviceName().empty()) return;
    GTEST_SKIP() << "not run: memory outside the heap has no copy on the device";
  }
};
INSTANTIATE_TEST_SUITE_P(Types, CudaFarKv,
                         testing::Values(KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kInt8,
                                         KvType::kFp8),
                         [](const auto& info) { return std::string(KvTypeName(info.param)); });

TEST_P(CudaFarKv, RowsAreRotatedAndStoredInFarBlocks) {
  std::mt19937_64 random(kSeed);
  constexpr int64_t kHeads = FarKv::kHeads, kDim = FarKv::kDim, kRow = kHeads * kDim;
  FarKv expected(GetParam()), actual(GetParam());
  ASSERT_TRUE(expected.ok() && actual.ok());
  const std::vector<float> cosines = RandomFloats(random, FarKv::kTokens * kDim / 2);
  const std::vector<float> sines = RandomFloats(random, FarKv::kTokens * kDim / 2);
  for (int64_t t = 0; t < FarKv::kTokens; ++t) {
    const std::vector<float> row = RandomFloats(random, 3 * kRow);
    expected.rows.Put(t * FarKv::kStride, row);
    actual.rows.Put(t * FarKv::kStride, row);
  }
  float* const x = expected.rows.data();
  PlainKernels().rope({x, FarKv::kStride, 2 * kHeads, kDim, cosines.data(), sines.data(), kDim / 2,
                       true, FarKv::kTokens},
                      0, FarKv::kTokens);
  PlainKernels().kv_write({x + kRow, x + 2 * kRow, FarKv::kStride, kHeads, kDim,
                           expected.slots.data(), expected.view(), FarKv::kTokens},
                          0, FarKv::kTokens);
  ChosenLauncher launcher;
  LaunchRopeKvWrite(launcher, {.qk = actual.rows.data(),
                               .v = actual.rows.data() + 2 * kRow,
                               .stride = FarKv::kStride,
                               .query_heads = kHeads,
                               .kv_heads = kHeads,
                               .head_dim = kDim,
                               .cosines = cosines.data(),
                               .sines = sines.data(),
                               .half = kDim / 2,
                               .slot_mapping = actual.slots.data(),
                               .kv = actual.view(),
                               .tokens = FarKv::kTokens});
  for (int64_t t = 0; t < FarKv::kTokens; ++t) {
    EXPECT_EQ(expected.rows.Get(t * FarKv::kStride, 3 * kRow),
              actual.rows.Get(t * FarKv::kStride, 3 * kRow));
    for (const bool is_value : {false, true}) {
      EXPECT_EQ(expected.Row(expected.slots[t], is_value), actual.Row(actual.slots[t], is_value))
          << "token " << t << " value " << is_value;
    }
  }
}

TEST_P(CudaFarKv, RowsAreComparedWithFarBlocks) {
  std::mt19937_64 random(kSeed);
  constexpr int64_t kHeads = FarKv::kHeads, kDim = FarKv::kDim, kRow = kHeads * kDim;
  FarKv far(GetParam());
  ASSERT_TRUE(far.ok());
  const std::vector<float> stored = RandomFloats(random, FarKv::kTokens * 2 * kRow);
  PlainKernels().kv_write({stored.data(), stored.data() + kRow, 2 * kRow, kHeads, kDim,
                           far.slots.data(), far.view(), FarKv::kTokens},
                          0, FarKv::kTokens);
  for (int64_t t = 0; t < FarKv::kTokens; ++t) {
    far.rows.Put(t * FarKv::kStride, RandomFloats(random, 2 * kRow));
  }
  std::vector<float> expected(FarKv::kTokens * 2 * kHeads), actual = expected;
  CompareKvArgs args{.k = far.rows.data(),
                     .v = far.rows.data() + kRow,
                     .stride = FarKv::kStride,
                     .kv_heads = kHeads,
                     .head_dim = kDim,
                     .slots = far.slots.data(),
                     .kv = far.view(),
                     .changes = expected.data(),
                     .tokens = FarKv::kTokens};
  plain::CompareKv(args, 0, FarKv::kTokens);
  args.changes = actual.data();
  ChosenLauncher launcher;
  LaunchCompareKv(launcher, args);
  ExpectSameBits(expected, actual, "changes");
}

}  // namespace
}  // namespace baton
