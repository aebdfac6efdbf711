#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cmath>
#include <cstring>

#include "kernels/cpu/plain_kernels.h"
#include "tests/kernels/attention_case.h"

namespace baton {
namespace {

constexpr uint64_t kSeed = 7004;

// Runs one segment of every token's only run, one call per KV head. Gives the final results if the
// case has a single segment.
std::vector<float> RunSegment(const AttentionCase& problem, const AttentionShape& shape,
                              int64_t segment) {
  std::vector<float> out(problem.out_size());
  const PagedAttentionArgs args = problem.Args(out.data());
  const int64_t heads = shape.query_heads / shape.kv_heads;
  std::vector<AttentionState> states(args.tokens * heads);
  for (int64_t kv_head = 0; kv_head < shape.kv_heads; ++kv_head) {
    plain::AttentionSegment(args, {0, args.tokens, kv_head, kv_head + 1, segment}, states.data());
    for (int64_t row = 0; row < args.tokens * heads; ++row) {
      if (!states[row].any_visible) continue;
      const float sum = plain::Tree16(states[row].lane_sums);
      float* into = out.data() + (row / heads * shape.query_heads + kv_head * heads + row % heads) *
                                     shape.head_dim;
      for (int64_t d = 0; d < shape.head_dim; ++d) into[d] = states[row].output[d] / sum;
    }
  }
  return out;
}

TEST(AttentionPlain, IsTheLiteralTranscriptionForEveryTypeAndHeadDim) {
  for (const KvType type :
       {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kInt8, KvType::kFp8}) {
    for (const int64_t head_dim : {8, 24, 64, 256}) {
      SCOPED_TRACE(testing::Message() << KvTypeName(type) << " " << head_dim << " seed " << kSeed);
      const AttentionShape shape{.head_dim = head_dim, .type = type};
      const AttentionCase problem(shape, {CausalSequence(200, 5)}, kSeed);
      EXPECT_EQ(RunSegment(problem, shape, 0), problem.Expected());
    }
  }
}

TEST(AttentionPlain, IsNearSoftmaxInDoublePrecision) {
  const AttentionShape shape{.head_dim = 32, .type = KvType::kF32};
  const AttentionCase problem(shape, {CausalSequence(250, 40)}, kSeed);
  const std::vector<float> out = RunSegment(problem, shape, 0);
  const std::vector<double> exact = problem.Exact();
  for (size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], exact[i], 2e-6) << "seed " << kSeed;
}

// Compares with attention over the stored values. The difference is the error of 16-bit queries and
// weights in int8 pools, and of f32 sums in fp8 pools.
TEST(AttentionPlain, PoolsWithScalesAreNearSoftmaxOverTheStoredValues) {
  for (const auto& [type, most] : {std::pair(KvType::kInt8, 3e-4), std::pair(KvType::kFp8, 2e-6)}) {
    const AttentionShape shape{.head_dim = 64, .type = type};
    const AttentionCase problem(shape, {CausalSequence(250, 40)}, kSeed);
    const std::vector<float> out = RunSegment(problem, shape, 0);
    const std::vector<double> exact = problem.Exact();
    for (size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], exact[i], most) << KvTypeName(type);
  }
}

// A pool of one head with all 256 bytes in K and V, in slots of 16 values. The results must equal
// those over an f32 pool with the numbers that the bytes stand for, if all scales are 1.
TEST(AttentionPlain, EveryByteOfAnFp8PoolStandsForItsNumber) {
  constexpr int64_t kDim = 16, kSlots = 16, kRow = kDim + 4;
  std::vector<uint8_t> bytes(2 * kSlots * kRow);
  std::vector<float> floats(2 * kSlots * kDim);
  const float one = 1.0f;
  for (int64_t row = 0; row < 2 * kSlots; ++row) {
    for (int64_t d = 0; d < kDim; ++d) {
      const auto byte = static_cast<uint8_t>(row % kSlots * kDim + d);
      bytes[row * kRow + d] = byte;
      floats[row * kDim + d] = static_cast<float>(NaiveFp8Value(byte));
    }
    std::memcpy(&bytes[row * kRow + kDim], &one, sizeof(one));
  }
  std::mt19937_64 random(kSeed);
  const std::vector<float> q = RandomFloats(random, kDim, 0.1f);
  const auto attend = [&](KvType type, void* base, int64_t row) {
    const VisibleRun run;
    const RowRuns runs = {.run_count = 1, .last_begin = 0, .last_end = kSlots};
    const int32_t zero = 0;
    AttentionState state;
    plain::AttentionSegment({.q = q.data(),
                             .q_stride = kDim,
                             .query_heads = 1,
                             .kv_heads = 1,
                             .head_dim = kDim,
                             .softmax_scale = 0.01f,
                             .kv = {.base = base,
                                    .type = type,
                                    .block_size_log2 = 4,
                                    .block_stride = 2 * kSlots * row,
                                    .token_stride = row,
                                    .head_stride = kDim,
                                    .value_offset = kSlots * row,
                                    .scale_offset = kDim},
                             .sequence_of_token = &zero,
                             .runs = &run,
                             .row_runs = &runs,
                             .first_block = &zero,
                             .tokens = 1},
                            {0, 1, 0, 1, 0}, &state);
    return std::vector<float>(state.output, state.output + kDim);
  };
  EXPECT_EQ(attend(KvType::kFp8, bytes.data(), kRow), attend(KvType::kF32, floats.data(), kDim));
}

