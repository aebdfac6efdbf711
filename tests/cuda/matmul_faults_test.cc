// Faults planted in the kernels of matrix products and norms: every barrier and every wait for
// copies does nothing, one at a time. Each must be caught by the oracle that is meant to.
//
// Every build runs the faults that change a result under some order of execution. A build with
// ThreadSanitizer runs the other one, which is a data race only.
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/launch_matmul.h"
#include "kernels/cuda/launch_rows.h"
#include "tests/cuda/guarded_rows.h"
#include "tests/gpu_emulator/executor.h"
#include "tests/gpu_emulator/kernel_registry.h"
#include "tests/gpu_emulator/sanitizers.h"

namespace baton {
namespace {

using gpu_emulator::ExecutionOrder;
using gpu_emulator::ExecutionRules;
using gpu_emulator::Executor;
using gpu_emulator::Primitive;

// A launcher that keeps the first error instead of ending the program.
class StatusLauncher : public KernelLauncher {
 public:
  explicit StatusLauncher(Executor& executor) : executor_(executor) {}
  void Launch(std::string_view kernel, const LaunchShape& shape, const void* params,
              size_t bytes) override {
    status_.Update(executor_.Run(*gpu_emulator::FindKernel(kernel), shape, params, bytes));
  }
  int multiprocessors() const override { return 1; }
  uint32_t max_shared_bytes() const override { return gpu_emulator::kMostSharedBytes; }
  std::byte* Workspace(std::string_view, size_t) override { return nullptr; }
  const absl::Status& status() const { return status_; }

 private:
  Executor& executor_;
  absl::Status status_;
};

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
  StatusLauncher launcher(executor);
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
  constexpr int64_t kCols = 8192;
  std::mt19937_64 random(12);
  const auto x = RandomFloats(random, kCols);
  const auto weight = RandomFloats(random, kCols);
  std::vector<float> expected(kCols), actual(kCols);
  RmsNormArgs args = {x.data(), weight.data(), 1e-5f, 1, kCols, {.f32 = expected.data()}};
  PlainKernels().rms_norm(args, 0, 1);
  args.out.f32 = actual.data();
  StatusLauncher launcher(executor);
  LaunchRmsNorm(launcher, args);
  if (!launcher.status().ok()) return launcher.status();
  return SameBits(expected, actual) ? absl::OkStatus() : absl::DataLossError("wrong norm");
}

struct FaultyKernel {
  const char* name;
  absl::Status (*run)(Executor&);
  size_t block_barriers, warp_barriers, copy_waits;  // places that the kernel reaches
  // Faults that change no result here, in the order of the places.
  std::vector<std::pair<Primitive, int>> races_only;
};

const FaultyKernel kFaultyKernels[] = {
    // Lanes meet again in the MMA before they read what the barrier orders.
    {"Few", &RunFew, 2, 1, 0, {{Primitive::kWarpBarrier, 0}}},
    // The last barrier is for kernels that reuse the memory.
    {"Many", &RunMany, 2, 1, 1, {{Primitive::kBlockBarrier, 1}}},
    {"Gated", &RunGated, 3, 1, 1, {}},
    {"Float", &RunFloat, 1, 0, 1, {}},
    {"Norm", &RunNorm, 3, 0, 0, {}},
};

class KernelFaults : public testing::TestWithParam<FaultyKernel> {};
INSTANTIATE_TEST_SUITE_P(Kernels, KernelFaults, testing::ValuesIn(kFaultyKernels),
                         [](const testing::TestParamInfo<FaultyKernel>& info) {
                           return std::string(info.param.name);
                         });

#ifndef BATON_EMULATOR_TSAN

TEST_P(KernelFaults, ThatChangeAResultAreSeenUnderSomeOrder) {
  const FaultyKernel& kernel = GetParam();
  Executor right;
  ASSERT_EQ(kernel.run(right), absl::OkStatus());
  EXPECT_EQ(right.places(Primitive::kBlockBarrier).size(), kernel.block_barriers);
  EXPECT_EQ(right.places(Primitive::kWarpBarrier).size(), kernel.warp_barriers);
  EXPECT_EQ(right.places(Primitive::kCopyWait).size(), kernel.copy_waits);
  for (const Primitive primitive :
       {Primitive::kBlockBarrier, Primitive::kWarpBarrier, Primitive::kCopyWait}) {
    const std::vector<std::string> places = right.places(primitive);
    for (int place = 0; place < static_cast<int>(places.size()); ++place) {
      bool caught = false;
      for (const ExecutionOrder order : {ExecutionOrder::kForward, ExecutionOrder::kReverse}) {
        Executor faulty({.order = order, .skipped = {primitive, place}});
        caught |= !kernel.run(faulty).ok();
      }
      const bool races_only = testing::Value(
          kernel.races_only, testing::Contains(std::pair<Primitive, int>(primitive, place)));
      EXPECT_EQ(caught, !races_only) << "without " << places[place];
    }
  }
}

#else

TEST_P(KernelFaults, ThatAreRacesAreReported) {
  const FaultyKernel& kernel = GetParam();
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const auto& [primitive, place] : kernel.races_only) {
    if (primitive != Primitive::kWarpBarrier) continue;
    const auto run = [&, &primitive = primitive, &place = place] {
      Executor faulty({.skipped = {primitive, place}});
      (void)kernel.run(faulty);
      std::exit(0);  // ThreadSanitizer makes it 66 if it reported a race
    };
    EXPECT_EXIT(run(), testing::ExitedWithCode(66), "data race");
  }
}

#endif

}  // namespace
}  // namespace baton
