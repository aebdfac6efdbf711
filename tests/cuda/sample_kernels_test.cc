// The emulator runs whole kernels: results, and independence of the order of execution.
#include "gtest/gtest.h"
#include "tests/cuda/sample_launches.h"

namespace baton {
namespace {

using gpu_emulator::CopyLanding;
using gpu_emulator::ExecutionOrder;
using gpu_emulator::ExecutionRules;
using gpu_emulator::Executor;

class SampleKernels : public testing::TestWithParam<ExecutionRules> {
 protected:
  Executor executor_{GetParam()};
};

TEST_P(SampleKernels, LastBlockSumsThePartsOfAll) {
  EXPECT_EQ(RunSampleSum(executor_), absl::OkStatus());
}

TEST_P(SampleKernels, TransposesMatricesOfOddShape) {
  EXPECT_EQ(RunSampleTranspose(executor_), absl::OkStatus());
}

TEST_P(SampleKernels, MultipliesIntegersThroughAPipelineOfCopies) {
  EXPECT_EQ(RunSampleMatMul(executor_), absl::OkStatus());
}

TEST_P(SampleKernels, MultipliesTilesOnTensorCoresOfHopper) {
  EXPECT_EQ(RunSampleTileMatMul(executor_), absl::OkStatus());
}

INSTANTIATE_TEST_SUITE_P(Orders, SampleKernels,
                         testing::Values(ExecutionRules{},
                                         ExecutionRules{.order = ExecutionOrder::kReverse,
                                                        .landing = CopyLanding::kEarly},
                                         ExecutionRules{.order = ExecutionOrder::kSeeded,
                                                        .landing = CopyLanding::kSeeded,
                                                        .seed = 11,
                                                        .resident_blocks = 3}));

}  // namespace
}  // namespace baton
