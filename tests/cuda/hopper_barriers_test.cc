// mbarriers, bulk copies and tiles: phases, bytes, out of bounds, swizzles, faults.
#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/device_code.cuh"
#include "kernels/cuda/hopper.cuh"
#include "tests/cuda/run_kernel.h"
#include "tests/gpu_emulator/tensor_map.h"

namespace baton {
namespace {

using gpu_emulator::CopyLanding;
using gpu_emulator::EncodeTensorMap;
using gpu_emulator::ExecutionOrder;
using gpu_emulator::ExecutionRules;
using gpu_emulator::Executor;
using gpu_emulator::TiledTensor;
using testing::HasSubstr;

struct RingParams {
  int* sum;  // [1]
  int rounds;
};

// A thread of warp 1 writes numbers into two slots, warp 0 adds them up.
void ProducesAndConsumes(const RingParams p) {
  auto* barriers = SharedMemory<uint64_t>();  // full, full, empty, empty
  auto* slots = reinterpret_cast<int*>(barriers + 4);
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i) InitBarrier(barriers + i, 1);
    for (int i = 0; i < 2; ++i) InitBarrier(barriers + 2 + i, 32);
  }
  __syncthreads();
  if (threadIdx.x == 32) {
    for (int i = 0; i < p.rounds; ++i) {
      WaitBarrier(barriers + 2 + i % 2, static_cast<unsigned>(i / 2 + 1) & 1);
      slots[i % 2] = i + 1;
      ArriveBarrier(barriers + i % 2);
    }
  } else if (threadIdx.x < 32) {
    int sum = 0;
    for (int i = 0; i < p.rounds; ++i) {
      WaitBarrier(barriers + i % 2, static_cast<unsigned>(i / 2) & 1);
      sum += slots[i % 2];
      ArriveBarrier(barriers + 2 + i % 2);
    }
    if (threadIdx.x == 7) *p.sum = sum;
  }
}

TEST(HopperBarriers, PhasesOrderAProducerAndItsConsumers) {
  for (ExecutionOrder order : {ExecutionOrder::kForward, ExecutionOrder::kReverse}) {
    Executor executor({.order = order});
    int sum = 0;
    ASSERT_EQ(RunAsKernel<&ProducesAndConsumes>(executor, {{1, 1, 1}, {64, 1, 1}, 64},
                                                RingParams{&sum, 9}),
              absl::OkStatus());
    EXPECT_EQ(sum, 45);
  }
}

struct ElectParams {
  int* elections;  // [64] how often the thread was elected
};

void ElectsTwice(const ElectParams p) {
  for (int i = 0; i < 2; ++i) p.elections[threadIdx.x] += ElectOne() ? 1 : 0;
}

TEST(HopperBarriers, AWarpAlwaysElectsTheSameLane) {
  for (ExecutionOrder order : {ExecutionOrder::kForward, ExecutionOrder::kReverse}) {
    Executor executor({.order = order});
    std::vector<int> elections(64), expected(64);
    expected[31] = expected[63] = 2;
    ASSERT_EQ(RunAsKernel<&ElectsTwice>(executor, {{1, 1, 1}, {64, 1, 1}, 0},
                                        ElectParams{elections.data()}),
              absl::OkStatus());
    EXPECT_EQ(elections, expected);
  }
}

struct FaultParams {
  int fault;
  const void* readable;  // [16 bytes], aligned to 16
};

void MisusesABarrier(const FaultParams p) {
  auto* barrier = SharedMemory<uint64_t>();
  if (p.fault == 0) ArriveBarrier(barrier);
  InitBarrier(barrier, p.fault == 1 ? 0 : 2);
  if (p.fault == 2) {
    ArriveAndExpect(barrier, 16);
    ArriveBarrier(barrier);
    ArriveBarrier(barrier);
  }
  if (p.fault == 3) WaitBarrier(barrier, 0);
  if (p.fault != 5) FenceBarrierInit();
  if (p.fault == 6) InitBarrier(barrier, 2);
  if (p.fault >= 4) LoadBulk(barrier + 2, p.fault == 7 ? barrier : p.readable, 16, barrier);
}

TEST(HopperBarriers, MisuseIsAnErrorThatSaysWhatIsWrong) {
  Executor executor;
  alignas(16) const uint64_t readable[2] = {};
  const auto message = [&](int fault) {
    return std::string(RunAsKernel<&MisusesABarrier>(executor, {{1, 1, 1}, {1, 1, 1}, 64},
                                                     FaultParams{fault, readable})
                           .message());
  };
  EXPECT_THAT(message(0), HasSubstr("the barrier was never initialised"));
  EXPECT_THAT(message(1), HasSubstr("a barrier for 0 arrivals"));
  EXPECT_THAT(message(2), HasSubstr("more arrivals than the barrier expects"));
  EXPECT_THAT(message(3), HasSubstr("no thread can continue"));
  EXPECT_THAT(message(4), HasSubstr("the block ended before its copies had landed"));
  EXPECT_THAT(message(5), HasSubstr("initialised without FenceBarrierInit"));
  EXPECT_THAT(message(6), HasSubstr("the barrier is in use"));
  EXPECT_THAT(message(7), HasSubstr("a bulk copy: the address is not in global memory"));
}

