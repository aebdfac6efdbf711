// The executor: order of blocks, barriers, shared memory, flags between blocks, faulty kernels.
#include "tests/gpu_emulator/executor.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/device_code.cuh"
#include "kernels/cuda/ptx.cuh"
#include "tests/cuda/run_kernel.h"

namespace baton {
namespace {

using gpu_emulator::ExecutionOrder;
using gpu_emulator::Executor;
using testing::HasSubstr;

struct LogParams {
  unsigned* count;
  unsigned* log;
};

void LogsItsBlock(const LogParams p) {
  if (threadIdx.x != 0) return;
  p.log[atomicAdd(p.count, 1u)] = blockIdx.x + 10 * blockIdx.y + 100 * blockIdx.z;
}

std::vector<unsigned> BlockLog(ExecutionOrder order, uint64_t seed = 1) {
  Executor executor({.order = order, .seed = seed});
  unsigned count = 0;
  std::vector<unsigned> log(12);
  EXPECT_TRUE(
      RunAsKernel<&LogsItsBlock>(executor, {{2, 3, 2}, {3, 1, 1}, 0}, LogParams{&count, log.data()})
          .ok());
  EXPECT_EQ(count, 12u);
  return log;
}

TEST(Executor, RunsBlocksInTheOrderOfTheRules) {
  const std::vector<unsigned> forward = {0, 1, 10, 11, 20, 21, 100, 101, 110, 111, 120, 121};
  EXPECT_EQ(BlockLog(ExecutionOrder::kForward), forward);
  EXPECT_EQ(BlockLog(ExecutionOrder::kReverse),
            std::vector<unsigned>(forward.rbegin(), forward.rend()));
  const auto seeded = BlockLog(ExecutionOrder::kSeeded, 5);
  EXPECT_THAT(seeded, testing::UnorderedElementsAreArray(forward));
  EXPECT_NE(seeded, forward);
  EXPECT_EQ(seeded, BlockLog(ExecutionOrder::kSeeded, 5));
  EXPECT_NE(seeded, BlockLog(ExecutionOrder::kSeeded, 6));
}

struct IndexParams {
  uint3* indices;  // [24]
};

void StoresItsIndex(const IndexParams p) {
  p.indices[threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)] = threadIdx;
}

TEST(Executor, NumbersThreadsWithXFastest) {
  Executor executor;
  std::vector<uint3> indices(24);
  ASSERT_TRUE(
      RunAsKernel<&StoresItsIndex>(executor, {{1, 1, 1}, {2, 3, 4}, 0}, IndexParams{indices.data()})
          .ok());
  for (unsigned i = 0; i < 24; ++i) {
    EXPECT_EQ(indices[i].x, i % 2);
    EXPECT_EQ(indices[i].y, i / 2 % 3);
    EXPECT_EQ(indices[i].z, i / 6);
  }
}

struct SharedParams {
  unsigned* out;  // [blocks]
  unsigned at;    // byte that the kernel writes
};

void ReadsAndWritesShared(const SharedParams p) {
  if (threadIdx.x != 0) return;
  p.out[blockIdx.x] = SharedMemory<unsigned>()[1];
  SharedMemory<unsigned>()[1] = 7;
  SharedMemory<unsigned char>()[p.at] = 1;
}

TEST(Executor, EveryBlockStartsWithNanInSharedMemory) {
  Executor executor;
  std::vector<unsigned> out(3);
  ASSERT_TRUE(RunAsKernel<&ReadsAndWritesShared>(executor, {{3, 1, 1}, {2, 1, 1}, 64},
                                                 SharedParams{out.data(), 0})
                  .ok());
  for (unsigned bits : out) {
    float value;
    std::memcpy(&value, &bits, 4);
    EXPECT_TRUE(std::isnan(value));
    EXPECT_GT(bits & 0x7fff, 0x7f80u);  // NaN in bf16 and f16
    EXPECT_GT(bits & 0x7fff, 0x7c00u);
  }
}

#ifndef __SANITIZE_ADDRESS__  // which ends the program at once
TEST(Executor, AWriteBehindSharedMemoryIsAnErrorThatNamesTheBlock) {
  Executor executor;
  std::vector<unsigned> out(3);
  const absl::Status status = RunAsKernel<&ReadsAndWritesShared>(
      executor, {{3, 1, 1}, {2, 1, 1}, 64}, SharedParams{out.data(), 64});
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("block (0, 0, 0) wrote outside its 64 bytes of shared memory"));
}
#endif

struct FlagParams {
  unsigned* flag;
  int* value;
  int* seen;
};

