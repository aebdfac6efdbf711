// Divides paged attention among thread blocks. The kernel reads the lengths of contexts from device
// memory, so one captured graph serves every context length.
//
// Tokens are divided into tiles of `tile_tokens`. Inside a tile, a group is a set of adjacent
// tokens of one sequence with equal runs. Runs are equal if they agree in number, tile_origin and
// query_offset, and, except for the last run, in the number of their segments.
//
// In t1, tokens of different sequences may share the leading segments of their first runs
// (PagedAttentionArgs::shared_segments). Such tokens of a tile are a cohort. Their shared segments
// are computed once, for all of them, in front of the first group of the cohort.
//
// The items of a unit are the segments of all runs of all its groups, in this order. One numbering
// covers the items of all units: by tile, then by head, then in the order of the unit. Thread block
// b takes items [b * quota, (b + 1) * quota).
//
// A block keeps the state of a unit that it begins. For a unit that another block began, it writes
// the state of each item. The block that ends last merges the states in the order of the items.
//
// If the workspace is too small for these states, a block computes whole units: those that begin
// among its items.
#pragma once

#include "kernels/cuda/attention_groups.cuh"

namespace baton::attention {

__device__ inline int64_t TileEnd(const PagedAttentionParams& p, int64_t tile) {
  const int64_t end = (tile + 1) * p.tile_tokens;
  return end < p.tokens ? end : p.tokens;
}

// The work of one group of tokens in a unit. The first group of a cohort also has the cohort's
// shared segments.
struct GroupWork {
  int items = 0;
  // In t1, a block that continues a unit merges adjacent segments of a group of eight before it
  // writes them (tensor_core_state.cuh). For n adjacent items it writes at most n / 8 + 8 states,
  // and `pieces` more for each group of tokens among them.
  int pieces = 0;

