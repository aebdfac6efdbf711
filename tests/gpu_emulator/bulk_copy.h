// cp.async.bulk: copies between device memory and shared memory, and tiles of tensors (TMA).
//
// A late load lands when nothing else can run, in the order of the execution rules. An early load
// lands when it is issued. A store reads its shared memory when the thread waits for it. If a block
// ends with copies in flight, the launch fails.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cuda/tensor_map.h"
#include "tests/gpu_emulator/source_place.h"
#include "tests/gpu_emulator/tensor_map.h"

namespace baton::gpu_emulator {

struct Block;

struct TileLoad {
  Block* block = nullptr;
  std::byte* shared = nullptr;
  uint64_t* barrier = nullptr;
  uint32_t bytes = 0;
  const void* global = nullptr;  // null: a tile of `tensor`
  TiledTensor tensor;
  std::array<int, kMostTileRank> first = {};  // coordinates
  SourcePlace place;
};

// Writes the bytes and counts them at the barrier.
void LandLoad(const TileLoad& load);

// `constant`: no kernel writes the memory.
void IssueBulkLoad(void* shared, const void* global, uint32_t bytes, uint64_t* barrier,
                   bool constant, SourcePlace place);
// coordinates: `rank` numbers, that of the fastest dimension first. They may be out of bounds.
void IssueTileLoad(void* shared, const TensorMap* map, uint64_t* barrier, const int* coordinates,
                   int rank, SourcePlace place);

void IssueBulkStore(void* global, const void* shared, uint32_t bytes, SourcePlace place);
// fence.proxy.async
void FenceAsyncProxy(SourcePlace place);
void CommitBulkStoreGroup();
void WaitBulkStoreGroups(uint32_t groups, SourcePlace place);

}  // namespace baton::gpu_emulator