void LastBlockSignalsTheFirst(const FlagParams p) {
  if (threadIdx.x != 0) return;
  if (blockIdx.x == gridDim.x - 1) {
    *p.value = 42;
    StoreRelease(p.flag, 1);
  } else if (blockIdx.x == 0) {
    while (LoadAcquire(p.flag) == 0) {
    }
    *p.seen = *p.value;
  }
}

TEST(Executor, BlocksWaitForEachOtherIfAllAreResident) {
  Executor executor({.resident_blocks = 4});
  unsigned flag = 0;
  int value = 0, seen = 0;
  ASSERT_TRUE(RunAsKernel<&LastBlockSignalsTheFirst>(executor, {{4, 1, 1}, {32, 1, 1}, 0},
                                                     FlagParams{&flag, &value, &seen})
                  .ok());
  EXPECT_EQ(seen, 42);
}

TEST(Executor, AWaitForABlockThatIsNotResidentIsAnError) {
  Executor executor({.resident_blocks = 2});
  unsigned flag = 0;
  int value = 0, seen = 0;
  const absl::Status status = RunAsKernel<&LastBlockSignalsTheFirst>(
      executor, {{4, 1, 1}, {32, 1, 1}, 0}, FlagParams{&flag, &value, &seen});
  // The blocks between run to their end; the last one takes the place of one of them.
  EXPECT_TRUE(status.ok());
  Executor alone;
  flag = 0;
  const absl::Status stuck = RunAsKernel<&LastBlockSignalsTheFirst>(
      alone, {{4, 1, 1}, {32, 1, 1}, 0}, FlagParams{&flag, &value, &seen});
  EXPECT_THAT(std::string(stuck.message()),
              HasSubstr("block (0, 0, 0) threads 0 to 0 in a load of a flag at"));
}

struct NoParams {
  int unused;
};

