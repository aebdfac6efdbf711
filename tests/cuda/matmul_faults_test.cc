// Faults planted in the kernels of matrix products and norms (tests/cuda/kernel_mutants.h).
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/launch_matmul.h"
#include "kernels/cuda/launch_rows.h"
#include "tests/cuda/guarded_rows.h"
#include "tests/cuda/kernel_mutants.h"

namespace baton {
namespace {

using gpu_emulator::Executor;
using gpu_emulator::Primitive;

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Runs a product on the executor. Returns an error if the kernel broke a rule or its result differs
// from the plain one.
absl::Status RunProduct(Executor& executor, WeightFormat format, int64_t rows, int64_t cols,
                        int64_t tokens, bool gated) {
  std::mt19937_64 random(11);
  const BothMatrices weight(random, format, rows, cols);
  OwnedActivations x(tokens, cols);
  x.f32 = RandomFloats(random, tokens * cols);
  const std::vector<float> values = x.f32;
  PlainKernels().quantize(values.data(), cols, x.view(), 0, tokens);
  std::vector<float> expected(tokens * rows), actual(tokens * rows);
  MatMulArgs args = {.x = x.view(),
                     .weight = weight.ForCpu(),
                     .out = expected.data(),
                     .out_stride = rows,
                     .tokens = tokens};
  PlainKernels().matmul(args, 0, rows, 0, tokens);
  args.weight = weight.ForCuda();
  args.out = actual.data();
  MutantLauncher launcher(executor);
  if (gated) {
    std::vector<float> gates(tokens * rows / 2);
    PlainKernels().silu_mul({expected.data(), tokens, rows / 2, {.f32 = gates.data()}}, 0, tokens);
    expected = std::move(gates);
    actual.resize(tokens * rows / 2);
    LaunchGatedMatMul(launcher, {.product = args, .out = {.f32 = actual.data()}});
  } else {
    LaunchMatMul(launcher, args);
  }
  if (!launcher.status().ok()) return launcher.status();
  return SameBits(expected, actual) ? absl::OkStatus() : absl::DataLossError("wrong product");
}

absl::Status RunFew(Executor& executor) {
  return RunProduct(executor, WeightFormat::kQ6_K, 16, 2304, 5, false);
}
absl::Status RunOneToken(Executor& executor) {
  return RunProduct(executor, WeightFormat::kQ6_K, 16, 5376, 1, false);
}
absl::Status RunMany(Executor& executor) {
  return RunProduct(executor, WeightFormat::kQ4_1, 64, 384, 40, false);
}
absl::Status RunGated(Executor& executor) {
  return RunProduct(executor, WeightFormat::kQ8_0, 128, 384, 64, true);
}
absl::Status RunFloat(Executor& executor) {
  return RunProduct(executor, WeightFormat::kBF16, 32, 576, 5, false);
}
absl::Status RunNorm(Executor& executor) {
  constexpr int64_t kCols = 6144;  // two parts
  std::mt19937_64 random(12);
  const auto x = RandomFloats(random, kCols);
  const auto weight = RandomFloats(random, kCols);
  std::vector<float> expected(kCols), actual(kCols);
  RmsNormArgs args = {x.data(), weight.data(), 1e-5f, 1, kCols, {.f32 = expected.data()}};
  PlainKernels().rms_norm(args, 0, 1);
  args.out.f32 = actual.data();
  MutantLauncher launcher(executor);
  LaunchRmsNorm(launcher, args);
  if (!launcher.status().ok()) return launcher.status();
  return SameBits(expected, actual) ? absl::OkStatus() : absl::DataLossError("wrong norm");
}

class KernelFaults : public testing::TestWithParam<MutatedKernel> {};

TEST_P(KernelFaults, AreCaughtByTheOracleThatIsMeantTo) { ExpectCaught(GetParam()); }

INSTANTIATE_TEST_SUITE_P(
    Kernels, KernelFaults,
    testing::Values(
        // Lanes meet again in the MMA before they read terms, so the second barrier of the warp
        // changes no result. The third one only joins lanes before the barrier of the block.
        MutatedKernel{"Few",
                      &RunFew,
                      {{Primitive::kBlockBarrier, "dd"},
                       {Primitive::kWarpBarrier, "RR="},
                       {Primitive::kCopyWait, "b"}}},
        MutatedKernel{"OneToken",
                      &RunOneToken,
                      {{Primitive::kBlockBarrier, "dd"},
                       {Primitive::kWarpBarrier, "RR="},
                       {Primitive::kCopyWait, "b"}}},
        // The last barrier is for kernels that use the memory again.
        MutatedKernel{"Many",
                      &RunMany,
                      {{Primitive::kBlockBarrier, "b="},
                       {Primitive::kWarpBarrier, "b"},
                       {Primitive::kCopyWait, "b"}}},
        MutatedKernel{"Gated",
                      &RunGated,
                      {{Primitive::kBlockBarrier, "bbb"},
                       {Primitive::kWarpBarrier, "b"},
                       {Primitive::kCopyWait, "b"}}},
        MutatedKernel{
            "Float", &RunFloat, {{Primitive::kBlockBarrier, "b"}, {Primitive::kCopyWait, "b"}}},
        MutatedKernel{"Norm", &RunNorm, {{Primitive::kBlockBarrier, "bbb"}}}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace baton