struct BulkParams {
  const unsigned* from;  // [64], aligned to 16
  unsigned* to;          // [64]
  unsigned* early;       // [1]: what lay in shared memory before the wait
  bool fenced = true;
};

void CopiesThroughShared(const BulkParams p) {
  auto* barrier = SharedMemory<uint64_t>();
  auto* data = SharedMemory<unsigned>() + 32;
  InitBarrier(barrier, 1);
  FenceBarrierInit();
  ArriveAndExpect(barrier, 256);
  LoadBulk(data, p.from, 128, barrier);
  LoadBulk(data + 32, p.from + 32, 128, barrier);
  *p.early = data[63];
  WaitBarrier(barrier, 0);
  data[0] += 1;
  if (p.fenced) FenceProxyAsync();
  StoreBulk(p.to, data, 256);
  CommitBulkStores();
  WaitBulkStores<0>();
}

TEST(HopperBarriers, BulkCopiesLandWithinTheWaitForTheirBytes) {
  for (CopyLanding landing : {CopyLanding::kLate, CopyLanding::kEarly}) {
    Executor executor({.landing = landing});
    alignas(16) unsigned from[64], to[64] = {};
    std::iota(from, from + 64, 100u);
    unsigned early = 0;
    ASSERT_EQ(RunAsKernel<&CopiesThroughShared>(executor, {{1, 1, 1}, {1, 1, 1}, 384},
                                                BulkParams{from, to, &early}),
              absl::OkStatus());
    EXPECT_EQ(early, landing == CopyLanding::kLate ? 0x7fff7fffu : 163u);
    from[0] += 1;
    EXPECT_EQ(std::memcmp(from, to, sizeof(to)), 0);
  }
}

TEST(HopperBarriers, ABulkStoreOfUnfencedStoresIsAnError) {
  Executor executor;
  alignas(16) unsigned from[64] = {}, to[64] = {};
  unsigned early = 0;
  EXPECT_THAT(std::string(RunAsKernel<&CopiesThroughShared>(executor, {{1, 1, 1}, {1, 1, 1}, 384},
                                                            BulkParams{from, to, &early, false})
                              .message()),
              HasSubstr("stored to without FenceProxyAsync"));
}

constexpr int kBoxRows = 9;
constexpr uint32_t kTileSharedBytes = 4096;

struct TileParams {
  TensorMap map;
  uint8_t* shared_copy;  // [kTileSharedBytes]
  int c0, c1, c2;
  int rank;
  unsigned bytes;
};

void LoadsOneTile(const TileParams p) {
  auto* tile = SharedMemory<uint8_t>();
  auto* barrier = reinterpret_cast<uint64_t*>(tile + kTileSharedBytes);
  InitBarrier(barrier, 1);
  FenceBarrierInit();
  ArriveAndExpect(barrier, p.bytes);
  if (p.rank == 2) LoadTile(tile, &p.map, barrier, p.c0, p.c1);
  if (p.rank == 3) LoadTile(tile, &p.map, barrier, p.c0, p.c1, p.c2);
  WaitBarrier(barrier, 0);
  for (uint32_t i = 0; i < kTileSharedBytes; ++i) p.shared_copy[i] = tile[i];
}

// Where the docs put 16-byte chunk c of row r of a tile whose rows are as long as the swizzle.
int ChunkOf(SharedSwizzle swizzle, int row, int chunk) {
  switch (swizzle) {
    case SharedSwizzle::kNone:
      return chunk;
    case SharedSwizzle::k32Bytes:
      return chunk ^ (row / 4 % 2);
    case SharedSwizzle::k64Bytes:
      return chunk ^ (row / 2 % 4);
    case SharedSwizzle::k128Bytes:
      return chunk ^ (row % 8);
  }
  return chunk;
}

