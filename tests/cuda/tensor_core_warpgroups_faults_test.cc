// Faults planted in the kernel that computes chunks on warpgroups (tests/cuda/kernel_mutants.h).
#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/launch_tensor_core_attention.h"
#include "kernels/tensor_core/tensor_core_attention.h"
#include "tests/cuda/kernel_mutants.h"
#include "tests/kernels/attention_case.h"

namespace baton {
namespace {

using gpu_emulator::Executor;
using gpu_emulator::Primitive;

// Eleven tiles, so the ring of six stages is filled twice, and three segments.
template <KvType kType, int kBlockSizeLog2>
absl::Status RunChunks(Executor& executor) {
  static const AttentionCase kProblem({.query_heads = 3,
                                       .kv_heads = 1,
                                       .head_dim = 64,
                                       .type = kType,
                                       .block_size_log2 = kBlockSizeLog2},
                                      {CausalSequence(700, 2), CausalSequence(70, 3)}, 2626);
  static const std::vector<float> kExpected = [] {
    std::vector<float> expected(kProblem.out_size());
    TensorCoreAttention(kProblem.Args(expected.data()), 0, kProblem.tokens());
    return expected;
  }();
  std::vector<float> out(kProblem.out_size(), -1.0f);
  MutantLauncher launcher(executor);
  LaunchTensorCoreAttention(launcher, kProblem.Args(out.data()), AttentionBatch::kChunks,
                            Numerics::kT1Sm90, 1 << 20);
  if (!launcher.status().ok()) return launcher.status();
  return std::memcmp(out.data(), kExpected.data(), out.size() * sizeof(float)) == 0
             ? absl::OkStatus()
             : absl::DataLossError("wrong attention");
}

class TensorCoreWarpgroupsFaults : public testing::TestWithParam<MutatedKernel> {};

TEST_P(TensorCoreWarpgroupsFaults, AreCaughtByTheOracleThatIsMeantTo) { ExpectCaught(GetParam()); }

INSTANTIATE_TEST_SUITE_P(
    Kernels, TensorCoreWarpgroupsFaults,
    testing::Values(
        // Tiles come in boxes of a tile copy. Only the last one of a run comes row by row, so no
        // other one needs its place of the offsets.
        MutatedKernel{"Boxes",
                      &RunChunks<KvType::kBF16, 6>,
                      {{Primitive::kBlockBarrier, "dRdRRdRRr"},
                       {Primitive::kWarpBarrier, "RRr=R"},
                       {Primitive::kCopyWait, "b"},
                       {Primitive::kMbarrierWait, "br"},
                       {Primitive::kMatrixWait, "bbbb"},
                       {Primitive::kMatrixFence, "rrr"},
                       {Primitive::kProxyFence, "rr"},
                       {Primitive::kBarrierInitFence, "r"}}},
        // All tiles come row by row. The emulator runs the warps that copy before the products of
        // the loop read, a later proxy fence covers the ones too, and no copy uses a barrier.
        MutatedKernel{"Rows",
                      &RunChunks<KvType::kF16, 2>,
                      {{Primitive::kBlockBarrier, "dRdRRRdRr"},
                       {Primitive::kWarpBarrier, "RRrRR"},
                       {Primitive::kCopyWait, "b"},
                       {Primitive::kMbarrierWait, "b="},
                       {Primitive::kMatrixWait, "bbbb"},
                       {Primitive::kMatrixFence, "rrr"},
                       {Primitive::kProxyFence, "=r"},
                       {Primitive::kBarrierInitFence, "="}}}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace baton
