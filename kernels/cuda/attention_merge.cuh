// The state of a unit (NUMERICS §8): that of the segment in progress, and that of the merged
// earlier segments.
//
// The block that begins a unit merges each segment when it ends. A block that continues a unit
// writes the state of each segment to the workspace. The block that ends last merges all these
// states.
#pragma once

#include "kernels/cuda/attention_rows.cuh"
#include "kernels/cuda/ptx.cuh"

namespace baton::attention {

// One thread's part.
template <typename Elements, int kDim, int kSplit, int kChunks>
class UnitState {
 public:
  using Rows = BlockRows<Elements, kDim, kSplit, kChunks>;
  using Map = typename Rows::Map;
  using State = StoredState<kDim, Rows::kRows>;
  static constexpr int kMergedAtOnce = 32 / Map::kOutputs;  // 8 for decode, 2 for chunks

  // `keeps_unit`: this block begins the unit.
  __device__ void Begin(const Rows& rows, bool keeps_unit) {
    keeps = keeps_unit;
    written = StateAt(rows, blockIdx.x, 0).base;
    running.Clear();
    segment.Clear();
    outputs.Clear();
  }

  // Merges the segment's state into the running one, or writes it to the workspace.
  __device__ void EndSegment(const Rows& rows) {
    if (keeps) {
      rows.ForSoftRows([&](int i, int row) {
        MergeFactors factors;
        if (segment.any[i]) factors = running.MergeRow(i, segment.maximum[i], segment.sum[i]);
        if (threadIdx.x % kLanes != 0) return;
        rows.shared.row_value(kMergeA, row) = factors.a;
        rows.shared.row_value(kMergeB, row) = factors.b;
      });
      rows.SyncChunk();
      outputs.ForEach([&](float& o, int number, int i) {
        const int row = rows.first_row + Outputs<Map>::RowOf(rows.in_chunk, i);
        float& merged = rows.shared.running()[number * Rows::kBlock + threadIdx.x];
        merged = Merge(merged, o,
                       {rows.shared.row_value(kMergeA, row), rows.shared.row_value(kMergeB, row)});
      });
      rows.SyncChunk();
    } else {
      WriteState(rows, {written}, segment);
      written += State::kFloats;
    }
    segment.Clear();
    outputs.Clear();
  }

  // Writes the state of the segments that this block kept.
  __device__ void WriteKept(const Rows& rows) {
    WriteState(rows, StateAt(rows, blockIdx.x, rows.p.states_per_block - 1), running);
  }

  // Returns true in the block that is the last of those that computed the unit of items
  // [begin, end). The states of the others are then visible.
  __device__ bool ArrivesLast(const Rows& rows, const Share& share, int64_t begin, int64_t end) {
    const int64_t first = begin / share.quota;
    const auto blocks = static_cast<uint32_t>((end - 1) / share.quota - first + 1);
    __syncthreads();  // what the other threads wrote precedes thread 0's release
    if (threadIdx.x == 0) {
      const bool last = AddAcquireRelease(&rows.p.arrivals[first], 1) == blocks - 1;
      if (last) atomicExch(&rows.p.arrivals[first], 0u);  // for the next launch
      rows.shared.scratch()[34] = last ? 1 : 0;
    }
    __syncthreads();
    return rows.shared.scratch()[34] != 0;
  }

