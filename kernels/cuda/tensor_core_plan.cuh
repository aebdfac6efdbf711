// Steps through the units of a thread block of the tensor-core attention (attention_plan.cuh).
//
// The description of the present unit is in shared memory, and thread 0 computes it. So the loop
// over tiles has all registers for its operands.
#pragma once

#include "kernels/cuda/attention_plan.cuh"
#include "kernels/cuda/tensor_core_params.h"

namespace baton::t1 {

using attention::Hull;
using attention::Share;

struct BlockWork {
  Share share;
  int64_t first;  // number of the first item of `tile`
  // The unit: items [begin, end) of head group `head` of `tile`, counted over all kv heads.
  int64_t begin;
  int64_t end;
  // The block computes items [item, stop) of it. Empty: there are no more units.
  int64_t item;
  int64_t stop;
  int32_t tile;
  int32_t head;
  // Its rows: query heads from `first_head` on of kv head `kv_head`, tokens [first_token,
  // last_token).
  int32_t kv_head;
  int32_t first_head;  // in the kv head
  int32_t first_token;
  int32_t last_token;

  __device__ bool keeps_unit() const { return item == begin; }
  __device__ bool whole_unit() const { return item == begin && stop == end; }
  // The blocks [first_block, last_block] that compute the unit.
  __device__ int64_t first_block() const { return begin / share.quota; }
  __device__ int64_t last_block() const { return (end - 1) / share.quota; }
};
static_assert(sizeof(BlockWork) <= kWorkBytes, "shared memory has room for it");

// Every thread calls it. It ends with a barrier. `scratch` has attention::kScratch values.
BATON_NOINLINE __device__ inline void BeginWork(const PagedAttentionParams& p, int64_t* scratch,
                                                BlockWork& work) {
  const Share share = attention::FindShare<true>(p, scratch);
  if (threadIdx.x == 0) {
    work.share = share;
    work.tile = share.tile;
    work.first = share.first;
    work.item = work.stop = share.begin;
  }
  __syncthreads();
}

// Goes on to the block's next unit. Thread 0 calls it.
BATON_NOINLINE __device__ inline void NextUnit(const PagedAttentionParams& p, BlockWork& work) {
  const Share& share = work.share;
  const int heads = p.kv_heads * p.head_groups;
  work.item = work.stop;
  while (work.item < share.end) {
    const int items = attention::ItemsOf(p, work.tile);
    if (work.item >= work.first + int64_t{items} * heads) {
      work.first += int64_t{items} * heads;
      ++work.tile;
      continue;
    }
    work.head = static_cast<int>((work.item - work.first) / items);
    work.begin = work.first + int64_t{work.head} * items;
    work.end = work.begin + items;
    work.stop = share.whole || work.end < share.end ? work.end : share.end;
    work.kv_head = work.head / p.head_groups;
    work.first_head = work.head % p.head_groups * p.heads_per_group;
    work.first_token = work.tile * p.tile_tokens;
    work.last_token = static_cast<int32_t>(attention::TileEnd(p, work.tile));
    if (!share.whole || work.begin >= share.begin) return;
    work.item = work.end;  // another block has it
  }
  work.stop = work.item;
}

// The end of the tokens that have like runs with token `begin`.
BATON_NOINLINE __device__ inline int EndOfGroup(const PagedAttentionParams& p, int begin,
                                                int tile_end) {
  return static_cast<int>(attention::GroupEnd(p, begin, tile_end));
}
BATON_NOINLINE __device__ inline Hull HullOf(const PagedAttentionParams& p, int begin, int end,
                                             int run) {
  return attention::HullOf(p, begin, end, run);
}

}  // namespace baton::t1
