// Kernels that touch memory before WaitForEarlierKernels, or never call it: the emulator must find
// them (tests/gpu_emulator/early_kernels.h).
#include "tests/gpu_emulator/early_kernels.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "common/check.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/kernel_order.cuh"
#include "tests/cuda/add_value_params.h"
#include "tests/cuda/emulator_library.h"
#include "tests/gpu_emulator/executor.h"
#include "tests/gpu_emulator/kernel_registry.h"

namespace baton {
namespace {

using gpu_emulator::CopyLanding;
using gpu_emulator::EarlyStart;
using gpu_emulator::ExecutionOrder;
using gpu_emulator::Executor;
using gpu_emulator::Primitive;
using testing::HasSubstr;

struct EarlyParams {
  int* values;           // [256]
  const int* constants;  // [4], aligned to 16
  unsigned* counter;
};

// Memory that is closed when a kernel begins, as the emulated driver's is.
class ClosedMemory {
 public:
  ClosedMemory() {
    gpu_emulator::CatchEarlyAccesses();
    memory_ = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory_ != MAP_FAILED);
    for (int i = 0; i < 4; ++i) constants()[i] = 10 + i;
  }
  ~ClosedMemory() { munmap(memory_, kBytes); }
  ClosedMemory(const ClosedMemory&) = delete;
  ClosedMemory& operator=(const ClosedMemory&) = delete;

  int* values() { return static_cast<int*>(memory_); }
  int* constants() { return values() + 256; }
  EarlyParams params() {
    return {values(), constants(), reinterpret_cast<unsigned*>(values() + 512)};
  }
  template <auto kKernel>
  absl::Status Run(const LaunchShape& shape, const gpu_emulator::ExecutionRules& rules = {}) {
    static const gpu_emulator::Kernel kernel = {"kernel", sizeof(EarlyParams),
                                                &gpu_emulator::RunKernel<EarlyParams, kKernel>};
    Protect(PROT_NONE);
    const EarlyStart early = {[this] {
      ++opened;
      Protect(PROT_READ | PROT_WRITE);
    }};
    const EarlyParams parameters = params();
    Executor executor(rules);
    absl::Status status = executor.Run(kernel, shape, &parameters, sizeof(parameters), &early);
    Protect(PROT_READ | PROT_WRITE);
    return status;
  }

  int opened = 0;

 private:
  static constexpr size_t kBytes = 4096;
  void Protect(int rights) { CHECK(mprotect(memory_, kBytes, rights) == 0); }

  void* memory_ = nullptr;
};

constexpr LaunchShape kShape = {.grid = {3, 1, 1}, .block = {64, 1, 1}, .shared_bytes = 64};

void Waits(const EarlyParams p) {
  int* const shared = SharedMemory<int>();
  if (threadIdx.x < 16) shared[threadIdx.x] = 2;
  __syncthreads();
  BeginKernel();
  p.values[blockIdx.x * 64 + threadIdx.x] += shared[threadIdx.x % 16];
}

TEST(EarlyKernels, ATouchOfMemoryAfterTheWaitIsRight) {
  for (const ExecutionOrder order :
       {ExecutionOrder::kForward, ExecutionOrder::kReverse, ExecutionOrder::kSeeded}) {
    for (const int resident : {1, 3}) {
      ClosedMemory memory;
      EXPECT_EQ(memory.Run<&Waits>(kShape, {.order = order, .resident_blocks = resident}),
                absl::OkStatus());
      EXPECT_EQ(memory.opened, 1);
      for (int i = 0; i < 192; ++i) EXPECT_EQ(memory.values()[i], 2);
    }
  }
}

void ReadsEarly(const EarlyParams p) {
  const int value = p.values[threadIdx.x];
  BeginKernel();
  p.values[threadIdx.x] = value + 1;
}
void WritesEarly(const EarlyParams p) {
  if (threadIdx.x == 40) p.values[threadIdx.x] = 1;
  BeginKernel();
}
// The warp that does not wait touches memory while the others are in the wait.
void OneWarpReadsEarly(const EarlyParams p) {
  if (threadIdx.x < 32) {
    BeginKernel();
  } else {
    __syncwarp();
    const volatile int value = p.values[threadIdx.x];
    (void)value;
    BeginKernel();
  }
}

TEST(EarlyKernels, AnAccessBeforeTheWaitIsAnError) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP()
      << "not run: the emulator's exception cannot leave code that a sanitizer instruments";
#endif
  const auto is_early = HasSubstr("before WaitForEarlierKernels");
  ClosedMemory memory;
  for (int i = 0; i < 3; ++i) {  // the process goes on
    EXPECT_THAT(memory.Run<&ReadsEarly>(kShape).ToString(),
                testing::AllOf(is_early, HasSubstr("an access to device memory at")));
    EXPECT_THAT(memory.Run<&WritesEarly>(kShape).ToString(), is_early);
    EXPECT_THAT(memory.Run<&OneWarpReadsEarly>(kShape).ToString(), is_early);
  }
  EXPECT_EQ(memory.opened, 0);
  for (int i = 0; i < 64; ++i) EXPECT_EQ(memory.values()[i], 0);
}

