// Paged attention kernels against the literal transcription of NUMERICS §8, bit for bit.
#include "kernels/cuda/launch_attention.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/paged_attention.h"
#include "tests/common/random_operations.h"
#include "tests/cuda/chosen_launcher.h"
#include "tests/cuda/far_attention.h"
#include "tests/kernels/attention_case.h"
#include "tests/kernels/attention_pool.h"
#include "tests/kernels/fast_kernels.h"

namespace baton {
namespace {

using gpu_emulator::ExecutionOrder;
using gpu_emulator::ExecutionRules;

constexpr uint64_t kSeed = 16008;
constexpr AttentionBatch kBatches[] = {AttentionBatch::kDecode, AttentionBatch::kChunks};
constexpr KvType kTypes[] = {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kInt8,
                             KvType::kFp8};

// Guard values around the result must stay.
constexpr size_t kGuard = 64;
constexpr float kGuardValue = -12345;

std::vector<float> Attend(const AttentionCase& problem, KernelLauncher& launcher,
                          AttentionBatch batch) {
  std::vector<float> out(problem.out_size() + 2 * kGuard, kGuardValue);
  LaunchPagedAttention(launcher, problem.Args(out.data() + kGuard), batch);
  for (size_t i = 0; i < kGuard; ++i) {
    EXPECT_EQ(out[i], kGuardValue);
    EXPECT_EQ(out[out.size() - 1 - i], kGuardValue);
  }
  return {out.begin() + kGuard, out.end() - kGuard};
}

void ExpectTranscription(const AttentionCase& problem, KernelLauncher& launcher,
                         const std::string& what) {
  const std::vector<float> expected = problem.Expected();
  for (const AttentionBatch batch : kBatches) {
    ASSERT_NO_FATAL_FAILURE(
        ExpectSameBits(expected, Attend(problem, launcher, batch),
                       absl::StrCat(what, batch == AttentionBatch::kDecode ? " decode" : " chunks",
                                    " seed ", kSeed)));
  }
}

// All kinds of rows: a chunk, single tokens around the borders of tiles and segments, windows,
// several runs with their own origins and shifts, padding.
std::vector<AttentionSequence> MixedBatch() {
  std::vector<AttentionSequence> batch;
  batch.push_back(CausalSequence(21, 19));
  for (const int32_t slots : {1, 63, 65, 256, 257}) batch.push_back(CausalSequence(slots, 1));
  batch.push_back(CausalSequence(150, 5, 20));
  batch.push_back({.slots = 600, .tokens = {{{0, 4}, {500, 590}}, {{0, 4}, {513, 600}}, {}}});
  batch.push_back({.slots = 400,
                   .tokens = {{{200, 330, 190, 7}, {0, 30}, {360, 360, 350}, {350, 380, 350}},
                              {{200, 330, 190, 7}, {0, 30}, {360, 360, 350}, {350, 381, 350}},
                              {{200, 350, 190, -3}, {350, 382, 350, 7}},
                              {{350, 383, 300, 7}}}});
  batch.push_back({.slots = 5, .tokens = {{}, {}}});
  return batch;
}

class CudaAttention : public testing::TestWithParam<KvType> {};
INSTANTIATE_TEST_SUITE_P(Types, CudaAttention, testing::ValuesIn(kTypes),
                         [](const auto& info) { return std::string(KvTypeName(info.param)); });

TEST_P(CudaAttention, IsTheTranscriptionForEveryHeadDim) {
  ChosenLauncher launcher;
  for (const int64_t head_dim : {1, 40, 64, 80, 96, 128, 136, 256}) {
    const AttentionShape shape{
        .query_heads = 3, .kv_heads = 1, .head_dim = head_dim, .type = GetParam()};
    const AttentionCase problem(shape, {CausalSequence(70, 2), CausalSequence(300, 1)}, kSeed);
    ASSERT_NO_FATAL_FAILURE(
        ExpectTranscription(problem, launcher, absl::StrCat("head_dim ", head_dim)));
  }
}

TEST_P(CudaAttention, IsTheTranscriptionForEveryBlockSizeAndLayout) {
  ChosenLauncher launcher;
  for (int log2 = 0; log2 <= 7; ++log2) {
    const AttentionShape shape{.head_dim = log2 % 2 == 0 ? 16 : 40,
                               .type = GetParam(),
                               .block_size_log2 = log2,
                               .layer_major = log2 % 2 == 0,
                               .contiguous = log2 % 3 == 0,
                               .share_runs = log2 % 4 != 1};
    const AttentionCase problem(shape, MixedBatch(), kSeed + log2);
    ASSERT_NO_FATAL_FAILURE(
        ExpectTranscription(problem, launcher, absl::StrCat("block size 2^", log2)));
  }
}

TEST_P(CudaAttention, IsTheTranscriptionForEveryGroupOfHeads) {
  ChosenLauncher launcher;
  struct Heads {
    int64_t query, kv, dim;
  };
  // Decoding has kernels of its own for groups of one or two heads, for each size of a head.
  for (const Heads& heads :
       {Heads{1, 1, 16}, Heads{4, 4, 16}, Heads{9, 3, 16}, Heads{8, 1, 128}, Heads{20, 1, 16},
        Heads{80, 1, 16}, Heads{1, 1, 256}, Heads{2, 1, 256}}) {
    const AttentionShape shape{.query_heads = heads.query,
                               .kv_heads = heads.kv,
                               .head_dim = heads.dim,
                               .type = GetParam()};
    const AttentionCase problem(shape, {CausalSequence(80, 20), CausalSequence(270, 1)}, kSeed);
    ASSERT_NO_FATAL_FAILURE(ExpectTranscription(
        problem, launcher, absl::StrCat(heads.query, " heads of ", heads.dim, " over ", heads.kv)));
  }
}

// The number of blocks decides how units are split: into whole units, a few segments, or one
// segment for each block. The order of blocks decides which of them merges.
TEST(CudaAttentionSplit, ResultsDoNotDependOnTheNumberOrOrderOfBlocks) {
  const std::vector<AttentionSequence> batch = {CausalSequence(1100, 2), CausalSequence(30, 9),
                                                CausalSequence(600, 1)};
  struct Way {
    int multiprocessors;
    ExecutionOrder order;
  };
  for (const KvType type : {KvType::kF16, KvType::kInt8, KvType::kFp8}) {
    const AttentionShape shape{.query_heads = 4, .kv_heads = 2, .head_dim = 24, .type = type};
    const AttentionCase problem(shape, batch, kSeed);
    for (const Way& way : {Way{1, ExecutionOrder::kForward}, Way{1, ExecutionOrder::kReverse},
                           Way{2, ExecutionOrder::kSeeded}, Way{5, ExecutionOrder::kReverse},
                           Way{16, ExecutionOrder::kSeeded}}) {
      if (kThreadSanitizer && way.multiprocessors != 5) continue;
      ExecutionRules rules;
      rules.order = way.order;
      ChosenLauncher launcher(rules, way.multiprocessors);
      const std::string what = absl::StrCat(way.multiprocessors, " multiprocessors, order ",
                                            static_cast<int>(way.order));
      ASSERT_NO_FATAL_FAILURE(ExpectTranscription(problem, launcher, what));
      if (way.multiprocessors != 5) continue;
      // The workspace is ready for the next launch.
      ASSERT_NO_FATAL_FAILURE(ExpectTranscription(problem, launcher, what + " again"));
    }
  }
}

// Shared memory of a thread block: 163 KiB on sm_80, 99 KiB on sm_86 and sm_89.
TEST(CudaAttentionSharedMemory, FewerRowsFitSmallerDevicesAndGiveTheSameBits) {
  for (const uint32_t kib : {163u, 99u}) {
    for (const KvType type : kTypes) {
      for (const int64_t head_dim : {64, 128, 256}) {
        if (kib == 99 && type == KvType::kF32 && head_dim == 256) continue;  // no variant fits
        ChosenLauncher launcher;
        launcher.set_max_shared_bytes(kib << 10);
        const AttentionShape shape{
            .query_heads = 6, .kv_heads = 1, .head_dim = head_dim, .type = type};
        const AttentionCase problem(shape, {CausalSequence(70, 5), CausalSequence(300, 1)}, kSeed);
        ASSERT_NO_FATAL_FAILURE(ExpectTranscription(
            problem, launcher,
            absl::StrCat(kib, " KiB ", std::string(KvTypeName(type)), " head_dim ", head_dim)));
        EXPECT_LE(launcher.most_shared_bytes_launched(), kib << 10);
      }
    }
  }
}

// A context that needs more states than the workspace has room for.
TEST(CudaAttentionSplit, UnitsStayWholeWhereTheWorkspaceIsTooSmall) {
  ChosenLauncher launcher({}, 1);
  const AttentionShape shape{
      .query_heads = 64, .kv_heads = 1, .head_dim = 4, .type = KvType::kF32, .contiguous = true};
  std::vector<AttentionSequence> batch = {CausalSequence(3000, 1), CausalSequence(300, 2)};
  const AttentionCase problem(shape, batch, kSeed);
  const std::vector<float> expected = problem.Expected();
  for (const int64_t most : {int64_t{0}, int64_t{1} << 18}) {
    for (const AttentionBatch kind : kBatches) {
      std::vector<float> out(problem.out_size(), kGuardValue);
      LaunchPagedAttention(launcher, problem.Args(out.data()), kind, most);
      ASSERT_NO_FATAL_FAILURE(ExpectSameBits(expected, out, absl::StrCat("bytes ", most)));
    }
  }
}

// A replayed launch reads other lengths from the same buffers.
TEST(CudaAttentionSplit, LengthsAreReadWhenTheKernelRuns) {
  ChosenLauncher launcher;
  const AttentionShape shape{.head_dim = 32};
  const AttentionCase longer(shape, {CausalSequence(600, 1)}, kSeed);
  std::vector<float> out(longer.out_size());
  PagedAttentionArgs args = longer.Args(out.data());
  RowRuns row = args.row_runs[0];
  args.row_runs = &row;
  for (const int32_t end : {600, 300, 1, 0}) {
    row.last_end = end;
    LaunchPagedAttention(launcher, args, AttentionBatch::kDecode);
    std::vector<float> expected(longer.out_size());
    ThreadPool pool(1);
    AttentionScratch scratch;
    PagedAttentionArgs plain = args;
    plain.out = expected.data();
    RunPagedAttention(PlainKernels(), pool, scratch, plain);
    ASSERT_NO_FATAL_FAILURE(ExpectSameBits(expected, out, absl::StrCat("end ", end)));
  }
}

// Random runs over garbage, infinities and NaNs. Blocks outside the runs are missing from memory.
TEST_P(CudaAttention, EqualsPlainForManyRunsOverGarbage) {
  std::mt19937_64 random(kSeed);
  ChosenLauncher launcher;
  ThreadPool threads(1);
  AttentionScratch scratch;
  for (int i = 0; i < 24; ++i) {
    const PoolCase c = {.type = GetParam(),
                        .head_dim = i % 2 == 0 ? 64 : 40,
                        .heads_per_kv = 1 + static_cast<int64_t>(random() % 9),
                        .kv_heads = 2,
                        .tokens = 1 + static_cast<int64_t>(random() % 12),
                        .slots = 1 + static_cast<int64_t>(random() % 400),
                        .block_size_log2 = static_cast<int32_t>(random() % 8),
                        .contiguous = random() % 4 == 0,
                        .many_runs = i % 4 != 0,
                        .extremes = i % 3 == 0};
    const AttentionPool pool(random, c);
    const size_t size = c.tokens * c.kv_heads * c.heads_per_kv * c.head_dim;
    std::vector<float> expected(size);
    RunPagedAttention(PlainKernels(), threads, scratch, pool.Args(expected.data()));
    for (const AttentionBatch batch : kBatches) {
      std::vector<float> actual(size, kGuardValue);
      LaunchPagedAttention(launcher, pool.Args(actual.data()), batch);
      ASSERT_NO_FATAL_FAILURE(ExpectSameBits(expected, actual, Describe(c))) << "case " << i;
    }
  }
}

// Queries, tables and blocks beyond 2^31 elements.
TEST_P(CudaAttention, ReadsFarQueriesTablesAndBlocks) {
  if (!ChosenDeviceName().empty()) {
    GTEST_SKIP() << "not run: memory outside the heap has no copy on the device";
  }
  const FarAttention far(GetParam(), kSeed);
  ASSERT_TRUE(far.ok());
  std::vector<float> expected(FarAttention::out_size());
  PagedAttentionArgs args = far.Args();
  args.out = expected.data();
  ThreadPool threads(1);
  AttentionScratch scratch;
  RunPagedAttention(PlainKernels(), threads, scratch, args);
  ChosenLauncher launcher;
  for (const AttentionBatch batch : kBatches) {
    std::vector<float> actual(expected.size(), kGuardValue);
    args.out = actual.data();
    LaunchPagedAttention(launcher, args, batch, 1 << 20);
    ASSERT_NO_FATAL_FAILURE(ExpectSameBits(expected, actual, "far"));
  }
}

}  // namespace
}  // namespace baton
