// Faults planted in the kernels of attention, sampling and copies, and in samples that use all
// primitives (tests/cuda/kernel_mutants.h).
#include "tests/cuda/kernel_mutants.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "common/crc32c.h"
#include "kernels/cuda/launch_attention.h"
#include "kernels/cuda/launch_copies.h"
#include "kernels/cuda/launch_kv.h"
#include "kernels/cuda/launch_sample.h"
#include "kernels/cuda/launch_tensor_core_attention.h"
#include "kernels/tensor_core/tensor_core_attention.h"
#include "tests/cuda/sample_launches.h"
#include "tests/kernels/attention_case.h"
#include "tests/kernels/random_inputs.h"
#include "tests/kernels/sample_case.h"

namespace baton {
namespace {

using gpu_emulator::Executor;
using gpu_emulator::Primitive;

constexpr uint64_t kSeed = 1616;

// Several blocks share the segments of a sequence, so they merge. The one that begins the sequence
// is not the last to arrive, so another one reads what it kept.
// Decoding has a kernel of its own for more than eight heads.
template <AttentionBatch kBatch, KvType kType, int64_t kHeads = 3>
absl::Status RunAttentionOn(MutantLauncher& launcher) {
  static const AttentionCase kProblem(
      {.query_heads = kHeads, .kv_heads = 1, .type = kType},
      kBatch == AttentionBatch::kDecode
          ? std::vector<AttentionSequence>{CausalSequence(70, 3), CausalSequence(600, 1)}
          : std::vector<AttentionSequence>{CausalSequence(600, 1), CausalSequence(70, 3)},
      kSeed);
  static const std::vector<float> kExpected = kProblem.Expected();
  std::vector<float> out(kProblem.out_size(), -1.0f);
  LaunchPagedAttention(launcher, kProblem.Args(out.data()), kBatch, 1 << 20);
  if (!launcher.status().ok()) return launcher.status();
  return std::memcmp(out.data(), kExpected.data(), out.size() * sizeof(float)) == 0
             ? absl::OkStatus()
             : absl::DataLossError("wrong attention");
}

template <AttentionBatch kBatch, KvType kType, int64_t kHeads = 3>
absl::Status RunAttention(Executor& executor) {
  MutantLauncher launcher(executor);
  return RunAttentionOn<kBatch, kType, kHeads>(launcher);
}

absl::Status RunCopies(Executor& executor) {
  std::mt19937_64 random(kSeed);
  std::vector<std::byte> from(20000), to(20000);
  for (std::byte& byte : from) byte = static_cast<std::byte>(random());
  const std::vector<ByteRun> runs = {{0, 16, 9000}, {9001, 9200, 5000}};
  std::vector<uint32_t> checksums(runs.size());
  MutantLauncher launcher(executor, "copy_list_with_checksums");
  LaunchCopyList(
      launcher,
      {.from = from.data(), .to = to.data(), .runs = runs, .checksums = checksums.data()});
  if (!launcher.status().ok()) return launcher.status();
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto bytes = std::span(from).subspan(runs[i].from, runs[i].bytes);
    if (std::memcmp(to.data() + runs[i].to, bytes.data(), bytes.size()) != 0 ||
        checksums[i] != Crc32c(bytes)) {
      return absl::DataLossError("wrong copy");
    }
  }
  return absl::OkStatus();
}

// Each head of K is rotated by all lanes, and then stored by all.
absl::Status RunRopeKvWrite(Executor& executor) {
  std::mt19937_64 random(kSeed);
  constexpr int64_t kTokens = 2, kDim = 128, kHalf = kDim / 2, kStride = 4 * kDim;
  std::vector<float> rows = RandomFloats(random, kTokens * kStride), expected_rows = rows;
  const std::vector<float> cosines = RandomFloats(random, kTokens * kHalf);
  const std::vector<float> sines = RandomFloats(random, kTokens * kHalf);
  const std::vector<int64_t> slots = {1, 0};
  std::vector<uint16_t> pool(2 * kTokens * kDim, 7), expected = pool;
  KvLayerView view{.base = expected.data(),
                   .type = KvType::kF16,
                   .block_size_log2 = 1,
                   .token_stride = kDim,
                   .head_stride = kDim,
                   .value_offset = kTokens * kDim};
  float* const x = expected_rows.data();
  PlainKernels().rope({x, kStride, 3, kDim, cosines.data(), sines.data(), kHalf, false, kTokens}, 0,
                      kTokens);
  PlainKernels().kv_write(
      {x + 2 * kDim, x + 3 * kDim, kStride, 1, kDim, slots.data(), view, kTokens}, 0, kTokens);
  view.base = pool.data();
  MutantLauncher launcher(executor);
  LaunchRopeKvWrite(launcher, {.qk = rows.data(),
                               .v = rows.data() + 3 * kDim,
                               .stride = kStride,
                               .query_heads = 2,
                               .kv_heads = 1,
                               .head_dim = kDim,
                               .cosines = cosines.data(),
                               .sines = sines.data(),
                               .half = kHalf,
                               .neighbours = false,
                               .slot_mapping = slots.data(),
                               .kv = view,
                               .tokens = kTokens});
  if (!launcher.status().ok()) return launcher.status();
  return pool == expected && rows == expected_rows ? absl::OkStatus()
                                                   : absl::DataLossError("wrong KV");
}

// Three launches: maxima of all chunks, their weights, draws.
absl::Status RunDraws(std::string_view mutated, Executor& executor) {
  std::mt19937_64 random(kSeed);
  Draws draws(random, 2, 7, 3000);
  // Few different logits: the selection then needs all its passes.
  for (size_t i = 0; i < 3000; ++i) draws.logits[i] = static_cast<float>(random() % 2);
  draws.draws[0].row = 0;
  draws.draws[0].rule = {.temperature = 3, .top_k = 1700, .top_p = 0.9f, .min_p = 0.1f};
  draws.draws[1].row = 1;
  draws.draws[1].rule = {.temperature = 0};
  // At most as many candidates as the list has room for, and additions of the weights' chunks.
  draws.draws[6].row = 1;
  draws.draws[6].rule = {.temperature = 0.7f, .top_p = 0.9f};
  draws.additions.resize(draws.first_addition[6]);
  for (const TokenId token : {5, 6, 6}) draws.additions.push_back({token, -1.0f});
  draws.first_addition[7] = static_cast<int32_t>(draws.additions.size());
  MutantLauncher launcher(executor, mutated);
  LaunchSample(launcher, draws.args());
  if (!launcher.status().ok()) return launcher.status();
  for (size_t i = 0; i < draws.draws.size(); ++i) {
    if (draws.tokens[i] != draws.Expected(i)) return absl::DataLossError("wrong token");
  }
  return absl::OkStatus();
}

absl::Status RunMaxima(Executor& executor) { return RunDraws("sample_maxima", executor); }
absl::Status RunWeights(Executor& executor) { return RunDraws("sample_weights", executor); }
absl::Status RunDrawing(Executor& executor) { return RunDraws("sample_draw", executor); }

// The kernels of t1. Their twin is the definition. Executors have the tensor cores of Hopper, so
// t1-sm80 has the same twin here.
absl::Status RunTensorCoreAttention(MutantLauncher& launcher, const AttentionCase& problem,
                                    AttentionBatch batch, Numerics numerics = Numerics::kT1Sm90) {
  std::vector<float> expected(problem.out_size()), out(problem.out_size(), -1.0f);
  TensorCoreAttention(problem.Args(expected.data()), 0, problem.tokens());
  LaunchTensorCoreAttention(launcher, problem.Args(out.data()), batch, numerics, 1 << 20);
  if (!launcher.status().ok()) return launcher.status();
  return std::memcmp(out.data(), expected.data(), out.size() * sizeof(float)) == 0
             ? absl::OkStatus()
             : absl::DataLossError("wrong attention");
}

// One block has each sequence to itself, so nothing merges. Chunks with heads of 256 keep the group
// of segments in the workspace.
template <AttentionBatch kBatch, KvType kType, int64_t kDim = 16,
          Numerics kNumerics = Numerics::kT1Sm90>
absl::Status RunTensorCoreAttention(Executor& executor) {
  static const AttentionCase kProblem(
      {.query_heads = 3, .kv_heads = 1, .head_dim = kDim, .type = kType},
      {CausalSequence(600, 1), CausalSequence(70, 3)}, kSeed);
  MutantLauncher launcher(executor);
  return RunTensorCoreAttention(launcher, kProblem, kBatch, kNumerics);
}

// Two blocks share the segments of the first sequence.
absl::Status RunMergeOfTensorCoresOn(MutantLauncher& launcher) {
  static const AttentionCase kProblem({.query_heads = 3, .kv_heads = 1},
                                      {CausalSequence(600, 1), CausalSequence(70, 1)}, kSeed);
  return RunTensorCoreAttention(launcher, kProblem, AttentionBatch::kDecode);
}

absl::Status RunMergeOfTensorCores(Executor& executor) {
  MutantLauncher launcher(executor);
  return RunMergeOfTensorCoresOn(launcher);
}

// Barriers that another one makes unnecessary ('='):
// - The last one of ClearStages and the first one of SetBounds order the same accesses, so each
//   makes the other unnecessary. So do the last one of Finish and the first one of SetBounds. After
//   the last one of RunSegments, the first one of SetBounds, ArrivesLast or Finish follows.
// - In t1, the barrier after NextUnit orders what that of ClearStages orders. In decode, barriers
//   of AddTile stand after the last read of the bounds, and those of the next unit before they are
//   written again. So the last one of RunSegments is unnecessary too.
// - In t1, that of ClearStages orders what the warp barrier of BeginWork orders. The kernel on
//   warpgroups, which has no ClearStages, needs the warp barrier
//   (tensor_core_warpgroups_faults_test.cc).
// - Before the first one of FindBest, LoadChunk, ListCandidates and LogitReachedBy, no thread has
//   read what another one writes next.
// - FindInSums ends with a barrier, so the first one of FindKey is unnecessary.
// - The last one of MergeStates matters where its loop runs twice: in chunks.
// - In the kernel of weights, LoadChunk's barriers stand before the first one of SumOfBlock.
//
// Wide decode has one block here, so nothing merges. Its row, and those of t1 with heads of 128 and
// 256, mark with - what DecodeF16, DecodeT1Int8 and ChunksT1Int8 show in the same code, or say that
// nothing shows.
//
// The fence is the addition of ArrivesLast. Without its order, or without the barrier before it,
// states of other blocks are read too early (R).
class KernelMutants : public testing::TestWithParam<MutatedKernel> {};

TEST_P(KernelMutants, AreCaughtByTheOracleThatIsMeantTo) { ExpectCaught(GetParam()); }

INSTANTIATE_TEST_SUITE_P(
    Kernels, KernelMutants,
    testing::Values(
        MutatedKernel{"DecodeF16",
                      &RunAttention<AttentionBatch::kDecode, KvType::kF16>,
                      {{Primitive::kBlockBarrier, "Rr==brbb=b=RRb="},
                       {Primitive::kFence, "R"},
                       {Primitive::kCopyWait, "b"}}},
        MutatedKernel{"WideDecodeF16",
                      &RunAttention<AttentionBatch::kDecode, KvType::kF16, 12>,
                      {{Primitive::kBlockBarrier, "rr--brbb-b-"}, {Primitive::kCopyWait, "b"}}},
        // The rows of this case with int8 and fp8 have odd addresses, so no copy is asynchronous.
        MutatedKernel{"DecodeInt8",
                      &RunAttention<AttentionBatch::kDecode, KvType::kInt8>,
                      {{Primitive::kBlockBarrier, "Rb==bbbb=b=RRb="},
                       {Primitive::kFence, "R"},
                       {Primitive::kCopyWait, "="}}},
        MutatedKernel{"DecodeFp8",
                      &RunAttention<AttentionBatch::kDecode, KvType::kFp8>,
                      {{Primitive::kBlockBarrier, "Rb==bbbb=b=RRb="},
                       {Primitive::kFence, "R"},
                       {Primitive::kCopyWait, "="}}},
        MutatedKernel{"ChunksF16",
                      &RunAttention<AttentionBatch::kChunks, KvType::kF16>,
                      {{Primitive::kBlockBarrier, "Rr==bbb=RRbbb="},
                       {Primitive::kWarpBarrier, "b"},
                       {Primitive::kFence, "R"},
                       {Primitive::kCopyWait, "b"}}},
        MutatedKernel{"ChunksInt8",
                      &RunAttention<AttentionBatch::kChunks, KvType::kInt8>,
                      {{Primitive::kBlockBarrier, "Rb==bbb=RRbbb="},
                       {Primitive::kWarpBarrier, "b"},
                       {Primitive::kFence, "R"},
                       {Primitive::kCopyWait, "="}}},
        MutatedKernel{"ChunksFp8",
                      &RunAttention<AttentionBatch::kChunks, KvType::kFp8>,
                      {{Primitive::kBlockBarrier, "Rb==bbb=RRbbb="},
                       {Primitive::kWarpBarrier, "b"},
                       {Primitive::kFence, "R"},
                       {Primitive::kCopyWait, "="}}},
        MutatedKernel{"DecodeT1F16",
                      &RunTensorCoreAttention<AttentionBatch::kDecode, KvType::kF16>,
                      {{Primitive::kBlockBarrier, "db=bRRrbbbb=r"},
                       {Primitive::kWarpBarrier, "=d"},
                       {Primitive::kCopyWait, "b"}}},
        MutatedKernel{"MergeT1F16",
                      &RunMergeOfTensorCores,
                      {{Primitive::kBlockBarrier, "dR=bRRrbbbb=RRr"},
                       {Primitive::kWarpBarrier, "=d"},
                       {Primitive::kFence, "R"},
                       {Primitive::kCopyWait, "b"}}},
        MutatedKernel{"DecodeT1Int8",
                      &RunTensorCoreAttention<AttentionBatch::kDecode, KvType::kInt8>,
                      {{Primitive::kBlockBarrier, "db=bRRbbbbbb=r"},
                       {Primitive::kWarpBarrier, "=d"},
                       {Primitive::kCopyWait, "="}}},
        MutatedKernel{"ChunksT1Int8",
                      &RunTensorCoreAttention<AttentionBatch::kChunks, KvType::kInt8>,
                      {{Primitive::kBlockBarrier, "dR=bRRbbbRr"},
                       {Primitive::kWarpBarrier, "=R"},
                       {Primitive::kCopyWait, "="}}},
        MutatedKernel{"DecodeT1Fp8",
                      &RunTensorCoreAttention<AttentionBatch::kDecode, KvType::kFp8>,
                      {{Primitive::kBlockBarrier, "db=bRRbbbbbb=r"},
                       {Primitive::kWarpBarrier, "=d"},
                       {Primitive::kCopyWait, "="}}},
        MutatedKernel{"ChunksT1Fp8",
                      &RunTensorCoreAttention<AttentionBatch::kChunks, KvType::kFp8>,
                      {{Primitive::kBlockBarrier, "dR=bRRbbbRr"},
                       {Primitive::kWarpBarrier, "=R"},
                       {Primitive::kCopyWait, "="}}},
        MutatedKernel{"Chunks256T1F16",
                      &RunTensorCoreAttention<AttentionBatch::kChunks, KvType::kF16, 256>,
                      {{Primitive::kBlockBarrier, "rrrrbrb-r"},
                       {Primitive::kWarpBarrier, "--"},
                       {Primitive::kCopyWait, "b"}}},
        MutatedKernel{
            "ChunksT1Sm80F16",
            &RunTensorCoreAttention<AttentionBatch::kChunks, KvType::kF16, 128, Numerics::kT1Sm80>,
            {{Primitive::kBlockBarrier, "dbrrbrb-r"},
             {Primitive::kWarpBarrier, "--"},
             {Primitive::kCopyWait, "b"}}},
        MutatedKernel{"Decode256T1Int8",
                      &RunTensorCoreAttention<AttentionBatch::kDecode, KvType::kInt8, 256>,
                      {{Primitive::kBlockBarrier, "d-b--bbbbbb-r"},
                       {Primitive::kWarpBarrier, "-d"},
                       {Primitive::kCopyWait, "-"}}},
        MutatedKernel{"Copies", &RunCopies, {{Primitive::kBlockBarrier, "bbbb"}}},
        MutatedKernel{"RopeKvWrite", &RunRopeKvWrite, {{Primitive::kWarpBarrier, "b"}}},
        MutatedKernel{"MaximaOfDraws", &RunMaxima, {{Primitive::kBlockBarrier, "=RRb"}}},
        MutatedKernel{"WeightsOfDraws", &RunWeights, {{Primitive::kBlockBarrier, "=b=RR=b"}}},
        MutatedKernel{"Draws", &RunDrawing, {{Primitive::kBlockBarrier, "=b==bbR=RbrbbRRb=b"}}},
        MutatedKernel{"SampleSum",
                      &RunSampleSum,
                      {{Primitive::kBlockBarrier, "bR"}, {Primitive::kFence, "RR"}}},
        MutatedKernel{"SampleTranspose", &RunSampleTranspose, {{Primitive::kBlockBarrier, "b"}}},
        MutatedKernel{"SampleMatMul",
                      &RunSampleMatMul,
                      {{Primitive::kWarpBarrier, "b"}, {Primitive::kCopyWait, "b"}}},
        MutatedKernel{"SampleTileMatMul",
                      &RunSampleTileMatMul,
                      {{Primitive::kBlockBarrier, "r"},
                       {Primitive::kMbarrierWait, "rr"},
                       {Primitive::kMatrixWait, "b"},
                       {Primitive::kMatrixFence, "r"},
                       {Primitive::kBarrierInitFence, "r"}}}),
    [](const auto& info) { return std::string(info.param.name); });

#ifndef BATON_EMULATOR_TSAN  // where a merge that begins too early is a race

// Each counter of arrivals counts a block more than have arrived. So a block merges the states of a
// unit before the last block has written its own. Blocks run one after the other here.
class EarlyMergeLauncher final : public MutantLauncher {
 public:
  using MutantLauncher::MutantLauncher;
  std::byte* Workspace(std::string_view purpose, size_t bytes) override {
    std::byte* const workspace = MutantLauncher::Workspace(purpose, bytes);
    std::fill_n(reinterpret_cast<uint32_t*>(workspace), 64, 1u);
    return workspace;
  }
};

template <typename Launcher, auto kRun>
absl::Status RunBy(Executor& executor) {
  Launcher launcher(executor);
  return kRun(launcher);
}

template <auto kRun>
void ExpectEarlyMergeCaught(const char* name) {
  using gpu_emulator::ExecutionOrder;
  for (const ExecutionOrder order :
       {ExecutionOrder::kForward, ExecutionOrder::kReverse, ExecutionOrder::kSeeded}) {
    SCOPED_TRACE(testing::Message() << name << ", order " << static_cast<int>(order));
    const gpu_emulator::ExecutionRules rules = {.order = order};
    EXPECT_EQ(OracleOf({name, &RunBy<MutantLauncher, kRun>, {}}, rules), '-');
    EXPECT_EQ(OracleOf({name, &RunBy<EarlyMergeLauncher, kRun>, {}}, rules), 'b');
  }
}

TEST(ArrivalMutants, AMergeBeforeTheLastBlockIsWrongInEveryOrderOfBlocks) {
  ExpectEarlyMergeCaught<&RunAttentionOn<AttentionBatch::kDecode, KvType::kF16>>("decode");
  ExpectEarlyMergeCaught<&RunAttentionOn<AttentionBatch::kChunks, KvType::kInt8>>("chunks");
  ExpectEarlyMergeCaught<&RunMergeOfTensorCoresOn>("t1");
}

#endif

}  // namespace
}  // namespace baton
