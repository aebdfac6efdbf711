#include "kernels/cpu/built_kernels.h"

#include <gtest/gtest.h>

#include <optional>

namespace baton {
namespace {

// tests/unbuilt/ tests a program that lacks sets.
TEST(BuiltKernels, ABuildForTestsHasEverySet) {
  for (const InstructionSet set : kInstructionSets) {
    EXPECT_TRUE(IsBuilt(set)) << InstructionSetName(set)
                              << ": configure with -DBATON_INSTRUCTION_SETS=all";
  }
  EXPECT_EQ(FasterUnbuiltSet(), std::nullopt);
  EXPECT_EQ(BuiltSetNames(), "plain, avx2, avx512-no-vnni, avx512");
}

}  // namespace
}  // namespace baton
