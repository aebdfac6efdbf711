// Steps through the units of a thread block of the tensor-core attention (attention_plan.cuh).
//
// The description of the present unit is in shared memory, and the first warp computes it. So the
// loop over tiles has all registers for its operands. Each lane of a warp looks at one token.
#pragma once

#include "kernels/cuda/attention_plan.cuh"
#include "kernels/cuda/tensor_core_params.h"

namespace baton::t1 {

using attention::Hull;
using attention::Quotient;
using attention::Share;
using attention::TokenRuns;

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
  int32_t items;  // of a unit of `tile`
  // The unit's rows: query heads from `first_head` on of kv head `kv_head`, tokens [first_token,
  // last_token).
  int32_t kv_head;
  int32_t first_head;  // in the kv head
  int32_t first_token;
  int32_t last_token;
  // The blocks [first_block, last_block] that compute the unit.
  int32_t first_block;
  int32_t last_block;

  __device__ bool keeps_unit() const { return item == begin; }
  __device__ bool whole_unit() const { return item == begin && stop == end; }
};
static_assert(sizeof(BlockWork) <= kWorkBytes, "shared memory has room for it");

// Every thread calls it. The first warp then sees its result. `scratch` has attention::kScratch
// values.
BATON_NOINLINE __device__ inline void BeginWork(const PagedAttentionParams& p, int64_t* scratch,
                                                BlockWork& work) {
  const Share share = attention::FindShare<true>(p, scratch);
  if (threadIdx.x == 0) {
    work.share = share;
    work.tile = share.tile;
    work.items = share.items;
    work.first = share.first;
    work.item = work.stop = share.begin;
  }
  __syncwarp();
}

// The end of the tokens that have like runs with token `begin`. Whole warp, as the following.
BATON_NOINLINE __device__ inline int EndOfGroup(TokenRuns t, int begin, int tile_end) {
  return attention::GroupEndOfWarp(t, begin, tile_end);
}
BATON_NOINLINE __device__ inline Hull HullOf(TokenRuns t, int begin, int end, int run) {
  return attention::HullOfWarp(t, begin, end, run);
}

// The items of a unit of a tile.
__device__ inline int ItemsOfWarp(const TokenRuns& t, int begin, int tile_end) {
  int items = 0;
  while (begin < tile_end) {
    const int end = EndOfGroup(t, begin, tile_end);
    const int runs = t.row_runs[begin].run_count;
    for (int run = 0; run < runs; ++run) {
      const Hull hull = HullOf(t, begin, end, run);
      items += hull.last_segment() - hull.first_segment();
    }
    begin = end;
  }
  return items;
}

// Goes on to the block's next unit. The first warp calls it.
BATON_NOINLINE __device__ inline void NextUnit(const PagedAttentionParams& p, BlockWork& work) {
  const TokenRuns t(p);
  const Share share = work.share;
  const int heads = p.kv_heads * p.head_groups;
  int64_t first = work.first;
  int tile = work.tile;
  int items = work.items;
  int64_t item = work.stop;
  int64_t begin = item;
  int64_t end = item;
  int head = 0;
  while (item < share.end) {
    const int64_t next_first = first + int64_t{items} * heads;
    if (item >= next_first) {
      first = next_first;
      ++tile;
      items = ItemsOfWarp(t, tile * p.tile_tokens, static_cast<int>(attention::TileEnd(p, tile)));
      continue;
    }
    head = static_cast<int>(Quotient(item - first, items));
    begin = first + int64_t{head} * items;
    end = begin + items;
    if (!share.whole || begin >= share.begin) break;
    item = end;  // another block has it
  }
  const bool found = item < share.end;
  const int64_t stop = !found ? item : share.whole || end < share.end ? end : share.end;
  __syncwarp();  // `work` was read
  if (threadIdx.x != 0) return;
  work.first = first;
  work.tile = tile;
  work.items = items;
  work.item = item;
  work.stop = stop;
  if (!found) return;
  work.begin = begin;
  work.end = end;
  work.kv_head = head / p.head_groups;
  work.first_head = head % p.head_groups * p.heads_per_group;
  work.first_token = tile * p.tile_tokens;
  work.last_token = static_cast<int32_t>(attention::TileEnd(p, tile));
  const auto block = static_cast<int32_t>(blockIdx.x);
  work.first_block = item == begin ? block : static_cast<int32_t>(Quotient(begin, share.quota));
  work.last_block = stop == end ? block : static_cast<int32_t>(Quotient(end - 1, share.quota));
}

}  // namespace baton::t1