  // Adds `segments` adjacent segments. The first one has number `number` (NUMERICS_T1 §5) modulo 8.
  __device__ void Add(int segments, int number) {
    if (segments <= 0) return;
    const bool aligned = number % kT1GroupSegments == 0;
    // The last of them may be part of a group of eight, the first one too. Only where a group of
    // tokens begins inside a group of eight, this block may write segments one by one once more.
    pieces += aligned ? 1 : items > 0 ? 2 : 2 + kT1GroupSegments;
    items += segments;
  }
};
// `hull_of(run)` is that of the group that begins at token `begin`.
template <typename HullOfRun>
__device__ inline GroupWork WorkOfGroup(const PagedAttentionParams& p, int64_t begin,
                                        int64_t tile_begin, int64_t tile_end,
                                        const HullOfRun& hull_of) {
  GroupWork work;
  const int shared = SharedSegments(p, begin, tile_end);
  if (shared > 0 && BeginsCohort(p, begin, tile_begin)) work.Add(shared, 0);
  const int runs = p.row_runs[begin].run_count;
  for (int run = 0; run < runs; ++run) {
    Hull hull = hull_of(run);
    if (run == 0) hull.RemoveFirst(shared);
    const int first = hull.first_segment();
    work.Add(hull.last_segment() - first, run == 0 ? first : 1);
  }
  return work;
}

// The work of one unit of a tile.
struct UnitWork {
  int items;
  // In t1: at most `pieces` states are written for all of it, and at most n / 8 + `more_pieces` for
  // n adjacent items.
  int pieces;
  int more_pieces;
};
__device__ inline UnitWork UnitOf(int items, int pieces_of_groups) {
  const int more = kT1GroupSegments + pieces_of_groups;
  const int pieces = items / kT1GroupSegments + more;
  return {items, pieces < items ? pieces : items, more};
}
BATON_NOINLINE __device__ inline UnitWork WorkOf(const PagedAttentionParams& p, int64_t tile) {
  const TokenRuns t(p);
  const int64_t tile_begin = tile * p.tile_tokens;
  const int64_t tile_end = TileEnd(p, tile);
  int items = 0;
  int pieces = 0;
  for (int64_t begin = tile_begin; begin < tile_end;) {
    const int64_t end = GroupEnd(t, begin, tile_end);
    const GroupWork work = WorkOfGroup(p, begin, tile_begin, tile_end,
                                       [&](int run) { return HullOf(t, begin, end, run); });
    items += work.items;
    pieces += work.pieces;
    begin = end;
  }
  return UnitOf(items, pieces);
}
// The same by a whole warp: the work of the group that begins at the lane's token, one of the 32
// from `base` on. No work if no group begins there. In a batch of decode rows, each token is a
// group.
__device__ inline GroupWork WorkOfLane(const PagedAttentionParams& p, int base, int tile_begin,
                                       int tile_end) {
  const TokenRuns t(p);
  const int lane = threadIdx.x % 32;
  const int token = base + lane;
  const auto begins_at = [&](int at) {
    return at < tile_end && (at == tile_begin || BeginsGroup(t, at));
  };
  const bool begins = begins_at(token);
  const unsigned all = __ballot_sync(0xffffffffu, begins ? 1 : 0);
  const bool next_begins = lane < 31 ? (all >> lane >> 1 & 1) != 0 : begins_at(token + 1);
  const bool alone = next_begins || token + 1 >= tile_end;
  GroupWork work;
  if (begins && alone) {
    work = WorkOfGroup(p, token, tile_begin, tile_end,
                       [&](int run) { return HullOf(t, token, int64_t{token} + 1, run); });
  }
  for (unsigned left = __ballot_sync(0xffffffffu, begins && !alone ? 1 : 0); left != 0;
       left &= left - 1) {
    const int begin = base + __ffs(static_cast<int>(left)) - 1;
    const int end = GroupEndOfWarp(t, begin, tile_end);
    const GroupWork of_warp = WorkOfGroup(p, begin, tile_begin, tile_end,
                                          [&](int run) { return HullOfWarp(t, begin, end, run); });
    if (token == begin) work = of_warp;
  }
  return work;
}
__device__ inline int ItemsOf(const PagedAttentionParams& p, int64_t tile) {
  return WorkOf(p, tile).items;
}

// Divides by 32-bit numbers where both fit: 64-bit division takes several times as long.
// REQUIRES: 0 <= a, 0 < b.
__device__ inline int64_t Quotient(int64_t a, int64_t b) {
  if (((a | b) >> 32) == 0) return static_cast<uint32_t>(a) / static_cast<uint32_t>(b);
  return a / b;
}

// What the plan needs of all tiles: of those of one thread, of a warp, or of the whole grid.
struct Totals {
  int64_t items;
  int32_t written;  // the most states that are written for a unit
  int32_t more;     // the most states of a unit that n / 8 does not count
};

// Adds up the totals of all threads. Sets `before` to the items of the threads before this one.
// `scratch` has kScratch values. Every thread calls it. It has one barrier, so `scratch` must be
// free before it.
__device__ inline Totals TotalsOfBlock(const Totals& mine, int64_t* scratch, int64_t& before) {
  constexpr int kMostWarps = kMaxThreads / 32;
  static_assert(2 * kMostWarps <= kScratchOfPieces, "scratch has room for two values of each warp");
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  int64_t sum = mine.items;
  for (int distance = 1; distance < 32; distance *= 2) {
    const int64_t other = __shfl_up_sync(0xffffffffu, sum, distance);
    if (lane >= distance) sum += other;
  }
  const int32_t written = __reduce_max_sync(0xffffffffu, mine.written);
  const int32_t more = __reduce_max_sync(0xffffffffu, mine.more);
  if (lane == 31) {
    scratch[warp] = sum;
    scratch[kMostWarps + warp] = int64_t{written} << 32 | more;
  }
  __syncthreads();
  Totals all{0, 0, 0};
  before = sum - mine.items;
  for (int i = 0; i < static_cast<int>(blockDim.x) / 32; ++i) {
    if (i < warp) before += scratch[i];
    all.items += scratch[i];
    const auto written_i = static_cast<int32_t>(scratch[kMostWarps + i] >> 32);
    const auto more_i = static_cast<int32_t>(scratch[kMostWarps + i]);
    all.written = written_i > all.written ? written_i : all.written;
    all.more = more_i > all.more ? more_i : all.more;
  }
  return all;
}

// The work of one thread block.
struct Share {
  int64_t quota;  // items of each block
  int64_t begin;  // items [begin, end) of this block
  int64_t end;
  int32_t tile;   // holds item `begin`
  int32_t items;  // of a unit of that tile
  int64_t first;  // number of the first item of that tile
  bool whole;     // the block takes every unit that begins in its share, as a whole
};

// The most pieces (GroupWork) of the groups that `n` adjacent items belong to. Whole warp: each
// lane has a group with `work`, `before` of whose items are in the lanes before it.
__device__ inline int MostPieces(const GroupWork& work, int before, int64_t n) {
  const int lane = threadIdx.x % 32;
  const int64_t end = int64_t{before} + work.items + n;
  int pieces = 0;
  for (int other = 0; other < 32; ++other) {
    const int others_before = __shfl_sync(0xffffffffu, before, other);
    const int others_pieces = __shfl_sync(0xffffffffu, work.pieces, other);
    if (other >= lane && others_before < end) pieces += others_pieces;
  }
  return __reduce_max_sync(0xffffffffu, work.items > 0 ? pieces : 0);
}

// Every thread of the block calls it and gets the same answer. `scratch` has kScratch values.
// kInPieces: the block writes the pieces of t1, and two states if it begins a unit. Otherwise one
// state for each item, and one.
template <bool kInPieces>
__device__ inline Share FindShare(const PagedAttentionParams& p, int64_t* scratch) {
  const int64_t tiles = (p.tokens + p.tile_tokens - 1) / p.tile_tokens;
  const int64_t heads = int64_t{p.kv_heads} * p.head_groups;  // units of a tile
  // Each thread has `each` adjacent tiles: one in most launches. If there are few, a warp has one:
  // a thread would walk through the tokens of many sequences one after the other.
  const int warp = threadIdx.x / 32;
  const int warps = static_cast<int>(blockDim.x) / 32;
  const bool by_warps =
      kInPieces && p.tile_tokens > 1 && p.tile_tokens <= kPlannedTokens && tiles <= int64_t{warps};
  const int64_t each = by_warps ? 1 : (tiles + blockDim.x - 1) / blockDim.x;
  const int64_t first_tile = by_warps ? warp : each * threadIdx.x;
  const int64_t last_tile = first_tile + each < tiles ? first_tile + each : tiles;
  Totals mine{0, 0, 0};
  GroupWork of_lane;
  if (by_warps) {
    if (first_tile < tiles) {
      const auto begin = static_cast<int>(first_tile) * p.tile_tokens;
      of_lane = WorkOfLane(p, begin, begin, static_cast<int>(TileEnd(p, first_tile)));
    }
    const UnitWork work = UnitOf(__reduce_add_sync(0xffffffffu, of_lane.items),
                                 __reduce_add_sync(0xffffffffu, of_lane.pieces));
    mine = {of_lane.items, work.pieces, work.more_pieces};
  } else {
    for (int64_t tile = first_tile; tile < last_tile; ++tile) {
      const UnitWork work = WorkOf(p, tile);
      const int32_t written = kInPieces ? work.pieces : work.items;
      mine.items += work.items;
      mine.written = written > mine.written ? written : mine.written;
      mine.more = work.more_pieces > mine.more ? work.more_pieces : mine.more;
    }
  }
  int64_t before = 0;
  Totals all = TotalsOfBlock(mine, scratch, before);
  const int64_t total = all.items * heads;

  Share share{};
  share.quota = Quotient(total + gridDim.x - 1, gridDim.x);
  share.begin = share.quota * blockIdx.x;
  share.end = share.begin + share.quota < total ? share.begin + share.quota : total;
  if (by_warps && share.quota + 2 > p.states_per_block) {
    // A share has few of a unit's groups of tokens.
    const auto in_tile = static_cast<int>(before - __shfl_sync(0xffffffffu, before, 0));
    const int pieces = kT1GroupSegments + MostPieces(of_lane, in_tile, share.quota);
    if (threadIdx.x % 32 == 0) scratch[kScratchOfPieces + warp] = pieces;
    __syncthreads();
    all.more = 0;
    for (int i = 0; i < warps; ++i) {
      const auto of_warp = static_cast<int32_t>(scratch[kScratchOfPieces + i]);
      all.more = of_warp > all.more ? of_warp : all.more;
    }
  }
  if (by_warps) {
    mine.items = __reduce_add_sync(0xffffffffu, of_lane.items);
    if (threadIdx.x % 32 != 0) mine.items = 0;
  }
  // A block continues at most one unit that another block began, with at most `quota` items of it.
  int64_t written = all.written < share.quota ? all.written : share.quota;
  if (kInPieces) {
    const int64_t of_share = share.quota / kT1GroupSegments + all.more;
    written = (written < of_share ? written : of_share) + 1;
  }
  share.whole = written + 1 > p.states_per_block;
  if (share.begin >= share.end) return share;

  // The thread that has item `begin` finds its tile.
  int64_t first = before * heads;
  if (first <= share.begin && share.begin < first + mine.items * heads) {
    int64_t tile = first_tile;
    int64_t items = mine.items;
    while (each > 1) {
      items = ItemsOf(p, tile);
      if (share.begin < first + items * heads) break;
      first += items * heads;
      ++tile;
    }
    scratch[kScratchOfShare] = tile;
    scratch[kScratchOfShare + 1] = first;
    scratch[kScratchOfShare + 2] = items;
  }
  __syncthreads();
  share.tile = static_cast<int32_t>(scratch[kScratchOfShare]);
  share.first = scratch[kScratchOfShare + 1];
  share.items = static_cast<int32_t>(scratch[kScratchOfShare + 2]);
  return share;
}

}  // namespace baton::attention
