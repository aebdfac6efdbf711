// One tile of 64 slots: references, weights and weighted values of NUMERICS_T1 §5, for 16 rows.
//
// Products are m16n8k16, and rows are the 16-row side. A thread has two rows, and two of eight
// adjacent columns of each row (kernels/cuda/ptx.cuh). The results of the scores' product have the
// layout of operands of the values' product. So a warp that has all slots keeps its weights in
// registers. Warps that share a chunk exchange weights through shared memory.
#pragma once

#include "kernels/cuda/tensor_core_loads.cuh"
#include "kernels/cuda/tensor_core_softmax.cuh"
#include "kernels/cuda/tensor_core_state.cuh"

namespace baton::t1 {

// One thread's view of its chunk of 16 rows, which kSplit warps share.
template <typename Pool, int kDim, int kSplit, int kChunks>
class ChunkRows {
 public:
  static constexpr bool kDecode = kSplit > 1;
  static constexpr int kRows = kMmaRows * kChunks;  // of the block
  static constexpr int kSteps = kDim / 16;          // of a score's chain
  static constexpr int kValueSteps = kAttentionTile / 16;
  static constexpr int kScoreTiles = 8 / kSplit;  // of 8 slots, for each warp
  static constexpr int kOutputTiles = kDim / 8 / kSplit;
  static constexpr bool kQueriesInRegisters = kDecode;
  // Large heads leave no registers for the addresses of all steps.
  static constexpr int kScoreUnroll = kDecode || kDim <= 128 ? kSteps : 4;
  static_assert(!kDecode || kChunks == 1, "warps that share a chunk wait for the whole block");
  using SharedMemory = Shared<Pool, kDim, kDecode>;
  using Scores = float[kScoreTiles][4];  // results of a product, then weights

  const int part = threadIdx.x / 32 % kSplit;                  // number of the warp in its chunk
  const int first_row = threadIdx.x / 32 / kSplit * kMmaRows;  // of the chunk, in the block
  const int pair = threadIdx.x % 4;                            // of columns

  // The thread's rows in the block, for i = 0 and 1.
  __device__ int RowOf(int i) const { return first_row + threadIdx.x % 32 / 4 + 8 * i; }

  // Takes the run's queries from shared memory.
  __device__ void LoadQueries(SharedMemory shared) {
    if constexpr (kQueriesInRegisters) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        LoadRows(query_[step], shared.queries(), kRows, first_row, step);
      }
    }
  }

  // Takes the tile that begins at `slot`. `full`: every row of the block sees all its slots.
  // Returns false if no row of the chunk sees any.
  __device__ bool SetTile(SharedMemory shared, int32_t slot, bool full) {
    mask_.full = full;
    if (full) return true;
    bool sees = false;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      mask_.SetRow(i, slot, shared.bounds()[RowOf(i)], shared.bounds()[kRows + RowOf(i)]);
      sees = sees || !mask_.SeesNone(i);
    }
    return __any_sync(kWholeWarp, sees);
  }

  // Adds the visible slots of a tile to a state.
  __device__ void AddTile(const TensorCoreAttentionParams& params, SharedMemory shared, int tile,
                          ThreadState<kOutputTiles>& state) {
    const float factor = Pool::kScaled ? 1.0f : params.factor;
    const float inverse = Pool::kScaled ? 1.0f : params.inverse_factor;
    Scores z;
    Score(shared, tile, z);
    // Sums and maxima run one path for all tiles. Only these two passes differ.
    mask_.SetUnseen(z, part * kScoreTiles, LowestScore());
    float largest[2];
    FindLargest(shared, z, largest);
    UpdateReferences(largest, factor, state);
    WeighScores(z, factor, inverse, state.rows.reference);
    mask_.SetUnseen(z, part * kScoreTiles, 0);
    AddValues(shared, tile, z, state);
  }

 private:
  // The tile's slot of the thread's first column of score tile n.
  __device__ int ColumnOf(int n) const { return 8 * (part * kScoreTiles + n) + 2 * pair; }

  // Computes the scores of the warp's slots.
  __device__ void Score(SharedMemory shared, int tile, Scores& z) const {
    const std::byte* const keys = shared.tile(tile % shared.layout().stages, false);
#pragma unroll
    for (int n = 0; n < kScoreTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) z[n][i] = 0;
    }
