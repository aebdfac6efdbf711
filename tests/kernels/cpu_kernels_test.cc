#include "kernels/cpu/cpu_kernels.h"

#include <gtest/gtest.h>

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
    EXPECT_EQ(kernels.set, set) << InstructionSetName(set);
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
