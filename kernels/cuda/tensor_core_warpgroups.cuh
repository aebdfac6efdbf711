// Chunks of prompts in numerics t1-sm90 (NUMERICS_T1 §5) by wgmma, over pools of f16 and bf16.
//
// Two warpgroups have 64 rows each. In each step, a warpgroup issues the products for the scores of
// a tile, and those for the weighted values of the previous tile. The softmax of the new scores
// overlaps with the products of values. It also overlaps with the products of the other warpgroup,
// because the two take turns to issue.
//
// Tiles are in a ring of stages (tensor_core_copies.cuh). The second warpgroup copies. When it gets
// its turn for tile i, the first warpgroup has issued the scores of tile i. So both have read the
// stage of tile i - 2, and the copies fill that stage again.
//
// Queries and weights are operands in registers. The product of values also computes the sum of the
// weights, by 8 columns of ones behind the columns of V.
#pragma once

#include "kernels/cuda/attention_mma.cuh"
#include "kernels/cuda/kernel_order.cuh"
#include "kernels/cuda/tensor_core_copies.cuh"
#include "kernels/cuda/tensor_core_softmax.cuh"
#include "kernels/cuda/tensor_core_state.cuh"

namespace baton::t1 {

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

// One thread's products. Rows of a warp are those of ChunkRows: 16 for each warp of the block.
template <typename Pool, int kDim>
class WarpgroupProducts {
 public:
  using SharedMemory = WarpgroupsShared<Pool, kDim>;
  static constexpr int kSteps = kDim / 16;  // of a score's chain
  static constexpr int kValueSteps = kAttentionTile / 16;
  static constexpr int kTiles = kDim / 8 + 1;  // of outputs, and the sum of the weights
  static constexpr int kScoreTiles = kAttentionTile / 8;
  static constexpr bool kBF16 = Pool::Value::kOnes == BF16Operands::kOnes;

  // The thread's rows in the block, for i = 0 and 1.
  __device__ static int RowOf(int i) {
    return threadIdx.x / 32 * kMmaRows + threadIdx.x % 32 / 4 + 8 * i;
  }

  // Takes the queries of a run. `query(row)` points to a row's query, or is null.
  template <typename QueryOf>
  __device__ void LoadQueries(int head_dim, const QueryOf& query) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float* const from = query(RowOf(i));
      const auto load = [&](int d) { return from != nullptr && d < head_dim ? from[d] : 0.0f; };
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int d = 16 * step + 8 * half + 2 * (threadIdx.x % 4);
          queries[step][2 * half + i] = Pool::Score::Pack(load(d), load(d + 1));
        }
      }
    }
  }

  // Descriptors count in units of 16 bytes, so a step adds a constant to one.
  __device__ void IssueScores(SharedMemory shared, int stage) {
    constexpr int kPanelSteps = kPanelCols / 16;
    constexpr uint64_t kStep = 2 * 16 / 16;
#pragma unroll
    for (int panel = 0; panel < SharedMemory::kPanels; ++panel) {
      const uint64_t keys = MatrixDescriptor(shared.keys(stage, panel), 16, 8 * kPanelRowBytes,
                                             SharedSwizzle::k128Bytes);
#pragma unroll
      for (int i = 0; i < kPanelSteps; ++i) {
        const int step = kPanelSteps * panel + i;
        WarpgroupScores<kBF16>(scores, queries[step], keys + i * kStep, step > 0);
      }
    }
  }

  // `accumulate`: adds to the outputs of earlier tiles.
  __device__ void IssueValues(SharedMemory shared, int stage, bool accumulate,
                              float (&output)[kTiles][4]) {
    constexpr uint64_t kStep = 16 * kPanelRowBytes / 16;
    const uint64_t values =
        MatrixDescriptor(shared.values(stage, 0), SharedMemory::values_distance(stage),
                         8 * kPanelRowBytes, SharedSwizzle::k128Bytes);
#pragma unroll
    for (int step = 0; step < kValueSteps; ++step) {
      WarpgroupValues<kBF16>(output, weights[step], values + step * kStep, accumulate || step > 0);
    }
  }

  // Turns the scores of a tile into weights. Sets `change` to the factors of earlier outputs.
  __device__ void Weigh(const TileMask& mask, float factor, float inverse, float (&reference)[2],
                        float (&change)[2]) {
    // Sums and maxima run one path for all tiles. Only these two passes differ.
    mask.SetUnseen(scores, 0, LowestScore());
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      change[i] = UpdateReference<Pool>(mask, i, LargestOfRow(scores, i), factor, reference[i]);
    }
    WeighScores(scores, factor, inverse, reference);
    mask.SetUnseen(scores, 0, 0);
  }

  // Rounds the weights to operands.
  __device__ void Pack() {
#pragma unroll
    for (int step = 0; step < kValueSteps; ++step) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float(&tile)[4] = scores[2 * step + i / 2];
        weights[step][i] = Pool::Value::Pack(tile[2 * (i % 2)], tile[2 * (i % 2) + 1]);
      }
    }
  }

  unsigned queries[kSteps][4];
  unsigned weights[kValueSteps][4];  // of the tile before
  float scores[kScoreTiles][4];      // or weights before they are rounded
};

