#include "kernels/tensor_core/tensor_core_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/common/random_operations.h"
#include "tests/kernels/attention_case.h"
#include "tests/kernels/fast_kernels.h"
#include "tests/kernels/tensor_core_case.h"

namespace baton {
namespace {

constexpr uint64_t kSeed = 7023;
constexpr KvType kTensorCorePools[] = {KvType::kBF16, KvType::kF16, KvType::kInt8, KvType::kFp8};

std::vector<float> Attend(const AttentionCase& problem, const DotModel& model = kHopperDot) {
  std::vector<float> out(problem.out_size(), -1.0f);
  TensorCoreAttention(problem.Args(out.data()), 0, problem.tokens(), model);
  return out;
}

int64_t Differences(const std::vector<float>& a, const std::vector<float>& b) {
  int64_t count = 0;
  for (size_t i = 0; i < a.size(); ++i) count += a[i] != b[i];
  return count;
}

// Rows of all kinds, as in the tests of r1: a chunk, single tokens, windows, several runs, padding,
// and lengths around the borders of tiles, segments and groups.
std::vector<AttentionSequence> MixedRows() {
  std::vector<AttentionSequence> batch;
  batch.push_back(CausalSequence(40, 37));
  for (const int32_t slots : {1, 63, 64, 65, 255, 256, 257, 700, 2049}) {
    batch.push_back(CausalSequence(slots, 1));
  }
  batch.push_back(CausalSequence(300, 9, 20));
  batch.push_back({.slots = 600, .tokens = {{{0, 4}, {500, 590}}, {{0, 4}, {513, 600}}, {}}});
  batch.push_back({.slots = 700,
                   .tokens = {{{300, 650, 290, 7}, {0, 300}, {660, 660, 650}, {650, 680, 650}},
                              {{650, 683, 600, 7}}}});
  return batch;
}

TEST(TensorCoreAttention, EveryPoolBlockSizeAndLayoutIsTheLiteralTranscription) {
  const std::vector<AttentionSequence> batch = MixedRows();
  for (const KvType type : kTensorCorePools) {
    std::vector<float> expected;
    for (int log2 = 0; log2 <= 7; log2 += kThreadSanitizer ? 4 : 1) {
      SCOPED_TRACE(testing::Message() << KvTypeName(type) << " block size 2^" << log2);
      const AttentionShape shape{.type = type,
                                 .block_size_log2 = log2,
                                 .layer_major = log2 % 2 == 0,
                                 .contiguous = log2 % 3 == 0,
                                 .share_runs = log2 % 4 < 2};
      const AttentionCase problem(shape, batch, kSeed);
      if (expected.empty()) expected = TensorCoreCase(problem).Expected();
      ASSERT_EQ(Attend(problem), expected);
    }
  }
}

TEST(TensorCoreAttention, HeadSizesAndGroupedHeads) {
  for (const auto& [query_heads, kv_heads, head_dim] :
       std::vector<std::array<int64_t, 3>>{{1, 1, 64}, {4, 4, 80}, {9, 3, 96}, {8, 1, 256}}) {
    for (const KvType type : kTensorCorePools) {
      const AttentionShape shape{
          .query_heads = query_heads, .kv_heads = kv_heads, .head_dim = head_dim, .type = type};
      const AttentionCase problem(shape, {CausalSequence(270, 3)}, kSeed);
      const auto expected = TensorCoreCase(problem, {.dot = kAmpereDot}).Expected();
      ASSERT_EQ(Attend(problem, kAmpereDot), expected);
      ASSERT_EQ(Attend(problem), TensorCoreCase(problem).Expected())
          << query_heads << " over " << kv_heads << " of " << head_dim;
    }
  }
}

// A kernel with another rule would be noticed.
TEST(TensorCoreAttention, EveryRuleChangesBits) {
  for (const KvType type : kTensorCorePools) {
    if (kThreadSanitizer && type != KvType::kBF16) continue;
    const AttentionCase problem({.type = type}, {CausalSequence(5000, 2)}, kSeed);
    const std::vector<float> out = Attend(problem);
    const auto differences = [&](const TensorCoreRules& rules) {
      return Differences(out, TensorCoreCase(problem, rules).Expected());
    };
    ASSERT_EQ(differences({}), 0);
    EXPECT_GT(differences({.segment = 512}), 20);
    EXPECT_GT(differences({.segment = 128}), 20);
    EXPECT_GT(differences({.group = 4}), 20);
    EXPECT_GT(differences({.group = 1 << 20}), 20) << "one chain";
    EXPECT_GT(differences({.groups_rising = false}), 20);
    EXPECT_GT(differences({.sums_rounded = false}), 20);
    EXPECT_GT(differences({.dot = kAmpereDot}), 0);
    if (type == KvType::kBF16) {
      EXPECT_GT(differences({.rounds_weights = false}), 20);
    }
  }
}

// Integer references make all rescaling exact, so its moment does not matter for ordinary scores.
TEST(TensorCoreAttention, MomentsOfRescalingDoNotChangeBits) {
  for (const KvType type : {KvType::kBF16, KvType::kInt8, KvType::kFp8}) {
    const AttentionCase problem({.type = type}, {CausalSequence(700, 4)}, kSeed);
    EXPECT_EQ(Attend(problem), TensorCoreCase(problem, {.slack = 0}).Expected());
  }
}

TEST(TensorCoreAttention, ARowDoesNotDependOnItsBatchOrChunk) {
  for (const KvType type : kTensorCorePools) {
    const AttentionCase chunk({.type = type}, {CausalSequence(600, 50)}, kSeed);
    const std::vector<float> whole = Attend(chunk);
    std::vector<float> alone(whole.size(), -1.0f);
    for (int64_t token = 49; token >= 0; --token) {
      TensorCoreAttention(chunk.Args(alone.data()), token, token + 1);
    }
    EXPECT_EQ(alone, whole);
    AttentionSequence first = CausalSequence(600, 50);  // the same slots and tokens by name
    for (uint64_t i = 0; i < 600; ++i) first.slot_names.push_back(uint64_t{1} << 32 | i);
    for (uint64_t i = 0; i < 50; ++i) first.token_names.push_back(uint64_t{1} << 32 | i);
    const AttentionCase batch({.type = type}, {CausalSequence(77, 3), first}, kSeed);
    std::vector<float> out = Attend(batch);
    out.erase(out.begin(), out.end() - static_cast<int64_t>(whole.size()));
    EXPECT_EQ(out, whole);
  }
}

// Thread blocks compute pieces: segments of one group, or a whole group. A piece that starts at its
// group's first segment is one state; another piece is one state for each segment.
std::vector<float> AttendInPieces(const AttentionCase& problem, std::mt19937_64& random) {
  std::vector<float> out(problem.out_size(), -1.0f);
  const PagedAttentionArgs args = problem.Args(out.data());
  const int64_t heads = args.query_heads / args.kv_heads;
  using States = std::vector<TensorCoreState>;
  const auto merge = [&](States& into, const States& from) {
    for (size_t i = 0; i < into.size(); ++i) MergeTensorCoreState(into[i], from[i], args.head_dim);
  };
  for (int64_t token = 0; token < args.tokens; ++token) {
    const int64_t segments = TensorCoreSegments(args, token);
    for (int64_t kv_head = 0; kv_head < args.kv_heads; ++kv_head) {
      std::vector<std::pair<int64_t, States>> written;  // by first segment
      for (int64_t begin = 0; begin < segments;) {
        const int64_t in_group = kT1GroupSegments - begin % kT1GroupSegments;
        const int64_t count =
            std::min<int64_t>(1 + static_cast<int64_t>(random() % in_group), segments - begin);
        for (int64_t segment = begin; segment < begin + count; ++segment) {
          States states(heads);
          ComputeTensorCoreSegment(args, token, kv_head, segment, states.data());
          if (segment > begin && begin % kT1GroupSegments == 0) {
            merge(written.back().second, states);
          } else {
            written.emplace_back(segment, states);
          }
        }
        begin += count;
      }
      std::shuffle(written.begin(), written.end(), random);  // blocks end in any order
      std::sort(written.begin(), written.end(),
                [](const auto& a, const auto& b) { return a.first < b.first; });
      States all(heads), group(heads);
      for (size_t i = 0; i < written.size(); ++i) {
        merge(group, written[i].second);
        if (i + 1 < written.size() && written[i + 1].first % kT1GroupSegments != 0) continue;
        merge(all, group);
        group.assign(heads, {});
      }
      for (int64_t i = 0; i < heads; ++i) {
        const int64_t at = token * args.query_heads + kv_head * heads + i;
        FinishTensorCoreState(all[i], args.head_dim, args.out + at * args.head_dim);
      }
    }
  }
  return out;
}

TEST(TensorCoreAttention, AnyDivisionIntoPiecesMergesToTheSameBits) {
  std::mt19937_64 random(TestSeed());
  std::vector<AttentionSequence> batch = MixedRows();
  batch.push_back(CausalSequence(5000, 1));
  for (const KvType type : kTensorCorePools) {
    const AttentionCase problem({.type = type}, batch, kSeed);
    const std::vector<float> whole = Attend(problem);
    for (int round = 0; round < 3; ++round) ASSERT_EQ(AttendInPieces(problem, random), whole);
  }
}

TEST(TensorCoreAttention, RunsOfWholeSegmentsHaveTheBitsOfOneRun) {
  const auto attend = [](const std::vector<CaseRun>& runs) {
    return Attend(AttentionCase({}, {{.slots = 3000, .tokens = {runs}}}, kSeed));
  };
  const std::vector<float> one = attend({{0, 3000}});
  EXPECT_EQ(attend({{0, 256}, {256, 768, 256}, {768, 3000, 768}}), one);
  EXPECT_EQ(attend({{0, 2304}, {2304, 2304, 2000}, {2304, 3000, 2304}}), one);
  EXPECT_NE(attend({{0, 256}, {256, 760, 256}, {760, 3000, 760}}), one);
  EXPECT_NE(attend({{0, 256}, {256, 768, 255}, {768, 3000, 768}}), one);
  EXPECT_NE(attend({{256, 768, 256}, {0, 256}, {768, 3000, 768}}), one);
  // The numbers of segments count: an origin one segment earlier moves the borders of groups.
  EXPECT_NE(attend({{256, 3000, 0}}), attend({{256, 3000, 256}}));
  EXPECT_EQ(attend({{2560, 3000, 512}}), attend({{2560, 3000, 2560}}));
}

TEST(TensorCoreAttention, IsNearAttentionInDoublePrecision) {
  for (const KvType type : kTensorCorePools) {
    const AttentionShape shape{.head_dim = 64, .type = type};
    const AttentionCase problem(shape, {CausalSequence(1000, 4)}, kSeed);
    const std::vector<float> out = Attend(problem);
    const std::vector<double> exact = problem.Exact();
    double error = 0, magnitude = 0;
    for (size_t i = 0; i < out.size(); ++i) {
      error += (out[i] - exact[i]) * (out[i] - exact[i]);
      magnitude += exact[i] * exact[i];
    }
    // q and p are rounded to 8 bits in bf16 pools, to 11 in f16 pools.
    const double relative = std::sqrt(error / magnitude);
    EXPECT_LT(relative, type == KvType::kF16 ? 1e-3 : 6e-3) << KvTypeName(type);
    EXPECT_GT(relative, 1e-5) << KvTypeName(type);
  }
}

// One head of 16 dimensions over one block of 64 slots.
struct OneHead {
  OneHead(float key, float value) : query(16, 2.3f), pool(2 * 64 * 16) {
    for (int64_t slot = 0; slot < 64; ++slot) Set(slot, key, value);
  }
  void Set(int64_t slot, float key, float value) {
    std::fill_n(pool.begin() + slot * 32, 16, F32ToBF16(key));
    std::fill_n(pool.begin() + slot * 32 + 16, 16, F32ToBF16(value));
  }
  // Attends to the first `slots` slots.
  std::vector<float> Attend(int32_t slots) {
    const VisibleRun run{0, slots};
    const RowRuns row{0, 1, 0, slots};
    const int32_t sequence = 0, table = 0;
    std::vector<float> out(16);
    TensorCoreAttention({.q = query.data(),
                         .q_stride = 16,
                         .out = out.data(),
                         .query_heads = 1,
                         .kv_heads = 1,
                         .head_dim = 16,
                         .softmax_scale = 1,
                         .kv = {.base = pool.data(),
                                .type = KvType::kBF16,
                                .block_size_log2 = 6,
                                .block_stride = 2048,
                                .token_stride = 32,
                                .head_stride = 16,
                                .value_offset = 16},
                         .sequence_of_token = &sequence,
                         .runs = &run,
                         .row_runs = &row,
                         .block_tables = &table,
                         .table_stride = 1,
                         .tokens = 1},
                        0, 1);
    return out;
  }

