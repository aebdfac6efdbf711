#include "kernels/cpu/cpu_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <string>

#include "kernels/cpu/usable_processors.h"

namespace baton {
namespace {

using testing::HasSubstr;

TEST(CpuDevice, DescribesItself) {
  const auto device = CreateCpuDevice({.threads = 3, .instruction_set = InstructionSet::kPlain});
  ASSERT_TRUE(device.ok());
  EXPECT_THAT((*device)->Description(), HasSubstr("plain"));
  EXPECT_THAT((*device)->Description(), HasSubstr("3 threads"));
}

TEST(CpuDevice, ZeroThreadsMeansAllUsableProcessors) {
  const auto device = CreateCpuDevice({});
  ASSERT_TRUE(device.ok());
  EXPECT_THAT((*device)->Description(), HasSubstr(std::to_string(UsableProcessors()) + " thread"));
}

TEST(CpuDevice, RefusesThreadCountsByName) {
  for (const int threads : {-1, 257}) {
    const auto device = CreateCpuDevice({.threads = threads});
    EXPECT_EQ(device.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(device.status().message()), HasSubstr(std::to_string(threads)));
  }
}

TEST(CpuDevice, RefusesAnInstructionSetThatTheProcessorLacksByName) {
  if (IsSupported(InstructionSet::kAvx512)) {
    GTEST_SKIP() << "not run: this processor has every instruction set";
  }
  const auto device = CreateCpuDevice({.instruction_set = InstructionSet::kAvx512});
  EXPECT_EQ(device.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(device.status().message()), HasSubstr("avx512"));
}

TEST(CpuDevice, AsynchronousStreamsAndEventsRunBesideTheCaller) {
  const auto device = CreateCpuDevice({.threads = 2, .asynchronous = true});
  ASSERT_TRUE(device.ok());
  EXPECT_TRUE((*device)->asynchronous());
  const auto staging = *(*device)->AllocateStaging(64, "test");
  const auto memory = *(*device)->Allocate(64, "test");
  std::fill_n(staging->as<int>(), 16, 9);
  const auto stream = (*device)->CreateStream();
  const auto event = (*device)->CreateEvent();
  std::atomic<bool> go{false};
  stream->Call([&] { go.wait(false); });
  stream->Copy(memory->data(), staging->data(), 64);
  stream->Record(*event);
  EXPECT_FALSE(event->Done());
  EXPECT_EQ(memory->as<int>()[15], 0);
  go = true;
  go.notify_all();
  event->Wait();
  EXPECT_EQ(memory->as<int>()[15], 9);
}

TEST(CpuDevice, CountsWhatItAllocates) {
  const auto device = CreateCpuDevice({.threads = 1});
  ASSERT_TRUE(device.ok());
  EXPECT_EQ((*device)->allocated_bytes(), 0);
  auto small = (*device)->Allocate(1000, "small");
  auto large = (*device)->Allocate(3 << 20, "large");
  ASSERT_TRUE(small.ok() && large.ok());
  EXPECT_EQ((*small)->size(), 1000);
  EXPECT_EQ((*large)->as<int>()[5], 0);
  EXPECT_EQ((*device)->allocated_bytes(), 1000 + (3 << 20));
  small->reset();
  EXPECT_EQ((*device)->allocated_bytes(), 3 << 20);
}

TEST(CpuDevice, BuffersMayOutliveTheDevice) {
  std::unique_ptr<DeviceBuffer> buffer;
  {
    auto device = CreateCpuDevice({.threads = 2});
    ASSERT_TRUE(device.ok());
    buffer = *(*device)->Allocate(64, "late");
  }
  buffer->data()[63] = std::byte{1};
  EXPECT_EQ(buffer->data()[63], std::byte{1});
}

TEST(CpuDevice, RefusesAnImpossibleAllocation) {
  const auto device = CreateCpuDevice({.threads = 1});
  ASSERT_TRUE(device.ok());
  const auto buffer = (*device)->Allocate(std::numeric_limits<size_t>::max() - 1, "dreams");
  EXPECT_EQ(buffer.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(buffer.status().message()), HasSubstr("dreams"));
  EXPECT_EQ((*device)->allocated_bytes(), 0);
}

}  // namespace
}  // namespace baton