void NeverWaits(const EarlyParams) {}
void OneLaneNeverWaits(const EarlyParams) {
  if (threadIdx.x != 33) BeginKernel();
}
void OneBlockNeverWaits(const EarlyParams) {
  if (blockIdx.x != 2) BeginKernel();
}

TEST(EarlyKernels, AThreadThatNeverWaitsIsAnError) {
  const auto ends = HasSubstr("the end of the thread before WaitForEarlierKernels");
  ClosedMemory memory;
  EXPECT_THAT(memory.Run<&NeverWaits>(kShape).ToString(), ends);
  EXPECT_THAT(memory.Run<&OneLaneNeverWaits>(kShape).ToString(), ends);
  EXPECT_THAT(memory.Run<&OneBlockNeverWaits>(kShape).ToString(), ends);
}

void CopiesEarly(const EarlyParams p) {
  if (blockIdx.x == 1 && threadIdx.x < 4) CopyAsync16(SharedMemory<int>(), p.constants);
  BeginKernel();
}
void AddsEarly(const EarlyParams p) {
  if (blockIdx.x == 1 && threadIdx.x == 0) atomicAdd(p.counter, 1u);
  BeginKernel();
}
// Copies to shared memory as a kernel for Hopper does.
template <bool kConstant>
void CopiesInBulk(const EarlyParams p) {
  auto* const full = SharedMemory<uint64_t>();
  int* const to = SharedMemory<int>() + 4;
  if (threadIdx.x == 0) {
    InitBarrier(full, 1);
    FenceBarrierInit();
    ArriveAndExpect(full, 16);
    if (kConstant) {
      LoadConstantBulk(to, p.constants, 16, full);
    } else {
      LoadBulk(to, p.constants, 16, full);
    }
  }
  WaitForEarlierKernels();
  __syncthreads();
  WaitBarrier(full, 0);
  p.values[blockIdx.x * 64 + threadIdx.x] = to[threadIdx.x % 4];
}

TEST(EarlyKernels, ACopyOrAtomicOperationBeforeTheWaitIsAnErrorInEveryBlock) {
  ClosedMemory memory;
  EXPECT_THAT(memory.Run<&CopiesEarly>(kShape).ToString(),
              HasSubstr("CopyAsync16 before WaitForEarlierKernels"));
  EXPECT_THAT(memory.Run<&AddsEarly>(kShape).ToString(),
              HasSubstr("atomicAdd before WaitForEarlierKernels"));
  EXPECT_THAT(memory.Run<&CopiesInBulk<false>>(kShape).ToString(),
              HasSubstr("LoadBulk before WaitForEarlierKernels"));
}

TEST(EarlyKernels, AConstantMayBeCopiedBeforeTheWait) {
  for (const CopyLanding landing : {CopyLanding::kLate, CopyLanding::kEarly}) {
    ClosedMemory memory;
    EXPECT_EQ(memory.Run<&CopiesInBulk<true>>(kShape, {.landing = landing}), absl::OkStatus());
    for (int i = 0; i < 192; ++i) EXPECT_EQ(memory.values()[i], 10 + i % 4);
  }
}

// Of a thread that waits for another one, which is in WaitForEarlierKernels.
void WaitsForAWaitingThread(const EarlyParams p) {
  auto* const done = SharedMemory<uint64_t>();
  if (threadIdx.x == 0) {
    InitBarrier(done, 1);
    FenceBarrierInit();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    BeginKernel();
    p.values[blockIdx.x] = 7;
    ArriveBarrier(done);
    return;
  }
  WaitBarrier(done, 0);
  BeginKernel();
}

TEST(EarlyKernels, MemoryOpensIfAThreadCannotReachItsWaitWithoutAnother) {
  ClosedMemory memory;
  EXPECT_EQ(memory.Run<&WaitsForAWaitingThread>(kShape), absl::OkStatus());
  EXPECT_EQ(memory.values()[0], 7);
}

// ---- on the emulated driver ---------------------------------------------------------------------

void Add(Stream& stream, DeviceBuffer& values) {
  const AddValueParams params{.values = values.as<int32_t>(), .count = 3, .value = 1};
  dynamic_cast<KernelLauncher&>(stream).Launch("baton_test_add_value", {.block = {64, 1, 1}},
                                               &params, sizeof(params));
}

