// The CPU's RopeKvWrite gives the bits of rotating and then storing.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/cpu_stream.h"
#include "tests/kernels/random_inputs.h"

namespace baton {
namespace {

constexpr uint64_t kSeed = 8128;
constexpr int64_t kQueryHeads = 3, kKvHeads = 2, kHeads = kQueryHeads + kKvHeads, kBlocks = 40;

struct Written {
  std::vector<float> rows;
  std::vector<std::byte> pool;
};

// Tokens enough for several units of work. Every fifth is padding.
struct Case {
  Case(KvType type, int64_t head_dim, int64_t half, bool neighbours, int64_t tokens)
      : head_dim(head_dim), half(half), neighbours(neighbours), tokens(tokens) {
    std::mt19937_64 random(kSeed);
    const int64_t row = kKvHeads * head_dim + (HasScales(type) ? 4 * kKvHeads : 0);
    kv = {.type = type,
          .block_size_log2 = 2,
          .block_stride = 8 * row,
          .token_stride = row,
          .head_stride = head_dim,
          .value_offset = 4 * row,
          .scale_offset = kKvHeads * head_dim};
    cosines = RandomFloats(random, tokens * half);
    sines = RandomFloats(random, tokens * half);
    before.rows = RandomFloats(random, tokens * stride());
    before.pool.resize(kBlocks * kv.block_stride * KvTypeBytes(type), std::byte{0x5a});
    for (int64_t t = 0; t < tokens; ++t) slots.push_back(t % 5 == 3 ? -1 : 4 * kBlocks - 1 - t);
  }
  int64_t stride() const { return (kHeads + kKvHeads) * head_dim + 1; }

  Written OneAfterTheOther() const {
    Written written = before;
    KvLayerView view = kv;
    view.base = written.pool.data();
    float* const x = written.rows.data();
    PlainKernels().rope(
        {x, stride(), kHeads, head_dim, cosines.data(), sines.data(), half, neighbours, tokens}, 0,
        tokens);
    PlainKernels().kv_write({x + kQueryHeads * head_dim, x + kHeads * head_dim, stride(), kKvHeads,
                             head_dim, slots.data(), view, tokens},
                            0, tokens);
    return written;
  }
  Written ByTheOp(const CpuKernels& kernels, int threads) const {
    ThreadPool pool(threads);
    const CpuOps ops(kernels, pool);
    CpuStream stream(pool);
    Written written = before;
    KvLayerView view = kv;
    view.base = written.pool.data();
    ops.RopeKvWrite(stream, {.qk = written.rows.data(),
                             .v = written.rows.data() + kHeads * head_dim,
                             .stride = stride(),
                             .query_heads = kQueryHeads,
                             .kv_heads = kKvHeads,
                             .head_dim = head_dim,
                             .cosines = cosines.data(),
                             .sines = sines.data(),
                             .half = half,
                             .neighbours = neighbours,
                             .slot_mapping = slots.data(),
                             .kv = view,
                             .tokens = tokens});
    return written;
  }

  const int64_t head_dim, half;
  const bool neighbours;
  const int64_t tokens;
  KvLayerView kv;
  std::vector<float> cosines, sines;
  std::vector<int64_t> slots;
  Written before;
};

TEST(CpuRopeKvWrite, EqualsRotatingAndThenStoring) {
  for (const KvType type :
       {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kInt8, KvType::kFp8}) {
    for (const int64_t head_dim : {1, 7, 64, 80, 96, 128, 256}) {
      for (const int64_t half : {head_dim / 2, head_dim / 4, int64_t{0}}) {
        for (const bool neighbours : {true, false}) {
          const Case written(type, head_dim, half, neighbours, 4 * kBlocks);
          const Written expected = written.OneAfterTheOther();
          for (const InstructionSet set : kInstructionSets) {
            if (!IsSupported(set)) continue;
            for (const int threads : {1, 3}) {
              SCOPED_TRACE(testing::Message()
                           << KvTypeName(type) << " head_dim " << head_dim << " half " << half
                           << " neighbours " << neighbours << " " << InstructionSetName(set));
              const Written actual = written.ByTheOp(KernelsFor(set), threads);
              ASSERT_TRUE(actual.pool == expected.pool);
              ASSERT_EQ(std::memcmp(actual.rows.data(), expected.rows.data(),
                                    expected.rows.size() * sizeof(float)),
                        0);
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace baton
