#include "kernels/create_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cpu/usable_processors.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
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
  EXPECT_EQ(
      CreateDevice({.name = "tpu"}).status(),
      absl::InvalidArgumentError("device is \"tpu\", must be cpu, cpu-async, cuda or cuda:N"));
  for (const char* const name : {"", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", "cudas"}) {
    EXPECT_EQ(CreateDevice({.name = name}).status(),
              absl::InvalidArgumentError(std::string("device is \"") + name +
                                         "\", must be cpu, cpu-async, cuda or cuda:N"));
  }
}

// On a machine with a driver, another part may be missing, so only the code is the same everywhere.
TEST(CreateDevice, AGpuThatIsMissingIsUnavailableByName) {
  const absl::Status missing = CreateDevice({.name = "cuda:9999"}).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("device is \"cuda:9999\": "));
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
                "instruction-set is \"sse\", must be auto, plain, avx2, avx512-no-vnni or avx512"));
}

TEST(CreateDevice, NumericsAreChosenByNameAndUnknownOnesAreRefused) {
  DeviceOptions options;
  ASSERT_TRUE(SettleDeviceOptions(options).ok());
  EXPECT_EQ(options.numerics, "r1");
  const auto device = CreateDevice({.threads = 1, .numerics = "t1-sm90"});
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ((*device)->numerics(), Numerics::kT1Sm90);
  EXPECT_THAT((*device)->Description(), HasSubstr("numerics t1-sm90"));
  EXPECT_EQ(CreateDevice({.numerics = "r2"}).status(),
            absl::InvalidArgumentError("numerics is \"r2\", must be auto, r1 or t1-sm90"));
}

TEST(CreateDevice, TheNumericsOfAGpuAreChosenWhenItIsKnown) {
  DeviceOptions options{.name = "cuda:3"};
  ASSERT_TRUE(SettleDeviceOptions(options).ok());
  EXPECT_EQ(options.numerics, "auto");
  options.numerics = "r2";
  EXPECT_EQ(SettleDeviceOptions(options),
            absl::InvalidArgumentError("numerics is \"r2\", must be auto, r1 or t1-sm90"));
}

TEST(CreateDevice, TheEmulatorsLibrariesLieBesideTheProgram) {
  EXPECT_EQ(DeviceLibrariesOf("cuda:1").driver, std::vector<std::string>{"libcuda.so.1"});
  EXPECT_EQ(DeviceLibrariesOf("cuda").nccl, std::vector<std::string>{"libnccl.so.2"});
  const DeviceLibraries emulated = DeviceLibrariesOf("cuda-emulated");
  EXPECT_THAT(emulated.driver, ElementsAre(EndsWith("/libbaton_gpu_emulator.so")));
  EXPECT_THAT(emulated.nccl, ElementsAre(EndsWith("/libbaton_emulated_nccl.so")));
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
