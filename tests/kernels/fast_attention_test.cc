// Compares the bits of vector attention segments with those of the plain ones (NUMERICS §8).
#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "tests/common/random_operations.h"
#include "tests/kernels/attention_pool.h"
#include "tests/kernels/fast_kernels.h"
#include "tests/kernels/random_inputs.h"

namespace baton {
namespace {

// One for each of the three ways to compute: floats, integers, and floats with scales.
constexpr KvType kThreeTypes[] = {KvType::kF16, KvType::kInt8, KvType::kFp8};

class FastAttention : public InstructionSetTest {};
INSTANTIATE_TEST_SUITE_P(InstructionSets, FastAttention, FastInstructionSets(), NameOf);

void ExpectSameState(const AttentionState& expected, const AttentionState& actual, int64_t head_dim,
                     const std::string& what) {
  ASSERT_EQ(expected.any_visible, actual.any_visible) << what;
  // +0 and −0 are the same maximum, because the order of comparisons is not defined.
  ASSERT_EQ(expected.maximum, actual.maximum) << what;
  const auto sums = [](const AttentionState& s) {
    return std::vector<float>(s.lane_sums, s.lane_sums + kLanes);
  };
  const auto output = [head_dim](const AttentionState& s) {
    return std::vector<float>(s.output, s.output + head_dim);
  };
  ASSERT_NO_FATAL_FAILURE(ExpectSameBits(sums(expected), sums(actual), what + " lane_sums"));
  ASSERT_NO_FATAL_FAILURE(ExpectSameBits(output(expected), output(actual), what + " output"));
}

void ExpectPlainSegments(std::mt19937_64& random, InstructionSet set, const PoolCase& c) {
  AttentionPool pool(random, c);
  for (int64_t run = 0; run < pool.runs(); ++run) {
    for (int64_t segment = 0; segment * kAttentionSegment < c.slots + 2 * kAttentionSegment;
         ++segment) {
      const auto expected = pool.Run(InstructionSet::kPlain, run, segment);
      const auto actual = pool.Run(set, run, segment);
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_NO_FATAL_FAILURE(ExpectSameState(
            expected[i], actual[i], c.head_dim,
            absl::StrCat(Describe(c), " run ", run, " segment ", segment, " state ", i)));
      }
    }
  }
}

TEST_P(FastAttention, EqualsPlainForEveryHeadDimAndType) {
  std::mt19937_64 random(TestSeed());
  for (KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kInt8, KvType::kFp8}) {
    for (int64_t head_dim : {1, 8, 16, 32, 40, 64, 80, 96, 100, 128, 192, 255, 256}) {
      if (kThreadSanitizer && head_dim % 3 != 1) continue;
      for (int64_t tokens : {1, 6}) {  // 3 and 18 queries: the row path and the transposed path
        const PoolCase c = {.type = type, .head_dim = head_dim, .tokens = tokens, .slots = 330};
        ASSERT_NO_FATAL_FAILURE(ExpectPlainSegments(random, GetParam(), c));
      }
    }
  }
}

TEST_P(FastAttention, EqualsPlainForEveryQueryCountAndBlockSize) {
  std::mt19937_64 random(TestSeed());
  for (int64_t heads_per_kv = 1; heads_per_kv <= 8; ++heads_per_kv) {
    for (int32_t block_size_log2 = 0; block_size_log2 <= 7; ++block_size_log2) {
      const PoolCase c = {.type = kThreeTypes[random() % 3],
                          .heads_per_kv = heads_per_kv,
                          .tokens = 1 + static_cast<int64_t>(random() % 9),
                          .slots = 10 + static_cast<int64_t>(random() % 200),
                          .block_size_log2 = block_size_log2,
                          .contiguous = random() % 2 == 0};
      ASSERT_NO_FATAL_FAILURE(ExpectPlainSegments(random, GetParam(), c));
    }
  }
}

