// The rows of a thread block: the (token, query head) of each row, the slots that the row sees, and
// the threads that compute it.
#pragma once

#include "kernels/cuda/attention_plan.cuh"
#include "kernels/cuda/attention_tile.cuh"

namespace baton::attention {

// One thread's view. `kChunks` chunks of rows are in a block.
template <typename Elements, int kDim, int kSplit, int kChunks>
struct BlockRows {
  using Map = Mapping<Elements, kDim, kSplit>;
  static constexpr int kRows = kChunks * Map::kRows;
  static constexpr int kBlock = kChunks * Map::kThreads;  // threads

  const PagedAttentionParams& p;
  Shared<Elements, kDim, kRows> shared;
  int part;       // number of this warp in its chunk
  int first_row;  // of the chunk, in the block
  int in_chunk;   // number of this thread in its chunk

  // The unit.
  int kv_head = 0;
  int first_head = 0;  // of the head group, in the kv head
  int32_t tile_begin = 0;
  int32_t tile_end = 0;

  __device__ explicit BlockRows(const PagedAttentionParams& params) : p(params) {
    const int warp = threadIdx.x / 32;
    part = warp % kSplit;
    first_row = warp / kSplit * Map::kRows;
    in_chunk = part * 32 + threadIdx.x % 32;
    shared.base = SharedMemory<std::byte>();
  }

  // Takes head group `head` of a tile, counted over all kv heads.
  __device__ void SetUnit(int32_t tile, int head) {
    kv_head = head / p.head_groups;
    first_head = head % p.head_groups * p.heads_per_group;
    tile_begin = tile * p.tile_tokens;
    tile_end = static_cast<int32_t>(TileEnd(p, tile));
  }

  // Row `row` of the block is token token_of(row) and query head head_of(row).
  __device__ int64_t token_of(int row) const { return tile_begin + row / p.heads_per_group; }
  __device__ int head_of(int row) const {
    return kv_head * heads_per_kv() + first_head + row % p.heads_per_group;
  }
  __device__ bool Exists(int row) const {
    return row < (tile_end - tile_begin) * p.heads_per_group &&
           first_head + row % p.heads_per_group < heads_per_kv();
  }
  __device__ int heads_per_kv() const { return p.query_heads / p.kv_heads; }

  // Sets the bounds of all rows for one run of the tokens [begin, end).
  __device__ void SetBounds(int64_t begin, int64_t end, int run) {
    __syncthreads();  // the old bounds were read
    for (int row = threadIdx.x; row < kRows; row += kBlock) {
      const int64_t token = token_of(row);
      VisibleRun found;
      if (Exists(row) && token >= begin && token < end) found = RunOf(p, p.row_runs[token], run);
      shared.row_begin(row) = found.begin;
      shared.row_end(row) = found.end;
    }
    __syncthreads();
  }

  __device__ bool ChunkSees(int32_t tile_slot) const {
    bool sees = false;
    for (int i = 0; i < Map::kRows; ++i) {
      const TileBounds bounds = BoundsOf(shared, first_row + i, tile_slot);
      sees = sees || bounds.begin < bounds.end;
    }
    return sees;
  }

  // Waits for all threads of the chunk.
  __device__ void SyncChunk() const {
    if constexpr (kSplit == 1) {
      __syncwarp(kWholeWarp);
    } else {
      __syncthreads();
    }
  }

  // Calls fn(i, row) for each row of this thread's part of the softmax.
  template <typename Function>
  __device__ void ForSoftRows(const Function& fn) const {
#pragma unroll
    for (int i = 0; i < Map::kSoftRows; ++i) {
      const int row = 2 * part + threadIdx.x % 32 / 16 + i * (Map::kThreads / 16);
      if (row < Map::kRows) fn(i, first_row + row);
    }
  }
};

}  // namespace baton::attention