  // Merges all states of the unit of items [begin, end) into the running state. The loads of
  // several states overlap: one after the other, they would wait for the memory each time.
  __device__ void MergeStates(const Rows& rows, const Share& share, int64_t begin, int64_t end) {
    const int64_t first = begin / share.quota;
    // The first block kept its items in one state.
    int64_t rest = end - (first + 1) * share.quota + 1;
    const int64_t kept = rows.p.states_per_block - 1;
    Place place{first, kept};
    running.Clear();
    float merged[Map::kOutputs] = {};
    while (rest > 0) {
      const int count = rest < kMergedAtOnce ? static_cast<int>(rest) : kMergedAtOnce;
      State batch[kMergedAtOnce];
#pragma unroll
      for (int n = 0; n < kMergedAtOnce; ++n) {
        batch[n] = StateAt(rows, place.block, place.index);
        if (n + 1 < count) place.Advance(share.quota, kept);  // otherwise the last one again
      }
      if (count < rest) place.Advance(share.quota, kept);
      rows.ForSoftRows([&](int i, int row) {
        float sums[kMergedAtOnce];
        float maxima[kMergedAtOnce];
        bool any[kMergedAtOnce];
#pragma unroll
        for (int n = 0; n < kMergedAtOnce; ++n) {
          sums[n] = batch[n].sum(row, threadIdx.x % kLanes);
          maxima[n] = batch[n].maximum(row);
          any[n] = n < count && batch[n].any(row) != 0;
        }
#pragma unroll
        for (int n = 0; n < kMergedAtOnce; ++n) {
          MergeFactors factors;
          if (any[n]) factors = running.MergeRow(i, maxima[n], sums[n]);
          if (threadIdx.x % kLanes != 0) continue;
          rows.shared.scores(row)[2 * n] = factors.a;  // scores are no longer used
          rows.shared.scores(row)[2 * n + 1] = factors.b;
        }
      });
      float next[kMergedAtOnce][Map::kOutputs];
#pragma unroll
      for (int n = 0; n < kMergedAtOnce; ++n) {
#pragma unroll
        for (int number = 0; number < Map::kOutputs; ++number) {
          next[n][number] = batch[n].output(number * Rows::kBlock + threadIdx.x);
        }
      }
      __syncthreads();
#pragma unroll
      for (int n = 0; n < kMergedAtOnce; ++n) {
#pragma unroll
        for (int number = 0; number < Map::kOutputs; ++number) {
          const int row =
              rows.first_row + Outputs<Map>::RowOf(rows.in_chunk, number / (4 * Map::kQuads));
          merged[number] =
              Merge(merged[number], next[n][number],
                    {rows.shared.scores(row)[2 * n], rows.shared.scores(row)[2 * n + 1]});
        }
      }
      __syncthreads();
      rest -= count;
    }
#pragma unroll
    for (int number = 0; number < Map::kOutputs; ++number) {
      rows.shared.running()[number * Rows::kBlock + threadIdx.x] = merged[number];
    }
  }

  // Writes the results of the running state. Rows without a visible slot have zeros already.
  __device__ void Finish(const Rows& rows) {
    rows.ForSoftRows([&](int i, int row) {
      float sum = running.sum[i];
      const unsigned lanes = 0xffffu << (threadIdx.x & 16u);
      for (int distance = 8; distance > 0; distance /= 2) {
        sum = r1::Add(sum, __shfl_xor_sync(lanes, sum, distance));  // Tree16
      }
      if (threadIdx.x % 16 == 0) {
        rows.shared.row_value(kRowSum, row) = running.any[i] && rows.Exists(row) ? sum : kSkip;
      }
    });
    __syncthreads();
#pragma unroll 1
    for (int number = 0; number < Map::kOutputs; ++number) {
      const int row =
          rows.first_row + Outputs<Map>::RowOf(rows.in_chunk, number / (4 * Map::kQuads));
      const float sum = rows.shared.row_value(kRowSum, row);
      const int d = Outputs<Map>::FirstOf(rows.in_chunk, number / 4 % Map::kQuads) + number % 4;
      if (sum == kSkip || d >= rows.p.head_dim) continue;
      rows.p.out[(rows.token_of(row) * rows.p.query_heads + rows.head_of(row)) * rows.p.head_dim +
                 d] = r1::Divide(rows.shared.running()[number * Rows::kBlock + threadIdx.x], sum);
    }
    __syncthreads();
  }

  SoftState<Map::kSoftRows> segment;
  Outputs<Map> outputs;

 private:
  // State `number` of a block in the workspace.
  __device__ static State StateAt(const Rows& rows, int64_t block, int64_t number) {
    return {rows.p.states + (block * rows.p.states_per_block + number) * State::kFloats};
  }

  // Writes the merged outputs if the block keeps the unit, otherwise the segment's.
  __device__ void WriteState(const Rows& rows, const State& state,
                             const SoftState<Map::kSoftRows>& soft) {
    outputs.ForEach([&](float& o, int number, int) {
      const int at = number * Rows::kBlock + threadIdx.x;
      state.output(at) = keeps ? rows.shared.running()[at] : o;
    });
    rows.ForSoftRows([&](int i, int row) {
      state.sum(row, threadIdx.x % kLanes) = soft.sum[i];
      if (threadIdx.x % kLanes != 0) return;
      state.maximum(row) = soft.maximum[i];
      state.any(row) = soft.any[i] ? 1 : 0;
    });
  }

  // The place of a stored state. Advance moves to the next state of the unit.
  struct Place {
    int64_t block;
    int64_t index;

    __device__ void Advance(int64_t quota, int64_t kept) {
      if (index + 1 < quota && index != kept) {
        ++index;
        return;
      }
      ++block;
      index = 0;
    }
  };

  SoftState<Map::kSoftRows> running;
  bool keeps = true;         // segments are merged at once, not written to the workspace
  float* written = nullptr;  // where the next segment's state goes
};

}  // namespace baton::attention
