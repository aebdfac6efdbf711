// The attention kernels of t1 against their twin in kernels/tensor_core/, bit for bit. The twin
// equals the literal transcription of NUMERICS_T1 §5 (tests/kernels/tensor_core_attention_test.cc).
#include "kernels/cuda/launch_tensor_core_attention.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/tensor_core/tensor_core_attention.h"
#include "tests/common/random_operations.h"
#include "tests/cuda/chosen_launcher.h"
#include "tests/cuda/far_attention.h"
#include "tests/kernels/attention_case.h"
#include "tests/kernels/attention_pool.h"
#include "tests/kernels/fast_kernels.h"

namespace baton {
namespace {

using gpu_emulator::CopyLanding;
using gpu_emulator::ExecutionOrder;
using gpu_emulator::ExecutionRules;
using gpu_emulator::TensorCore;

constexpr uint64_t kSeed = 16021;
constexpr AttentionBatch kBatches[] = {AttentionBatch::kDecode, AttentionBatch::kChunks};
constexpr KvType kTypes[] = {KvType::kF16, KvType::kBF16, KvType::kInt8, KvType::kFp8};

// Guard values around the result must stay.
constexpr size_t kGuard = 64;
constexpr float kGuardValue = -12345;

std::vector<float> Attend(const PagedAttentionArgs& args, KernelLauncher& launcher,
                          AttentionBatch batch,
                          int64_t most_state_bytes = kMostAttentionStateBytes) {
  const size_t size = args.tokens * args.query_heads * args.head_dim;
  std::vector<float> out(size + 2 * kGuard, kGuardValue);
  PagedAttentionArgs guarded = args;
  guarded.out = out.data() + kGuard;
  // The tensor cores decide the bits. The device of the test has those of one t1 at least.
  const bool sm80 = launcher.max_shared_bytes() < gpu_emulator::kMostSharedBytes;
  LaunchTensorCoreAttention(launcher, guarded, batch, sm80 ? Numerics::kT1Sm80 : Numerics::kT1Sm90,
                            most_state_bytes);
  for (size_t i = 0; i < kGuard; ++i) {
    EXPECT_EQ(out[i], kGuardValue);
    EXPECT_EQ(out[out.size() - 1 - i], kGuardValue);
  }
  return {out.begin() + kGuard, out.end() - kGuard};
}

// The model of the device that runs the test. The emulator's default is a Hopper.
const DotModel& ModelOfDevice() {
  return ChosenDeviceName().empty() ? kHopperDot
                                    : DotModelOf(ChosenDevice::Get().device().numerics());
}

std::vector<float> Twin(PagedAttentionArgs args, const DotModel& model = ModelOfDevice()) {
  std::vector<float> out(args.tokens * args.query_heads * args.head_dim, kGuardValue);
  args.out = out.data();
  TensorCoreAttention(args, 0, args.tokens, model);
  return out;
}

void ExpectTwin(const AttentionCase& problem, KernelLauncher& launcher, const std::string& what) {
  const PagedAttentionArgs args = problem.Args(nullptr);
  const std::vector<float> expected = Twin(args);
  for (const AttentionBatch batch : kBatches) {
    ASSERT_NO_FATAL_FAILURE(
        ExpectSameBits(expected, Attend(args, launcher, batch),
                       absl::StrCat(what, batch == AttentionBatch::kDecode ? " decode" : " chunks",
                                    " seed ", kSeed)));
  }
}

// All kinds of rows: a chunk, single tokens around the borders of tiles, segments and groups,
// windows, several runs with their own origins and shifts, padding.
std::vector<AttentionSequence> MixedBatch() {
  std::vector<AttentionSequence> batch;
  batch.push_back(CausalSequence(21, 19));
  for (const int32_t slots : {1, 63, 65, 255, 256, 257}) {
    batch.push_back(CausalSequence(slots, 1));
  }
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

class CudaTensorCoreAttention : public testing::TestWithParam<KvType> {};
INSTANTIATE_TEST_SUITE_P(Types, CudaTensorCoreAttention, testing::ValuesIn(kTypes),
                         [](const auto& info) { return std::string(KvTypeName(info.param)); });

TEST_P(CudaTensorCoreAttention, IsTheTwinForEveryHeadDim) {
  ChosenLauncher launcher;
  for (const int64_t head_dim : {1, 40, 64, 80, 96, 128, 136, 256}) {
    const AttentionShape shape{
        .query_heads = 3, .kv_heads = 1, .head_dim = head_dim, .type = GetParam()};
    const AttentionCase problem(shape, {CausalSequence(70, 2), CausalSequence(300, 1)}, kSeed);
    ASSERT_NO_FATAL_FAILURE(ExpectTwin(problem, launcher, absl::StrCat("head_dim ", head_dim)));
  }
}

TEST_P(CudaTensorCoreAttention, IsTheTwinForEveryBlockSizeAndLayout) {
  ChosenLauncher launcher;
  for (int log2 = 0; log2 <= 7; ++log2) {
    const AttentionShape shape{.query_heads = 4,
                               .head_dim = log2 % 2 == 0 ? 16 : 40,
                               .type = GetParam(),
                               .block_size_log2 = log2,
                               .layer_major = log2 % 2 == 0,
                               .contiguous = log2 % 3 == 0,
                               .share_runs = log2 % 4 != 1,
                               .row_padding = log2 % 2 == 0 ? 8 : 3};  // 8: multiples of 16
    const AttentionCase problem(shape, MixedBatch(), kSeed + log2);
    ASSERT_NO_FATAL_FAILURE(ExpectTwin(problem, launcher, absl::StrCat("block size 2^", log2)));
  }
}

TEST_P(CudaTensorCoreAttention, IsTheTwinForEveryGroupOfHeads) {
  ChosenLauncher launcher;
  for (const auto& [query_heads, kv_heads] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 1}, {4, 4}, {9, 3}, {8, 2}, {8, 1}, {20, 1}, {150, 1}}) {
    const AttentionShape shape{.query_heads = query_heads,
                               .kv_heads = kv_heads,
                               .head_dim = query_heads == 8 ? 128 : 16,
                               .type = GetParam(),
                               .row_padding = kv_heads % 2 == 0 ? 8 : 12};
    const AttentionCase problem(shape, {CausalSequence(80, 20), CausalSequence(270, 1)}, kSeed);
    ASSERT_NO_FATAL_FAILURE(
        ExpectTwin(problem, launcher, absl::StrCat(query_heads, " heads over ", kv_heads)));
  }
}

// Compute capability 8.0: other sums, and less shared memory, so that some kernels keep the group
// of segments in the workspace.
TEST_P(CudaTensorCoreAttention, OnAmpereItIsTheTwinOfT1Sm80) {
  if (!ChosenDeviceName().empty()) GTEST_SKIP() << "not run: needs the emulator's rules";
  ChosenLauncher one({.tensor_core = TensorCore::kAmpere}, 1);
  ChosenLauncher five({.order = ExecutionOrder::kSeeded, .tensor_core = TensorCore::kAmpere}, 5);
  for (const int64_t head_dim : {64, 96, 128, 256}) {
    const AttentionShape shape{.query_heads = 4,
                               .kv_heads = 1,
                               .head_dim = head_dim,
                               .type = GetParam(),
                               .row_padding = 12};
    const AttentionCase problem(shape, {CausalSequence(300, 3), CausalSequence(2100, 1)}, kSeed);
    const PagedAttentionArgs args = problem.Args(nullptr);
    const std::vector<float> expected = Twin(args, kAmpereDot);
    for (const AttentionBatch batch : kBatches) {
      for (ChosenLauncher* const launcher : {&one, &five}) {
        ASSERT_NO_FATAL_FAILURE(ExpectSameBits(expected, Attend(args, *launcher, batch),
                                               absl::StrCat("head_dim ", head_dim)));
      }
    }
    EXPECT_NE(Twin(args, kHopperDot), expected);
  }
}

// The number of blocks decides how units are split: into whole units, pieces of several groups of
// segments, or one segment for each block. The order of blocks decides which of them merges.
TEST(CudaTensorCoreAttentionSplit, ResultsDoNotDependOnTheNumberOrOrderOfBlocks) {
  const std::vector<AttentionSequence> batch = {
      CausalSequence(5000, 1),
      CausalSequence(30, 9),
      CausalSequence(2400, 2, 700),
      {.slots = 3000, .tokens = {{{0, 700, -20}, {700, 2900, 700}}, {{0, 900}, {700, 2900, 700}}}}};
  for (const KvType type : {KvType::kBF16, KvType::kInt8}) {
    const AttentionShape shape{.query_heads = 4, .kv_heads = 2, .head_dim = 24, .type = type};
    const AttentionCase problem(shape, batch, kSeed);
    const PagedAttentionArgs args = problem.Args(nullptr);
    const std::vector<float> expected = Twin(args);
    struct Way {
      int multiprocessors;
      ExecutionOrder order;
    };
    for (const Way& way : {Way{1, ExecutionOrder::kForward}, Way{2, ExecutionOrder::kReverse},
                           Way{5, ExecutionOrder::kSeeded}, Way{70, ExecutionOrder::kReverse}}) {
      if (kThreadSanitizer && way.multiprocessors != 5) continue;
      ExecutionRules rules;
      rules.order = way.order;
      ChosenLauncher launcher(rules, way.multiprocessors);
      for (const AttentionBatch kind : kBatches) {
        const std::string what =
            absl::StrCat(way.multiprocessors, " multiprocessors, batch ", static_cast<int>(kind));
        ASSERT_NO_FATAL_FAILURE(ExpectSameBits(expected, Attend(args, launcher, kind), what));
        if (way.multiprocessors != 5) continue;
        // The workspace is ready for the next launch.
        ASSERT_NO_FATAL_FAILURE(
            ExpectSameBits(expected, Attend(args, launcher, kind), what + " again"));
      }
    }
  }
}

// A context that needs more states than the workspace has room for.
TEST(CudaTensorCoreAttentionSplit, UnitsStayWholeWhereTheWorkspaceIsTooSmall) {
  ChosenLauncher launcher({}, 1);
  const AttentionShape shape{
      .query_heads = 40, .kv_heads = 1, .head_dim = 4, .type = KvType::kF16, .contiguous = true};
  const AttentionCase problem(shape, {CausalSequence(3000, 1), CausalSequence(300, 2)}, kSeed);
  const PagedAttentionArgs args = problem.Args(nullptr);
  const std::vector<float> expected = Twin(args);
  for (const int64_t most : {int64_t{0}, int64_t{1} << 17}) {
    for (const AttentionBatch kind : kBatches) {
      ASSERT_NO_FATAL_FAILURE(ExpectSameBits(expected, Attend(args, launcher, kind, most),
                                             absl::StrCat("bytes ", most)));
    }
  }
}

// A replayed launch reads other lengths from the same buffers.
TEST(CudaTensorCoreAttentionSplit, LengthsAreReadWhenTheKernelRuns) {
  ChosenLauncher launcher;
  const AttentionShape shape{.head_dim = 32, .type = KvType::kBF16};
  const AttentionCase longer(shape, {CausalSequence(600, 1)}, kSeed);
  PagedAttentionArgs args = longer.Args(nullptr);
  RowRuns row = args.row_runs[0];
  args.row_runs = &row;
  for (const int32_t end : {600, 300, 1, 0}) {
    row.last_end = end;
    ASSERT_NO_FATAL_FAILURE(ExpectSameBits(
        Twin(args), Attend(args, launcher, AttentionBatch::kDecode), absl::StrCat("end ", end)));
  }
}

// Notes the boxes of tile copies, and can refuse them as a driver might.
class BoxesLauncher final : public gpu_emulator::EmulatedLauncher {
 public:
  explicit BoxesLauncher(bool refuses) : refuses_(refuses) {}
  bool EncodeTiles(const TiledTensor& tensor, TensorMap& map) override {
    box_tokens = tensor.box[1];
    return !refuses_ && EmulatedLauncher::EncodeTiles(tensor, map);
  }
  uint32_t box_tokens = 0;