#pragma unroll kScoreUnroll
    for (int step = 0; step < kSteps; ++step) {
      unsigned a[4];
      if constexpr (kQueriesInRegisters) {
#pragma unroll
        for (int i = 0; i < 4; ++i) a[i] = query_[step][i];
      } else {
        LoadRows(a, shared.queries(), kRows, first_row, step);
      }
#pragma unroll
      for (int n = 0; n < kScoreTiles; n += 2) {
        unsigned b[4];
        LoadKeys(b, keys, 8 * (part * kScoreTiles + n), step);
        Pool::Score::Multiply(z[n], a, {b[0], b[1]});
        Pool::Score::Multiply(z[n + 1], a, {b[2], b[3]});
      }
    }
    if constexpr (Pool::kScaled) {
#pragma unroll
      for (int n = 0; n < kScoreTiles; ++n) {
        const float* const scale = shared.scales(tile, false) + ColumnOf(n);
#pragma unroll
        for (int i = 0; i < 4; ++i) z[n][i] = r1::Multiply(z[n][i], scale[i % 2]);
      }
    }
  }

  // Finds the largest score of both rows, over all warps of the chunk.
  __device__ void FindLargest(SharedMemory shared, const Scores& z, float (&largest)[2]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) largest[i] = LargestOfRow(z, i);
    if constexpr (kSplit > 1) {
      if (pair == 0) {
        shared.maxima(part)[RowOf(0)] = largest[0];
        shared.maxima(part)[RowOf(1)] = largest[1];
      }
      __syncthreads();
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        largest[i] = shared.maxima(0)[RowOf(i)];
#pragma unroll
        for (int other = 1; other < kSplit; ++other) {
          largest[i] = MaxOrNan(largest[i], shared.maxima(other)[RowOf(i)]);
        }
      }
    }
  }

  // Steps "Reference", and 1 of "Tile".
  __device__ void UpdateReferences(const float (&largest)[2], float factor,
                                   ThreadState<kOutputTiles>& state) const {
    float change[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      change[i] = UpdateReference<Pool>(mask_, i, largest[i], factor, state.rows.reference[i]);
    }
    if (!__any_sync(kWholeWarp, change[0] != 1.0f || change[1] != 1.0f)) return;
#pragma unroll
    for (int i = 0; i < 2; ++i) state.rows.sum[i] = r1::Multiply(state.rows.sum[i], change[i]);
    ScaleRows(state.output, change);
  }

  // Packs weights into operands: word[i] has row i's two columns of score tile n.
  __device__ static void Pack(const Scores& weights, int n, unsigned (&word)[2]) {
    word[0] = Pool::Value::Pack(weights[n][0], weights[n][1]);
    word[1] = Pool::Value::Pack(weights[n][2], weights[n][3]);
  }
  // Multiplies weights by the scales of V. An invisible slot's weight, and only that, is 0. It
  // stays 0 with any scale.
  __device__ void Scale(SharedMemory shared, int tile, Scores& weights) const {
#pragma unroll
    for (int n = 0; n < kScoreTiles; ++n) {
      const float* const scale = shared.scales(tile, true) + ColumnOf(n);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        weights[n][i] = weights[n][i] > 0 ? r1::Multiply(weights[n][i], scale[i % 2]) : 0.0f;
      }
    }
  }
  __device__ void Share(SharedMemory shared, int which, const Scores& weights) const {
#pragma unroll
    for (int n = 0; n < kScoreTiles; ++n) {
      unsigned word[2];
      Pack(weights, n, word);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        *reinterpret_cast<unsigned*>(shared.weights(which) +
                                     ChunkOffset(kMmaRows, RowOf(i), part * kScoreTiles + n) +
                                     4 * pair) = word[i];
      }
    }
  }
  // Operand a of step `step` of the values' products.
  __device__ void LoadWeights(SharedMemory shared, int which, const Scores& weights, int step,
                              unsigned (&a)[4]) const {
    if constexpr (kSplit > 1) {
      LoadRows(a, shared.weights(which), kMmaRows, 0, step);
    } else {
      unsigned low[2];
      unsigned high[2];
      Pack(weights, 2 * step, low);
      Pack(weights, 2 * step + 1, high);
      a[0] = low[0];
      a[1] = low[1];
      a[2] = high[0];
      a[3] = high[1];
    }
  }

  // Steps 2 and 3 of "Tile".
  __device__ void AddValues(SharedMemory shared, int tile, Scores& weights,
                            ThreadState<kOutputTiles>& state) const {
    if constexpr (kSplit > 1) {
      Share(shared, 0, weights);
      if constexpr (Pool::kScaled) {
        Scale(shared, tile, weights);
        Share(shared, 1, weights);
      }
      __syncthreads();
    }
    RowSums& rows = state.rows;
    float sum[4] = {rows.sum[0], rows.sum[0], rows.sum[1], rows.sum[1]};
    unsigned a[kValueSteps][4];
#pragma unroll
    for (int step = 0; step < kValueSteps; ++step) {
      LoadWeights(shared, 0, weights, step, a[step]);
      Pool::Value::Multiply(sum, a[step], {Pool::Value::kOnes, Pool::Value::kOnes});
    }
    rows.sum[0] = sum[0];
    rows.sum[1] = sum[2];
    if constexpr (Pool::kScaled) {
      if constexpr (kSplit == 1) Scale(shared, tile, weights);
#pragma unroll
      for (int step = 0; step < kValueSteps; ++step) {
        LoadWeights(shared, 1, weights, step, a[step]);
      }
    }
    const std::byte* const values = shared.tile(tile % shared.layout().stages, true);
    const int first = part * kOutputTiles;
#pragma unroll
    for (int step = 0; step < kValueSteps; ++step) {
#pragma unroll
      for (int n = 0; n < kOutputTiles; n += 2) {
        if (n + 1 < kOutputTiles) {
          unsigned b[4];
          LoadValues(b, values, step, first + n);
          Pool::Value::Multiply(state.output[n], a[step], {b[0], b[1]});
          Pool::Value::Multiply(state.output[n + 1], a[step], {b[2], b[3]});
        } else {
          unsigned b[2];
          LoadValues(b, values, step, first + n);
          Pool::Value::Multiply(state.output[n], a[step], b);
        }
      }
    }
  }

  unsigned query_[kQueriesInRegisters ? kSteps : 1][4];
  TileMask mask_;  // of the tile
};

}  // namespace baton::t1