std::string PlaceOfTheWait() {
  int32_t values[3] = {};
  const AddValueParams params{.values = values, .count = 3, .value = 1};
  Executor executor;
  CHECK(executor
            .Run(*gpu_emulator::FindKernel("baton_test_add_value"), {.block = {64, 1, 1}}, &params,
                 sizeof(params))
            .ok());
  CHECK(executor.places(Primitive::kKernelWait).size() == 1);
  return executor.places(Primitive::kKernelWait)[0];
}

// Runs three kernels, in a graph or not, on a device whose kernels lack the wait if `skipped`.
absl::Status RunOnDevice(bool graph, bool skipped) {
  gpu_emulator::EmulatorSettings settings;
  if (skipped) settings.rules.skipped = {Primitive::kKernelWait, PlaceOfTheWait()};
  const auto device = CreateEmulatedDevice(settings);
  const auto stream = device->CreateStream();
  const auto values = ToDevice<int32_t>(*device, {1, 2, 3});
  if (graph) stream->BeginCapture();
  for (int i = 0; i < 3; ++i) Add(*stream, *values);
  if (graph) stream->Launch(*stream->EndCapture());
  stream->Synchronize();
  if (device->Health().ok()) {
    EXPECT_EQ(FromDevice<int32_t>(*stream, values->data(), 1)[0], 4);
  }
  return device->Health();
}

TEST(EarlyKernels, TheDriverFindsAKernelWithoutItsWait) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP()
      << "not run: the emulator's exception cannot leave code that a sanitizer instruments";
#endif
  for (const bool graph : {false, true}) {
    EXPECT_EQ(RunOnDevice(graph, /*skipped=*/false), absl::OkStatus());
    EXPECT_FALSE(RunOnDevice(graph, /*skipped=*/true).ok());
  }
}

TEST(EarlyKernels, NoKernelBeginsEarlyOnOtherGpusOrIfTheEnvironmentSaysSo) {
  const auto early_launches = [](int compute_capability) {
    const auto device =
        CreateEmulatedDevice(gpu_emulator::SettingsOfCapability(compute_capability));
    const auto stream = device->CreateStream();
    const auto values = ToDevice<int32_t>(*device, {1, 2, 3});
    for (int i = 0; i < 3; ++i) Add(*stream, *values);
    EXPECT_EQ(FromDevice<int32_t>(*stream, values->data(), 1)[0], 4);
    return EmulatorLibrary().counters().early_launches;
  };
  EXPECT_EQ(early_launches(90), 2);
  EXPECT_EQ(early_launches(120), 0);
  EXPECT_EQ(early_launches(89), 0);
  ASSERT_EQ(setenv("BATON_EARLY_KERNELS", "0", 1), 0);
  EXPECT_EQ(early_launches(90), 0);
  ASSERT_EQ(setenv("BATON_EARLY_KERNELS", "1", 1), 0);
  EXPECT_EQ(early_launches(90), 2);
  ASSERT_EQ(unsetenv("BATON_EARLY_KERNELS"), 0);
}

TEST(EarlyKernels, ALaunchThatMayBeginEarlyIsRefusedByOlderGpus) {
  for (const int compute_capability : {80, 90}) {
    const auto device =
        CreateEmulatedDevice(gpu_emulator::SettingsOfCapability(compute_capability));
    const CudaDriver driver = *LoadCudaDriver({EmulatorLibrary::Path()});
    CuStream stream = nullptr;
    CuModule module = nullptr;
    CuFunction function = nullptr;
    const void* const* images = nullptr;
    SharedLibrary({EmulatorLibrary::Path()}).Find("baton_cuda_images", images);
    ASSERT_EQ(driver.StreamCreate(&stream, kCuStreamNonBlocking), kCuSuccess);
    ASSERT_EQ(driver.ModuleLoadData(&module, images[0]), kCuSuccess);
    ASSERT_EQ(driver.ModuleGetFunction(&function, module, "baton_test_add_value"), kCuSuccess);
    AddValueParams params = {.values = nullptr, .count = 0, .value = 1};
    void* pointers[] = {&params};
    CuLaunchAttribute early;
    CuLaunchConfig config = {.stream = stream, .attributes = &early, .attribute_count = 1};
    EXPECT_EQ(driver.LaunchKernelEx(&config, function, pointers, nullptr),
              compute_capability == 90 ? kCuSuccess : kCuNotSupported);
    early.allowed = 0;
    EXPECT_EQ(driver.LaunchKernelEx(&config, function, pointers, nullptr), kCuSuccess);
    early.id = static_cast<CuLaunchAttributeId>(4);
    EXPECT_EQ(driver.LaunchKernelEx(&config, function, pointers, nullptr), kCuInvalidValue);
    EXPECT_EQ(driver.StreamDestroy(stream), kCuSuccess);
  }
}

}  // namespace
}  // namespace baton