TEST_P(FastAttention, EqualsPlainForManyRunsOverGarbage) {
  std::mt19937_64 random(TestSeed());
  for (int i = 0; i < 40; ++i) {
    const PoolCase c = {.type = kThreeTypes[i / 2 % 3],
                        .head_dim = i % 2 == 0 ? 64 : 40,
                        .heads_per_kv = 1 + static_cast<int64_t>(random() % 4),
                        .tokens = 1 + static_cast<int64_t>(random() % 12),
                        .slots = 1 + static_cast<int64_t>(random() % 400),
                        .many_runs = true};
    ASSERT_NO_FATAL_FAILURE(ExpectPlainSegments(random, GetParam(), c));
  }
}

TEST_P(FastAttention, EqualsPlainForInfinitiesAndNansThatOnlySomeTokensSee) {
  std::mt19937_64 random(TestSeed());
  for (int i = 0; i < 20; ++i) {
    const PoolCase c = {.type = kThreeTypes[i / 2 % 3],
                        .tokens = 1 + static_cast<int64_t>(random() % 8),
                        .slots = 200,
                        .many_runs = i % 2 == 0,
                        .extremes = true};
    ASSERT_NO_FATAL_FAILURE(ExpectPlainSegments(random, GetParam(), c));
  }
}

// A single token reads the pool directly, a few query heads at a time.
TEST_P(FastAttention, EqualsPlainForOneTokenOfManyHeads) {
  std::mt19937_64 random(TestSeed());
  for (const KvType type :
       {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kInt8, KvType::kFp8}) {
    for (int64_t heads_per_kv = 1; heads_per_kv <= 9; ++heads_per_kv) {
      const PoolCase c = {.type = type,
                          .head_dim = heads_per_kv % 2 == 0 ? 64 : 96,
                          .heads_per_kv = heads_per_kv,
                          .kv_heads = 7,
                          .slots = 1 + static_cast<int64_t>(random() % 200),
                          .block_size_log2 = static_cast<int32_t>(random() % 8),
                          .many_runs = random() % 2 == 0};
      ASSERT_NO_FATAL_FAILURE(ExpectPlainSegments(random, GetParam(), c));
    }
  }
}

// Uses more queries than the kernel prepares at once.
TEST_P(FastAttention, EqualsPlainForAHundredQueriesOfOneHead) {
  std::mt19937_64 random(TestSeed());
  for (const KvType type : kThreeTypes) {
    const PoolCase c = {
        .type = type, .heads_per_kv = 25, .tokens = 4, .slots = 130, .many_runs = true};
    ASSERT_NO_FATAL_FAILURE(ExpectPlainSegments(random, GetParam(), c));
  }
}

// One query sees a key with score 0 and 63 keys around the score at which Exp becomes +0. The lane
// sums show each exponential.
TEST_P(FastAttention, WeightsEqualPlainAroundTheLowestExponent) {
  std::vector<float> pool(2 * kAttentionTile, 1.0f);
  for (uint32_t i = 0; i < kAttentionTile; ++i) {
    pool[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(-87.3365478515625f) + i - 33);
  }
  pool[0] = 0.0f;
  const float q = 1.0f;
  const int32_t zero = 0;
  const VisibleRun run;
  const RowRuns row = {.run_count = 1, .last_end = kAttentionTile};
  PagedAttentionArgs args;
  args.q = &q;
  args.q_stride = 1;
  args.query_heads = 1;
  args.kv_heads = 1;
  args.head_dim = 1;
  args.softmax_scale = 1;
  args.kv.base = pool.data();
  args.kv.type = KvType::kF32;
  args.kv.block_size_log2 = 6;
  args.kv.token_stride = 1;
  args.kv.value_offset = kAttentionTile;
  args.kv.block_stride = 2 * kAttentionTile;
  args.sequence_of_token = &zero;
  args.runs = &run;
  args.row_runs = &row;
  args.first_block = &zero;
  args.tokens = 1;
  AttentionState expected;
  AttentionState actual;
  PlainKernels().attention_segment(args, {0, 1, 0, 1, 0}, &expected);
  KernelsFor(GetParam()).attention_segment(args, {0, 1, 0, 1, 0}, &actual);
  ASSERT_NO_FATAL_FAILURE(ExpectSameState(expected, actual, 1, "lowest exponent"));
}

}  // namespace
}  // namespace baton
