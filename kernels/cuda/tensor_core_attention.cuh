// Paged attention of t1 (NUMERICS_T1 §5) over pools of f16, bf16, int8 and fp8.
//
// One kernel serves decode and chunks of prompts:
// - Decode: a block has one chunk of 16 rows, the query heads of a kv head. Four warps share it.
//   Each computes the scores of 16 slots of a tile, then a quarter of the outputs.
// - Chunks: each warp has 16 rows of its own, and all slots.
//
// attention_plan.cuh divides the work among blocks. Tiles come into shared memory several stages
// ahead. tensor_core_state.cuh merges segments.
#pragma once

#include "kernels/cuda/tensor_core_tile.cuh"

namespace baton::t1 {

using attention::RunOf;
using attention::Sees;
using attention::SegmentsOf;
using attention::SlotOffset;
using attention::TileEnd;

inline constexpr int kTilesPerSegment = kAttentionSegment / kAttentionTile;

// One thread's view of its block's work.
template <typename Pool, int kDim, int kSplit, int kChunks>
class Worker {
 public:
  static constexpr bool kDecode = kSplit > 1;
  using State = UnitState<kDim, kSplit, kChunks, LayoutOf(Pool::kScaled, kDim, kDecode).group>;
  static constexpr int kRows = State::Stored::kRows;
  static constexpr int kThreads = State::Stored::kThreads;
  static constexpr int kStages = LayoutOf(Pool::kScaled, kDim, kDecode).stages;

  __device__ explicit Worker(const TensorCoreAttentionParams& params)
      : params_(params), p(params.paged), shared{SharedMemory<std::byte>()}, state(params) {}

  __device__ void Run() {
    ZeroUnseenRows();
    BlockWork& work = shared.work();
    BeginWork(p, shared.scratch(), work);
    if (p.head_dim < kDim) ClearStages();
    while (true) {
      if (threadIdx.x == 0) NextUnit(p, work);
      __syncthreads();
      if (work.item >= work.stop) return;
      SetUnit(work.tile, work.head);
      state.Begin(work.keeps_unit());
      RunUnit();
      bool finished = work.whole_unit();
      if (!finished) {
        state.WriteRest();
        finished = state.ArrivesLast(work, shared.scratch());
        if (finished) state.MergePieces(work);
      }
      if (finished) WriteResults();
      __syncthreads();  // `work` was read
    }
  }

 private:
  // Writes zeros for tokens that see no slot: no unit has them. A warp takes a token.
  __device__ void ZeroUnseenRows() {
    const int64_t warps = int64_t{gridDim.x} * (kThreads / 32);
    const int64_t values = int64_t{p.query_heads} * p.head_dim;
    for (int64_t token = int64_t{blockIdx.x} * (kThreads / 32) + threadIdx.x / 32; token < p.tokens;
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

  // Zeros for d in [head_dim, kDim), which no copy writes.
  __device__ void ClearStages() {
    const SharedLayout layout = shared.layout();
    auto* words = reinterpret_cast<unsigned*>(shared.base);
    for (int i = threadIdx.x; i < layout.queries / 4; i += kThreads) words[i] = 0;
    __syncthreads();
  }

  // ---- rows ------------------------------------------------------------------------------------

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
    return kv_head * (p.query_heads / p.kv_heads) + first_head + row % p.heads_per_group;
  }
  __device__ bool Exists(int row) const {
    return row < (tile_end - tile_begin) * p.heads_per_group &&
           first_head + row % p.heads_per_group < p.query_heads / p.kv_heads;
  }

  // Sets the bounds of all rows for one run of the tokens [begin, end).
  __device__ void SetBounds(int begin, int end, int run) {
    int32_t* const begins = shared.bounds();
    int32_t* const ends = begins + kRows;
    for (int row = threadIdx.x; row < kRows; row += kThreads) {
      const int64_t token = token_of(row);
      VisibleRun found;
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
    }
    __syncthreads();
  }

  // Every row of the block sees all slots of the tile.
  __device__ bool IsFull(int32_t tile_slot) const {
    return shared.all_see()[0] <= tile_slot &&
           int64_t{tile_slot} + kAttentionTile <= shared.all_see()[1];
  }
  // ---- segments --------------------------------------------------------------------------------

  // Computes the block's items of the unit.
  __device__ void RunUnit() {
    int item = 0;  // the first of the run
    for (int begin = tile_begin; begin < tile_end;) {
      const int end = EndOfGroup(p, begin, tile_end);
      const int runs = p.row_runs[begin].run_count;
      int number = 0;  // of the run's first segment
      for (int run = 0; run < runs; ++run) {
        const Hull hull = HullOf(p, begin, end, run);
        const int segments = hull.last_segment() - hull.first_segment();
        const BlockWork& work = shared.work();
        const int from = static_cast<int>(work.item - work.begin) - item;
        const int to = static_cast<int>(work.stop - work.begin) - item;
        const int first = from > 0 ? from : 0;
        const int last = to < segments ? to : segments;
        if (first < last) {
          SetBounds(begin, end, run);
          RunSegments(hull, begin, run, number, hull.first_segment() + first,
                      hull.first_segment() + last);
        }
        item += segments;
        if (run + 1 < runs) number += SegmentsOf(p.runs[p.row_runs[begin].first_run + run]);
      }
      begin = end;
    }
  }

  // The offset of slot `tile_slot` + thread for the first 64 threads; -1: no row sees it.
  __device__ int64_t TileOffset(int32_t sequence, int64_t tile_slot) const {
    if (threadIdx.x >= kAttentionTile) return -1;
    const int64_t slot = tile_slot + threadIdx.x;
    bool seen = IsFull(static_cast<int32_t>(tile_slot));
    // Rows of one token have equal bounds, so one of them is enough.
#pragma unroll 1
    for (int row = 0; row < kRows && !seen; row += p.heads_per_group) {
      seen = slot >= shared.bounds()[row] && slot < shared.bounds()[kRows + row];
    }
    return seen ? SlotOffset(p, sequence, slot) : -1;
  }

  // Computes segments [first, last) of a run of the group that begins at token `group`. `number` is
  // that of the run's segment 0.
  __device__ void RunSegments(const Hull& hull, int group, int run, int number, int first,
                              int last) {
    const RowRuns row = p.row_runs[group];
    const int64_t offset = p.runs[row.first_run + run].query_offset;
    const int32_t sequence = p.sequence_of_token[group];
    LoadQueries(p, shared, kRows, [&](int row) -> const float* {
      if (shared.bounds()[row] >= shared.bounds()[kRows + row]) return nullptr;
      return p.q + (token_of(row) + offset) * p.q_stride + int64_t{head_of(row)} * p.head_dim;
    });
    int tile = first * kTilesPerSegment;
    tile = tile < hull.first_tile() ? hull.first_tile() : tile;
    int end = last * kTilesPerSegment;
    end = end < hull.last_tile() ? end : hull.last_tile();
    const auto slot_of = [&](int t) { return hull.origin + t * kAttentionTile; };
    const auto offset_of = [&](int t) {
      return t < end ? TileOffset(sequence, slot_of(t)) : int64_t{-1};
    };

    // The copies of a tile begin kStages − 1 tiles before it is computed, its look-ups one earlier.
#pragma unroll
    for (int i = 0; i < kStages; ++i) StoreOffset(tile + i, offset_of(tile + i));
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kStages - 1; ++i) BeginTile(tile + i, end);
    if constexpr (Pool::kScaled) StoreScale(tile, ScaleOf(tile));
    rows.LoadQueries(shared);
    bool begins = true;  // the next tile is the first of its segment
    for (; tile < end; ++tile) {
      if (begins) state.BeginSegment(number + tile / kTilesPerSegment);
      begins = (tile + 1) % kTilesPerSegment == 0;
      WaitCopies<kStages - 2>();
      __syncthreads();  // the tile has landed, and the previous one was read
      BeginTile(tile + kStages - 1, end);
      if constexpr (Pool::kScaled) {
        ConvertTile<kThreads>(shared, tile % kStages);
        __syncthreads();
      }
      const float scale = Pool::kScaled && tile + 1 < end ? ScaleOf(tile + 1) : 0.0f;
      const int64_t later = offset_of(tile + kStages);
      if (rows.SetTile(shared, slot_of(tile), IsFull(slot_of(tile)))) {
        rows.AddTile(params_, shared, tile, state.segment);
      }
      StoreOffset(tile + kStages, later);
      if constexpr (Pool::kScaled) StoreScale(tile + 1, scale);
      if (begins || tile + 1 == end) state.EndSegment();
    }
    __syncthreads();  // bounds, queries, offsets and stages were read
  }

