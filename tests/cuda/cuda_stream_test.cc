#include "kernels/cuda/cuda_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/cuda/add_value_params.h"
#include "tests/cuda/emulator_library.h"

namespace baton {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr LaunchShape kShape{.grid = {3, 1, 1}, .block = {64, 1, 1}};

class CudaStreamTest : public testing::Test {
 protected:
  static void Add(Stream& stream, DeviceBuffer& values, int32_t value) {
    const AddValueParams params{.values = values.as<int32_t>(),
                                .count = static_cast<int64_t>(values.size() / sizeof(int32_t)),
                                .value = value};
    static_cast<CudaStream&>(stream).Launch("baton_test_add_value", kShape, &params,
                                            sizeof(params));
  }
  std::unique_ptr<DeviceBuffer> Staging(size_t bytes) {
    auto buffer = device_->AllocateStaging(bytes, "test");
    CHECK(buffer.ok()) << buffer.status();
    return *std::move(buffer);
  }

  const std::unique_ptr<Device> device_ = CreateEmulatedDevice();
  const std::unique_ptr<Stream> stream_ = device_->CreateStream();
  const std::unique_ptr<DeviceBuffer> values_ = ToDevice<int32_t>(*device_, {1, 2, 3});
};

TEST_F(CudaStreamTest, CopiesAndKernelsRunInOrder) {
  const auto host = Staging(3 * sizeof(int32_t));
  Add(*stream_, *values_, 10);
  stream_->Copy(host->data(), values_->data(), values_->size());
  Add(*stream_, *values_, 100);
  stream_->Synchronize();
  EXPECT_THAT(std::vector(host->as<int32_t>(), host->as<int32_t>() + 3), ElementsAre(11, 12, 13));
  EXPECT_THAT(FromDevice<int32_t>(*stream_, values_->data(), 3), ElementsAre(111, 112, 113));
  EXPECT_TRUE(device_->Health().ok()) << device_->Health();
}

TEST_F(CudaStreamTest, NothingRunsBeforeSomethingWaitsForIt) {
  const auto host = Staging(3 * sizeof(int32_t));
  std::fill_n(host->as<int32_t>(), 3, -1);
  stream_->Copy(host->data(), values_->data(), values_->size());
  EXPECT_THAT(std::vector(host->as<int32_t>(), host->as<int32_t>() + 3), Each(-1));
  stream_->Synchronize();
  EXPECT_THAT(std::vector(host->as<int32_t>(), host->as<int32_t>() + 3), ElementsAre(1, 2, 3));
}

TEST_F(CudaStreamTest, ACopyReadsItsPinnedSourceWhenItRuns) {
  const auto host = Staging(3 * sizeof(int32_t));
  std::fill_n(host->as<int32_t>(), 3, 5);
  stream_->Copy(values_->data(), host->data(), values_->size());
  std::fill_n(host->as<int32_t>(), 3, 6);  // too early: the contract forbids it
  EXPECT_THAT(FromDevice<int32_t>(*stream_, values_->data(), 3), Each(6));
}

// Returns how many of the launches of `enqueue` were allowed to begin early.
template <typename Function>
int64_t EarlyLaunches(Stream& stream, const Function& enqueue) {
  const int64_t before = EmulatorLibrary().counters().early_launches;
  enqueue();
  stream.Synchronize();
  return EmulatorLibrary().counters().early_launches - before;
}

TEST_F(CudaStreamTest, AKernelBehindAKernelMayBeginEarly) {
  const auto event = device_->CreateEvent();
  const auto add = [&] { Add(*stream_, *values_, 1); };
  EXPECT_EQ(EarlyLaunches(*stream_, add), 0) << "the first one";
  EXPECT_EQ(EarlyLaunches(*stream_,
                          [&] {
                            for (int i = 0; i < 3; ++i) add();
                          }),
            3);
  EXPECT_EQ(EarlyLaunches(*stream_,
                          [&] {
                            stream_->Copy(values_->data(), values_->data(), values_->size());
                            add();
                            stream_->Record(*event);
                            add();
                            stream_->Call([] {});
                            add();
                            static_cast<CudaStream&>(*stream_).CallLibrary([](CuStream) {});
                            add();
                          }),
            0)
      << "behind a copy, an event, a call and a library's work";
  EXPECT_THAT(FromDevice<int32_t>(*stream_, values_->data(), 3), ElementsAre(9, 10, 11));
}

TEST_F(CudaStreamTest, AKernelOfAGraphBehindAKernelMayBeginEarly) {
  const auto add = [&] { Add(*stream_, *values_, 1); };
  add();
  stream_->BeginCapture();
  add();
  add();
  stream_->Copy(values_->data(), values_->data(), values_->size());
  add();
  add();
  const auto graph = stream_->EndCapture();
  EXPECT_EQ(EarlyLaunches(*stream_, [&] { stream_->Launch(*graph); }), 2)
      << "neither the first one nor that behind the copy";
  EXPECT_EQ(EarlyLaunches(*stream_,
                          [&] {
                            stream_->Launch(*graph);
                            add();
                          }),
            2)
      << "not behind a graph";
  EXPECT_THAT(FromDevice<int32_t>(*stream_, values_->data(), 3), ElementsAre(11, 12, 13));
}

TEST_F(CudaStreamTest, StreamsAreIndependent) {
  const auto other = device_->CreateStream();
  const auto others = ToDevice<int32_t>(*device_, {7});
  Add(*stream_, *values_, 1);
  const int64_t before = EmulatorLibrary().counters().launches;
  EXPECT_THAT(FromDevice<int32_t>(*other, others->data(), 1), ElementsAre(7));
  EXPECT_EQ(EmulatorLibrary().counters().launches, before) << "the first stream has to wait";
}

TEST_F(CudaStreamTest, AnEventIsDoneWhenTheWorkBeforeItHasRun) {
  const auto event = device_->CreateEvent();
  EXPECT_TRUE(event->Done()) << "never recorded";
  Add(*stream_, *values_, 1);
  stream_->Record(*event);
  Add(*stream_, *values_, 1);
  EXPECT_EQ(EmulatorLibrary().counters().launches, 0);
  while (!event->Done()) {
  }
  EXPECT_EQ(EmulatorLibrary().counters().launches, 1) << "work behind the record need not run";
  stream_->Record(*event);
  event->Wait();
  EXPECT_EQ(EmulatorLibrary().counters().launches, 2);
}

TEST_F(CudaStreamTest, CalledFunctionsSeeTheWorkBeforeThemAndEventsWaitForThem) {
  const auto host = Staging(sizeof(int32_t));
  const auto event = device_->CreateEvent();
  std::vector<int32_t> seen;
  std::atomic<int> calls = 0;
  for (int i = 0; i < 3; ++i) {
    Add(*stream_, *values_, 10);
    stream_->Copy(host->data(), values_->data(), sizeof(int32_t));
    stream_->Call([&, i] {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      EXPECT_EQ(calls++, i);
    });
    stream_->Record(*event);
    event->Wait();
    seen.push_back(*host->as<int32_t>());
    EXPECT_EQ(calls, i + 1);
    EXPECT_TRUE(event->Done());
  }
  EXPECT_THAT(seen, ElementsAre(11, 21, 31));
  stream_->Call([&] { ++calls; });
  stream_->Synchronize();
  EXPECT_EQ(calls, 4);
}

TEST_F(CudaStreamTest, AnEventIsNotDoneBeforeTheFunctionsBeforeItHaveReturned) {
  const auto event = device_->CreateEvent();
  std::atomic<bool> may_return = false;
  std::atomic<bool> returned = false;
  stream_->Call([&] {
    while (!may_return) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    returned = true;
  });
  stream_->Record(*event);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(event->Done());
  may_return = true;
  event->Wait();
  EXPECT_TRUE(returned);
  EXPECT_TRUE(event->Done());
}

TEST_F(CudaStreamTest, AFunctionBetweenLimitsIsCalledAtOnce) {
  Add(*stream_, *values_, 1);
  bool called = false;
  stream_->CallBetweenLimits([&] { called = true; });
  EXPECT_TRUE(called);
  EXPECT_EQ(EmulatorLibrary().counters().launches, 0);
}

TEST_F(CudaStreamTest, AGraphReplaysItsOpsOnFixedBuffers) {
  const auto from = Staging(values_->size());
  const auto to = Staging(values_->size());
  stream_->BeginCapture();
  EXPECT_TRUE(stream_->capturing());
  stream_->Copy(values_->data(), from->data(), values_->size());
  Add(*stream_, *values_, 1);
  stream_->Copy(to->data(), values_->data(), values_->size());
  const auto graph = stream_->EndCapture();
  EXPECT_FALSE(stream_->capturing());
  EXPECT_EQ(graph->op_count(), 3u);
  stream_->Synchronize();
  EXPECT_EQ(EmulatorLibrary().counters().launches, 0) << "capturing runs nothing";
  for (int32_t round = 0; round < 3; ++round) {
    std::fill_n(from->as<int32_t>(), 3, 100 * round);
    stream_->Launch(*graph);
    stream_->Synchronize();
    EXPECT_THAT(std::vector(to->as<int32_t>(), to->as<int32_t>() + 3), Each(100 * round + 1));
  }
  const auto counters = EmulatorLibrary().counters();
  EXPECT_EQ(counters.graph_launches, 3);
  EXPECT_EQ(counters.captures, 1);
}

TEST_F(CudaStreamTest, AGraphMayContainGraphsAndMayEndBeforeItHasRun) {
  stream_->BeginCapture();
  Add(*stream_, *values_, 1);
  auto inner = stream_->EndCapture();
  stream_->BeginCapture();
  stream_->Launch(*inner);
  Add(*stream_, *values_, 10);
  stream_->Launch(*inner);
  auto outer = stream_->EndCapture();
  EXPECT_EQ(outer->op_count(), 3u);
  inner.reset();
  stream_->Launch(*outer);
  stream_->Launch(*outer);
  outer.reset();
  EXPECT_THAT(FromDevice<int32_t>(*stream_, values_->data(), 3), ElementsAre(25, 26, 27));
}

TEST_F(CudaStreamTest, AGraphWithoutOpsDoesNothing) {
  stream_->BeginCapture();
  const auto graph = stream_->EndCapture();
  EXPECT_EQ(graph->op_count(), 0u);
  stream_->Launch(*graph);
  stream_->Synchronize();
  EXPECT_TRUE(device_->Health().ok()) << device_->Health();
}

TEST_F(CudaStreamTest, AGraphIsNotLaunchedOnceItsStopIsTrue) {
  stream_->BeginCapture();
  Add(*stream_, *values_, 1);
  const auto graph = stream_->EndCapture();
  stream_->LaunchUntil(*graph, [] { return true; });
  stream_->LaunchUntil(*graph, [] { return false; });
  EXPECT_THAT(FromDevice<int32_t>(*stream_, values_->data(), 3), ElementsAre(2, 3, 4));
}

TEST_F(CudaStreamTest, AKernelMayUseMoreSharedMemoryThanTheDefault) {
  std::vector<int32_t> many(20'000);
  const auto values = ToDevice(*device_, many);
  const AddValueParams params{.values = values->as<int32_t>(), .count = 20'000, .value = 3};
  static_cast<CudaStream&>(*stream_).Launch("baton_test_add_value_shared",
                                            {.block = {128, 1, 1}, .shared_bytes = 80'000}, &params,
                                            sizeof(params));
  EXPECT_THAT(FromDevice<int32_t>(*stream_, values->data(), 20'000), Each(3));
  EXPECT_TRUE(device_->Health().ok()) << device_->Health();
}

TEST_F(CudaStreamTest, AWorkspaceIsZeroKeepsItsContentsAndStaysValidWhenItGrows) {
  auto& launcher = static_cast<CudaStream&>(*stream_);
  std::byte* const small = launcher.Workspace("a", 100);
  ASSERT_NE(small, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(small) % 256, 0u);
  const AddValueParams params{.values = reinterpret_cast<int32_t*>(small), .count = 25, .value = 1};
  stream_->BeginCapture();
  launcher.Launch("baton_test_add_value", kShape, &params, sizeof(params));
  const auto graph = stream_->EndCapture();
  stream_->Launch(*graph);
  EXPECT_EQ(launcher.Workspace("a", 60), small);
  EXPECT_NE(launcher.Workspace("b", 60), small);
  std::byte* const large = launcher.Workspace("a", 101);
  EXPECT_NE(large, small);
  EXPECT_EQ(launcher.Workspace("a", 200), large) << "it grows to at least twice its size";
  EXPECT_THAT(FromDevice<int32_t>(*stream_, large, 50), Each(0));
  stream_->Launch(*graph);
  EXPECT_THAT(FromDevice<int32_t>(*stream_, small, 25), Each(2));
}

TEST_F(CudaStreamTest, DestroyingAStreamWaitsForItsWork) {
  auto stream = device_->CreateStream();
  bool called = false;
  Add(*stream, *values_, 1);
  stream->Call([&] { called = true; });
  stream.reset();
  EXPECT_TRUE(called);
  EXPECT_EQ(EmulatorLibrary().counters().launches, 1);
}

// ---- Prepare ------------------------------------------------------------------------------------

TEST_F(CudaStreamTest, PrepareRunsNothingAndTakesTheScratchMemory) {
  auto& launcher = static_cast<CudaStream&>(*stream_);
  const absl::Status prepared = stream_->Prepare([&] {
    Add(*stream_, *values_, 10);
    EXPECT_NE(launcher.Workspace("test", 5000), nullptr);
    stream_->BeginCapture();
    Add(*stream_, *values_, 100);
    const auto graph = stream_->EndCapture();
    EXPECT_EQ(graph->op_count(), 0u);
    stream_->Launch(*graph);
    stream_->Copy(values_->data(), nullptr, 4);
  });
  EXPECT_TRUE(prepared.ok()) << prepared;
  const auto before = EmulatorLibrary().counters();
  EXPECT_EQ(before.captures, 0);
  EXPECT_NE(launcher.Workspace("test", 5000), nullptr);
  EXPECT_NE(launcher.Workspace("test", 10), nullptr);
  EXPECT_EQ(EmulatorLibrary().counters().allocations, before.allocations);
  EXPECT_THAT(FromDevice<int32_t>(*stream_, values_->data(), 3), ElementsAre(1, 2, 3));
  EXPECT_EQ(EmulatorLibrary().counters().launches, 0);
  EXPECT_TRUE(device_->Health().ok()) << device_->Health();
}

TEST_F(CudaStreamTest, PrepareReturnsWhatTheDeviceLacksAndTheStreamWorksOn) {
  auto& launcher = static_cast<CudaStream&>(*stream_);
  const auto launch = [&](uint32_t shared_bytes) {
    launcher.Launch("baton_test_add_value", {.shared_bytes = shared_bytes}, nullptr, 0);
  };
  EXPECT_EQ(stream_->Prepare([&] { launch(300'000); }),
            absl::InvalidArgumentError("kernel \"baton_test_add_value\" needs 300000 bytes of "
                                       "shared memory, but a thread block of emulated GPU has "
                                       "232448"));
  EXPECT_EQ(stream_->Prepare([&] { launcher.Launch("baton_absent", {}, nullptr, 0); }).code(),
            absl::StatusCode::kNotFound);
  const absl::Status too_much = stream_->Prepare([&] {
    EXPECT_EQ(launcher.Workspace("states", size_t{1} << 40), nullptr);
    launch(300'000);  // the first error counts
  });
  EXPECT_EQ(too_much.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(too_much.message()),
              AllOf(HasSubstr("states"), HasSubstr("1099511627776 bytes of device memory"),
                    HasSubstr("bytes are available")));
  EXPECT_TRUE(device_->Health().ok()) << device_->Health();
  Add(*stream_, *values_, 10);
  EXPECT_THAT(FromDevice<int32_t>(*stream_, values_->data(), 3), ElementsAre(11, 12, 13));
}

TEST(CudaStreamMemory, AGraphTakesItsDeviceMemoryWhenItIsCaptured) {
  const auto device = CreateEmulatedDevice();
  const auto stream = device->CreateStream();
  const auto values = ToDevice<int32_t>(*device, {1});
  stream->BeginCapture();
  const AddValueParams params{.values = values->as<int32_t>(), .count = 1, .value = 1};
  static_cast<CudaStream&>(*stream).Launch("baton_test_add_value", kShape, &params, sizeof(params));
  const int64_t before = device->Memory().available;
  const auto graph = stream->EndCapture();
  const int64_t after = device->Memory().available;
  EXPECT_LT(after, before);
  stream->Launch(*graph);
  stream->Synchronize();
  EXPECT_EQ(device->Memory().available, after);
}

}  // namespace
}  // namespace baton
