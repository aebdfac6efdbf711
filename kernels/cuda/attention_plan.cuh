// Divides paged attention among thread blocks. The kernel reads the lengths of contexts from device
// memory, so one captured graph serves every context length.
//
// Tokens are divided into tiles of `tile_tokens`. Inside a tile, a group is a set of adjacent
// tokens of one sequence with equal runs. Runs are equal if they agree in number, tile_origin and
// query_offset, and, except for the last run, in the number of their segments.
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

#include "kernels/cuda/attention_params.h"
#include "kernels/cuda/device_code.cuh"

namespace baton::attention {

__device__ inline bool Sees(int32_t begin, int32_t end) { return begin < end; }

// What the plan reads of a batch. Passed by value: nvcc then loads from device memory directly.
struct TokenRuns {
  const int32_t* sequence_of_token;
  const VisibleRun* runs;
  const RowRuns* row_runs;

  __device__ explicit TokenRuns(const PagedAttentionParams& p)
      : sequence_of_token(p.sequence_of_token), runs(p.runs), row_runs(p.row_runs) {}

  // Returns run number `run` of a row, with the row's own bounds if it is the last.
  __device__ VisibleRun RunOf(const RowRuns& row, int run) const {
    VisibleRun found = runs[row.first_run + run];
    if (run == row.run_count - 1) {
      found.begin = row.last_begin;
      found.end = row.last_end;
    }
    return found;
  }
};
__device__ inline VisibleRun RunOf(const PagedAttentionParams& p, const RowRuns& row, int run) {
  return TokenRuns(p).RunOf(row, run);
}

// Returns the number of segments from a run's tile origin to its end. An empty run has none.
__device__ inline int SegmentsOf(const VisibleRun& run) {
  if (!Sees(run.begin, run.end)) return 0;
  return static_cast<int>((int64_t{run.end} - run.tile_origin + kAttentionSegment - 1) /
                          kAttentionSegment);
}

// In t1, tokens of a group must also agree in the numbers of their segments (NUMERICS_T1 §5): in
// the segments of all runs before the last one.
__device__ inline bool HaveLikeRuns(const TokenRuns& t, const RowRuns& a, const RowRuns& b) {
  if (a.run_count != b.run_count) return false;
  if (a.first_run == b.first_run) return true;
  for (int run = 0; run < a.run_count; ++run) {
    const VisibleRun& x = t.runs[a.first_run + run];
    const VisibleRun& y = t.runs[b.first_run + run];
    if (x.tile_origin != y.tile_origin || x.query_offset != y.query_offset) return false;
    if (run + 1 < a.run_count && SegmentsOf(x) != SegmentsOf(y)) return false;
  }
  return true;
}

// Returns the end of the group that begins at token `begin` of a tile that ends at `tile_end`.
// Tokens are loaded in batches: one after the other, they would wait for the memory each time.
__device__ inline int64_t GroupEnd(const TokenRuns& t, int64_t begin, int64_t tile_end) {
  constexpr int kBatch = 4;
  if (begin + 1 >= tile_end) return tile_end;
  RowRuns before = t.row_runs[begin];
  const int32_t sequence = t.sequence_of_token[begin];
  for (int64_t base = begin + 1; base < tile_end; base += kBatch) {
    RowRuns rows[kBatch];
    int32_t sequences[kBatch];
    for (int i = 0; i < kBatch; ++i) {
      const int64_t token = base + i < tile_end ? base + i : tile_end - 1;
      rows[i] = t.row_runs[token];
      sequences[i] = t.sequence_of_token[token];
    }
    for (int i = 0; i < kBatch; ++i) {
      if (base + i >= tile_end) return tile_end;
      if (sequences[i] != sequence || !HaveLikeRuns(t, before, rows[i])) return base + i;
      before = rows[i];
    }
  }
  return tile_end;
}
// The same for a whole warp, each lane of which takes a token. All lanes get the result.
__device__ inline int GroupEndOfWarp(const TokenRuns& t, int begin, int tile_end) {
  for (int base = begin + 1; base < tile_end; base += 32) {
    const int token = base + static_cast<int>(threadIdx.x % 32);
    const bool is_end =
        token < tile_end && (t.sequence_of_token[token] != t.sequence_of_token[token - 1] ||
                             !HaveLikeRuns(t, t.row_runs[token - 1], t.row_runs[token]));
    const unsigned ends = __ballot_sync(0xffffffffu, is_end);
    if (ends != 0) return base + __ffs(static_cast<int>(ends)) - 1;
  }
  return tile_end;
}

// Slots [begin, end) that hold all slots that a group sees of a run. Empty if begin == end.
struct Hull {
  int32_t begin;
  int32_t end;
  int32_t origin;

