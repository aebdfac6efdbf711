#include "kernels/cpu/cpu_kernels.h"

#include <gtest/gtest.h>

#include "kernels/cpu/built_kernels.h"

namespace baton {
namespace {

TEST(CpuKernels, ThePlainSetRunsEverywhereAndTheBestOneRunsHere) {
  EXPECT_TRUE(IsSupported(InstructionSet::kPlain));
  EXPECT_TRUE(IsSupported(BestInstructionSet()));
}

TEST(CpuKernels, ASetRunsOnlyWhereTheSetsBeforeItRun) {
  bool supported = true;
  for (const InstructionSet set : kInstructionSets) {
    EXPECT_TRUE(supported || !IsSupported(set)) << InstructionSetName(set);
    supported = IsSupported(set);
  }
}

TEST(CpuKernels, TablesAreCompleteAndNameThemselves) {
  for (const InstructionSet set : kInstructionSets) {
    const CpuKernels& kernels = KernelsFor(set);
    // The plain kernels stand for a set that this build lacks. built_kernels_test says which sets a
    // build must have.
    EXPECT_EQ(kernels.set, IsBuilt(set) ? set : InstructionSet::kPlain) << InstructionSetName(set);
    EXPECT_NE(kernels.matmul, nullptr);
    EXPECT_NE(kernels.rms_norm, nullptr);
    EXPECT_NE(kernels.silu_mul, nullptr);
    EXPECT_NE(kernels.quantize, nullptr);
    EXPECT_NE(kernels.rope, nullptr);
    EXPECT_NE(kernels.kv_write, nullptr);
    EXPECT_NE(kernels.attention_segment, nullptr);
  }
}

TEST(CpuKernels, SetsHaveNames) {
  EXPECT_EQ(InstructionSetName(InstructionSet::kPlain), "plain");
  EXPECT_EQ(InstructionSetName(InstructionSet::kAvx2), "avx2");
  EXPECT_EQ(InstructionSetName(InstructionSet::kAvx512NoVnni), "avx512-no-vnni");
  EXPECT_EQ(InstructionSetName(InstructionSet::kAvx512), "avx512");
}

}  // namespace
}  // namespace baton
