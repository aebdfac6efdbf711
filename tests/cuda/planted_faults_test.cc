// Places of planted faults, and a kernel that counts on the order of blocks. Faults of all kernels:
// tests/cuda/kernel_mutants.h.
#include <cstdlib>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/device_code.cuh"
#include "tests/cuda/run_kernel.h"
#include "tests/cuda/sample_launches.h"
#include "tests/gpu_emulator/sanitizers.h"

namespace baton {
namespace {

using gpu_emulator::ExecutionOrder;
using gpu_emulator::Executor;
using gpu_emulator::Primitive;

TEST(PlantedFaults, PlacesAreTheLinesOfTheKernel) {
  Executor executor;
  ASSERT_EQ(RunSampleSum(executor), absl::OkStatus());
  EXPECT_THAT(executor.places(Primitive::kBlockBarrier),
              testing::ElementsAre(testing::HasSubstr("sample_kernels.cu:"),
                                   testing::HasSubstr("sample_kernels.cu:")));
  EXPECT_THAT(executor.places(Primitive::kFence), testing::SizeIs(2));
  EXPECT_THAT(executor.places(Primitive::kCopyWait), testing::IsEmpty());
  ASSERT_EQ(RunSampleMatMul(executor), absl::OkStatus());
  EXPECT_THAT(executor.places(Primitive::kCopyWait), testing::SizeIs(1));
  EXPECT_THAT(executor.places(Primitive::kWarpBarrier), testing::SizeIs(1));
}

struct CountParams {
  int* counts;  // [blocks]
};

// Wrong: CUDA does not say that a block runs after the one before it.
void CountsOn(const CountParams p) {
  p.counts[blockIdx.x] = 1 + (blockIdx.x == 0 ? 0 : p.counts[blockIdx.x - 1]);
}

std::vector<int> CountOn(ExecutionOrder order) {
  std::vector<int> counts(4);
  Executor executor({.order = order});
  EXPECT_EQ(RunAsKernel<&CountsOn>(executor, {{4, 1, 1}, {1, 1, 1}, 0}, CountParams{counts.data()}),
            absl::OkStatus());
  return counts;
}

#ifndef BATON_EMULATOR_TSAN
TEST(PlantedFaults, AnOrderOfBlocksThatAKernelCountsOnShowsInAnotherOrder) {
  EXPECT_THAT(CountOn(ExecutionOrder::kForward), testing::ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(CountOn(ExecutionOrder::kReverse), testing::ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(CountOn(ExecutionOrder::kSeeded), testing::Not(testing::ElementsAre(1, 2, 3, 4)));
}
#else
TEST(PlantedFaults, AnOrderOfBlocksThatAKernelCountsOnIsARace) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [] {
    CountOn(ExecutionOrder::kForward);
    std::exit(0);  // ThreadSanitizer makes it 66 if it reported a race
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(66), "data race(.|\n)*planted_faults_test.cc:");
}
#endif

}  // namespace
}  // namespace baton
