#include "kernels/cpu/built_kernels.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "common/str_cat.h"

namespace baton {
namespace {

// tests/unbuilt/ tests a program that lacks sets. tests/ci/build_test.py checks that the release
// build has all sets.
TEST(BuiltKernels, ABuildForTestsHasEverySetThatTheMachineCanRun) {
  std::string names = "plain";
  for (const InstructionSet set : kInstructionSets) {
    if (IsSupported(set)) {
      EXPECT_TRUE(IsBuilt(set)) << InstructionSetName(set)
                                << ": configure with -DBATON_INSTRUCTION_SETS=all";
    }
    if (set != InstructionSet::kPlain && IsBuilt(set))
      names += StrCat(", ", InstructionSetName(set));
  }
  EXPECT_EQ(FasterUnbuiltSet(), std::nullopt);
  EXPECT_EQ(BuiltSetNames(), names);
}

}  // namespace
}  // namespace baton