  // Segments [first_segment, last_segment) of the run, and its tiles.
  __device__ int first_segment() const { return First(kAttentionSegment); }
  __device__ int last_segment() const { return Last(kAttentionSegment); }
  __device__ int first_tile() const { return First(kAttentionTile); }
  __device__ int last_tile() const { return Last(kAttentionTile); }
  // Distances from the origin need 33 bits if it is negative.
  __device__ int First(int slots) const {
    return static_cast<int>((int64_t{begin} - origin) / slots);
  }
  __device__ int Last(int slots) const {
    return begin == end ? First(slots)
                        : static_cast<int>((int64_t{end} - origin + slots - 1) / slots);
  }
};

__device__ inline Hull HullOf(const TokenRuns& t, int64_t begin, int64_t end, int run) {
  Hull hull{INT32_MAX, INT32_MIN, 0};
  for (int64_t token = begin; token < end; ++token) {
    const VisibleRun found = t.RunOf(t.row_runs[token], run);
    hull.origin = found.tile_origin;
    if (!Sees(found.begin, found.end)) continue;
    hull.begin = found.begin < hull.begin ? found.begin : hull.begin;
    hull.end = found.end > hull.end ? found.end : hull.end;
  }
  if (hull.begin > hull.end) hull.begin = hull.end = hull.origin;
  return hull;
}
// The same for a whole warp.
__device__ inline Hull HullOfWarp(const TokenRuns& t, int begin, int end, int run) {
  Hull hull{INT32_MAX, INT32_MIN, 0};
  for (int token = begin + static_cast<int>(threadIdx.x % 32); token < end; token += 32) {
    const VisibleRun found = t.RunOf(t.row_runs[token], run);
    hull.origin = found.tile_origin;
    if (!Sees(found.begin, found.end)) continue;
    hull.begin = found.begin < hull.begin ? found.begin : hull.begin;
    hull.end = found.end > hull.end ? found.end : hull.end;
  }
  hull.begin = __reduce_min_sync(0xffffffffu, hull.begin);
  hull.end = __reduce_max_sync(0xffffffffu, hull.end);
  hull.origin = __shfl_sync(0xffffffffu, hull.origin, 0);  // equal in all tokens of a group
  if (hull.begin > hull.end) hull.begin = hull.end = hull.origin;
  return hull;
}

__device__ inline int64_t TileEnd(const PagedAttentionParams& p, int64_t tile) {
  const int64_t end = (tile + 1) * p.tile_tokens;
  return end < p.tokens ? end : p.tokens;
}

// The work of one unit of a tile.
struct UnitWork {
  int items;
  // In t1, where the segments of a group of eight merge before they are written
  // (tensor_core_state.cuh): at most `pieces` states are written for all of it, and at most
  // n / 8 + `more_pieces` for n adjacent items.
  int pieces;
  int more_pieces;
};
BATON_NOINLINE __device__ inline UnitWork WorkOf(const PagedAttentionParams& p, int64_t tile) {
  const TokenRuns t(p);
  const int64_t tile_end = TileEnd(p, tile);
  UnitWork work{0, 0, 0};
  for (int64_t begin = tile * p.tile_tokens; begin < tile_end;) {
    const int64_t end = GroupEnd(t, begin, tile_end);
    const int runs = p.row_runs[begin].run_count;
    int items = 0;
    for (int run = 0; run < runs; ++run) {
      const Hull hull = HullOf(t, begin, end, run);
      items += hull.last_segment() - hull.first_segment();
    }
    // The rest of a group of eight, singly. Then one piece for each group; a run may begin and end
    // inside one.
    const int more = kT1GroupSegments + 2 * runs;
    const int pieces = items / kT1GroupSegments + more;
    work.items += items;
    work.pieces += pieces < items ? pieces : items;
    work.more_pieces += more;
    begin = end;
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
  static_assert(2 * kMostWarps <= 32, "scratch has room for two values of each warp");
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

// Every thread of the block calls it and gets the same answer. `scratch` has kScratch values.
// kInPieces: the block writes the pieces of t1, and two states if it begins a unit. Otherwise one
// state for each item, and one.
template <bool kInPieces>
__device__ inline Share FindShare(const PagedAttentionParams& p, int64_t* scratch) {
  const int64_t tiles = (p.tokens + p.tile_tokens - 1) / p.tile_tokens;
  const int64_t heads = int64_t{p.kv_heads} * p.head_groups;  // units of a tile
  // Each thread has `each` adjacent tiles: one in most launches.
  const int64_t each = (tiles + blockDim.x - 1) / blockDim.x;
  const int64_t first_tile = each * threadIdx.x;
  const int64_t last_tile = first_tile + each < tiles ? first_tile + each : tiles;
  Totals mine{0, 0, 0};
  for (int64_t tile = first_tile; tile < last_tile; ++tile) {
    const UnitWork work = WorkOf(p, tile);
    const int32_t written = kInPieces ? work.pieces : work.items;
    mine.items += work.items;
    mine.written = written > mine.written ? written : mine.written;
    mine.more = work.more_pieces > mine.more ? work.more_pieces : mine.more;
  }
  int64_t before = 0;
  const Totals all = TotalsOfBlock(mine, scratch, before);
  const int64_t total = all.items * heads;

  Share share{};
  share.quota = Quotient(total + gridDim.x - 1, gridDim.x);
  share.begin = share.quota * blockIdx.x;
  share.end = share.begin + share.quota < total ? share.begin + share.quota : total;
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
    scratch[32] = tile;
    scratch[33] = first;
    scratch[34] = items;
  }
  __syncthreads();
  share.tile = static_cast<int32_t>(scratch[32]);
  share.first = scratch[33];
  share.items = static_cast<int32_t>(scratch[34]);
  return share;
}

}  // namespace baton::attention