 private:
  const bool refuses_;
};

TEST(CudaTensorCoreAttentionBoxes, BlocksOfEightTokensAndMoreAreCopiedInBoxes) {
  struct Pool {
    KvType type;
    int64_t head_dim;
    int block_size_log2;
    AttentionBatch batch;
    uint32_t box_tokens;  // 0: none
  };
  for (const Pool& pool :
       {Pool{KvType::kBF16, 128, 6, AttentionBatch::kChunks, 64},
        Pool{KvType::kF16, 96, 7, AttentionBatch::kChunks, 64},
        Pool{KvType::kBF16, 64, 4, AttentionBatch::kChunks, 16},
        Pool{KvType::kF16, 80, 3, AttentionBatch::kChunks, 8},
        Pool{KvType::kBF16, 64, 2, AttentionBatch::kChunks, 0},
        Pool{KvType::kBF16, 36, 6, AttentionBatch::kChunks, 0},  // rows of 72 bytes
        Pool{KvType::kBF16, 256, 6, AttentionBatch::kChunks, 0},
        Pool{KvType::kInt8, 64, 6, AttentionBatch::kChunks, 0},
        Pool{KvType::kBF16, 64, 6, AttentionBatch::kDecode, 0}}) {
    const AttentionShape shape{.query_heads = 4,
                               .kv_heads = 2,
                               .head_dim = pool.head_dim,
                               .type = pool.type,
                               .block_size_log2 = pool.block_size_log2};
    const AttentionCase problem(shape, {CausalSequence(330, 40)}, kSeed);
    const PagedAttentionArgs args = problem.Args(nullptr);
    const std::vector<float> expected = Twin(args);
    for (const bool refuses : {false, true}) {
      BoxesLauncher launcher(refuses);
      ASSERT_NO_FATAL_FAILURE(ExpectSameBits(
          expected, Attend(args, launcher, pool.batch),
          absl::StrCat("blocks of 2^", pool.block_size_log2, refuses ? ", refused" : "")));
      EXPECT_EQ(launcher.box_tokens, pool.box_tokens);
    }
  }
}

// Queries, tables and blocks beyond 2^31 elements: decode, chunks on mma, and chunks on warpgroups
// with and without boxes.
TEST_P(CudaTensorCoreAttention, ReadsFarQueriesTablesAndBlocks) {
  if (!ChosenDeviceName().empty()) {
    GTEST_SKIP() << "not run: memory outside the heap has no copy on the device";
  }
  const FarAttention far(GetParam(), kSeed);
  ASSERT_TRUE(far.ok());
  const PagedAttentionArgs args = far.Args();
  constexpr int64_t kStateBytes = 1 << 20;
  ChosenLauncher ampere({.tensor_core = TensorCore::kAmpere});
  const std::vector<float> of_ampere = Twin(args, kAmpereDot);
  const std::vector<float> expected = Twin(args);
  for (const AttentionBatch batch : kBatches) {
    ASSERT_NO_FATAL_FAILURE(
        ExpectSameBits(of_ampere, Attend(args, ampere, batch, kStateBytes), "t1-sm80"));
    for (const bool refuses : {false, true}) {
      BoxesLauncher launcher(refuses);
      ASSERT_NO_FATAL_FAILURE(
          ExpectSameBits(expected, Attend(args, launcher, batch, kStateBytes), "t1-sm90"));
      const bool boxes = batch == AttentionBatch::kChunks && !HasScales(GetParam());
      EXPECT_EQ(launcher.box_tokens, boxes ? 16u : 0u);
    }
  }
}

// Random runs over garbage, infinities and NaNs. Blocks outside the runs are missing from memory.
TEST_P(CudaTensorCoreAttention, IsTheTwinForManyRunsOverGarbage) {
  std::mt19937_64 random(kSeed);
  ChosenLauncher launcher({.order = ExecutionOrder::kSeeded, .landing = CopyLanding::kSeeded});
  for (int i = 0; i < 12; ++i) {
    const PoolCase c = {.type = GetParam(),
                        .head_dim = i % 2 == 0 ? 64 : 40,
                        .heads_per_kv = 1 + static_cast<int64_t>(random() % 9),
                        .kv_heads = 2,
                        .tokens = 1 + static_cast<int64_t>(random() % 12),
                        .slots = 1 + static_cast<int64_t>(random() % 400),
                        .block_size_log2 = static_cast<int32_t>(random() % 8),
                        .contiguous = random() % 4 == 0,
                        .many_runs = i % 4 != 0,
                        .extremes = i % 3 == 0,
                        .finite_v = true};
    const AttentionPool pool(random, c);
    const PagedAttentionArgs args = pool.Args(nullptr);
    const std::vector<float> expected = Twin(args);
    for (const AttentionBatch batch : kBatches) {
      ASSERT_NO_FATAL_FAILURE(ExpectSameBits(expected, Attend(args, launcher, batch), Describe(c)))
          << "case " << i;
    }
  }
}

// The comparison can fail: tensor cores of another family give other bits.
TEST_P(CudaTensorCoreAttention, AnotherTensorCoreWouldBeNoticed) {
  if (!ChosenDeviceName().empty()) GTEST_SKIP() << "not run: needs the emulator's rules";
  ChosenLauncher launcher({.tensor_core = TensorCore::kAmpere});
  const AttentionCase problem({.head_dim = 64, .type = GetParam()}, {CausalSequence(300, 2)},
                              kSeed);
  for (const AttentionBatch batch : kBatches) {
    const PagedAttentionArgs args = problem.Args(nullptr);
    EXPECT_NE(Attend(args, launcher, batch), Twin(args));
  }
}

}  // namespace
}  // namespace baton
