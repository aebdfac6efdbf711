// Shuffles, votes and reductions of a warp against their definitions, written a second time here.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/device_code.cuh"
#include "tests/cuda/run_kernel.h"

namespace baton {
namespace {

using gpu_emulator::Executor;
using testing::HasSubstr;

struct ShuffleParams {
  int64_t* out;  // [4, 32]
  unsigned argument;
  int width;
};

void Shuffles(const ShuffleParams p) {
  const int lane = static_cast<int>(threadIdx.x);
  const int64_t value = 1000 + (int64_t{lane} << 40);
  p.out[lane] = __shfl_sync(0xffffffffu, value, static_cast<int>(p.argument), p.width);
  p.out[32 + lane] = __shfl_up_sync(0xffffffffu, value, p.argument, p.width);
  p.out[64 + lane] = __shfl_down_sync(0xffffffffu, value, p.argument, p.width);
  p.out[96 + lane] = __shfl_xor_sync(0xffffffffu, value, static_cast<int>(p.argument), p.width);
}

// PTX ISA, shfl.sync, pseudo code: j is the source, p tells whether it is in range.
int SourceLane(int kind, int lane, int b, int width) {
  const int segment_mask = (32 - width) & 31;
  const int bound = kind == 1 ? 0 : 31;
  const int max_lane = (lane & segment_mask) | (bound & ~segment_mask & 31);
  const int min_lane = lane & segment_mask;
  int j = 0;
  bool in_range = false;
  switch (kind) {
    case 0:
      j = min_lane | (b & ~segment_mask & 31);
      in_range = j <= max_lane;
      break;
    case 1:
      j = lane - b;
      in_range = j >= max_lane;
      break;
    case 2:
      j = lane + b;
      in_range = j <= max_lane;
      break;
    case 3:
      j = lane ^ b;
      in_range = j <= max_lane;
      break;
  }
  return in_range ? j : lane;
}

TEST(WarpOperations, ShufflesTakeTheLaneThatPtxDefines) {
  Executor executor;
  for (int width : {1, 2, 8, 16, 32}) {
    for (unsigned argument : {0u, 1u, 3u, 7u, 16u, 31u}) {
      std::vector<int64_t> out(4 * 32);
      ASSERT_TRUE(RunAsKernel<&Shuffles>(executor, {{1, 1, 1}, {32, 1, 1}, 0},
                                         ShuffleParams{out.data(), argument, width})
                      .ok());
      for (int kind = 0; kind < 4; ++kind) {
        for (int lane = 0; lane < 32; ++lane) {
          const int source = SourceLane(kind, lane, static_cast<int>(argument), width);
          ASSERT_EQ(out[kind * 32 + lane], 1000 + (int64_t{source} << 40))
              << "kind " << kind << " lane " << lane << " b " << argument << " width " << width;
        }
      }
    }
  }
}

struct VoteParams {
  unsigned* out;  // [7, 40]
};

void VotesOfHalves(const VoteParams p) {
  const unsigned i = threadIdx.x;
  const unsigned lane = i % 32;
  if (i < 32) {
    const unsigned mask = lane < 16 ? 0x0000ffffu : 0xffff0000u;
    p.out[i] = __ballot_sync(mask, lane % 3 == 0);
    p.out[40 + i] = __any_sync(mask, lane == 20);
    p.out[80 + i] = __all_sync(mask, lane < 16);
    p.out[120 + i] = __reduce_add_sync(mask, lane);
    p.out[160 + i] = static_cast<unsigned>(__reduce_min_sync(mask, -static_cast<int>(lane)));
    p.out[200 + i] = __reduce_max_sync(mask, lane ^ 5u);
    p.out[240 + i] = __reduce_or_sync(mask, 1u << lane);
  } else {  // a warp of eight lanes
    p.out[i] = __ballot_sync(0xffffffffu, lane != 1);
    p.out[120 + i] = __reduce_add_sync(0xffffffffu, lane);
  }
}

TEST(WarpOperations, VotesAndReductionsStayWithinTheirMask) {
  Executor executor;
  std::vector<unsigned> out(7 * 40);
  ASSERT_TRUE(
      RunAsKernel<&VotesOfHalves>(executor, {{1, 1, 1}, {40, 1, 1}, 0}, VoteParams{out.data()})
          .ok());
  for (unsigned lane = 0; lane < 32; ++lane) {
    const unsigned first = lane / 16 * 16;
    unsigned ballot = 0, add = 0, max = 0, bits = 0;
    int min = 0;
    for (unsigned i = first; i < first + 16; ++i) {
      if (i % 3 == 0) ballot |= 1u << i;
      add += i;
      max = std::max(max, i ^ 5u);
      min = std::min(min, -static_cast<int>(i));
      bits |= 1u << i;
    }
    EXPECT_EQ(out[lane], ballot);
    EXPECT_EQ(out[40 + lane], lane < 16 ? 0u : 1u);
    EXPECT_EQ(out[80 + lane], lane < 16 ? 1u : 0u);
    EXPECT_EQ(out[120 + lane], add);
    EXPECT_EQ(out[160 + lane], static_cast<unsigned>(min));
    EXPECT_EQ(out[200 + lane], max);
    EXPECT_EQ(out[240 + lane], bits);
  }
  for (unsigned i = 32; i < 40; ++i) {
    EXPECT_EQ(out[i], 0xfdu);
    EXPECT_EQ(out[120 + i], 28u);
  }
}

struct OneParams {
  unsigned* out;  // [32]
};

void ReadsFromALaneThatHasEnded(const OneParams p) {
  if (threadIdx.x == 3) return;
  p.out[threadIdx.x] = __shfl_sync(0xffffffffu, threadIdx.x, 3);
}

TEST(WarpOperations, ALaneThatHasEndedGivesAnUndefinedValue) {
  Executor executor;
  std::vector<unsigned> out(32);
  ASSERT_TRUE(RunAsKernel<&ReadsFromALaneThatHasEnded>(executor, {{1, 1, 1}, {32, 1, 1}, 0},
                                                       OneParams{out.data()})
                  .ok());
  EXPECT_EQ(out[0], static_cast<unsigned>(gpu_emulator::kUndefined));
}

void MaskWithoutCaller(const OneParams p) { p.out[threadIdx.x] = __ballot_sync(0x7fffffffu, 1); }

void DifferentOperations(const OneParams p) {
  if (threadIdx.x % 2 == 0) {
    p.out[threadIdx.x] = __shfl_sync(0xffffffffu, 1u, 0);
  } else {
    p.out[threadIdx.x] = __ballot_sync(0xffffffffu, 1);
  }
}

void DifferentMasks(const OneParams p) {
  const unsigned mask = threadIdx.x < 8 ? 0xffffffffu : 0xffffff00u;
  p.out[threadIdx.x] = __ballot_sync(mask, 1);
}

void LaneThatNeverComes(const OneParams p) {
  if (threadIdx.x == 5) {
    __syncthreads();
  } else {
    p.out[threadIdx.x] = __ballot_sync(0xffffffffu, 1);
  }
}

template <auto kFunction>
std::string MessageOf(uint32_t threads = 32) {
  Executor executor;
  std::vector<unsigned> out(threads);
  return std::string(
      RunAsKernel<kFunction>(executor, {{1, 1, 1}, {threads, 1, 1}, 0}, OneParams{out.data()})
          .message());
}

TEST(WarpOperations, WrongMasksAreErrorsThatNameTheLane) {
  EXPECT_THAT(MessageOf<&MaskWithoutCaller>(), HasSubstr("lacks the calling lane 31"));
  EXPECT_THAT(MessageOf<&DifferentMasks>(),
              HasSubstr("lane 0 is in a warp vote with mask ffffffff"));
}

TEST(WarpOperations, LanesInDifferentOperationsAreAnError) {
  const std::string message = MessageOf<&DifferentOperations>();
  EXPECT_THAT(message, HasSubstr("a warp vote with mask ffffffff, but lane 0 is in __shfl_sync"));
  EXPECT_THAT(message, HasSubstr("thread (1, 0, 0)"));
  EXPECT_THAT(message, HasSubstr("warp_operations_test.cc"));
}

TEST(WarpOperations, ALaneThatNeverComesIsAnErrorThatNamesAllThatWait) {
  const std::string message = MessageOf<&LaneThatNeverComes>();
  EXPECT_THAT(message, HasSubstr("no thread can continue"));
  EXPECT_THAT(message, HasSubstr("threads 0 to 4 in a warp vote"));
  EXPECT_THAT(message, HasSubstr("threads 5 to 5 in __syncthreads"));
  EXPECT_THAT(message, HasSubstr("threads 6 to 31 in a warp vote"));
}

}  // namespace
}  // namespace baton
