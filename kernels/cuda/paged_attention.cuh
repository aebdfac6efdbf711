// Paged attention of numerics r1 (NUMERICS §8), for each element type of a pool.
//
// One kernel serves decode and prefill. The two differ in the rows of a block and in the number of
// warps that share these rows (attention_params.h).
// - attention_plan.cuh divides the work.
// - attention_loads.cuh copies tiles to shared memory while the previous tile is computed.
// - attention_tile.cuh and attention_values.cuh compute a tile.
// - attention_merge.cuh merges the states of segments. If several blocks compute a unit, the states
//   go through the workspace. The block that ends last merges them in the canonical order. So the
//   division of work changes no bit.
//
// Predicted limits on sm_90, from counts of instructions and bytes; no device has confirmed them:
// - Decode, f16, 4 query heads of 128 for each kv head: 1 KiB of K and V for 2 slots costs about
//   160 instructions of a warp, 40 cycles of a multiprocessor. The memory needs 78 cycles for it at
//   3.0 TB/s. So the memory is the limit.
// - Prefill: 32 rows share a tile. Each product of a row and a slot needs 2 * head_dim FMAs, and
//   about half as many other instructions. So the limit is about 60 % of the FMA rate.
#pragma once

#include "kernels/cuda/attention_loads.cuh"
#include "kernels/cuda/attention_merge.cuh"
#include "kernels/cuda/attention_values.cuh"
#include "kernels/cuda/kernel_order.cuh"

namespace baton::attention {

// One thread's view of its block's work.
template <typename Elements, int kDim, int kSplit, int kChunks>
class Worker {
 public:
  using Rows = BlockRows<Elements, kDim, kSplit, kChunks>;
  using Map = typename Rows::Map;
  using Query = std::conditional_t<Elements::kInt8, Int8Query<Map>, FloatQuery<Map, Elements>>;

  __device__ explicit Worker(const PagedAttentionParams& params) : p(params) {}

  __device__ void Run() {
    BeginKernel();
    ZeroUnseenRows();
    const Share share = FindShare<false>(p, rows.shared.scratch());
    if (share.begin >= share.end) return;
    if (p.head_dim < kDim) ClearStages();
    const int heads = p.kv_heads * p.head_groups;
    int32_t tile = share.tile;
    int items = share.items;
    int64_t first = share.first;
    for (int64_t item = share.begin; item < share.end;) {
      if (item >= first + int64_t{items} * heads) {
        first += int64_t{items} * heads;
        ++tile;
        items = ItemsOf(p, tile);
        continue;
      }
      const int head = static_cast<int>((item - first) / items);
      const int64_t begin = first + int64_t{head} * items;
      const int64_t end = begin + items;
      if (share.whole && begin < share.begin) {  // another block has it
        item = end;
        continue;
      }
      const int64_t stop = share.whole || end < share.end ? end : share.end;
      const bool keeps = item == begin;
      rows.SetUnit(tile, head);
      state.Begin(rows, keeps);
      RunUnit(static_cast<int>(item - begin), static_cast<int>(stop - begin));
      bool finished = keeps && stop == end;
      if (!finished) {
        if (keeps) state.WriteKept(rows);
        finished = state.ArrivesLast(rows, share, begin, end);
        if (finished) state.MergeStates(rows, share, begin, end);
      }
      if (finished) state.Finish(rows);
      item = stop;
    }
  }

