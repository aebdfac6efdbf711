// A build without vector kernels. This program has a copy of vector_kernels.cc that was compiled
// with no instruction set. The copy replaces the one of the library.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "kernels/cpu/built_kernels.h"
#include "kernels/cpu/cpu_device.h"

namespace baton {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(UnbuiltKernels, OnlyThePlainKernelsAreBuiltAndTheyAreTheBest) {
  for (const InstructionSet set : kInstructionSets) {
    EXPECT_EQ(IsBuilt(set), set == InstructionSet::kPlain) << InstructionSetName(set);
  }
  EXPECT_EQ(BestInstructionSet(), InstructionSet::kPlain);
  EXPECT_EQ(KernelsFor(InstructionSet::kAvx2).set, InstructionSet::kPlain);
}

TEST(UnbuiltKernels, AnUnbuiltSetIsRefusedByName) {
  if (!IsSupported(InstructionSet::kAvx2)) GTEST_SKIP() << "not run: this processor has no avx2";
  const auto device = CreateCpuDevice({.instruction_set = InstructionSet::kAvx2});
  EXPECT_EQ(device.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(device.status().message()),
              AllOf(HasSubstr("no avx2 kernels"), HasSubstr("those of plain;")));
}

TEST(UnbuiltKernels, TheDeviceNamesTheFastestKernelsThatItLacks) {
  if (!IsSupported(InstructionSet::kAvx2)) GTEST_SKIP() << "not run: this processor has no avx2";
  InstructionSet fastest = InstructionSet::kPlain;
  for (const InstructionSet set : kInstructionSets) {
    if (IsSupported(set)) fastest = set;
  }
  EXPECT_EQ(FasterUnbuiltSet(), fastest);
  const auto device = CreateCpuDevice({.threads = 1});
  ASSERT_TRUE(device.ok());
  EXPECT_THAT((*device)->Description(),
              AllOf(HasSubstr("plain kernels"),
                    HasSubstr("faster " + std::string(InstructionSetName(fastest)) + " kernels")));
}

}  // namespace
}  // namespace baton
