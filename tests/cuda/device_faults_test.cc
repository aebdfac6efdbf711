// Kernels that break a rule of CUDA which a CPU does not have. The emulator must report each.
#include <atomic>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/device_code.cuh"
#include "kernels/cuda/ptx.cuh"
#include "tests/cuda/misaligned_access_params.h"
#include "tests/cuda/run_kernel.h"
#include "tests/gpu_emulator/executor.h"
#include "tests/gpu_emulator/kernel_registry.h"
#include "tests/gpu_emulator/sanitizers.h"

namespace baton {
namespace {

using gpu_emulator::Executor;
using gpu_emulator::Kernel;
using testing::HasSubstr;

// ---- launches -----------------------------------------------------------------------------------

TEST(DeviceFaults, ALaunchAboveTheLaunchBoundsIsRefused) {
  const Kernel* kernel = gpu_emulator::FindKernel("baton_misaligned_access");
  ASSERT_NE(kernel, nullptr);
  EXPECT_EQ(kernel->most_threads, 1u);
  const MisalignedAccessParams params = {};
  Executor executor;
  const absl::Status status =
      executor.Run(*kernel, {{1, 1, 1}, {2, 1, 1}, 0}, &params, sizeof(params));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("a block has 2 threads, but __launch_bounds__ allows 1"));
}

TEST(DeviceFaults, EveryKernelHasLaunchBounds) {
  for (const Kernel* kernel : gpu_emulator::AllKernels()) {
    EXPECT_GE(kernel->most_threads, 1u) << kernel->name;
    EXPECT_LE(kernel->most_threads, 1024u) << kernel->name;
  }
}

// ---- misaligned accesses ------------------------------------------------------------------------

absl::Status CopyVector(int offset) {
  alignas(16) float from[8], to[8] = {};
  std::iota(from, from + 8, 1.0f);
  const MisalignedAccessParams params = {from, to, offset};
  Executor executor;
  absl::Status status = executor.Run(*gpu_emulator::FindKernel("baton_misaligned_access"),
                                     {{1, 1, 1}, {1, 1, 1}, 0}, &params, sizeof(params));
  if (status.ok() && to[offset + 3] != from[offset + 3]) status = absl::DataLossError("no copy");
  return status;
}

TEST(DeviceFaults, AlignedVectorsAreCopied) {
  EXPECT_EQ(CopyVector(0), absl::OkStatus());
  EXPECT_EQ(CopyVector(4), absl::OkStatus());
}

#ifdef BATON_EMULATOR_CHECKS_ALIGNMENT
TEST(DeviceFaults, AMisalignedVectorAccessIsAnErrorThatNamesItsLine) {
  const std::string message(CopyVector(1).message());
  EXPECT_THAT(message, HasSubstr("misaligned_access.cu:"));
  EXPECT_THAT(message, HasSubstr("which is no multiple of 16"));
  EXPECT_EQ(CopyVector(4), absl::OkStatus());  // the emulator goes on
}
#elif defined(BATON_EMULATOR_ASAN)
TEST(DeviceFaults, AMisalignedVectorAccessIsFoundByUndefinedBehaviorSanitizer) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH((void)CopyVector(1), "misaligned address(.|\n)*float4");
}
#endif

struct AtomicParams {
  unsigned char* bytes;
};

void AccessesAtomically(const AtomicParams p) {
  atomicAdd(reinterpret_cast<unsigned long long*>(p.bytes), 1ull);
}

TEST(DeviceFaults, AMisalignedAtomicOperationIsAnError) {
  alignas(16) unsigned char bytes[16] = {};
  Executor executor;
  const auto run = [&](int offset) {
    return std::string(RunAsKernel<&AccessesAtomically>(executor, {{1, 1, 1}, {1, 1, 1}, 0},
                                                        AtomicParams{bytes + offset})
                           .message());
  };
  EXPECT_EQ(run(8), "");
  EXPECT_THAT(run(4), HasSubstr("atomicAdd at an address that is no multiple of 8"));
}

// ---- the end of a launch that fails -------------------------------------------------------------

// Atomic, because threads of a launch count without a barrier between them.
struct CountParams {
  std::atomic<int>* begun;
  std::atomic<int>* ended;
};

// What a thread owns on its stack.
class Counted {
 public:
  explicit Counted(const CountParams& p) : p_(p) { ++*p_.begun; }
  ~Counted() { ++*p_.ended; }

 private:
  const CountParams& p_;
};

void TrapsInOneThread(const CountParams p) {
  const Counted counted(p);
  if (threadIdx.x == 40) __trap();
  __syncthreads();
}

void WaitsForever(const CountParams p) {
  const Counted counted(p);
  if (threadIdx.x == 40) return;
  SyncNamedBarrier(1, 64);
}

TEST(DeviceFaults, AFailedLaunchFreesWhatItsThreadsOwn) {
  for (gpu_emulator::ExecutionOrder order :
       {gpu_emulator::ExecutionOrder::kForward, gpu_emulator::ExecutionOrder::kReverse}) {
    Executor executor({.order = order, .resident_blocks = 2});
    std::atomic<int> begun = 0, ended = 0;
    const CountParams params = {&begun, &ended};
    const LaunchShape shape = {{3, 1, 1}, {64, 1, 1}, 0};
    EXPECT_THAT(std::string(RunAsKernel<&TrapsInOneThread>(executor, shape, params).message()),
                HasSubstr("__trap"));
    EXPECT_GT(begun.load(), 1);
    EXPECT_EQ(begun.load(), ended.load());
    EXPECT_THAT(std::string(RunAsKernel<&WaitsForever>(executor, shape, params).message()),
                HasSubstr("no thread can continue"));
    EXPECT_EQ(begun.load(), ended.load());
  }
}

}  // namespace
}  // namespace baton
