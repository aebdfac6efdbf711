// What the emulated GPU must catch: each test makes a mistake that a real GPU may forgive.
#include "tests/gpu_emulator/emulated_driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "common/shared_library.h"
#include "kernels/cuda/cuda_stream.h"
#include "tests/cuda/add_value_params.h"
#include "tests/cuda/emulator_library.h"

namespace baton {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

class EmulatedDriver : public testing::Test {
 protected:
  // The tests have threads, so a death test runs in a new process.
  EmulatedDriver() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  void Add(void* values, int64_t count) {
    const AddValueParams params{
        .values = static_cast<int32_t*>(values), .count = count, .value = 1};
    static_cast<CudaStream&>(*stream_).Launch("baton_test_add_value", {.block = {64, 1, 1}},
                                              &params, sizeof(params));
  }

  const std::unique_ptr<Device> device_ = CreateEmulatedDevice();
  const std::unique_ptr<Stream> stream_ = device_->CreateStream();
  const CudaDriver driver_ = *LoadCudaDriver({EmulatorLibrary::Path()});
};
using EmulatedDriverDeathTest = EmulatedDriver;

TEST_F(EmulatedDriverDeathTest, TheHostCannotReadOrWriteDeviceMemory) {
  const auto values = ToDevice<int32_t>(*device_, {1, 2, 3});
  EXPECT_DEATH(*static_cast<volatile int32_t*>(values->as<int32_t>()), "");
  EXPECT_DEATH(*static_cast<volatile int32_t*>(values->as<int32_t>()) = 1, "");
  Add(values->data(), 3);
  stream_->Synchronize();
  EXPECT_DEATH(*static_cast<volatile int32_t*>(values->as<int32_t>()), "")
      << "memory is closed again after work has run";
}

TEST_F(EmulatedDriverDeathTest, AKernelCannotWriteBehindABuffer) {
  const auto values = ToDevice<int32_t>(*device_, std::vector<int32_t>(256));
  EXPECT_DEATH(
      {
        Add(values->data(), 257);
        stream_->Synchronize();
      },
      "");
}

TEST_F(EmulatedDriver, ALaunchAboveTheLaunchBoundsIsAnError) {
  const auto values = ToDevice<int32_t>(*device_, {1, 2, 3});
  const AddValueParams params{.values = values->as<int32_t>(), .count = 3, .value = 1};
  auto& stream = static_cast<CudaStream&>(*stream_);
  stream.Launch("baton_test_add_value", {.block = {128, 1, 1}}, &params, sizeof(params));
  EXPECT_TRUE(device_->Health().ok()) << device_->Health();
  stream.Launch("baton_test_add_value", {.block = {129, 1, 1}}, &params, sizeof(params));
  EXPECT_FALSE(device_->Health().ok()) << "its __launch_bounds__ are 128";
}

TEST_F(EmulatedDriverDeathTest, AKernelCannotUseAFreedBuffer) {
  auto values = ToDevice<int32_t>(*device_, {1, 2, 3});
  void* const address = values->data();
  values.reset();
  EXPECT_DEATH(
      {
        Add(address, 3);
        stream_->Synchronize();
      },
      "");
}

TEST_F(EmulatedDriver, ALaunchWithAPointerToPageableMemoryIsRefused) {
  const auto values = ToDevice<int32_t>(*device_, std::vector<int32_t>(64));
  const auto pinned = device_->AllocateStaging(256, "test");
  ASSERT_TRUE(pinned.ok());
  Add(values->data(), 64);
  Add((*pinned)->data(), 64);
  Add(values->as<int32_t>() + 64, 0);  // the end of a buffer
  Add((*pinned)->data() + 256, 0);
  Add(nullptr, 0);
  stream_->Synchronize();
  EXPECT_TRUE(device_->Health().ok()) << device_->Health();
  std::vector<int32_t> pageable(64);
  Add(pageable.data(), 64);
  EXPECT_THAT(std::string(device_->Health().message()), testing::HasSubstr("ILLEGAL_ADDRESS"));
  EXPECT_EQ(pageable[0], 0);
}

TEST_F(EmulatedDriverDeathTest, AKernelCannotUseARangeThatIsNotPopulated) {
  const auto buffer = device_->Reserve(8 * kMiB, "test", false);
  ASSERT_TRUE(buffer.ok() && (*buffer)->Populate(0, 2 * kMiB).ok());
  Add((*buffer)->data(), 1);
  stream_->Synchronize();
  EXPECT_DEATH(
      {
        Add((*buffer)->data() + 2 * kMiB, 1);
        stream_->Synchronize();
      },
      "");
}

TEST_F(EmulatedDriver, NewMemoryOfTheDriverIsNotZero) {
  CuDevicePointer memory = 0;
  ASSERT_EQ(driver_.MemAlloc(&memory, 100), kCuSuccess);
  EXPECT_THAT(FromDevice<uint8_t>(*stream_, reinterpret_cast<void*>(memory), 100),
              testing::Each(0xff));
  EXPECT_EQ(driver_.MemFree(memory), kCuSuccess);
  EXPECT_EQ(driver_.MemFree(memory), kCuInvalidValue);
}

TEST_F(EmulatedDriver, ACopyBeyondABufferIsRefused) {
  const auto values = ToDevice<int32_t>(*device_, {1, 2, 3});
  std::vector<int32_t> host(4);
  stream_->Copy(host.data(), values->data(), 13);
  EXPECT_FALSE(device_->Health().ok());
}

TEST_F(EmulatedDriver, ACopyIntoARangeThatIsNotPopulatedIsRefused) {
  const auto buffer = device_->Reserve(8 * kMiB, "test", false);
  ASSERT_TRUE(buffer.ok() && (*buffer)->Populate(0, 4 * kMiB).ok());
  const auto from = device_->Allocate(4 * kMiB, "test");
  ASSERT_TRUE(from.ok());
  stream_->Copy((*buffer)->data(), (*from)->data(), 4 * kMiB);  // two granules
  EXPECT_TRUE(device_->Health().ok()) << device_->Health();
  stream_->Copy((*buffer)->data(), (*from)->data(), 4 * kMiB + 1);
  EXPECT_FALSE(device_->Health().ok());
}

TEST_F(EmulatedDriver, AThreadWithoutTheContextIsRefused) {
  driver_.CtxSetCurrent(nullptr);
  CuStream stream = nullptr;
  EXPECT_EQ(driver_.StreamCreate(&stream, 0), kCuInvalidContext);
  const auto buffer = device_->Allocate(1, "test");  // enters the context itself
  EXPECT_TRUE(buffer.ok()) << buffer.status();
}

TEST_F(EmulatedDriver, ASynchronisationInvalidatesACapture) {
  CuStream stream = nullptr;
  CuGraph graph = nullptr;
  ASSERT_EQ(driver_.StreamCreate(&stream, kCuStreamNonBlocking), kCuSuccess);
  ASSERT_EQ(driver_.StreamBeginCapture(stream, kCuCaptureRelaxed), kCuSuccess);
  EXPECT_EQ(driver_.StreamSynchronize(stream), kCuStreamCaptureUnsupported);
  EXPECT_EQ(driver_.StreamEndCapture(stream, &graph), kCuStreamCaptureInvalidated);
  EXPECT_EQ(driver_.StreamEndCapture(stream, &graph), kCuStreamCaptureUnmatched);

  CuDevicePointer memory = 0;
  ASSERT_EQ(driver_.StreamBeginCapture(stream, kCuCaptureRelaxed), kCuSuccess);
  EXPECT_EQ(driver_.MemAlloc(&memory, 1), kCuStreamCaptureUnsupported);
  EXPECT_EQ(driver_.StreamEndCapture(stream, &graph), kCuStreamCaptureInvalidated);
  EXPECT_EQ(driver_.StreamDestroy(stream), kCuSuccess);
}

TEST_F(EmulatedDriver, UnknownHandlesAreRefused) {
  const auto stream = reinterpret_cast<CuStream>(uintptr_t{0x1000});
  EXPECT_EQ(driver_.StreamQuery(stream), kCuInvalidHandle);
  EXPECT_EQ(driver_.StreamDestroy(stream), kCuInvalidHandle);
  EXPECT_EQ(driver_.EventQuery(reinterpret_cast<CuEvent>(stream)), kCuInvalidHandle);
  EXPECT_EQ(driver_.GraphDestroy(reinterpret_cast<CuGraph>(stream)), kCuInvalidHandle);
}

TEST_F(EmulatedDriver, AShareOfSharedMemoryIsAPercentageOrTheDriversChoice) {
  SharedLibrary library({EmulatorLibrary::Path()});
  const void* const* images = nullptr;
  library.Find("baton_cuda_images", images);
  ASSERT_TRUE(library.status().ok()) << library.status();
  CuModule module = nullptr;
  CuFunction function = nullptr;
  ASSERT_EQ(driver_.ModuleLoadData(&module, images[0]), kCuSuccess);
  ASSERT_EQ(driver_.ModuleGetFunction(&function, module, "baton_test_add_value"), kCuSuccess);
  for (const int percent : {-1, 0, 50, 100}) {
    EXPECT_EQ(driver_.FuncSetAttribute(function, kCuSharedCarveout, percent), kCuSuccess);
  }
  for (const int percent : {-2, 101}) {
    EXPECT_EQ(driver_.FuncSetAttribute(function, kCuSharedCarveout, percent), kCuInvalidValue);
  }
  EXPECT_EQ(driver_.FuncSetAttribute(function, static_cast<CuFunctionAttribute>(7), 1),
            kCuInvalidValue);
  EXPECT_EQ(driver_.ModuleUnload(module), kCuSuccess);
}

TEST_F(EmulatedDriver, EveryKernelPrefersTheMostSharedMemory) {
  const EmulatorLibrary emulator;
  const auto values = ToDevice<int32_t>(*device_, {1, 2, 3});
  const int64_t before = emulator.counters().most_shared;
  for (int i = 0; i < 2; ++i) Add(values->data(), 3);
  stream_->Synchronize();
  EXPECT_EQ(emulator.counters().most_shared, before + 1) << "once for each kernel";
}

TEST_F(EmulatedDriver, ACallWaitsWhileItsStreamsQueueIsFull) {
  const EmulatorLibrary emulator;
  const auto values = ToDevice<int32_t>(*device_, {0});
  const auto depth = static_cast<int>(gpu_emulator::EmulatorSettings().queue_depth);
  for (int i = 0; i < depth; ++i) Add(values->data(), 1);
  EXPECT_EQ(emulator.counters().full_queues, 0);
  EXPECT_EQ(emulator.counters().launches, 0) << "nothing forced the work to run";
  Add(values->data(), 1);
  EXPECT_EQ(emulator.counters().full_queues, 1);
  EXPECT_GE(emulator.counters().launches, 1);
  EXPECT_EQ(FromDevice<int32_t>(*stream_, values->data(), 1)[0], depth + 1);
}

TEST_F(EmulatedDriver, AQueryNeverWaitsAndIsAnsweredInTheEnd) {
  const auto values = ToDevice<int32_t>(*device_, {1, 2, 3});
  const auto event = device_->CreateEvent();
  int not_done = 0;
  for (int round = 0; round < 10; ++round) {
    Add(values->data(), 3);
    stream_->Record(*event);
    while (!event->Done()) ++not_done;
  }
  EXPECT_GE(not_done, 10) << "work never runs before it is asked for";
}

TEST_F(EmulatedDriver, MemoryOfAHandleRemainsUntilItIsUnmapped) {
  size_t free = 0;
  size_t total = 0;
  const auto free_mib = [&] {
    EXPECT_EQ(driver_.MemGetInfo(&free, &total), kCuSuccess);
    return free / kMiB;
  };
  const size_t before = free_mib();
  CuDevicePointer range = 0;
  CuMemoryHandle handle = 0;
  const CuAllocationProperties properties;
  const CuAccess access;
  ASSERT_EQ(driver_.MemAddressReserve(&range, 4 * kMiB, 2 * kMiB, 0, 0), kCuSuccess);
  ASSERT_EQ(driver_.MemCreate(&handle, 2 * kMiB, &properties, 0), kCuSuccess);
  EXPECT_EQ(driver_.MemMap(range + kMiB, 2 * kMiB, 0, handle, 0), kCuInvalidValue);
  EXPECT_EQ(driver_.MemMap(range + 4 * kMiB, 2 * kMiB, 0, handle, 0), kCuInvalidValue);
  ASSERT_EQ(driver_.MemMap(range + 2 * kMiB, 2 * kMiB, 0, handle, 0), kCuSuccess);
  EXPECT_EQ(driver_.MemMap(range, 2 * kMiB, 0, handle, 0), kCuInvalidValue) << "mapped already";
  EXPECT_EQ(driver_.MemAddressFree(range, 4 * kMiB), kCuInvalidValue) << "still mapped";
  EXPECT_EQ(driver_.MemSetAccess(range, 2 * kMiB, &access, 1), kCuInvalidValue);
  EXPECT_EQ(driver_.MemSetAccess(range + 2 * kMiB, 2 * kMiB, &access, 1), kCuSuccess);
  EXPECT_EQ(driver_.MemRelease(handle), kCuSuccess);
  EXPECT_EQ(free_mib(), before - 2);
  EXPECT_EQ(driver_.MemUnmap(range + 2 * kMiB, 2 * kMiB), kCuSuccess);
  EXPECT_EQ(free_mib(), before);
  EXPECT_EQ(driver_.MemAddressFree(range, 4 * kMiB), kCuSuccess);
}

// Work of another library on two streams of the driver.
class ExternalWorkTest : public EmulatedDriver {
 protected:
  ExternalWorkTest() {
    for (CuStream* const stream : {&one_, &other_}) {
      EXPECT_EQ(driver_.StreamCreate(stream, kCuStreamNonBlocking), kCuSuccess);
    }
  }
  ~ExternalWorkTest() override {
    for (const CuStream stream : {one_, other_}) driver_.StreamDestroy(stream);
  }