TEST(AttentionPlain, SegmentsCountFromTheOriginAndEmptyOnesSayThatNothingIsVisible) {
  const AttentionShape shape;
  // Sees only slots 300…339: segment 1, tiles 0 (from slot 300) and 1.
  const AttentionCase problem(shape, {{.slots = 600, .tokens = {{{300, 340}}}}}, kSeed);
  EXPECT_EQ(RunSegment(problem, shape, 1), problem.Expected());
  std::vector<float> out(problem.out_size());
  std::vector<AttentionState> states(3);
  for (const int64_t segment : {0, 2}) {
    plain::AttentionSegment(problem.Args(out.data()), {0, 1, 0, 1, segment}, states.data());
    for (const AttentionState& state : states) EXPECT_FALSE(state.any_visible);
  }
  // The same with tile origin 290: only segment 0, which reaches up to slot 546.
  const AttentionCase moved(shape, {{.slots = 600, .tokens = {{{300, 340, 290}}}}}, kSeed);
  EXPECT_EQ(RunSegment(moved, shape, 0), moved.Expected());
  EXPECT_NE(moved.Expected(), problem.Expected());
}

// Computes one run of a token that has several.
TEST(AttentionPlain, ARunDoesNotDependOnItsNeighbours) {
  const AttentionShape shape;
  const CaseRun first = {5, 100}, second = {100, 180, 30, 9};
  const AttentionCase both(shape, {{.slots = 200, .tokens = {{first, second}}}}, kSeed);
  const AttentionCase alone(shape, {{.slots = 200, .tokens = {{second}}}}, kSeed);
  std::vector<float> out(both.out_size());
  std::vector<AttentionState> states(3), expected(3);
  plain::AttentionSegment(both.Args(out.data()), {0, 1, 0, 1, 0, 1}, states.data());
  plain::AttentionSegment(alone.Args(out.data()), {0, 1, 0, 1, 0, 0}, expected.data());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(states[i].any_visible);
    EXPECT_EQ(states[i].maximum, expected[i].maximum);
    EXPECT_EQ(std::vector<float>(states[i].output, states[i].output + shape.head_dim),
              std::vector<float>(expected[i].output, expected[i].output + shape.head_dim));
  }
}

TEST(AttentionPlain, OneVisibleSlotGivesItsValue) {
  const AttentionShape shape{.type = KvType::kF32};
  const AttentionCase problem(shape, {{.slots = 80, .tokens = {{{70, 71}}}}}, kSeed);
  const std::vector<double> exact = problem.Exact();
  const std::vector<float> out = RunSegment(problem, shape, 0);
  for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], static_cast<float>(exact[i]));
}

// Uses blocks more than 2^31 elements from the base, in reserved memory of which few pages are
// used.
TEST(AttentionPlain, ReadsAndWritesPastTwoToTheThirtyOneElements) {
  constexpr int64_t kBlockStride = int64_t{1} << 30;  // elements
  constexpr size_t kBytes = size_t{5} * kBlockStride * 2;
  void* region = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(region, MAP_FAILED);
  const KvLayerView kv{.base = region,
                       .type = KvType::kF16,
                       .block_size_log2 = 4,
                       .block_stride = kBlockStride,
                       .token_stride = 8,
                       .head_stride = 128,
                       .value_offset = kBlockStride / 2};
  const std::vector<float> k(8, 1.0f), v = {1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<int64_t> slots = {4 * 16 + 3};
  plain::KvWrite({k.data(), v.data(), 8, 1, 8, slots.data(), kv, 1}, 0, 1);

  const VisibleRun run;
  const RowRuns row = {.run_count = 1, .last_begin = 3, .last_end = 4};
  const std::vector<int32_t> sequence = {0}, table = {4};
  std::vector<AttentionState> states(1);
  const PagedAttentionArgs args{.q = k.data(),
                                .q_stride = 8,
                                .query_heads = 1,
                                .kv_heads = 1,
                                .head_dim = 8,
                                .softmax_scale = 1,
                                .kv = kv,
                                .sequence_of_token = sequence.data(),
                                .runs = &run,
                                .row_runs = &row,
                                .block_tables = table.data(),
                                .table_stride = 1,
                                .tokens = 1};
  plain::AttentionSegment(args, {0, 1, 0, 1, 0}, states.data());
  EXPECT_EQ(states[0].maximum, 8.0f);
  EXPECT_EQ(std::vector<float>(states[0].output, states[0].output + 8), v);
  munmap(region, kBytes);
}

}  // namespace
}  // namespace baton
