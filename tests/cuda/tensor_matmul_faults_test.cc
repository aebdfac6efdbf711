// Faults planted in the kernels of t1's matrix products: every barrier and every wait does nothing,
// one at a time. Each must change a result, break a rule of the emulator, or be a data race only.
// Races have their own test, which builds with ThreadSanitizer run.
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/launch_tensor_matmul.h"
#include "kernels/tensor_core/tensor_core_matmul.h"
#include "tests/cuda/guarded_rows.h"
#include "tests/gpu_emulator/executor.h"
#include "tests/gpu_emulator/kernel_registry.h"
#include "tests/gpu_emulator/sanitizers.h"

namespace baton {
namespace {

using gpu_emulator::CopyLanding;
using gpu_emulator::ExecutionOrder;
using gpu_emulator::Executor;
using gpu_emulator::Primitive;

// Runs the kernels whose name contains `faulty` on an executor, and the others without faults.
// Keeps the first error.
class FaultyLauncher : public KernelLauncher {
 public:
  FaultyLauncher(Executor& executor, std::string_view faulty)
      : executor_(executor), faulty_(faulty) {}
  void Launch(std::string_view kernel, const LaunchShape& shape, const void* params,
              size_t bytes) override {
    Executor right;
    Executor& runs = kernel.find(faulty_) != std::string_view::npos ? executor_ : right;
    status_.Update(runs.Run(*gpu_emulator::FindKernel(kernel), shape, params, bytes));
  }
  int multiprocessors() const override { return 1; }
  uint32_t max_shared_bytes() const override { return gpu_emulator::kMostSharedBytes; }
  std::byte* Workspace(std::string_view, size_t bytes) override {
    scratch_.resize((bytes + 15) / 16);
    return reinterpret_cast<std::byte*>(scratch_.data());
  }
  const absl::Status& status() const { return status_; }

 private:
  struct alignas(16) Chunk {
    std::byte bytes[16];
  };
  Executor& executor_;
  const std::string_view faulty_;
  std::vector<Chunk> scratch_;
  absl::Status status_;
};

// Returns an error if the kernel broke a rule or its result differs from the twin's.
absl::Status RunProduct(Executor& executor, int64_t rows, int64_t cols, int64_t tokens) {
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
  FaultyLauncher launcher(executor, "tensor_matmul");
  LaunchTensorMatMul(launcher, args);
  if (!launcher.status().ok()) return launcher.status();
  return std::memcmp(expected.data(), actual.data(), expected.size() * sizeof(float)) == 0
             ? absl::OkStatus()
             : absl::DataLossError("wrong product");
}

// Nine stages through rings of six.
absl::Status RunFew(Executor& executor) { return RunProduct(executor, 24, 1100, 3); }
// Two tiles of the result in one block, nine stages each.
absl::Status RunMany(Executor& executor) { return RunProduct(executor, 72, 560, 9); }

struct FaultyKernel {
  const char* name;
  absl::Status (*run)(Executor&);
  size_t block_barriers, warp_barriers, barrier_waits, matrix_waits;  // places that it reaches
  // Faults that change no result here, in the order of the places.
  std::vector<std::pair<Primitive, int>> races_only;
};

const FaultyKernel kFaultyKernels[] = {
    // Lanes meet in the product before the barrier that says that all have read.
    {"Few", &RunFew, 1, 1, 2, 0, {{Primitive::kWarpBarrier, 0}}},
    {"Many", &RunMany, 1, 0, 2, 2, {}},
};

class TensorMatMulFaults : public testing::TestWithParam<FaultyKernel> {};
INSTANTIATE_TEST_SUITE_P(Kernels, TensorMatMulFaults, testing::ValuesIn(kFaultyKernels),
                         [](const testing::TestParamInfo<FaultyKernel>& info) {
                           return std::string(info.param.name);
                         });

#ifndef BATON_EMULATOR_TSAN

TEST_P(TensorMatMulFaults, ThatChangeAResultAreSeenUnderSomeOrder) {
  const FaultyKernel& kernel = GetParam();
  Executor right;
  ASSERT_EQ(kernel.run(right), absl::OkStatus());
  EXPECT_EQ(right.places(Primitive::kBlockBarrier).size(), kernel.block_barriers);
  EXPECT_EQ(right.places(Primitive::kWarpBarrier).size(), kernel.warp_barriers);
  EXPECT_EQ(right.places(Primitive::kMbarrierWait).size(), kernel.barrier_waits);
  EXPECT_EQ(right.places(Primitive::kMatrixWait).size(), kernel.matrix_waits);
  for (const Primitive primitive : {Primitive::kBlockBarrier, Primitive::kWarpBarrier,
                                    Primitive::kMbarrierWait, Primitive::kMatrixWait}) {
    const std::vector<std::string> places = right.places(primitive);
    for (int place = 0; place < static_cast<int>(places.size()); ++place) {
      bool caught = false;
      for (const ExecutionOrder order : {ExecutionOrder::kForward, ExecutionOrder::kReverse}) {
        for (const CopyLanding landing : {CopyLanding::kLate, CopyLanding::kEarly}) {
          Executor faulty({.order = order, .landing = landing, .skipped = {primitive, place}});
          caught |= !kernel.run(faulty).ok();
        }
      }
      const bool races_only = testing::Value(
          kernel.races_only, testing::Contains(std::pair<Primitive, int>(primitive, place)));
      EXPECT_EQ(caught, !races_only) << "without " << places[place];
    }
  }
}

#else

TEST_P(TensorMatMulFaults, ThatAreRacesAreReported) {
  const FaultyKernel& kernel = GetParam();
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const auto& [primitive, place] : kernel.races_only) {
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