  // Enqueues work on `one_` that ends when it is polled while `done_`.
  CuResult Enqueue() {
    return EmulatorLibrary().Enqueue(one_,
                                     {.memory = reinterpret_cast<CuDevicePointer>(values_->data()),
                                      .bytes = 2 * sizeof(int32_t),
                                      .poll = [this](bool begins) {
                                        begun_ += begins;
                                        ++polls_;
                                        if (!done_) return kCuNotReady;
                                        values_->as<int32_t>()[0] += 10;  // device memory is open
                                        return kCuSuccess;
                                      }});
  }
  void Set(size_t index, unsigned char value, CuStream stream) {
    ASSERT_EQ(
        driver_.MemsetD8Async(reinterpret_cast<CuDevicePointer>(values_->as<int32_t>() + index),
                              value, sizeof(int32_t), stream),
        kCuSuccess);
  }
  std::vector<int32_t> Values() { return FromDevice<int32_t>(*stream_, values_->data(), 2); }

  const std::unique_ptr<DeviceBuffer> values_ = ToDevice<int32_t>(*device_, {1, 2});
  CuStream one_ = nullptr, other_ = nullptr;
  std::atomic<bool> done_ = false;
  std::atomic<int> begun_ = 0, polls_ = 0;
};

TEST_F(ExternalWorkTest, ItDelaysItsStreamAndNoOther) {
  ASSERT_EQ(Enqueue(), kCuSuccess);
  Set(1, 0, one_);
  EXPECT_EQ(Values(), (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(polls_, 0) << "nothing has waited for its stream";
  while (polls_ < 3) EXPECT_EQ(driver_.StreamQuery(one_), kCuNotReady);
  EXPECT_EQ(Values(), (std::vector<int32_t>{1, 2}));
  done_ = true;
  EXPECT_EQ(driver_.StreamSynchronize(one_), kCuSuccess);
  EXPECT_EQ(Values(), (std::vector<int32_t>{11, 0}));
  EXPECT_EQ(begun_, 1);
}

TEST_F(ExternalWorkTest, ACapturedOneRunsOnceForEachLaunchOfItsGraph) {
  CuGraph graph = nullptr;
  CuGraphExec exec = nullptr;
  ASSERT_EQ(driver_.StreamBeginCapture(one_, kCuCaptureRelaxed), kCuSuccess);
  Set(0, 0, one_);
  ASSERT_EQ(Enqueue(), kCuSuccess);
  ASSERT_EQ(driver_.StreamEndCapture(one_, &graph), kCuSuccess);
  ASSERT_EQ(driver_.GraphInstantiate(&exec, graph, 0), kCuSuccess);
  for (int launch = 1; launch <= 3; ++launch) {
    done_ = false;
    ASSERT_EQ(driver_.GraphLaunch(exec, one_), kCuSuccess);
    for (const int before = polls_; polls_ < before + 2;) driver_.StreamQuery(one_);
    done_ = true;
    EXPECT_EQ(driver_.StreamSynchronize(one_), kCuSuccess);
    EXPECT_EQ(begun_, launch);
    EXPECT_EQ(Values(), (std::vector<int32_t>{10, 2})) << "the node before it ran once";
  }
  driver_.GraphExecDestroy(exec);
  driver_.GraphDestroy(graph);
}

TEST_F(ExternalWorkTest, ItsErrorIsTheDevices) {
  ASSERT_EQ(EmulatorLibrary().Enqueue(other_,
                                      {.memory = reinterpret_cast<CuDevicePointer>(values_->data()),
                                       .bytes = 1,
                                       .poll = [](bool) { return kCuLaunchFailed; }}),
            kCuSuccess);
  EXPECT_EQ(driver_.StreamSynchronize(other_), kCuLaunchFailed);
  EXPECT_EQ(driver_.StreamSynchronize(one_), kCuLaunchFailed);
}

TEST_F(ExternalWorkTest, MemoryOfTheHostIsRefused) {
  int32_t on_host = 0;
  EXPECT_EQ(EmulatorLibrary().Enqueue(one_, {.memory = reinterpret_cast<CuDevicePointer>(&on_host),
                                             .bytes = sizeof(on_host),
                                             .poll = [](bool) { return kCuSuccess; }}),
            kCuInvalidValue);
}

}  // namespace
}  // namespace baton