 private:
  // Writes zeros for tokens that see no slot: no unit has them. A warp takes a token.
  __device__ void ZeroUnseenRows() {
    const int64_t warps = int64_t{gridDim.x} * (Rows::kBlock / 32);
    const int64_t values = int64_t{p.query_heads} * p.head_dim;
    for (int64_t token = int64_t{blockIdx.x} * (Rows::kBlock / 32) + threadIdx.x / 32;
         token < p.tokens; token += warps) {
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
    const SharedLayout layout = rows.shared.layout();
    auto* words = reinterpret_cast<unsigned*>(rows.shared.base);
    for (int i = threadIdx.x; i < layout.scores / 4; i += Rows::kBlock) words[i] = 0;
    __syncthreads();
  }

  // Computes items [from, to) of the unit.
  __device__ void RunUnit(int from, int to) {
    const TokenRuns t(p);
    int item = 0;  // the first of the run
    for (int64_t begin = rows.tile_begin; begin < rows.tile_end && item < to;) {
      const int64_t end = GroupEnd(t, begin, rows.tile_end);
      const int runs = p.row_runs[begin].run_count;
      for (int run = 0; run < runs; ++run) {
        const Hull hull = HullOf(t, begin, end, run);
        const int segments = hull.last_segment() - hull.first_segment();
        const int first = from > item ? from - item : 0;
        const int last = to - item < segments ? to - item : segments;
        if (first < last) {
          rows.SetBounds(begin, end, run);
          RunSegments(hull, begin, run, hull.first_segment() + first, hull.first_segment() + last);
        }
        item += segments;
      }
      begin = end;
    }
  }

  // Computes segments [first, last) of a run of the group that begins at token `group`.
  __device__ void RunSegments(const Hull& hull, int64_t group, int run, int first, int last) {
    constexpr int kTilesPerSegment = kAttentionSegment / kAttentionTile;
    const RowRuns row = p.row_runs[group];
    const int64_t offset = p.runs[row.first_run + run].query_offset;
    const int32_t sequence = p.sequence_of_token[group];
    Query::Load(p, rows.shared, rows.first_row, rows.in_chunk, [&](int i) -> const float* {
      const int in_block = rows.first_row + i;
      if (rows.shared.row_begin(in_block) >= rows.shared.row_end(in_block)) return nullptr;
      return p.q + (rows.token_of(in_block) + offset) * p.q_stride +
             int64_t{rows.head_of(in_block)} * p.head_dim;
    });

    int tile = first * kTilesPerSegment;
    tile = tile < hull.first_tile() ? hull.first_tile() : tile;
    int end = last * kTilesPerSegment;
    end = end < hull.last_tile() ? end : hull.last_tile();
    const auto slot_of = [&](int t) { return hull.origin + t * kAttentionTile; };
    constexpr int stages = decltype(rows.shared)::layout().stages;

    // Offsets are found two tiles ahead, and copied one tile ahead if there are two stages.
    if (threadIdx.x < kAttentionTile) {
      rows.shared.offsets(0)[threadIdx.x] = TileOffset(p, rows.shared, sequence, slot_of(tile));
      rows.shared.offsets(1)[threadIdx.x] =
          tile + 1 < end ? TileOffset(p, rows.shared, sequence, slot_of(tile + 1)) : -1;
    }
    __syncthreads();
    if constexpr (stages == 2) BeginTile(0, 0);
    for (int parity = 0; tile < end; ++tile, parity ^= 1) {
      const int stage = stages == 2 ? parity : 0;
      if (stages == 1) {
        BeginTile(0, parity);
        WaitCopies<0>();
        if (Elements::kScaled) StoreScale(rows.shared, 0, scale);
        __syncthreads();
      } else {
        WaitCopies<0>();
        if (Elements::kScaled) StoreScale(rows.shared, stage, scale);
        __syncthreads();
        if (tile + 1 < end) BeginTile(stage ^ 1, parity ^ 1);
      }
      const int64_t later =
          tile + 2 < end ? TileOffset(p, rows.shared, sequence, slot_of(tile + 2)) : -1;
      ComputeTile(stage, slot_of(tile));
      if (threadIdx.x < kAttentionTile) rows.shared.offsets(parity)[threadIdx.x] = later;
      if ((tile + 1) % kTilesPerSegment == 0 || tile + 1 == end) state.EndSegment(rows);
      if (stages == 1) __syncthreads();  // the stage was read
    }
    __syncthreads();  // offsets and stages were read
  }

  __device__ void BeginTile(int stage, int parity) {
    CopyTile<Elements>(p, rows.shared, stage, rows.kv_head, rows.shared.offsets(parity));
    CommitCopies();
    if (Elements::kScaled) scale = LoadScale(p, rows.kv_head, rows.shared.offsets(parity));
  }

  __device__ void ComputeTile(int stage, int32_t tile_slot) {
    const bool sees = rows.ChunkSees(tile_slot);
    if (sees) {
      Query query;
      query.Fetch(rows.shared, rows.first_row);
#pragma unroll 1
      for (int slot = rows.part * 4 * Map::kBatch; slot < kAttentionTile;
           slot += kSplit * 4 * Map::kBatch) {
        query.Score(p, rows.shared, stage, rows.first_row, slot);
      }
    }
    rows.SyncChunk();
    if (sees)
      Softmax<Map, Elements>(rows.shared, stage, rows.first_row, rows.part, tile_slot,
                             state.segment);
    rows.SyncChunk();
    if (!sees) return;
    if constexpr (Elements::kInt8) {
      AddInt8Values<Map>(rows.shared, stage, rows.first_row, rows.in_chunk, tile_slot,
                         state.outputs);
    } else {
      AddFloatValues<Map, Elements>(rows.shared, stage, rows.first_row, rows.in_chunk, tile_slot,
                                    state.outputs);
    }
  }

  const PagedAttentionParams& p;
  Rows rows{p};
  UnitState<Elements, kDim, kSplit, kChunks> state;
  float scale = 0;  // pools with scales: of the tile that is being copied
};

}  // namespace baton::attention
