// Groups of adjacent tokens in a tile (attention_plan.cuh), the slots that a group sees, and the
// segments that tokens of different sequences share.
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

// The tokens of a tile that share segments with `token` are a cohort. Returns the number of these
// segments. 0: it shares none.
__device__ inline int SharedSegments(const PagedAttentionParams& p, int64_t token,
                                     int64_t tile_end) {
  if (p.shared_segments == nullptr) return 0;
  const int32_t with_earlier = p.shared_segments[token];
  const bool is_last = token + 1 >= tile_end;
  return with_earlier != 0 || is_last ? with_earlier : p.shared_segments[token + 1];
}
// REQUIRES: the token shares segments.
__device__ inline bool BeginsCohort(const PagedAttentionParams& p, int64_t token,
                                    int64_t tile_begin) {
  return token == tile_begin || p.shared_segments[token] == 0;
}

// Returns true if `token` does not belong to the group of the token before it.
__device__ inline bool BeginsGroup(const TokenRuns& t, int token) {
  return t.sequence_of_token[token] != t.sequence_of_token[token - 1] ||
         !HaveLikeRuns(t, t.row_runs[token - 1], t.row_runs[token]);
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
    const bool is_end = token < tile_end && BeginsGroup(t, token);
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
  // Leaves out the first `segments` segments of the run.
  __device__ void RemoveFirst(int segments) {
    const int64_t rest = origin + int64_t{segments} * kAttentionSegment;
    if (begin < rest) begin = static_cast<int32_t>(rest);
    if (end < begin) end = begin;
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

}  // namespace baton::attention
