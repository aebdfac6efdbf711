#include "kernels/create_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cpu/usable_processors.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

TEST(CreateDevice, TheCpuComesInlineAndAsynchronous) {
  const auto inline_device = CreateDevice({.name = "cpu", .threads = 2});
  ASSERT_TRUE(inline_device.ok()) << inline_device.status();
  EXPECT_FALSE((*inline_device)->asynchronous());
  const auto asynchronous = CreateDevice({.name = "cpu-async", .threads = 2});
  ASSERT_TRUE(asynchronous.ok()) << asynchronous.status();
  EXPECT_TRUE((*asynchronous)->asynchronous());
  EXPECT_THAT((*asynchronous)->Description(), HasSubstr("asynchronous"));
}

TEST(CreateDevice, UnknownDevicesAreRefusedWithTheListOfKnownOnes) {
  EXPECT_EQ(CreateDevice({.name = "tpu"}).status(),
            absl::InvalidArgumentError("device is \"tpu\", must be cpu, cpu-async or cuda"));
  EXPECT_EQ(CreateDevice({.name = ""}).status(),
            absl::InvalidArgumentError("device is \"\", must be cpu, cpu-async or cuda"));
}

TEST(CreateDevice, ADeviceThatIsNotBuiltInIsRefused) {
  EXPECT_EQ(CreateDevice({.name = "cuda"}).status(),
            absl::InvalidArgumentError("device is \"cuda\", which is not built into this binary: "
                                       "use cpu or cpu-async"));
}

TEST(CreateDevice, SettledOptionsHaveTheEffectiveValues) {
  DeviceOptions options;
  ASSERT_TRUE(SettleDeviceOptions(options).ok());
  EXPECT_EQ(options.name, "cpu");
  EXPECT_EQ(options.threads, UsableProcessors());
  EXPECT_NE(options.instruction_set, "auto");
  options = {.threads = 3, .instruction_set = "plain"};
  ASSERT_TRUE(SettleDeviceOptions(options).ok());
  EXPECT_EQ(options.threads, 3);
  EXPECT_EQ(options.instruction_set, "plain");
}

TEST(CreateDevice, UnknownInstructionSetsAreRefusedByName) {
  EXPECT_EQ(CreateDevice({.instruction_set = "sse"}).status(),
            absl::InvalidArgumentError(
                "instruction-set is \"sse\", must be auto, plain, avx2 or avx512"));
}

TEST(CreateDevice, TheCpusMemoryIsKnown) {
  const auto device = CreateDevice({.threads = 1});
  ASSERT_TRUE(device.ok());
  const DeviceMemory memory = (*device)->Memory();
  EXPECT_GT(memory.available, 0);
  EXPECT_GE(memory.total, memory.available);
}

}  // namespace
}  // namespace baton