// One thread's view of its block's work.
template <typename Pool, int kDim>
class WarpgroupsWorker {
 public:
  using Shared = WarpgroupsShared<Pool, kDim>;
  using Products = WarpgroupProducts<Pool, kDim>;
  static constexpr int kWarps = kWarpgroupsThreads / 32;
  static constexpr int kStages = Shared::kStages;
  using State = UnitState<kDim, 1, kWarps, WarpgroupsLayoutOf(kDim).group, 1>;
  static_assert(State::Stored::kRows == kWarpgroupsRows);

  __device__ explicit WarpgroupsWorker(const TensorCoreAttentionParams& params)
      : params_(params),
        p(params.paged),
        shared{SharedMemory<std::byte>()},
        unit{params.paged, shared},
        copies(params, shared),
        state(params) {}

  __device__ void Run() {
    LetNextKernelBegin();
    BeginShared();
    WaitForEarlierKernels();
    BeginWork(p, shared.scratch(), shared.work(), shared.items_before());
    RunUnits(
        unit, state,
        [&](const Hull& hull, int group, int run, int number, int first, int last) {
          RunSegments(hull, group, run, number, first, last);
        },
        [&] { WriteResults(); });
    ZeroUnseenRows(p);  // last, so that no copy waits for it
  }

 private:
  // Ends before the first barrier of RunUnits.
  __device__ void BeginShared() {
    auto* const words = reinterpret_cast<unsigned*>(shared.base);
    const int ones = shared.layout().ones / 4;
    if (p.head_dim < kDim) {  // zeros for d in [head_dim, kDim), which no copy of rows writes
      for (int i = threadIdx.x; i < ones; i += kWarpgroupsThreads) words[i] = 0;
    }
    for (int i = threadIdx.x; i < kPanelBytes / 4; i += kWarpgroupsThreads) {
      words[ones + i] = Pool::Value::kOnes;
    }
    FenceProxyAsync();
    if (threadIdx.x == 0) {
      for (int stage = 0; stage < kStages; ++stage) InitBarrier(shared.full(stage), 4);
      FenceBarrierInit();
    }
  }

  // Computes segments [first, last) of a run of the group that begins at token `group`. `number` is
  // that of the run's segment 0.
  __device__ void RunSegments(const Hull& hull, int group, int run, int number, int first,
                              int last) {
    int tile = first * kTilesPerSegment;
    tile = tile < hull.first_tile() ? hull.first_tile() : tile;
    int end = last * kTilesPerSegment;
    end = end < hull.last_tile() ? end : hull.last_tile();
    const RowRuns row = p.row_runs[group];
    const int64_t offset = p.runs[row.first_run + run].query_offset;
    Attend(group, hull.origin, offset, number, tile, end);
    __syncthreads();  // bounds and stages were read
  }

