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

// The end of the tokens that have like runs with token `begin`. Whole warp, as the following.
BATON_NOINLINE __device__ inline int EndOfGroup(TokenRuns t, int begin, int tile_end) {
  return attention::GroupEndOfWarp(t, begin, tile_end);
}
BATON_NOINLINE __device__ inline Hull HullOf(TokenRuns t, int begin, int end, int run) {
  return attention::HullOfWarp(t, begin, end, run);
}

// The unit has the shared segments of the cohort that begins at token `begin`, if one does.
__device__ inline bool ComputesShared(const PagedAttentionParams& p, int begin, int tile_begin,
                                      int tile_end) {
  return attention::SharedSegments(p, begin, tile_end) > 0 &&
         attention::BeginsCohort(p, begin, tile_begin);
}
// The slots of a run that a unit computes for the group [begin, end). Run −1: the shared segments.
BATON_NOINLINE __device__ inline Hull HullOfPart(const PagedAttentionParams& p, int begin, int end,
                                                 int run, int tile_end) {
  const int segments = run > 0 ? 0 : attention::SharedSegments(p, begin, tile_end);
  if (run < 0) {
    const int32_t origin = p.runs[p.row_runs[begin].first_run].tile_origin;
    return {origin, origin + segments * kAttentionSegment, origin};
  }
  Hull hull = attention::HullOfWarp(TokenRuns(p), begin, end, run);
  if (segments > 0) hull.RemoveFirst(segments);
  return hull;
}

// The end of the cohort of token `begin`, which shares segments.
BATON_NOINLINE __device__ inline int EndOfCohort(const PagedAttentionParams& p, int begin,
                                                 int tile_end) {
  for (int base = begin + 1; base < tile_end; base += 32) {
    const int token = base + static_cast<int>(threadIdx.x % 32);
    const bool is_end = token < tile_end && p.shared_segments[token] == 0;
    const unsigned ends = __ballot_sync(0xffffffffu, is_end ? 1 : 0);
    if (ends != 0) return base + __ffs(static_cast<int>(ends)) - 1;
  }
  return tile_end;
}

// The items of a unit of a tile. Unless `before` is null, before[i] gets the number of items in
// front of those of token i of the tile, for a group that begins there. A token inside a group gets
// the number behind the group's items.
__device__ inline int ItemsOfWarp(const PagedAttentionParams& p, int tile, int32_t* before) {
  const int begin = tile * p.tile_tokens;
  const auto end = static_cast<int>(attention::TileEnd(p, tile));
  const int lane = threadIdx.x % 32;
  int items = 0;
  for (int base = begin; base < end; base += 32) {
    const int mine = attention::WorkOfLane(p, base, begin, end).items;
    int through = mine;  // of this lane and those before it
    for (int distance = 1; distance < 32; distance *= 2) {
      const int other = __shfl_up_sync(0xffffffffu, through, distance);
      if (lane >= distance) through += other;
    }
    if (before != nullptr && base + lane < end)
      before[base + lane - begin] = items + through - mine;
    items += __shfl_sync(0xffffffffu, through, 31);
  }
  return items;
}
// The same for units of one token.
__device__ inline int ItemsOfToken(const TokenRuns& t, int token) {
  const int runs = t.row_runs[token].run_count;
  int items = 0;
  for (int run = 0; run < runs; ++run) {
    const Hull hull = HullOf(t, token, token + 1, run);
    items += hull.last_segment() - hull.first_segment();
  }
  return items;
}
// The token, counted in its tile of `tokens`, that item `item` of a unit belongs to.
BATON_NOINLINE __device__ inline int TokenOfItem(const int32_t* before, int tokens, int item) {
  int found = 0;  // tokens with at most `item` items in front of them; the last of them has it
  for (int base = 0; base < tokens; base += 32) {
    const int token = base + static_cast<int>(threadIdx.x % 32);
    const bool is_before = token < tokens && before[token] <= item;
    found += __popc(__ballot_sync(0xffffffffu, is_before ? 1 : 0));
  }
  return found - 1;
}

// Every thread calls it. The first warp then sees its result. `scratch` has attention::kScratch
// values. `items_before` has room for one value for each token of a tile; null: units have one
// token.
BATON_NOINLINE __device__ inline void BeginWork(const PagedAttentionParams& p, int64_t* scratch,
                                                BlockWork& work, int32_t* items_before) {
  const Share share = attention::FindShare<true>(p, scratch);
  if (threadIdx.x < 32 && items_before != nullptr && share.begin < share.end) {
    ItemsOfWarp(p, share.tile, items_before);
  }
  if (threadIdx.x == 0) {
    work.share = share;
    work.tile = share.tile;
    work.items = share.items;
    work.first = share.first;
    work.item = work.stop = share.begin;
  }
  __syncwarp();
}

// Goes on to the block's next unit. The first warp calls it. `items_before` as in BeginWork.
BATON_NOINLINE __device__ inline void NextUnit(const PagedAttentionParams& p, BlockWork& work,
                                               int32_t* items_before) {
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
      items = items_before != nullptr ? ItemsOfWarp(p, tile, items_before) : ItemsOfToken(t, tile);
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
