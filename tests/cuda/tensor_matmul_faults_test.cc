// Faults planted in the kernels of t1's matrix products (tests/cuda/kernel_mutants.h).
#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/launch_tensor_matmul.h"
#include "kernels/tensor_core/tensor_core_matmul.h"
#include "tests/cuda/guarded_rows.h"
#include "tests/cuda/kernel_mutants.h"

namespace baton {
namespace {

using gpu_emulator::Executor;
using gpu_emulator::Primitive;

// Returns an error if the kernel broke a rule or its result differs from the twin's. Executors have
// the tensor cores of Hopper.
absl::Status RunProduct(Executor& executor, Numerics numerics, int64_t rows, int64_t cols,
                        int64_t tokens) {
  std::mt19937_64 random(11);
  const BothMatrices weight(random, WeightFormat::kBF16, rows, cols);
  std::vector<float> x = RandomFloats(random, tokens * cols);
  std::vector<float> expected(tokens * rows), actual(tokens * rows);
  MatMulArgs args = {.x = {.f32 = x.data()},
                     .weight = weight.ForCpu(),
                     .out = expected.data(),
                     .out_stride = rows,
                     .tokens = tokens};
  TensorCoreMatMul(args, 0, rows, 0, tokens);
  args.weight = weight.ForCuda();
  args.out = actual.data();
  MutantLauncher launcher(executor, "tensor_matmul");
  LaunchTensorMatMul(launcher, args, numerics);
  if (!launcher.status().ok()) return launcher.status();
  return std::memcmp(expected.data(), actual.data(), expected.size() * sizeof(float)) == 0
             ? absl::OkStatus()
             : absl::DataLossError("wrong product");
}

// Nine stages through rings of six.
absl::Status RunFew(Executor& executor) {
  return RunProduct(executor, Numerics::kT1Sm90, 24, 1100, 3);
}
// Fourteen stages through a ring of twelve.
absl::Status RunOne(Executor& executor) {
  return RunProduct(executor, Numerics::kT1Sm90, 24, 1700, 1);
}
// Two tiles of the result in one block, nine stages each.
absl::Status RunMany(Executor& executor) {
  return RunProduct(executor, Numerics::kT1Sm90, 72, 560, 9);
}
// The same with rings of four and five stages.
absl::Status RunSm80Few(Executor& executor) {
  return RunProduct(executor, Numerics::kT1Sm80, 24, 1100, 3);
}
absl::Status RunSm80Many(Executor& executor) {
  return RunProduct(executor, Numerics::kT1Sm80, 72, 560, 9);
}

// The gate of 24 columns, fused: its weight has the rows of both projections.
absl::Status RunGated(Executor& executor, Numerics numerics, int64_t cols, int64_t tokens) {
  constexpr int64_t kGates = 24;
  std::mt19937_64 random(13);
  const BothMatrices weight(random, WeightFormat::kBF16, 2 * kGates, cols);
  std::vector<float> x = RandomFloats(random, tokens * cols);
  std::vector<float> products(tokens * 2 * kGates), expected(tokens * kGates), actual = expected;
  GatedMatMulArgs args = {.product = {.x = {.f32 = x.data()},
                                      .weight = weight.ForCpu(),
                                      .out = products.data(),
                                      .out_stride = 2 * kGates,
                                      .tokens = tokens},
                          .out = {.f32 = actual.data()}};
  TensorCoreMatMul(args.product, 0, 2 * kGates, 0, tokens);
  PlainKernels().silu_mul({products.data(), tokens, kGates, {.f32 = expected.data()}}, 0, tokens);
  args.product.weight = weight.ForCuda();
  MutantLauncher launcher(executor, "gated_tensor_matmul");
  LaunchGatedTensorMatMul(launcher, args, numerics);
  if (!launcher.status().ok()) return launcher.status();
  return std::memcmp(expected.data(), actual.data(), expected.size() * sizeof(float)) == 0
             ? absl::OkStatus()
             : absl::DataLossError("wrong gate");
}
absl::Status RunGatedFew(Executor& executor) {
  return RunGated(executor, Numerics::kT1Sm90, 1700, 3);
}
absl::Status RunGatedMany(Executor& executor) {
  return RunGated(executor, Numerics::kT1Sm90, 560, 70);
}
absl::Status RunGatedSm80Few(Executor& executor) {
  return RunGated(executor, Numerics::kT1Sm80, 1100, 3);
}
absl::Status RunGatedSm80Many(Executor& executor) {
  return RunGated(executor, Numerics::kT1Sm80, 560, 70);
}

class TensorMatMulFaults : public testing::TestWithParam<MutatedKernel> {};

TEST_P(TensorMatMulFaults, AreCaughtByTheOracleThatIsMeantTo) { ExpectCaught(GetParam()); }

INSTANTIATE_TEST_SUITE_P(
    Kernels, TensorMatMulFaults,
    testing::Values(
        // Lanes meet in the product before the barrier that says that all have read.
        MutatedKernel{"Few",
                      &RunFew,
                      {{Primitive::kBlockBarrier, "r"},
                       {Primitive::kWarpBarrier, "R"},
                       {Primitive::kMbarrierWait, "rd"},
                       {Primitive::kBarrierInitFence, "r"}}},
        MutatedKernel{"One",
                      &RunOne,
                      {{Primitive::kBlockBarrier, "r"},
                       {Primitive::kWarpBarrier, "R"},
                       {Primitive::kMbarrierWait, "rd"},
                       {Primitive::kBarrierInitFence, "r"}}},
        MutatedKernel{"Many",
                      &RunMany,
                      {{Primitive::kBlockBarrier, "r"},
                       {Primitive::kMbarrierWait, "rr"},
                       {Primitive::kMatrixWait, "bb"},
                       {Primitive::kMatrixFence, "r"},
                       {Primitive::kBarrierInitFence, "r"}}},
        MutatedKernel{
            "Sm80Few", &RunSm80Few, {{Primitive::kBlockBarrier, "b"}, {Primitive::kCopyWait, "b"}}},
        MutatedKernel{"Sm80Many",
                      &RunSm80Many,
                      {{Primitive::kBlockBarrier, "b"}, {Primitive::kCopyWait, "b"}}},
        MutatedKernel{"GatedFew",
                      &RunGatedFew,
                      {{Primitive::kBlockBarrier, "r"},
                       {Primitive::kWarpBarrier, "R"},
                       {Primitive::kMbarrierWait, "rr"},
                       {Primitive::kBarrierInitFence, "r"}}},
        MutatedKernel{"GatedMany",
                      &RunGatedMany,
                      {{Primitive::kBlockBarrier, "r"},
                       {Primitive::kMbarrierWait, "rr"},
                       {Primitive::kMatrixWait, "bb"},
                       {Primitive::kMatrixFence, "r"},
                       {Primitive::kBarrierInitFence, "r"}}},
        MutatedKernel{"GatedSm80Few",
                      &RunGatedSm80Few,
                      {{Primitive::kBlockBarrier, "b"}, {Primitive::kCopyWait, "b"}}},
        MutatedKernel{"GatedSm80Many",
                      &RunGatedSm80Many,
                      {{Primitive::kBlockBarrier, "b"}, {Primitive::kCopyWait, "b"}}}),
    [](const auto& info) { return std::string(info.param.name); });

// So a test on the emulator notices a kernel that an A100 could not run.
TEST(TensorMatMulOnAmpere, KernelsOfHopperAreRefused) {
  for (const int64_t tokens : {3, 9}) {
    Executor ampere({.tensor_core = gpu_emulator::TensorCore::kAmpere});
    const absl::Status status = RunProduct(ampere, Numerics::kT1Sm90, 24, 64, tokens);
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("needs compute capability 9.0"));
  }
}

}  // namespace
}  // namespace baton