void DivergentBarriers(const NoParams) {
  if (threadIdx.x < 40) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

void ThreadsThatEndBeforeABarrier(const NoParams) {
  if (threadIdx.x % 2 == 0) return;
  __syncthreads();
}

void NamedBarriersOfTwoHalves(const NoParams) {
  const int half = static_cast<int>(threadIdx.x / 32);
  for (int i = 0; i < 3 + half; ++i) SyncNamedBarrier(1 + half, 32);
  __syncthreads();
}

void NamedBarrierWithTooFew(const NoParams) {
  if (threadIdx.x < 32) SyncNamedBarrier(3, 64);
}

void NamedBarrierOnTwoLines(const NoParams) {
  if (threadIdx.x % 32 < 16) {
    SyncNamedBarrier(1, 64);
  } else {
    SyncNamedBarrier(1, 64);
  }
}

// 32 threads arrive, but they are halves of two warps.
void NamedBarrierOfHalfWarps(const NoParams) {
  if (threadIdx.x % 32 >= 16) {
    ArriveNamedBarrier(1, 32);
  } else {
    __syncwarp(0xffff);
    while (true) __nanosleep(1);
  }
}

template <int kBarrier, unsigned kCount>
void NamedBarrierOf(const NoParams) {
  SyncNamedBarrier(kBarrier, kCount);
}

void ProducerAndConsumer(const NoParams) {
  int* value = SharedMemory<int>();
  if (threadIdx.x < 32) {
    if (threadIdx.x == 0) *value = 5;
    ArriveNamedBarrier(2, 64);
  } else {
    SyncNamedBarrier(2, 64);
    if (*value != 5) __trap();
  }
}

template <auto kFunction>
std::string MessageOf(uint32_t threads = 64) {
  Executor executor;
  return std::string(
      RunAsKernel<kFunction>(executor, {{1, 1, 1}, {threads, 1, 1}, 64}, NoParams{}).message());
}

TEST(Executor, BarriersOnDifferentLinesAreAnError) {
  const std::string message = MessageOf<&DivergentBarriers>();
  EXPECT_THAT(message, HasSubstr("thread (40, 0, 0)"));
  EXPECT_THAT(message, HasSubstr("but other threads are in __syncthreads at"));
  EXPECT_THAT(message, HasSubstr("threads 0 to 39 in __syncthreads at"));
}

TEST(Executor, BarriersDoNotWaitForThreadsThatHaveEnded) {
  EXPECT_EQ(MessageOf<&ThreadsThatEndBeforeABarrier>(), "");
}

TEST(Executor, NamedBarriersAreIndependent) {
  EXPECT_EQ(MessageOf<&NamedBarriersOfTwoHalves>(), "");
  EXPECT_EQ(MessageOf<&ProducerAndConsumer>(), "");
  EXPECT_THAT(MessageOf<&NamedBarrierWithTooFew>(),
              HasSubstr("threads 0 to 31 in a named barrier at"));
}

TEST(Executor, ANamedBarrierNeedsWholeWarpsOnOneLine) {
  EXPECT_THAT(MessageOf<&NamedBarrierOnTwoLines>(),
              HasSubstr("bar.sync with mask ffffffff, but lane 0 is in bar.sync"));
  EXPECT_THAT(MessageOf<&NamedBarrierOfHalfWarps>(), HasSubstr("in bar.arrive at"));
}

TEST(Executor, ANamedBarrierHasANumberFromOneToFifteenAndCountsWarps) {
  EXPECT_EQ((MessageOf<&NamedBarrierOf<1, 64>>()), "");
  EXPECT_EQ((MessageOf<&NamedBarrierOf<15, 64>>()), "");
  EXPECT_THAT((MessageOf<&NamedBarrierOf<0, 64>>()),
              HasSubstr("a named barrier with number 0, not in [1, 15]"));
  EXPECT_THAT((MessageOf<&NamedBarrierOf<16, 64>>()),
              HasSubstr("a named barrier with number 16, not in [1, 15]"));
  EXPECT_THAT((MessageOf<&NamedBarrierOf<1, 0>>()), HasSubstr("a named barrier for 0 threads"));
  EXPECT_THAT((MessageOf<&NamedBarrierOf<1, 40>>(40)), HasSubstr("a named barrier for 40 threads"));
}

TEST(Executor, RunsAgainAfterAnError) {
  Executor executor;
  EXPECT_FALSE(
      RunAsKernel<&DivergentBarriers>(executor, {{1, 1, 1}, {64, 1, 1}, 0}, NoParams{}).ok());
  EXPECT_TRUE(
      RunAsKernel<&NamedBarriersOfTwoHalves>(executor, {{1, 1, 1}, {64, 1, 1}, 0}, NoParams{})
          .ok());
}

TEST(Executor, RefusesLaunchesThatCudaRefuses) {
  Executor executor;
  const auto message = [&](const LaunchShape& shape) {
    return std::string(RunAsKernel<&NamedBarrierWithTooFew>(executor, shape, NoParams{}).message());
  };
  EXPECT_THAT(message({{1, 1, 1}, {1024, 2, 1}, 0}), HasSubstr("2048 threads, at most 1024"));
  EXPECT_THAT(message({{1, 1, 1}, {1, 1, 65}, 0}), HasSubstr("block[2] is 65, not in [1, 64]"));
  EXPECT_THAT(message({{1, 65536, 1}, {1, 1, 1}, 0}), HasSubstr("grid[1] is 65536"));
  EXPECT_THAT(message({{1, 1, 1}, {1, 1, 1}, 232449}), HasSubstr("at most 232448"));
  const gpu_emulator::Kernel kernel = {"k", 8,
                                       &gpu_emulator::RunKernel<NoParams, &NamedBarrierWithTooFew>};
  EXPECT_THAT(std::string(executor.Run(kernel, {}, nullptr, 4).message()),
              HasSubstr("4 bytes of parameters, its struct has 8"));
}

struct SumParams {
  unsigned long long* sum;
  unsigned* highest;
};

void AddsAtomically(const SumParams p) {
  atomicAdd(p.sum, 1ull + threadIdx.x);
  atomicMax(p.highest, blockIdx.x * blockDim.x + threadIdx.x);
}

TEST(Executor, AtomicOperationsOfAllThreadsCount) {
  Executor executor({.resident_blocks = 2});
  unsigned long long sum = 0;
  unsigned highest = 0;
  ASSERT_TRUE(
      RunAsKernel<&AddsAtomically>(executor, {{5, 1, 1}, {64, 1, 1}, 0}, SumParams{&sum, &highest})
          .ok());
  EXPECT_EQ(sum, 5u * 64 * 65 / 2);
  EXPECT_EQ(highest, 319u);
}

void SpinsOnALock(const SumParams p) {
  if (threadIdx.x % 32 != 0) return;
  while (atomicCAS(p.highest, 0u, 1u) != 0) {
  }
  __threadfence();
  *p.sum += 1;
  __threadfence();
  atomicExch(p.highest, 0u);
}

TEST(Executor, ThreadsThatSpinLetTheOwnerOfALockRun) {
  Executor executor({.order = ExecutionOrder::kReverse, .resident_blocks = 3});
  unsigned long long sum = 0;
  unsigned lock = 0;
  ASSERT_TRUE(
      RunAsKernel<&SpinsOnALock>(executor, {{3, 1, 1}, {128, 1, 1}, 0}, SumParams{&sum, &lock})
          .ok());
  EXPECT_EQ(sum, 12u);
}

}  // namespace
}  // namespace baton