  __device__ void StoreOffset(int tile, int64_t offset) {
    if (threadIdx.x < kAttentionTile) shared.offsets(tile)[threadIdx.x] = offset;
  }
  __device__ void BeginTile(int tile, int end) {
    if (tile < end) CopyTile<kThreads>(p, shared, tile % kStages, kv_head, shared.offsets(tile));
    CommitCopies();
  }
  // Pools with scales: the scale of slot (thread % 64), of K for the first 64 threads, of V for the
  // next.
  __device__ float ScaleOf(int tile) const {
    const float scale = attention::LoadScale(p, kv_head, shared.offsets(tile));
    return threadIdx.x < kAttentionTile ? r1::Multiply(params_.factor, scale) : scale;
  }
  __device__ void StoreScale(int tile, float scale) {
    if (threadIdx.x >= 2 * kAttentionTile) return;
    shared.scales(tile, threadIdx.x >= kAttentionTile)[threadIdx.x % kAttentionTile] = scale;
  }

  __device__ void WriteResults() {
    state.Finish([&](int i, int n, float first, float second) {
      const int row = rows.RowOf(i);
      const int d = 8 * (rows.part * State::kTiles + n) + 2 * rows.pair;
      if (!Exists(row)) return;
      float* const out = p.out + (token_of(row) * p.query_heads + head_of(row)) * p.head_dim + d;
      if (d < p.head_dim) out[0] = first;
      if (d + 1 < p.head_dim) out[1] = second;
    });
  }

  const TensorCoreAttentionParams& params_;
  const PagedAttentionParams& p;
  Shared<Pool, kDim, kDecode> shared;
  State state;
  ChunkRows<Pool, kDim, kSplit, kChunks> rows;

  // The unit.
  int kv_head = 0;
  int first_head = 0;  // of the head group, in the kv head
  int32_t tile_begin = 0;
  int32_t tile_end = 0;
};

// The bodies of the kernels. Their tensor cores decide which t1 they compute.
template <typename Pool, int kDim>
__device__ void RunDecode(const TensorCoreAttentionParams& p) {
  Worker<Pool, kDim, kDecodeSplit, 1>(p).Run();
}
template <typename Pool, int kDim>
__device__ void RunChunks(const TensorCoreAttentionParams& p) {
  Worker<Pool, kDim, 1, WarpsOfChunks(kDim)>(p).Run();
}

}  // namespace baton::t1
