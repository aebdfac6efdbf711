#include "kernels/create_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>

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
      absl::InvalidArgumentError("device is \"tpu\"; must be cpu, cpu-async, cuda or cuda:N"));
  for (const char* const name : {"", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", "cudas"}) {
    EXPECT_EQ(CreateDevice({.name = name}).status(),
              absl::InvalidArgumentError(std::string("device is \"") + name +
                                         "\"; must be cpu, cpu-async, cuda or cuda:N"));
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
                "instruction-set is \"sse\"; must be auto, plain, avx2, avx512-no-vnni or avx512"));
}

TEST(CreateDevice, NumericsAreChosenByNameAndUnknownOnesAreRefused) {
  DeviceOptions options;
  ASSERT_TRUE(SettleDeviceOptions(options).ok());
  EXPECT_EQ(options.numerics, "r1");
  for (const Numerics numerics : kAllNumerics) {
    const std::string name(NumericsName(numerics));
    const auto device = CreateDevice({.threads = 1, .numerics = name});
    ASSERT_TRUE(device.ok()) << device.status();
    EXPECT_EQ((*device)->numerics(), numerics);
    EXPECT_THAT((*device)->Description(), HasSubstr("numerics " + name));
  }
  EXPECT_EQ(CreateDevice({.numerics = "r2"}).status(),
            absl::InvalidArgumentError("numerics is \"r2\"; must be auto, r1, t1-sm80 or t1-sm90"));
}

TEST(CreateDevice, TheNumericsOfAGpuAreChosenWhenItIsKnown) {
  DeviceOptions options{.name = "cuda:3"};
  ASSERT_TRUE(SettleDeviceOptions(options).ok());
  EXPECT_EQ(options.numerics, "auto");
  options.numerics = "r2";
  EXPECT_EQ(SettleDeviceOptions(options),
            absl::InvalidArgumentError("numerics is \"r2\"; must be auto, r1, t1-sm80 or t1-sm90"));
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

TEST(CreateDeviceGroup, CpuRanksAreAsynchronousAndShareTheThreads) {
  for (const auto& [threads, degree, each] : {std::tuple{4, 2, 2}, {8, 3, 2}, {2, 3, 1}}) {
    const auto group = CreateDeviceGroup({.name = "cpu", .threads = threads}, degree);
    ASSERT_TRUE(group.ok()) << group.status();
    ASSERT_EQ(group->devices.size(), static_cast<size_t>(degree));
    ASSERT_EQ(group->communicators.size(), static_cast<size_t>(degree));
    for (int32_t rank = 0; rank < degree; ++rank) {
      EXPECT_TRUE(group->devices[rank]->asynchronous());
      EXPECT_THAT(group->devices[rank]->Description(),
                  HasSubstr(" " + std::to_string(each) + " thread"));
      EXPECT_EQ(group->communicators[rank]->rank().rank, rank);
      EXPECT_EQ(group->communicators[rank]->rank().degree, degree);
    }
  }
}

TEST(CreateDeviceGroup, RefusesDegreesOutOfRangeAndGpusThatAreMissing) {
  for (const int32_t degree : {-1, 0, 65}) {
    EXPECT_EQ(CreateDeviceGroup({.name = "cpu"}, degree).status(),
              absl::InvalidArgumentError("tensor-parallel is " + std::to_string(degree) +
                                         "; it must be in 1 to 64"));
  }
  const absl::Status absent = CreateDeviceGroup({.name = "cuda:999", .numerics = "r1"}, 2).status();
  EXPECT_EQ(absent.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(absent.message()), HasSubstr("device is \"cuda:999\": "));
}

}  // namespace
}  // namespace baton
