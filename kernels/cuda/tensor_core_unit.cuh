// The unit that a block of the tensor-core attention works on (BlockWork): which row is which token
// and query head, and which slots a row sees. RunUnits is the loop over a block's units.
#pragma once

#include "kernels/cuda/tensor_core_loads.cuh"

namespace baton::t1 {

using attention::RunOf;
using attention::Sees;
using attention::SegmentsOf;
using attention::SlotOffset;
using attention::TileEnd;

// The end of the slots that a row sees of a run of other tokens.
inline constexpr int32_t kOutside = INT32_MIN;
inline constexpr int kTilesPerSegment = kAttentionSegment / kAttentionTile;

// Writes zeros for tokens that see no slot: no unit has them. A warp takes a token.
__device__ inline void ZeroUnseenRows(const PagedAttentionParams& p) {
  const int warps_of_block = static_cast<int>(blockDim.x) / 32;
  const int64_t warps = int64_t{gridDim.x} * warps_of_block;
  const int64_t values = int64_t{p.query_heads} * p.head_dim;
  for (int64_t token = int64_t{blockIdx.x} * warps_of_block + threadIdx.x / 32; token < p.tokens;
       token += warps) {
    const RowRuns row = p.row_runs[token];
    bool sees = false;
    for (int run = 0; run < row.run_count && !sees; ++run) {
      const VisibleRun found = RunOf(p, row, run);
      sees = Sees(found.begin, found.end);
    }
    if (sees) continue;
    for (int64_t i = threadIdx.x % 32; i < values; i += 32) p.out[token * values + i] = 0;
  }
}

template <typename SharedMemory, int kRows>
struct Unit {
  const PagedAttentionParams& p;
  SharedMemory shared;

  __device__ const BlockWork& work() const { return shared.work(); }
  // Row `row` of the block is token token_of(row) and query head head_of(row), if it exists.
  __device__ int64_t token_of(int row) const {
    return work().first_token + (SharedMemory::kOneToken ? 0 : row / p.heads_per_group);
  }
  __device__ int head_of(int row) const {
    return work().kv_head * (p.query_heads / p.kv_heads) + work().first_head + HeadInGroup(row);
  }
  __device__ bool Exists(int row) const {
    return row < (work().last_token - work().first_token) * p.heads_per_group &&
           work().first_head + HeadInGroup(row) < p.query_heads / p.kv_heads;
  }

  // Calls fn(hull, first token, run, number, first, last) for each part of the unit that the block
  // computes: segments [first, last) of a run of a group of tokens, or those that a cohort shares.
  // `number` is that of the run's segment 0 among those of its rows. The bounds of the rows are
  // set. Every thread calls it; fn ends with a barrier.
  template <typename Function>
  __device__ void ForRuns(const Function& fn) const {
    constexpr bool kOneToken = SharedMemory::kOneToken;
    const TokenRuns t(p);
    int begin = work().first_token;
    int item = 0;  // the first of the run
    if constexpr (!kOneToken) {
      const int32_t* const before = shared.items_before();
      const int token = TokenOfItem(before, work().last_token - begin,
                                    static_cast<int>(work().item - work().begin));
      begin += token;
      item = before[token];
    }
    while (begin < work().last_token && work().begin + item < work().stop) {
      int end = EndOfGroup(t, begin, work().last_token);
      int number = 0;  // of the run's first segment
      // Run −1 stands for the shared segments of a cohort. They are in front of its first group.
      int run = 0;
      if constexpr (!kOneToken) {
        run = ComputesShared(p, begin, work().first_token, work().last_token) ? -1 : 0;
      }
      // The count is read again each time, because fn leaves no register for it.
      for (; run < p.row_runs[begin].run_count; ++run) {
        const Hull hull = kOneToken ? HullOf(t, begin, end, run)
                                    : HullOfPart(p, begin, end, run, work().last_token);
        const int segments = hull.last_segment() - hull.first_segment();
        const int from = static_cast<int>(work().item - work().begin) - item;
        const int to = static_cast<int>(work().stop - work().begin) - item;
        const int first = from > 0 ? from : 0;
        const int last = to < segments ? to : segments;
        item += segments;
        if (first < last) {
          SetBounds(begin, run < 0 ? EndOfCohort(p, begin, work().last_token) : end,
                    run < 0 ? 0 : run, item, end);
          fn(hull, begin, run < 0 ? 0 : run, number, hull.first_segment() + first,
             hull.first_segment() + last);
          if constexpr (!kOneToken) {  // fn leaves no registers for these
            item = shared.all_see()[3];
            end = shared.all_see()[4];
          }
        }
        const RowRuns row = p.row_runs[begin];
        if (run >= 0 && run + 1 < row.run_count) {
          number += SegmentsOf(p.runs[row.first_run + run]);
        }
      }
      begin = end;
    }
  }

