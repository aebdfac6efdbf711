// Paged attention of t1 (NUMERICS_T1 §5) over pools of f16, bf16, int8 and fp8.
//
// One kernel serves decode and chunks of prompts:
// - Decode: a block has 16 rows, the query heads of a kv head. Four warps share these rows. Each
// warp
//   computes the scores of 16 slots of a tile, then a quarter of the outputs.
// - Chunks: each warp has its own 16 rows and computes all slots.
//
// attention_plan.cuh divides the work among blocks. Tiles are copied to shared memory several
// stages ahead. tensor_core_state.cuh merges segments.
#pragma once

#include "kernels/cuda/kernel_order.cuh"
#include "kernels/cuda/tensor_core_tile.cuh"
#include "kernels/cuda/tensor_core_unit.cuh"

namespace baton::t1 {

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
      : params_(params),
        p(params.paged),
        shared{SharedMemory<std::byte>()},
        unit{params.paged, shared},
        state(params) {}

  __device__ void Run() {
    BeginKernel();
    BeginWork(p, shared.scratch(), shared.work(), shared.items_before());
    if (p.head_dim < kDim) ClearStages();
    RunUnits(
        unit, state,
        [&](const Hull& hull, int group, int run, int number, int first, int last) {
          RunSegments(hull, group, run, number, first, last);
        },
        [&] { WriteResults(); });
    ZeroUnseenRows(p);  // last, so that no copy waits for it
  }

 private:
  // Zeros for d in [head_dim, kDim), which no copy writes.
  __device__ void ClearStages() {
    const SharedLayout layout = shared.layout();
    auto* words = reinterpret_cast<unsigned*>(shared.base);
    for (int i = threadIdx.x; i < layout.queries / 4; i += kThreads) words[i] = 0;
    __syncthreads();
  }

  // ---- segments --------------------------------------------------------------------------------

  // The offset of slot `tile_slot` + thread for the first 64 threads; -1: no row sees it.
  __device__ int64_t TileOffset(int32_t sequence, int64_t tile_slot) const {
    if (threadIdx.x >= kAttentionTile) return -1;
    const int64_t slot = tile_slot + threadIdx.x;
    const bool seen = unit.IsFull(static_cast<int32_t>(tile_slot)) || unit.IsSeen(slot);
    return seen ? SlotOffset(p, sequence, slot) : -1;
  }

  // Computes segments [first, last) of a run of the group that begins at token `group`. `number` is
  // that of the run's segment 0.
  __device__ void RunSegments(const Hull& hull, int group, int run, int number, int first,
                              int last) {
    const RowRuns row = p.row_runs[group];
    const int64_t offset = p.runs[row.first_run + run].query_offset;
    const int32_t sequence = p.sequence_of_token[group];
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
    LoadQueries<kThreads, kRows>(p, shared, [&](int row) { return unit.QueryOf(row, offset); });
    if constexpr (Pool::kScaled) StoreScale(tile, ScaleOf(tile));
    if constexpr (kDecode) __syncthreads();  // the queries are complete
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
      if (rows.SetTile(shared, slot_of(tile), unit.IsFull(slot_of(tile)))) {
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
    if (tile < end) {
      CopyTile<kThreads, kAttentionTile>(p, shared, tile % kStages, shared.work().kv_head,
                                         shared.offsets(tile), threadIdx.x);
    }
    CommitCopies();
  }
  // Pools with scales: the scale of slot (thread % 64), of K for the first 64 threads, of V for the
  // next.
  __device__ float ScaleOf(int tile) const {
    const float scale = attention::LoadScale(p, shared.work().kv_head, shared.offsets(tile));
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
      if (!unit.Exists(row)) return;
      float* const out = unit.OutputOf(row) + d;
      if (d < p.head_dim) out[0] = first;
      if (d + 1 < p.head_dim) out[1] = second;
    });
  }

  const TensorCoreAttentionParams& params_;
  const PagedAttentionParams& p;
  Shared<Pool, kDim, kDecode> shared;
  Unit<Shared<Pool, kDim, kDecode>, kRows> unit;
  State state;
  ChunkRows<Pool, kDim, kSplit, kChunks> rows;
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
