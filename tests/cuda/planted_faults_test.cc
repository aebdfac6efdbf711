// Faults planted in the sample kernels. Each must be caught by the oracle that is meant to.
//
// Every build runs the faults that change a result under some order of execution. A build with
// ThreadSanitizer runs those that are data races; it names the kernel's lines.
#include <cstdlib>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cuda/sample_launches.h"
#include "tests/gpu_emulator/sanitizers.h"

namespace baton {
namespace {

using gpu_emulator::CopyLanding;
using gpu_emulator::ExecutionOrder;
using gpu_emulator::ExecutionRules;
using gpu_emulator::Executor;
using gpu_emulator::Primitive;

using RunSample = absl::Status (*)(Executor&);

struct PlantedFault {
  const char* name;
  RunSample run;
  Primitive primitive;
  int place;
};

std::string NameOf(const testing::TestParamInfo<PlantedFault>& info) { return info.param.name; }

std::vector<ExecutionRules> SomeRules() {
  std::vector<ExecutionRules> all;
  for (ExecutionOrder order :
       {ExecutionOrder::kForward, ExecutionOrder::kReverse, ExecutionOrder::kSeeded}) {
    for (CopyLanding landing : {CopyLanding::kLate, CopyLanding::kEarly}) {
      for (int blocks : {1, 4}) {
        all.push_back({.order = order, .landing = landing, .resident_blocks = blocks});
      }
    }
  }
  return all;
}

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

#ifndef BATON_EMULATOR_TSAN

class FaultsThatChangeAResult : public testing::TestWithParam<PlantedFault> {};

TEST_P(FaultsThatChangeAResult, AreSeenUnderSomeRules) {
  const PlantedFault& fault = GetParam();
  int caught = 0;
  for (ExecutionRules rules : SomeRules()) {
    Executor right(rules);
    ASSERT_EQ(fault.run(right), absl::OkStatus());
    rules.skipped = {fault.primitive, fault.place};
    Executor faulty(rules);
    caught += !fault.run(faulty).ok();
  }
  EXPECT_GT(caught, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Samples, FaultsThatChangeAResult,
    testing::Values(
        PlantedFault{"SumBarrier", &RunSampleSum, Primitive::kBlockBarrier, 0},
        PlantedFault{"TransposeBarrier", &RunSampleTranspose, Primitive::kBlockBarrier, 0},
        PlantedFault{"MatMulCopyWait", &RunSampleMatMul, Primitive::kCopyWait, 0},
        PlantedFault{"MatMulWarpBarrier", &RunSampleMatMul, Primitive::kWarpBarrier, 0}),
    NameOf);

#else

class FaultsThatAreRaces : public testing::TestWithParam<PlantedFault> {};

TEST_P(FaultsThatAreRaces, AreReportedWithTheLineOfTheKernel) {
  const PlantedFault& fault = GetParam();
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [&] {
    Executor faulty({.skipped = {fault.primitive, fault.place}});
    (void)fault.run(faulty);
    std::exit(0);  // ThreadSanitizer makes it 66 if it reported a race
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(66), "data race(.|\n)*sample_kernels.cu:");
}

INSTANTIATE_TEST_SUITE_P(
    Samples, FaultsThatAreRaces,
    testing::Values(
        PlantedFault{"SumFirstBarrier", &RunSampleSum, Primitive::kBlockBarrier, 0},
        PlantedFault{"SumSecondBarrier", &RunSampleSum, Primitive::kBlockBarrier, 1},
        PlantedFault{"SumReleaseFence", &RunSampleSum, Primitive::kFence, 0},
        PlantedFault{"SumAcquireFence", &RunSampleSum, Primitive::kFence, 1},
        PlantedFault{"TransposeBarrier", &RunSampleTranspose, Primitive::kBlockBarrier, 0},
        PlantedFault{"MatMulWarpBarrier", &RunSampleMatMul, Primitive::kWarpBarrier, 0}),
    NameOf);

#endif

}  // namespace
}  // namespace baton
