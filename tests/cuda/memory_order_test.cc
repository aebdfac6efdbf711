// Which fences order accesses of which threads, and the read-only cache. ThreadSanitizer is the
// oracle, so builds without it check the results only.
#include <cstdlib>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/ptx.cuh"
#include "tests/cuda/run_kernel.h"
#include "tests/gpu_emulator/executor.h"
#include "tests/gpu_emulator/sanitizers.h"

namespace baton {
namespace {

using gpu_emulator::Executor;

enum class Scope { kBlock, kDevice };

struct PassParams {
  int* value;
  unsigned* flag;
  int* out;
  Scope writer, reader;  // of their fences
};

__device__ void FenceOf(Scope scope) {
  if (scope == Scope::kBlock) __threadfence_block();
  if (scope == Scope::kDevice) __threadfence();
}

// The grid's first thread writes a value, its last thread reads it.
void PassesAValue(const PassParams p) {
  const bool first = blockIdx.x == 0 && threadIdx.x == 0;
  const bool last = blockIdx.x == gridDim.x - 1 && threadIdx.x == blockDim.x - 1;
  if (first) {
    *p.value = 7;
    FenceOf(p.writer);
    atomicExch(p.flag, 1u);
  }
  if (last) {
    while (atomicAdd(p.flag, 0u) == 0) {
    }
    FenceOf(p.reader);
    *p.out = *p.value;
  }
}

int PassedValue(uint32_t blocks, uint32_t threads, Scope writer, Scope reader) {
  int value = 0, out = 0;
  unsigned flag = 0;
  Executor executor({.resident_blocks = 2});
  const absl::Status status =
      RunAsKernel<&PassesAValue>(executor, {{blocks, 1, 1}, {threads, 1, 1}, 0},
                                 PassParams{&value, &flag, &out, writer, reader});
  return status.ok() ? out : -1;
}

TEST(MemoryOrder, ADeviceFenceReachesAllThreadsAndABlockFenceItsBlock) {
  EXPECT_EQ(PassedValue(2, 1, Scope::kDevice, Scope::kDevice), 7);
  EXPECT_EQ(PassedValue(1, 64, Scope::kDevice, Scope::kDevice), 7);
  EXPECT_EQ(PassedValue(1, 64, Scope::kBlock, Scope::kBlock), 7);
  EXPECT_EQ(PassedValue(1, 64, Scope::kDevice, Scope::kBlock), 7);
}

struct CountParams {
  int* values;
  unsigned* arrivals;
  int* sum;
};

// Every thread writes a value. The block that counts last adds all of them.
void LastBlockAdds(const CountParams p) {
  p.values[blockIdx.x * blockDim.x + threadIdx.x] = 1 + static_cast<int>(blockIdx.x);
  auto* const last = SharedMemory<int>();
  __syncthreads();
  if (threadIdx.x == 0) *last = AddAcquireRelease(p.arrivals, 1) == gridDim.x - 1 ? 1 : 0;
  __syncthreads();
  if (*last == 0 || threadIdx.x != 1) return;
  for (unsigned i = 0; i < gridDim.x * blockDim.x; ++i) *p.sum += p.values[i];
}

int SumOfLastBlock(const gpu_emulator::ExecutionRules& rules) {
  int values[3 * 64] = {};
  unsigned arrivals = 0;
  int sum = 0;
  Executor executor(rules);
  const absl::Status status = RunAsKernel<&LastBlockAdds>(
      executor, {{3, 1, 1}, {64, 1, 1}, sizeof(int)}, CountParams{values, &arrivals, &sum});
  return status.ok() ? sum : -1;
}

TEST(MemoryOrder, AnAdditionOfOneThreadPassesOnWhatItsBlockWrote) {
  EXPECT_EQ(SumOfLastBlock({.resident_blocks = 3}), 64 * (1 + 2 + 3));
}

struct ReadParams {
  int* value;
  int* out;
  bool read_only;
  bool writes_first;
};

void ReadsWhatItWrote(const ReadParams p) {
  const auto read = [&] { return p.read_only ? __ldg(p.value) : *p.value; };
  if (threadIdx.x == 0 && p.writes_first) *p.value = 7;
  __syncthreads();
  if (threadIdx.x == 1) *p.out = read();
  __syncthreads();
  if (threadIdx.x == 0 && !p.writes_first) *p.value = 9;
}

int ReadValue(bool read_only, bool writes_first) {
  int value = 7, out = 0;
  Executor executor;
  const absl::Status status = RunAsKernel<&ReadsWhatItWrote>(
      executor, {{1, 1, 1}, {32, 1, 1}, 0}, ReadParams{&value, &out, read_only, writes_first});
  return status.ok() ? out : -1;
}

struct TwoLaunchesParams {
  int* value;
  int* out;
  bool writes;
};

void WritesOrReads(const TwoLaunchesParams p) {
  if (p.writes) *p.value += 7;
  if (!p.writes) *p.out = __ldg(p.value);
}

TEST(MemoryOrder, OneLaunchReadsWhatAnotherWroteThroughTheReadOnlyCache) {
  EXPECT_EQ(ReadValue(false, true), 7);
  int value = 0, out = 0;
  Executor executor;
  for (int i = 1; i <= 3; ++i) {
    for (bool writes : {true, false}) {
      ASSERT_EQ(RunAsKernel<&WritesOrReads>(executor, {{1, 1, 1}, {1, 1, 1}, 0},
                                            TwoLaunchesParams{&value, &out, writes}),
                absl::OkStatus());
    }
    EXPECT_EQ(out, 7 * i);
  }
}

#ifdef BATON_EMULATOR_TSAN

template <typename Run>
void ExpectRace(const Run& run) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run_and_exit = [&] {
    run();
    std::exit(0);  // ThreadSanitizer makes it 66 if it reported a race
  };
  EXPECT_EXIT(run_and_exit(), testing::ExitedWithCode(66), "data race(.|\n)*memory_order_test.cc:");
}

TEST(MemoryOrder, ABlockFenceDoesNotReachAnotherBlock) {
  ExpectRace([] { PassedValue(2, 1, Scope::kBlock, Scope::kDevice); });
  ExpectRace([] { PassedValue(2, 1, Scope::kDevice, Scope::kBlock); });
}

TEST(MemoryOrder, ARelaxedAdditionPassesOnNothing) {
  Executor right({.resident_blocks = 3});
  int values[3 * 64] = {};
  unsigned arrivals = 0;
  int sum = 0;
  ASSERT_TRUE(RunAsKernel<&LastBlockAdds>(right, {{3, 1, 1}, {64, 1, 1}, sizeof(int)},
                                          CountParams{values, &arrivals, &sum})
                  .ok());
  const std::vector<std::string> places = right.places(gpu_emulator::Primitive::kFence);
  ASSERT_EQ(places.size(), 1u);
  ExpectRace([&] {
    SumOfLastBlock({.resident_blocks = 3, .skipped = {gpu_emulator::Primitive::kFence, places[0]}});
  });
}

TEST(MemoryOrder, TheReadOnlyCacheDoesNotSeeWritesOfTheSameLaunch) {
  ExpectRace([] { ReadValue(true, true); });
  ExpectRace([] { ReadValue(true, false); });
}

#endif

}  // namespace
}  // namespace baton