  // Computes tiles [tile, end) of a run of the group that begins at token `group`.
  __device__ void Attend(int group, int32_t origin, int64_t query_offset, int number, int tile,
                         int end) {
    if (warpgroup == 1) copies.Begin(unit, group, origin, tile, end, ring_);
    Products products;
    products.LoadQueries(p.head_dim, [&](int row) { return unit.QueryOf(row, query_offset); });
    auto& output = state.segment.output;
    state.BeginInGroup(number + tile / kTilesPerSegment);
    state.segment.Clear();
    float change[2];

    WaitBarrier(shared.full(ring_.slot), ring_.phase);
    if (warpgroup == 1) TakeTurn();
    FenceMatrixRegisters(products.scores, products.queries);
    products.IssueScores(shared, ring_.slot);
    CommitMatrixProducts();
    EndTurn(origin, tile, end);
    WaitMatrixProducts<0>(products.scores, products.queries);
    products.Weigh(MaskOf(origin, tile), params_.factor, params_.inverse_factor,
                   state.segment.rows.reference, change);
    products.Pack();
    bool accumulates = false;  // the tile before is not the first of its segment
    for (++tile; tile < end; ++tile) {
      const int before = ring_.slot;
      ring_.Next();
      WaitBarrier(shared.full(ring_.slot), ring_.phase);
      TakeTurn();
      FenceMatrixRegisters(products.scores, products.queries, products.weights, output);
      products.IssueScores(shared, ring_.slot);
      CommitMatrixProducts();
      products.IssueValues(shared, before, accumulates, output);
      CommitMatrixProducts();
      EndTurn(origin, tile, end);
      WaitMatrixProducts<1>(products.scores, products.queries);
      const bool begins = tile % kTilesPerSegment == 0;
      float reference[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        reference[i] = begins ? LowestScore() : state.segment.rows.reference[i];
      }
      products.Weigh(MaskOf(origin, tile), params_.factor, params_.inverse_factor, reference,
                     change);
      WaitMatrixProducts<0>(output, products.weights);
      if (begins) {
        EndSegment();
        state.BeginInGroup(number + tile / kTilesPerSegment);
      } else if (__any_sync(kWholeWarp, change[0] != 1.0f || change[1] != 1.0f)) {
        ScaleRows(output, change);
      }
      accumulates = !begins;
#pragma unroll
      for (int i = 0; i < 2; ++i) state.segment.rows.reference[i] = reference[i];
      products.Pack();
    }
    FenceMatrixRegisters(products.weights, output);
    products.IssueValues(shared, ring_.slot, accumulates, output);
    CommitMatrixProducts();
    WaitMatrixProducts<0>(output, products.weights);
    ring_.Next();
    EndSegment();
  }

  __device__ void EndSegment() {
    state.segment.rows.sum[0] = state.segment.output[State::kTiles][0];
    state.segment.rows.sum[1] = state.segment.output[State::kTiles][2];
    state.EndSegment();
  }

  __device__ TileMask MaskOf(int32_t origin, int tile) const {
    const int32_t slot = origin + tile * kAttentionTile;
    TileMask mask;
    mask.full = unit.IsFull(slot);
    if (mask.full) return mask;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = Products::RowOf(i);
      mask.SetRow(i, slot, shared.bounds()[row], shared.bounds()[kWarpgroupsRows + row]);
    }
    return mask;
  }

  // Warpgroups issue their products in turn, the first one first.
  __device__ void TakeTurn() const { SyncNamedBarrier(1 + warpgroup, kWarpgroupsThreads); }
  // `tile` of tiles that end at `end` has been issued.
  __device__ void EndTurn(int32_t origin, int tile, int end) {
    if (warpgroup == 0 || tile + 1 < end) ArriveNamedBarrier(2 - warpgroup, kWarpgroupsThreads);
    if (warpgroup == 1) copies.Advance(unit, origin, tile, end, ring_);
  }

  __device__ void WriteResults() {
    state.Finish([&](int i, int n, float first, float second) {
      const int row = Products::RowOf(i);
      const int d = 8 * n + 2 * (threadIdx.x % 4);
      if (!unit.Exists(row)) return;
      float* const out = unit.OutputOf(row) + d;
      if (d < p.head_dim) out[0] = first;
      if (d + 1 < p.head_dim) out[1] = second;
    });
  }

  const TensorCoreAttentionParams& params_;
  const PagedAttentionParams& p;
  const int warpgroup = threadIdx.x / 128;
  Shared shared;
  Unit<Shared, kWarpgroupsRows> unit;
  TileCopies<Pool, kDim> copies;
  StageRing<kStages> ring_;
  State state;
};

#endif

// The body of the kernels. Images without wgmma have empty kernels, which are never launched.
template <typename Pool, int kDim>
__device__ void RunWarpgroups(const TensorCoreAttentionParams& p) {
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  WarpgroupsWorker<Pool, kDim>(p).Run();
#endif
}

}  // namespace baton::t1