TEST(HopperBarriers, TilesAreSwizzledAndZeroOutsideOfTheTensor) {
  constexpr int kRows = 20, kCols = 88;  // elements of two bytes
  struct alignas(16) Chunk {
    uint16_t elements[8];
  };
  std::vector<Chunk> tensor(kRows * kCols / 8);
  uint16_t* elements = tensor[0].elements;
  std::iota(elements, elements + kRows * kCols, uint16_t{1});
  Executor executor;
  for (SharedSwizzle swizzle : {SharedSwizzle::kNone, SharedSwizzle::k32Bytes,
                                SharedSwizzle::k64Bytes, SharedSwizzle::k128Bytes}) {
    const int row_bytes = swizzle == SharedSwizzle::kNone ? 64 : 16 << static_cast<int>(swizzle);
    TiledTensor layout;
    layout.address = elements;
    layout.element_bytes = 2;
    layout.rank = 2;
    layout.sizes = {kCols, kRows};
    layout.stride_bytes = {0, kCols * 2};
    layout.box = {static_cast<uint32_t>(row_bytes / 2), kBoxRows};
    layout.swizzle = swizzle;
    const auto map = EncodeTensorMap(layout);
    ASSERT_TRUE(map.ok()) << map.status();
    for (const auto& [c0, c1] : {std::pair{0, 0}, {72, 15}, {-3, -2}}) {
      std::vector<uint8_t> copy(kTileSharedBytes);
      ASSERT_EQ(RunAsKernel<&LoadsOneTile>(
                    executor, {{1, 1, 1}, {1, 1, 1}, kTileSharedBytes + 8},
                    TileParams{*map, copy.data(), c0, c1, 0, 2, layout.box_bytes()}),
                absl::OkStatus());
      for (int row = 0; row < kBoxRows; ++row) {
        for (int col = 0; col < row_bytes / 2; ++col) {
          const int at = row * row_bytes + ChunkOf(swizzle, row, col / 8) * 16 + col % 8 * 2;
          uint16_t got;
          std::memcpy(&got, &copy[at], 2);
          const int r = c1 + row, c = c0 + col;
          const bool inside = r >= 0 && r < kRows && c >= 0 && c < kCols;
          ASSERT_EQ(got, inside ? elements[r * kCols + c] : 0)
              << "swizzle " << static_cast<int>(swizzle) << " row " << row << " col " << col;
        }
      }
      EXPECT_EQ(copy[kBoxRows * 128], 0xff);  // poison behind the largest tile
    }
  }
}

TEST(HopperBarriers, TilesOfThreeDimensionsHaveTheFirstFastest) {
  struct alignas(16) Chunk {
    uint32_t elements[4];
  };
  std::vector<Chunk> tensor(5 * 3 * 2);  // [5][3][8]
  uint32_t* elements = tensor[0].elements;
  std::iota(elements, elements + 5 * 3 * 8, 7u);
  TiledTensor layout;
  layout.address = elements;
  layout.element_bytes = 4;
  layout.rank = 3;
  layout.sizes = {8, 3, 5};
  layout.stride_bytes = {0, 32, 96};
  layout.box = {4, 2, 3};
  const auto map = EncodeTensorMap(layout);
  ASSERT_TRUE(map.ok());
  std::vector<uint8_t> copy(kTileSharedBytes);
  Executor executor;
  ASSERT_EQ(
      RunAsKernel<&LoadsOneTile>(executor, {{1, 1, 1}, {1, 1, 1}, kTileSharedBytes + 8},
                                 TileParams{*map, copy.data(), 4, 1, 2, 3, layout.box_bytes()}),
      absl::OkStatus());
  for (int z = 0; z < 3; ++z) {
    for (int y = 0; y < 2; ++y) {
      for (int x = 0; x < 4; ++x) {
        uint32_t got;
        std::memcpy(&got, &copy[4 * (x + 4 * (y + 2 * z))], 4);
        EXPECT_EQ(got, elements[(4 + x) + 8 * (1 + y) + 24 * (2 + z)]);
      }
    }
  }
}

TEST(HopperBarriers, TensorMapsThatTheDriverRefusesAreErrors) {
  alignas(16) static uint16_t memory[64];
  TiledTensor good;
  good.address = memory;
  good.element_bytes = 2;
  good.rank = 2;
  good.sizes = {8, 8};
  good.stride_bytes = {0, 16};
  good.box = {8, 8};
  EXPECT_TRUE(EncodeTensorMap(good).ok());
  const auto message = [](const TiledTensor& tensor) {
    return std::string(EncodeTensorMap(tensor).status().message());
  };
  TiledTensor bad = good;
  bad.address = memory + 1;
  EXPECT_THAT(message(bad), HasSubstr("the address"));
  bad = good;
  bad.stride_bytes[1] = 24;
  EXPECT_THAT(message(bad), HasSubstr("a stride is 24, no positive multiple of 16"));
  bad.stride_bytes[1] = 0;
  EXPECT_THAT(message(bad), HasSubstr("a stride is 0, no positive multiple of 16"));
  bad = good;
  bad.rank = 3;
  bad.sizes = {64, 64, 64};
  bad.stride_bytes = {0, 128, 8192};
  bad.box = {64, 64, 28};
  EXPECT_EQ(EncodeTensorMap(bad).status(), absl::OkStatus());
  bad.box = {64, 64, 29};
  EXPECT_THAT(message(bad),
              HasSubstr("the box's size is 237568, more bytes than a block's shared"));
  bad = good;
  bad.box[1] = 257;
  EXPECT_THAT(message(bad), HasSubstr("a side of the box is 257"));
  bad = good;
  bad.box[0] = 32;
  bad.swizzle = SharedSwizzle::k32Bytes;
  EXPECT_THAT(message(bad), HasSubstr("longer than the swizzle"));
}

}  // namespace
}  // namespace baton
