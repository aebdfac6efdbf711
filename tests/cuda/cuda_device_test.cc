#include "kernels/cuda/cuda_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "common/shared_page_buffer.h"
#include "kernels/cuda/cuda_stream.h"
#include "tests/cuda/add_value_params.h"
#include "tests/cuda/emulator_library.h"

namespace baton {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr size_t kMiB = size_t{1} << 20;

void Add(Stream& stream, void* values, int64_t count, int32_t value) {
  const AddValueParams params{
      .values = static_cast<int32_t*>(values), .count = count, .value = value};
  static_cast<CudaStream&>(stream).Launch("baton_test_add_value", {.block = {64, 1, 1}}, &params,
                                          sizeof(params));
}

// For megabytes: a matcher of gmock takes seconds.
template <typename T>
bool AllEqual(const std::vector<T>& values, T value) {
  return std::ranges::all_of(values, [&](T one) { return one == value; });
}

TEST(CudaDevice, ItSaysWhatItIs) {
  const auto device = CreateEmulatedDevice({.memory_bytes = 64 * kMiB});
  EXPECT_EQ(device->Description(),
            "CUDA device 0: emulated GPU, compute capability 9.0, numerics t1-sm90, "
            "4 multiprocessors, 64 MiB, driver 13.0");
  EXPECT_EQ(device->backend(), "cuda");
  EXPECT_TRUE(device->asynchronous());
  EXPECT_FALSE(device->host_accessible());
  EXPECT_EQ(device->AllocateShared(1, "test").status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(device->Reserve(1, "test", /*shared=*/true).status().code(),
            absl::StatusCode::kUnimplemented);
}

// NUMERICS_T1 describes tensor cores of compute capability 8.0 and 9.0, and no others.
TEST(CudaDevice, TheComputeCapabilityDecidesTheNumerics) {
  const auto create = [](int compute_capability, std::optional<Numerics> numerics) {
    EmulatorLibrary().Configure(gpu_emulator::SettingsOfCapability(compute_capability));
    return CreateCudaDevice({.driver_libraries = {EmulatorLibrary::Path()},
                             .kernel_library = EmulatorLibrary::Path(),
                             .numerics = numerics});
  };
  for (const int unknown : {75, 86, 87, 89, 100, 120}) {
    const auto device = create(unknown, std::nullopt);
    ASSERT_TRUE(device.ok()) << device.status();
    EXPECT_EQ((*device)->numerics(), Numerics::kR1);
  }
  EXPECT_EQ(create(89, Numerics::kT1Sm90).status(),
            absl::FailedPreconditionError(
                "numerics is \"t1-sm90\", which needs compute capability 9.0, but emulated GPU has "
                "8.9: use auto or r1"));
  for (const int other : {86, 90}) {
    EXPECT_EQ(create(other, Numerics::kT1Sm80).status().code(),
              absl::StatusCode::kFailedPrecondition);
  }
  EXPECT_EQ(create(80, Numerics::kT1Sm90).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ((*create(80, std::nullopt))->numerics(), Numerics::kT1Sm80);
  EXPECT_EQ((*create(80, Numerics::kR1))->numerics(), Numerics::kR1);
  EXPECT_EQ((*create(90, std::nullopt))->numerics(), Numerics::kT1Sm90);
  EXPECT_EQ((*create(90, Numerics::kR1))->numerics(), Numerics::kR1);
}

TEST(CudaDevice, WhatIsMissingIsNamed) {
  EXPECT_THAT(
      std::string(CreateCudaDevice({.driver_libraries = {"libcuda-absent.so"}}).status().message()),
      HasSubstr("no library \"libcuda-absent.so\""));
  EXPECT_EQ(CreateCudaDevice({.index = 1,
                              .driver_libraries = {EmulatorLibrary::Path()},
                              .kernel_library = EmulatorLibrary::Path()})
                .status(),
            absl::UnavailableError("there is no CUDA device 1; this machine has 1"));
  EXPECT_THAT(std::string(CreateCudaDevice({.driver_libraries = {EmulatorLibrary::Path()},
                                            .kernel_library = "libkernels-absent.so"})
                              .status()
                              .message()),
              HasSubstr("no library \"libkernels-absent.so\""));
}

TEST(CudaDevice, NewMemoryIsZero) {
  const auto device = CreateEmulatedDevice();
  const auto stream = device->CreateStream();
  auto buffer = device->Allocate(1001, "test");
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  EXPECT_EQ((*buffer)->size(), 1001u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>((*buffer)->data()) % 64, 0u);
  EXPECT_THAT(FromDevice<uint8_t>(*stream, (*buffer)->data(), 1001), Each(0));
  auto staging = device->AllocateStaging(1001, "test");
  ASSERT_TRUE(staging.ok()) << staging.status();
  EXPECT_THAT(std::vector((*staging)->as<uint8_t>(), (*staging)->as<uint8_t>() + 1001), Each(0));
  auto none = device->Allocate(0, "test");
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_NE((*none)->data(), nullptr);
}

TEST(CudaDevice, SharedStagingIsMemoryThatOtherProcessesMap) {
  const auto device = CreateEmulatedDevice();
  const auto stream = device->CreateStream();
  const auto values = ToDevice<int32_t>(*device, {1, 2, 3});
  const size_t before = device->allocated_bytes();
  {
    const auto staging = device->AllocateSharedStaging(3 * sizeof(int32_t), "test");
    ASSERT_TRUE(staging.ok()) << staging.status();
    EXPECT_EQ(device->allocated_bytes(), before + 3 * sizeof(int32_t));
    const SharedPageView view = *SharedPageView::Map((*staging)->shared_fd(), 3 * sizeof(int32_t));
    stream->Copy((*staging)->data(), values->data(), 3 * sizeof(int32_t));
    stream->Synchronize();
    const auto* const seen = reinterpret_cast<const int32_t*>(view.data());
    EXPECT_THAT(std::vector(seen, seen + 3), ElementsAre(1, 2, 3));
  }
  EXPECT_EQ(device->allocated_bytes(), before);
  EmulatorLibrary().call_faults().register_result = kCuUnknown;
  const absl::Status refused = device->AllocateSharedStaging(12, "slots").status();
  EmulatorLibrary().call_faults().register_result = kCuSuccess;
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("12 bytes of pinned shared memory for slots"),
                    HasSubstr("cuMemHostRegister")));
  EXPECT_TRUE(device->Health().ok()) << device->Health();
}

TEST(CudaDevice, AllocatedBytesCountTheBuffersThatExist) {
  const auto device = CreateEmulatedDevice();
  const size_t before = device->allocated_bytes();
  {
    const auto one = device->Allocate(1000, "test");
    const auto two = device->AllocateStaging(500, "test");
    const auto three = device->Reserve(10 * kMiB, "test", false);
    EXPECT_EQ(device->allocated_bytes(), before + 1500 + 10 * kMiB);
  }
  EXPECT_EQ(device->allocated_bytes(), before);
}

TEST(CudaDevice, ExhaustedMemoryNamesThePurposeAndTheSize) {
  const auto device = CreateEmulatedDevice({.memory_bytes = 8 * kMiB});
  EXPECT_EQ(device->Memory().total, static_cast<int64_t>(8 * kMiB));
  const auto one = device->Allocate(6 * kMiB, "weights");
  ASSERT_TRUE(one.ok());
  EXPECT_EQ(device->Memory().available, static_cast<int64_t>(2 * kMiB));
  const absl::Status two = device->Allocate(3 * kMiB, "KV pool").status();
  EXPECT_EQ(two.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(two.message()),
              AllOf(HasSubstr("KV pool"), HasSubstr("3145728 bytes of device memory")));
  EXPECT_TRUE(device->Health().ok()) << "the device still works";
}

TEST(CudaDevice, AReservedBufferGrowsAndShrinksByGranules) {
  const auto device = CreateEmulatedDevice({.memory_bytes = 16 * kMiB});
  const auto stream = device->CreateStream();
  const auto available = [&] { return device->Memory().available / static_cast<int64_t>(kMiB); };
  const auto reserved = device->Reserve(100 * kMiB, "KV pool", false);
  ASSERT_TRUE(reserved.ok()) << reserved.status();
  DeviceBuffer& buffer = **reserved;
  EXPECT_EQ(available(), 16) << "a reservation takes no memory";

  ASSERT_TRUE(buffer.Populate(3 * kMiB, 2 * kMiB).ok());
  EXPECT_EQ(available(), 12) << "the range lies in two granules";
  EXPECT_TRUE(
      AllEqual(FromDevice<uint8_t>(*stream, buffer.data() + 3 * kMiB, 2 * kMiB), uint8_t{0}));
  Add(*stream, buffer.data() + 3 * kMiB, kMiB / 2, 7);

  ASSERT_TRUE(buffer.Populate(2 * kMiB, 2 * kMiB).ok());
  EXPECT_EQ(available(), 12) << "one granule already had memory";
  EXPECT_TRUE(
      AllEqual(FromDevice<int32_t>(*stream, buffer.data() + 2 * kMiB, kMiB / 4), int32_t{0}));
  EXPECT_TRUE(
      AllEqual(FromDevice<int32_t>(*stream, buffer.data() + 3 * kMiB, kMiB / 2), int32_t{7}))
      << "populated bytes keep their contents";

  buffer.Discard(4 * kMiB, kMiB);
  EXPECT_EQ(available(), 14);
  buffer.Discard(2 * kMiB, kMiB);
  EXPECT_EQ(available(), 14) << "the rest of the granule is in use";
  buffer.Discard(3 * kMiB, kMiB);
  EXPECT_EQ(available(), 16);
  ASSERT_TRUE(buffer.Populate(3 * kMiB, kMiB).ok());
  EXPECT_TRUE(AllEqual(FromDevice<uint8_t>(*stream, buffer.data() + 3 * kMiB, kMiB), uint8_t{0}));
  EXPECT_TRUE(device->Health().ok()) << device->Health();
}

TEST(CudaDevice, BuffersMayOutliveTheDevice) {
  auto device = CreateEmulatedDevice();
  auto one = device->Allocate(100, "test");
  auto two = device->AllocateStaging(100, "test");
  auto three = device->Reserve(100, "test", false);
  ASSERT_TRUE(one.ok() && two.ok() && three.ok() && (*three)->Populate(0, 100).ok());
  device.reset();
  (*two)->data()[99] = std::byte{1};
}

// ---- faults -------------------------------------------------------------------------------------

TEST(CudaDevice, AfterAFaultEverythingReturnsAndTheHealthSaysSo) {
  const auto device = CreateEmulatedDevice();
  const auto stream = device->CreateStream();
  const auto values = ToDevice<int32_t>(*device, {1, 2, 3});
  const auto event = device->CreateEvent();
  bool called = false;
  EmulatorLibrary().FailAfter(1);
  Add(*stream, values->data(), 3, 1);
  stream->Synchronize();
  EXPECT_TRUE(device->Health().ok());
  Add(*stream, values->data(), 3, 1);
  stream->Record(*event);
  stream->Call([&] { called = true; });
  EXPECT_TRUE(device->Health().ok()) << "the error is asynchronous";
  event->Wait();
  EXPECT_EQ(device->Health().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(device->Health().message()),
              AllOf(HasSubstr("CUDA device 0 failed"), HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS")));
  stream->Synchronize();
  EXPECT_TRUE(called) << "a function that wakes the engine is called all the same";
  EXPECT_TRUE(event->Done());
  const absl::Status first = device->Health();
  Add(*stream, values->data(), 3, 1);
  stream->BeginCapture();
  Add(*stream, values->data(), 3, 1);
  const auto graph = stream->EndCapture();
  stream->Launch(*graph);
  stream->Synchronize();
  EXPECT_EQ(device->Health(), first) << "the first error stays";
  EXPECT_EQ(device->Allocate(1, "test").status(), first);
  EXPECT_EQ(device->AllocateStaging(1, "test").status(), first);
  EXPECT_EQ(device->Reserve(1, "test", false).status(), first);
}

TEST(CudaDevice, AKernelThatNoImageHasMakesTheDeviceFail) {
  const auto device = CreateEmulatedDevice();
  const auto stream = device->CreateStream();
  static_cast<CudaStream&>(*stream).Launch("baton_absent", {}, nullptr, 0);
  EXPECT_THAT(std::string(device->Health().message()), HasSubstr("no kernel \"baton_absent\""));
}

TEST(CudaDevice, ALaunchBeyondTheLimitsMakesTheDeviceFail) {
  const AddValueParams params;
  const std::pair<LaunchShape, const char*> cases[] = {
      {{.block = {2048, 1, 1}}, "block[0] is 2048, it must be in 1 to 1024"},
      {{.block = {1, 1, 65}}, "block[2] is 65, it must be in 1 to 64"},
      {{.block = {64, 32, 1}}, "a thread block has 2048 threads, the limit is 1024"},
      {{.grid = {1, 70'000, 1}}, "grid[1] is 70000, it must be in 1 to 65535"},
      {{.grid = {1, 1, 65'536}}, "grid[2] is 65536, it must be in 1 to 65535"},
      {{.grid = {(int64_t{1} << 32) + 1, 1, 1}}, "grid[0] is 4294967297, it must be in 1 to "},
      {{.block = {32, 1, 1}, .shared_bytes = 300'000}, "300000"}};
  for (const auto& [shape, message] : cases) {
    const auto device = CreateEmulatedDevice();
    const auto stream = device->CreateStream();
    static_cast<CudaStream&>(*stream).Launch("baton_test_add_value", shape, &params,
                                             sizeof(params));
    EXPECT_THAT(std::string(device->Health().message()),
                AllOf(HasSubstr("baton_test_add_value"), HasSubstr(message)));
  }
}

TEST(CudaDevice, ALaunchWithoutBlocksDoesNothing) {
  const auto device = CreateEmulatedDevice();
  const auto stream = device->CreateStream();
  static_cast<CudaStream&>(*stream).Launch("baton_test_add_value", {.grid = {0, 1, 1}}, nullptr, 0);
  stream->Synchronize();
  EXPECT_TRUE(device->Health().ok()) << device->Health();
}

}  // namespace
}  // namespace baton
