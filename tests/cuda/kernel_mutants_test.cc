// Faults planted in the kernels of attention, sampling and copies, and in samples that use all
// primitives (tests/cuda/kernel_mutants.h).
#include "tests/cuda/kernel_mutants.h"

#include <cstring>
#include <random>
#include <vector>

#include "common/crc32c.h"
#include "kernels/cuda/launch_attention.h"
#include "kernels/cuda/launch_copies.h"
#include "kernels/cuda/launch_sample.h"
#include "kernels/cuda/launch_tensor_core_attention.h"
#include "kernels/tensor_core/tensor_core_attention.h"
#include "tests/cuda/sample_launches.h"
#include "tests/kernels/attention_case.h"
#include "tests/kernels/sample_case.h"

namespace baton {
namespace {

using gpu_emulator::Executor;
using gpu_emulator::Primitive;

constexpr uint64_t kSeed = 1616;

// Several blocks share the segments of a sequence, so they merge. The one that begins the sequence
// is not the last to arrive, so another one reads what it kept.
template <AttentionBatch kBatch, KvType kType>
absl::Status RunAttention(Executor& executor) {
  static const AttentionCase kProblem(
      {.query_heads = 3, .kv_heads = 1, .type = kType},
      kBatch == AttentionBatch::kDecode
          ? std::vector<AttentionSequence>{CausalSequence(70, 3), CausalSequence(600, 1)}
          : std::vector<AttentionSequence>{CausalSequence(600, 1), CausalSequence(70, 3)},
      kSeed);
  static const std::vector<float> kExpected = kProblem.Expected();
  std::vector<float> out(kProblem.out_size(), -1.0f);
  MutantLauncher launcher(executor);
  LaunchPagedAttention(launcher, kProblem.Args(out.data()), kBatch, 1 << 20);
  if (!launcher.status().ok()) return launcher.status();
  return std::memcmp(out.data(), kExpected.data(), out.size() * sizeof(float)) == 0
             ? absl::OkStatus()
             : absl::DataLossError("wrong attention");
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

// The kernels of t1. Their twin is the definition.
absl::Status RunTensorCoreAttention(Executor& executor, const AttentionCase& problem,
                                    AttentionBatch batch) {
  std::vector<float> expected(problem.out_size()), out(problem.out_size(), -1.0f);
  TensorCoreAttention(problem.Args(expected.data()), 0, problem.tokens());
  MutantLauncher launcher(executor);
  LaunchTensorCoreAttention(launcher, problem.Args(out.data()), batch, Numerics::kT1Sm90, 1 << 20);
  if (!launcher.status().ok()) return launcher.status();
  return std::memcmp(out.data(), expected.data(), out.size() * sizeof(float)) == 0
             ? absl::OkStatus()
             : absl::DataLossError("wrong attention");
}

// One block has each sequence to itself, so nothing merges.
template <AttentionBatch kBatch, KvType kType>
absl::Status RunTensorCoreAttention(Executor& executor) {
  static const AttentionCase kProblem({.query_heads = 3, .kv_heads = 1, .type = kType},
                                      {CausalSequence(600, 1), CausalSequence(70, 3)}, kSeed);
  return RunTensorCoreAttention(executor, kProblem, kBatch);
}

// Two blocks share the segments of the first sequence.
absl::Status RunMergeOfTensorCores(Executor& executor) {
  static const AttentionCase kProblem({.query_heads = 3, .kv_heads = 1},
                                      {CausalSequence(600, 1), CausalSequence(70, 1)}, kSeed);
  return RunTensorCoreAttention(executor, kProblem, AttentionBatch::kDecode);
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
        MutatedKernel{"Copies", &RunCopies, {{Primitive::kBlockBarrier, "bbbb"}}},
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

}  // namespace
}  // namespace baton
