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

// Returns run number `run` of a token, with the token's own bounds if it is the last.
__device__ inline VisibleRun RunOf(const PagedAttentionParams& p, const RowRuns& row, int run) {
  VisibleRun found = p.runs[row.first_run + run];
  if (run == row.run_count - 1) {
    found.begin = row.last_begin;
    found.end = row.last_end;
  }
  return found;
}

// Returns the number of segments from a run's tile origin to its end. An empty run has none.
__device__ inline int SegmentsOf(const VisibleRun& run) {
  if (!Sees(run.begin, run.end)) return 0;
  return static_cast<int>((int64_t{run.end} - run.tile_origin + kAttentionSegment - 1) /
                          kAttentionSegment);
}

// In t1, tokens of a group must also agree in the numbers of their segments (NUMERICS_T1 §5): in
// the segments of all runs before the last one.
__device__ inline bool HaveLikeRuns(const PagedAttentionParams& p, const RowRuns& a,
                                    const RowRuns& b) {
  if (a.run_count != b.run_count) return false;
  if (a.first_run == b.first_run) return true;
  for (int run = 0; run < a.run_count; ++run) {
    const VisibleRun& x = p.runs[a.first_run + run];
    const VisibleRun& y = p.runs[b.first_run + run];
    if (x.tile_origin != y.tile_origin || x.query_offset != y.query_offset) return false;
    if (run + 1 < a.run_count && SegmentsOf(x) != SegmentsOf(y)) return false;
  }
  return true;
}

// Returns the end of the group that begins at token `begin` of a tile that ends at `tile_end`.
__device__ inline int64_t GroupEnd(const PagedAttentionParams& p, int64_t begin, int64_t tile_end) {
  int64_t end = begin + 1;
  while (end < tile_end && p.sequence_of_token[end] == p.sequence_of_token[end - 1] &&
         HaveLikeRuns(p, p.row_runs[end - 1], p.row_runs[end])) {
    ++end;
  }
  return end;
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

__device__ inline Hull HullOf(const PagedAttentionParams& p, int64_t begin, int64_t end, int run) {
  Hull hull{0, 0, 0};
  for (int64_t token = begin; token < end; ++token) {
    const VisibleRun found = RunOf(p, p.row_runs[token], run);
    hull.origin = found.tile_origin;
    if (!Sees(found.begin, found.end)) continue;
    const bool first = hull.begin == hull.end;
    hull.begin = first || found.begin < hull.begin ? found.begin : hull.begin;
    hull.end = first || found.end > hull.end ? found.end : hull.end;
  }
  if (hull.begin == hull.end) hull.begin = hull.end = hull.origin;
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
__device__ inline UnitWork WorkOf(const PagedAttentionParams& p, int64_t tile) {
  const int64_t tile_end = TileEnd(p, tile);
  UnitWork work{0, 0, 0};
  for (int64_t begin = tile * p.tile_tokens; begin < tile_end;) {
    const int64_t end = GroupEnd(p, begin, tile_end);
    const int runs = p.row_runs[begin].run_count;
    int items = 0;
    for (int run = 0; run < runs; ++run) {
      const Hull hull = HullOf(p, begin, end, run);
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

// Sums `value` over the threads of the block before this one, and over all of them.
struct Scan {
  int64_t before;
  int64_t total;
};
// `scratch` has kScratch values. Every thread calls it.
__device__ inline Scan ScanBlock(int64_t value, int64_t* scratch) {
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int warps = blockDim.x / 32;
  int64_t sum = value;
  for (int distance = 1; distance < 32; distance *= 2) {
    const int64_t other = __shfl_up_sync(0xffffffffu, sum, distance);
    if (lane >= distance) sum += other;
  }
  __syncthreads();  // the previous contents of `scratch` were read
  if (lane == 31) scratch[warp] = sum;
  __syncthreads();
  Scan scan{sum - value, 0};
  for (int i = 0; i < warps; ++i) {
    if (i < warp) scan.before += scratch[i];
    scan.total += scratch[i];
  }
  return scan;
}

// Takes the largest of both values over all threads. As ScanBlock.
struct Largest {
  int64_t first;
  int64_t second;
};
__device__ inline Largest LargestOfBlock(Largest x, int64_t* scratch) {
  const auto take = [&x](int64_t first, int64_t second) {
    x.first = first > x.first ? first : x.first;
    x.second = second > x.second ? second : x.second;
  };
  for (int distance = 16; distance > 0; distance /= 2) {
    const int64_t first = __shfl_xor_sync(0xffffffffu, x.first, distance);
    take(first, __shfl_xor_sync(0xffffffffu, x.second, distance));
  }
  __syncthreads();  // the previous contents of `scratch` were read
  if (threadIdx.x % 32 == 0) {
    scratch[threadIdx.x / 32] = x.first;
    scratch[16 + threadIdx.x / 32] = x.second;
  }
  __syncthreads();
  for (int warp = 0; warp < blockDim.x / 32; ++warp) take(scratch[warp], scratch[16 + warp]);
  return x;
}

// The work of one thread block.
struct Share {
  int64_t quota;  // items of each block
  int64_t begin;  // items [begin, end) of this block
  int64_t end;
  int32_t tile;   // holds item `begin`
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
  int64_t sum = 0;
  Largest largest{0, 0};  // written states of a unit; states that n / 8 does not count
  for (int64_t tile = threadIdx.x; tile < tiles; tile += blockDim.x) {
    const UnitWork work = WorkOf(p, tile);
    const int64_t written = kInPieces ? work.pieces : work.items;
    sum += work.items;
    largest.first = written > largest.first ? written : largest.first;
    largest.second = work.more_pieces > largest.second ? work.more_pieces : largest.second;
  }
  const int64_t total = ScanBlock(sum, scratch).total * heads;
  largest = LargestOfBlock(largest, scratch);

  Share share{};
  share.quota = (total + gridDim.x - 1) / gridDim.x;
  share.begin = share.quota * blockIdx.x;
  share.end = share.begin + share.quota < total ? share.begin + share.quota : total;
  // A block continues at most one unit that another block began, with at most `quota` items of it.
  int64_t written = largest.first < share.quota ? largest.first : share.quota;
  if (kInPieces) {
    const int64_t of_share = share.quota / kT1GroupSegments + largest.second;
    written = (written < of_share ? written : of_share) + 1;
  }
  share.whole = written + 1 > p.states_per_block;
  if (share.begin >= share.end) return share;

  // Finds the tile of item `begin`.
  int64_t first = 0;
  for (int64_t base = 0; base < tiles; base += blockDim.x) {
    const int64_t tile = base + threadIdx.x;
    const int64_t items = tile < tiles ? ItemsOf(p, tile) * heads : 0;
    const Scan scan = ScanBlock(items, scratch);
    const int64_t at = first + scan.before;
    __syncthreads();
    if (at <= share.begin && share.begin < at + items) {
      scratch[32] = tile;
      scratch[33] = at;
    }
    __syncthreads();
    first += scan.total;
    if (share.begin < first) break;
  }
  share.tile = static_cast<int32_t>(scratch[32]);
  share.first = scratch[33];
  return share;
}

}  // namespace baton::attention