  std::vector<float> query;
  std::vector<uint16_t> pool;
};

// The weights of the other slots are lost, and the slot's own weight is exactly 1: l is the sum of
// the rounded weights.
TEST(TensorCoreAttention, ADominantSlotGivesItsOwnValueExactly) {
  for (const float key : {4.7f, 4.71f, 4.9f, 5.03f}) {
    OneHead head(-3.0f, 1.0f);
    const float value = BF16ToF32(F32ToBF16(0.7f));
    head.Set(17, key, value);
    for (const float out : head.Attend(64)) EXPECT_NEAR(out, value, 2e-7f) << key;
  }
}

TEST(TensorCoreAttention, BadScoresSpoilTheRowsThatSeeThemAndNoOthers) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const float key : {inf, std::nanf(""), 3e38f, 1e6f}) {
    OneHead head(0.5f, 2.0f);
    head.Set(40, key, 2.0f);
    for (const float out : head.Attend(40)) EXPECT_EQ(out, 2.0f) << key;
    for (const float out : head.Attend(41)) EXPECT_TRUE(std::isnan(out)) << key;
  }
  OneHead nothing(-inf, 2.0f);  // every visible score is −inf
  for (const float out : nothing.Attend(3)) EXPECT_TRUE(std::isnan(out));
  OneHead few(0.5f, 2.0f);
  few.Set(0, -inf, 7.0f);  // beside ordinary scores, −inf has the floor's weight
  for (const float out : few.Attend(3)) EXPECT_EQ(out, 2.0f);
}

TEST(TensorCoreState, NaNStaysThroughMergesAndAnEmptyStateIsZero) {
  TensorCoreState nan, some, empty;
  nan.reference = std::nanf("");
  some.reference = 3;
  some.sum = 2;
  some.output[0] = 5;
  float out = -1;
  FinishTensorCoreState(empty, 1, &out);
  EXPECT_EQ(out, 0);
  TensorCoreState merged = some;
  MergeTensorCoreState(merged, empty, 1);
  FinishTensorCoreState(merged, 1, &out);
  EXPECT_EQ(out, 2.5f);
  MergeTensorCoreState(merged, nan, 1);
  MergeTensorCoreState(merged, some, 1);
  FinishTensorCoreState(merged, 1, &out);
  EXPECT_TRUE(std::isnan(out));
}

}  // namespace
}  // namespace baton