  // Every row of the block sees all slots of the tile.
  __device__ bool IsFull(int32_t tile_slot) const {
    return shared.all_see()[0] <= tile_slot &&
           int64_t{tile_slot} + kAttentionTile <= shared.all_see()[1];
  }
  // A row of the block sees the slot. Rows of one token have equal bounds, so one of them is
  // enough.
  __device__ bool IsSeen(int64_t slot) const {
    constexpr bool kOneToken = SharedMemory::kOneToken;
    const int rows_of_token = kOneToken ? kRows : p.heads_per_group;
    bool seen = false;
#pragma unroll 1
    for (int row = kOneToken ? 0 : shared.all_see()[2]; row < kRows && !seen;
         row += rows_of_token) {
      const int32_t end = shared.bounds()[kRows + row];
      if (end == kOutside) break;
      seen = slot >= shared.bounds()[row] && slot < end;
    }
    return seen;
  }
  // The query of a row for a run, or null if the row sees none of it.
  __device__ const float* QueryOf(int row, int64_t query_offset) const {
    if (shared.bounds()[row] >= shared.bounds()[kRows + row]) return nullptr;
    return p.q + (token_of(row) + query_offset) * p.q_stride + int64_t{head_of(row)} * p.head_dim;
  }
  // The outputs of a row. REQUIRES: it exists.
  __device__ float* OutputOf(int row) const {
    return p.out + (token_of(row) * p.query_heads + head_of(row)) * p.head_dim;
  }

 private:
  // The row's query head in its head group.
  __device__ int HeadInGroup(int row) const {
    return SharedMemory::kOneToken ? row : row % p.heads_per_group;
  }

  // Sets the bounds of all rows for one run of the tokens [begin, end). Keeps `next_item` and
  // `group_end` in shared memory.
  __device__ void SetBounds(int begin, int end, int run, int next_item, int group_end) const {
    int32_t* const begins = shared.bounds();
    int32_t* const ends = begins + kRows;
    for (int row = threadIdx.x; row < kRows; row += blockDim.x) {
      const int64_t token = token_of(row);
      VisibleRun found{.begin = 0, .end = kOutside};
      if (Exists(row) && token >= begin && token < end) found = RunOf(p, p.row_runs[token], run);
      begins[row] = found.begin;
      ends[row] = found.end;
    }
    __syncthreads();
    int32_t latest_begin = INT32_MIN;
    int32_t earliest_end = INT32_MAX;
    for (int row = threadIdx.x % 32; row < kRows; row += 32) {
      if (!Exists(row)) continue;
      latest_begin = begins[row] > latest_begin ? begins[row] : latest_begin;
      earliest_end = ends[row] < earliest_end ? ends[row] : earliest_end;
    }
    latest_begin = __reduce_max_sync(kWholeWarp, latest_begin);
    earliest_end = __reduce_min_sync(kWholeWarp, earliest_end);
    if (threadIdx.x == 0) {
      shared.all_see()[0] = latest_begin;
      shared.all_see()[1] = earliest_end;
      if constexpr (!SharedMemory::kOneToken) {
        shared.all_see()[2] = (begin - work().first_token) * p.heads_per_group;
        shared.all_see()[3] = next_item;
        shared.all_see()[4] = group_end;
      }
    }
    __syncthreads();
  }
};

// Works through the units of a block after BeginWork. `run_segments` is as Unit::ForRuns needs it;
// it leaves its results in `state`. `write_results` writes those of a whole unit. Every thread
// calls it.
template <typename BlockUnit, typename State, typename RunSegments, typename WriteResults>
__device__ __forceinline__ void RunUnits(const BlockUnit& unit, State& state,
                                         const RunSegments& run_segments,
                                         const WriteResults& write_results) {
  BlockWork& work = unit.shared.work();
  while (true) {
    if (threadIdx.x < 32) NextUnit(unit.p, work, unit.shared.items_before());
    __syncthreads();
    if (work.item >= work.stop) return;
    state.Begin(work.keeps_unit());
    unit.ForRuns(run_segments);
    bool finished = work.whole_unit();
    if (!finished) {
      state.WriteRest();
      finished = state.ArrivesLast(work, unit.shared.scratch());
      if (finished) state.MergePieces(work);
    }
    if (finished) write_results();
    __syncthreads();  // `work` was read
  }
}

}  // namespace baton::t1
