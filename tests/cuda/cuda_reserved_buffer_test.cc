#include "kernels/cuda/cuda_reserved_buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <thread>
#include <utility>
#include <vector>

#include "tests/cuda/emulator_library.h"

namespace baton {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kGranule = 2 * kMiB;
constexpr size_t kPart = CudaReservedBuffer::kGranulesAtOnce * kGranule;

class CudaReservedBufferTest : public testing::Test {
 protected:
  int64_t AvailableMiB() const { return device_->Memory().available / static_cast<int64_t>(kMiB); }
  bool Holds(size_t offset, size_t bytes, uint8_t value) const {
    const std::vector<uint8_t> got = FromDevice<uint8_t>(*stream_, buffer_->data() + offset, bytes);
    return std::ranges::all_of(got, [&](uint8_t one) { return one == value; });
  }
  void Fill(size_t offset, size_t bytes, uint8_t value) const {
    const std::vector<uint8_t> values(bytes, value);
    stream_->Copy(buffer_->data() + offset, values.data(), bytes);
    stream_->Synchronize();
  }
  void ExpectHealthy() const { EXPECT_TRUE(device_->Health().ok()) << device_->Health(); }

  const EmulatorLibrary emulator_;
  const std::unique_ptr<Device> device_ = CreateEmulatedDevice({.memory_bytes = 128 * kMiB});
  const std::unique_ptr<Stream> stream_ = device_->CreateStream();
  std::unique_ptr<DeviceBuffer> buffer_ = *device_->Reserve(200 * kMiB, "KV pool", false);
};

// Discarding is for the caller, who knows which bytes are in use.
TEST_F(CudaReservedBufferTest, AFailedGrowthKeepsAllContents) {
  ASSERT_TRUE(buffer_->Populate(0, 4 * kMiB).ok());
  Fill(0, 4 * kMiB, 7);
  EXPECT_EQ(buffer_->Populate(2 * kMiB, 190 * kMiB).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Holds(0, 4 * kMiB, 7));
  EXPECT_GT(buffer_->MissingMemory(0, 192 * kMiB), 0u);
  buffer_->Discard(4 * kMiB, 188 * kMiB);
  EXPECT_EQ(AvailableMiB(), 124);
  EXPECT_TRUE(Holds(0, 4 * kMiB, 7));
  EXPECT_TRUE(buffer_->Populate(2 * kMiB, 126 * kMiB).ok());
  EXPECT_TRUE(Holds(4 * kMiB, 124 * kMiB, 0));
  ExpectHealthy();
}

TEST_F(CudaReservedBufferTest, CountsTheGranulesThatHaveNoMemory) {
  EXPECT_EQ(buffer_->MissingMemory(0, 200 * kMiB), 200 * kMiB);
  ASSERT_TRUE(buffer_->Populate(3 * kMiB, 5 * kMiB).ok());
  EXPECT_EQ(buffer_->MissingMemory(0, 200 * kMiB), 194 * kMiB) << "three granules have memory";
  EXPECT_EQ(buffer_->MissingMemory(2 * kMiB, 6 * kMiB), 0u);
  EXPECT_EQ(buffer_->MissingMemory(7 * kMiB, 2 * kMiB), 2 * kMiB);
  buffer_->Discard(4 * kMiB, kMiB);
  EXPECT_EQ(buffer_->MissingMemory(0, 200 * kMiB), 194 * kMiB);
  buffer_->Discard(5 * kMiB, kMiB);
  EXPECT_EQ(buffer_->MissingMemory(0, 200 * kMiB), 196 * kMiB);
}

TEST_F(CudaReservedBufferTest, AGranuleThatTheDriverDoesNotUnmapIsUsedAgain) {
  ASSERT_TRUE(buffer_->Populate(0, 3 * kGranule).ok());
  Fill(0, 3 * kGranule, 7);
  emulator_.FailUnmaps(1);
  buffer_->Discard(0, 2 * kGranule);
  EXPECT_EQ(AvailableMiB(), 124) << "one of two granules is free";
  ExpectHealthy();
  ASSERT_TRUE(buffer_->Populate(0, 2 * kGranule).ok()) << "CUDA refuses to map a granule twice";
  EXPECT_TRUE(Holds(0, 2 * kGranule, 0));
  EXPECT_TRUE(Holds(2 * kGranule, kGranule, 7));
  emulator_.FailUnmaps(1);
  buffer_->Discard(0, kGranule);
  EXPECT_EQ(AvailableMiB(), 122);
  buffer_->Discard(0, kGranule);
  EXPECT_EQ(AvailableMiB(), 124) << "the next Discard tries again";
  buffer_.reset();
  EXPECT_EQ(AvailableMiB(), 128);
  ExpectHealthy();
}

TEST_F(CudaReservedBufferTest, OneCallGivesAccessToAdjacentGranules) {
  ASSERT_TRUE(buffer_->Populate(4 * kGranule, kGranule).ok());
  const gpu_emulator::EmulatorCounters before = emulator_.counters();
  ASSERT_TRUE(buffer_->Populate(0, 12 * kGranule).ok());
  const gpu_emulator::EmulatorCounters after = emulator_.counters();
  EXPECT_EQ(after.allocations - before.allocations, 11);
  EXPECT_EQ(after.access_changes - before.access_changes, 2) << "around the granule with memory";
  EXPECT_TRUE(Holds(0, 12 * kGranule, 0));
  ExpectHealthy();
}

// A granule that stays mapped after a failed growth must have access, because the next one uses it.
TEST_F(CudaReservedBufferTest, AfterAFailedGrowthNoGranuleLacksAccess) {
  ASSERT_TRUE(buffer_->Populate(0, 124 * kMiB).ok());
  emulator_.FailUnmaps(1);
  EXPECT_EQ(buffer_->Populate(160 * kMiB, 16 * kMiB).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(AvailableMiB(), 2) << "one of two granules is not free";
  ASSERT_TRUE(buffer_->Populate(160 * kMiB, 4 * kMiB).ok());
  EXPECT_TRUE(Holds(160 * kMiB, 4 * kMiB, 0));
  ExpectHealthy();
}

TEST_F(CudaReservedBufferTest, LargeRangesHaveLargerGranules) {
  EXPECT_EQ(buffer_->granularity(), kGranule);
  const std::unique_ptr<DeviceBuffer> large = *device_->Reserve(40'000 * kMiB, "KV pool", false);
  ASSERT_EQ(large->granularity(), 4 * kGranule) << "5,000 granules";
  const gpu_emulator::EmulatorCounters before = emulator_.counters();
  ASSERT_TRUE(large->Populate(9 * kGranule, 8 * kGranule).ok());
  EXPECT_EQ(emulator_.counters().allocations - before.allocations, 3);
  EXPECT_EQ(large->MissingMemory(8 * kGranule, 12 * kGranule), 0u);
  large->Discard(9 * kGranule, 6 * kGranule);
  EXPECT_EQ(large->MissingMemory(8 * kGranule, 12 * kGranule), 4 * kGranule);
  EXPECT_EQ(AvailableMiB(), 112) << "a granule with a populated byte keeps its memory";
  large->Discard(15 * kGranule, 2 * kGranule);
  EXPECT_EQ(AvailableMiB(), 128);
  ExpectHealthy();
}

// The driver may take seconds to map a large range. Other calls go on, and so does a resize.
TEST_F(CudaReservedBufferTest, OtherRangesDoNotWaitForASlowGrowth) {
  ASSERT_TRUE(buffer_->Populate(0, 2 * kGranule).ok());
  Fill(0, 2 * kGranule, 7);
  emulator_.HoldMaps(true);
  std::future<absl::Status> growth =
      std::async(std::launch::async, [&] { return buffer_->Populate(kPart, kPart); });
  while (emulator_.maps_waiting() == 0) std::this_thread::yield();
  std::future<void> others = std::async(std::launch::async, [&] {
    EXPECT_TRUE(buffer_->Populate(0, kGranule).ok()) << "populated already";
    EXPECT_EQ(buffer_->MissingMemory(0, 2 * kGranule), 0u);
    buffer_->Discard(kGranule, kGranule);
  });
  // A guard against waiting for ever: the growth cannot end before HoldMaps(false).
  const bool went_on = others.wait_for(std::chrono::seconds(60)) == std::future_status::ready;
  EXPECT_TRUE(went_on);
  EXPECT_NE(growth.wait_for(std::chrono::seconds(0)), std::future_status::ready);
  emulator_.HoldMaps(false);
  others.wait();
  EXPECT_TRUE(growth.get().ok());
  EXPECT_TRUE(Holds(0, kGranule, 7));
  EXPECT_TRUE(Holds(kPart, kPart, 0));
  ExpectHealthy();
}

// A granule belongs to two ranges, whose calls come from two threads.
TEST_F(CudaReservedBufferTest, CallsOfSeveralThreadsLeaveWhatEachOfThemSaid) {
  constexpr size_t kStep = kGranule / 4;
  constexpr int kRanges = 8;  // of kStep bytes, in turn of two threads
  for (int round = 0; round < 20; ++round) {
    const auto run = [&](int first) {
      for (int repeat = 0; repeat < 3; ++repeat) {
        for (int i = first; i < kRanges; i += 2) {
          ASSERT_TRUE(buffer_->Populate(static_cast<size_t>(i) * kStep, kStep).ok());
        }
        if (repeat == 2) return;
        for (int i = first; i < kRanges; i += 2) {
          buffer_->Discard(static_cast<size_t>(i) * kStep, kStep);
        }
      }
    };
    std::thread other([&] { run(1); });
    run(0);
    other.join();
    EXPECT_EQ(buffer_->MissingMemory(0, kRanges * kStep), 0u);
    EXPECT_TRUE(Holds(0, kRanges * kStep, 0));
    buffer_->Discard(0, kRanges * kStep);
    EXPECT_EQ(AvailableMiB(), 128);
  }
  ExpectHealthy();
}

}  // namespace
}  // namespace baton
