// The states of a unit in the tensor-core attention, and their merge order (NUMERICS_T1 §5).
//
// A state covers all rows of a block. Three states are live:
// - the segment in progress, in registers;
// - the group so far, in shared memory, or in the workspace if shared memory is too small;
// - the row, that is the merged groups, in the block's own part of the workspace. The kernel uses
// it
//   once in 2,048 slots.
//
// The block that begins a unit merges all its own segments. A block that continues a unit writes
// pieces to the workspace: first the segments of a group that another block began, one by one, then
// the groups that it begins itself. The block that ends last merges the pieces. So the division of
// work changes no bit.
#pragma once

#include "kernels/cuda/tensor_core_operands.cuh"
#include "kernels/cuda/tensor_core_plan.cuh"

namespace baton::t1 {

// References and sums of a thread's two rows: lane / 4 and lane / 4 + 8 of a chunk.
struct RowSums {
  float reference[2];
  float sum[2];
};
__device__ inline RowSums EmptyRows() {
  const float lowest = -__uint_as_float(0x7f800000u);
  return {{lowest, lowest}, {0, 0}};
}

// One thread's part of a state. Output tile n has the columns 8 · n + 2 · (lane % 4) and the next
// one of both rows, as a matrix instruction gives them.
template <int kTiles>
struct ThreadState {
  RowSums rows;
  float output[kTiles][4];

  __device__ void Clear() {
    rows = EmptyRows();
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) output[n][i] = 0;
    }
  }
  __device__ float4 tile(int n) const {
    return make_float4(output[n][0], output[n][1], output[n][2], output[n][3]);
  }
};

// Factors that merge the next state of two rows into a running one. They are powers of two.
struct Factors {
  float running[2];
  float next[2];
};
// Merges references and sums. States without a visible slot need no branch (NUMERICS_T1 §6).
__device__ inline Factors MergeRows(RowSums& rows, const RowSums& next) {
  Factors factors;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float largest = MaxOrNan(rows.reference[i], next.reference[i]);
    factors.running[i] = PowerOfTwo(r1::Subtract(rows.reference[i], largest));
    factors.next[i] = PowerOfTwo(r1::Subtract(next.reference[i], largest));
    rows.reference[i] = largest;
    rows.sum[i] =
        r1::Fma(next.sum[i], factors.next[i], r1::Multiply(rows.sum[i], factors.running[i]));
  }
  return factors;
}
__device__ inline float4 Merge(const float4& running, const float4& next, const Factors& factors) {
  const auto merge = [&](float x, float y, int i) {
    return r1::Fma(y, factors.next[i], r1::Multiply(x, factors.running[i]));
  };
  return make_float4(merge(running.x, next.x, 0), merge(running.y, next.y, 0),
                     merge(running.z, next.z, 1), merge(running.w, next.w, 1));
}

// A state in the workspace, as one thread sees it.
template <int kDim, int kSplit, int kChunks>
struct StoredState {
  static constexpr int kRows = kMmaRows * kChunks;
  static constexpr int kThreads = 32 * kSplit * kChunks;
  static constexpr int64_t kFloats = StateFloats(kDim, kRows);
  float* base;

  __device__ float4& tile(int n) const {
    return reinterpret_cast<float4*>(base)[n * kThreads + threadIdx.x];
  }
  __device__ int& group() const { return *reinterpret_cast<int*>(base + kRows * (kDim + 2)); }

  __device__ RowSums ReadRows() const { return {{reference(0), reference(1)}, {sum(0), sum(1)}}; }
  // Threads with equal rows have equal references and sums. One of them writes them.
  __device__ void WriteRows(const RowSums& rows) const {
    if (threadIdx.x / 32 % kSplit != 0 || threadIdx.x % 4 != 0) return;
    for (int i = 0; i < 2; ++i) {
      reference(i) = rows.reference[i];
      sum(i) = rows.sum[i];
    }
  }

 private:
  __device__ static int RowOf(int i) {
    return threadIdx.x / 32 / kSplit * kMmaRows + threadIdx.x % 32 / 4 + 8 * i;
  }
  __device__ float& reference(int i) const { return base[kRows * kDim + RowOf(i)]; }
  __device__ float& sum(int i) const { return base[kRows * (kDim + 1) + RowOf(i)]; }
};

// One thread's part of all states. kSplit warps share a chunk of 16 rows. Functions that are not
// inline keep their registers out of the loop over tiles.
//
// kGroup: offset of the group's outputs in shared memory, float4 [kTiles][threads]. −1: they are in
// the workspace, one state for each block after the states of all blocks.
// kSumTiles: output tiles of `segment` behind those of the head. All columns of such a tile are the
// sum of the weights. The kernel moves it into `segment.rows`.
template <int kDim, int kSplit, int kChunks, int kGroup, int kSumTiles = 0>
class UnitState {
 public:
  using Stored = StoredState<kDim, kSplit, kChunks>;
  static constexpr int kTiles = kDim / 8 / kSplit;

  __device__ explicit UnitState(const TensorCoreAttentionParams& params) : p(params) {}

  // `keeps_unit`: this block begins the unit.
  __device__ void Begin(bool keeps_unit) { flags_ = keeps_unit ? kKeeps : 0; }

  // `number` is that of the segment, among those of the rows that see it. Ends the group in
  // progress if the segment cannot join it. Here, and not when the segment ends, `segment` needs no
  // registers.
  __device__ void BeginSegment(int number) {
    BeginInGroup(number);
    segment.Clear();
  }
  // The same, but leaves `segment` as it is.
  __device__ void BeginInGroup(int number) {
    const int next = number / kT1GroupSegments;
    if (!(Is(kOpen) && next == number_ && (Is(kKeeps) || Is(kPrefix)))) {
      // This block begins a group if the segment is the first one of it, or if another group was
      // open.
      Set(kPrefix, number % kT1GroupSegments == 0 || (Is(kOpen) && next != number_));
      EndGroup();
      number_ = next;
    }
  }

  // Adds the state in `segment` to the group.
  __device__ void EndSegment() {
    if (Is(kOpen)) {
      const Factors factors = MergeRows(group_rows_, segment.rows);
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        tile(p, n) = Merge(tile(p, n), segment.tile(n), factors);
      }
    } else {
      Set(kOpen, true);
      group_rows_ = segment.rows;
#pragma unroll
      for (int n = 0; n < kTiles; ++n) tile(p, n) = segment.tile(n);
    }
  }

  // Ends the block's work on the unit. Writes the states that other blocks need.
  __device__ void WriteRest() {
    if (!Is(kKeeps)) {
      EndGroup();
      if (threadIdx.x == 0) p.pieces[blockIdx.x] = static_cast<unsigned>(flags_) / kWritten;
      return;
    }
    const Stored row = RowOf(p, blockIdx.x);
    if (!Is(kHasRow)) {
      row_rows_ = EmptyRows();
#pragma unroll 1
      for (int n = 0; n < kTiles; ++n) row.tile(n) = make_float4(0, 0, 0, 0);
    }
    row.WriteRows(row_rows_);
    WriteGroup(p, StateAt(p, blockIdx.x, p.paged.states_per_block - 1), group_rows_, number_);
  }

  // Returns true in the block that is the last of those that computed the unit. The states of the
  // others are then visible.
  __device__ bool ArrivesLast(const BlockWork& work, int64_t* scratch) {
    __syncthreads();  // what the other threads wrote precedes thread 0's release
    if (threadIdx.x == 0) {
      const int first = work.first_block;
      const auto others = static_cast<uint32_t>(work.last_block - first);
      const bool last = AddAcquireRelease(&p.paged.arrivals[first], 1) == others;
      if (last) atomicExch(&p.paged.arrivals[first], 0u);  // for the next launch
      scratch[34] = last ? 1 : 0;
    }
    __syncthreads();
    return scratch[34] != 0;
  }

  // Merges all states of the unit, in the order of the items. The results take the place of the
  // open group, and there is no row any more.
  __device__ void MergePieces(const BlockWork& work) {
    Set(kHasRow, false);
    group_rows_ = MergeBlocks(p, p.paged.states, p.paged.states_per_block, p.pieces,
                              work.first_block, work.last_block, work.share.quota == 1);
  }

  // Merges the open group. Calls write(i, n, two neighbouring columns of output tile n) for the
  // results of the thread's row i. Rows that see no slot at all have no result.
  template <typename Write>
  __device__ void Finish(const Write& write) {
    RowSums rows = group_rows_;
    Factors factors = {{0, 0}, {1, 1}};
    if (Is(kHasRow)) {
      rows = row_rows_;
      factors = MergeRows(rows, group_rows_);
    }
    float inverse[2];
    bool saw[2];
    for (int i = 0; i < 2; ++i) {
      const float reference = rows.reference[i];
      saw[i] = reference != -__uint_as_float(0x7f800000u);
      inverse[i] = reference == reference ? r1::Divide(1.0f, rows.sum[i]) : reference;
    }
    const Stored row = RowOf(p, blockIdx.x);
#pragma unroll 2
    for (int n = 0; n < kTiles; ++n) {
      float4 o = tile(p, n);
      if (Is(kHasRow)) o = Merge(row.tile(n), o, factors);
      if (saw[0]) write(0, n, r1::Multiply(o.x, inverse[0]), r1::Multiply(o.y, inverse[0]));
      if (saw[1]) write(1, n, r1::Multiply(o.z, inverse[1]), r1::Multiply(o.w, inverse[1]));
    }
  }

  ThreadState<kTiles + kSumTiles> segment;

 private:
  // Facts that are equal in all threads, in one register.
  enum Flag : int {
    kKeeps = 1,    // the block began the unit
    kOpen = 2,     // a group is in progress
    kPrefix = 4,   // all segments of the group so far are in this block
    kHasRow = 8,   // the row has outputs in the workspace
    kWritten = 16  // times the number of pieces that the block wrote
  };
  __device__ bool Is(Flag flag) const { return (flags_ & flag) != 0; }
  __device__ void Set(Flag flag, bool value) { flags_ = value ? flags_ | flag : flags_ & ~flag; }

  // Output tiles that are loaded before the first of them is used. After a store, nvcc would not
  // move a load up. Chunks of prompts rarely merge, and hold more in registers.
  static constexpr int kMostSlice = (kSplit > 1 ? 2 : 1) * (kDim <= 128 ? 2 : 1);
  static constexpr int kSlice = kTiles < kMostSlice ? kTiles : kMostSlice;
  static_assert(kTiles % kSlice == 0);

  // Output tile n of the group, of this thread.
  __device__ static float4& tile(const TensorCoreAttentionParams& p, int n) {
    if constexpr (kGroup < 0) {
      return Stored{StateAt(p, gridDim.x, 0).base + blockIdx.x * Stored::kFloats}.tile(n);
    } else {
      return reinterpret_cast<float4*>(SharedMemory<std::byte>() +
                                       kGroup)[n * Stored::kThreads + threadIdx.x];
    }
  }

  // State `number` of a block in the workspace. The last two are those of a unit that it began: the
  // row's and the group's.
  __device__ static Stored StateAt(const TensorCoreAttentionParams& p, int64_t block,
                                   int64_t number) {
    return {p.paged.states + (block * p.paged.states_per_block + number) * Stored::kFloats};
  }

  // The row's state, which is in a block that began a unit.
  __device__ static Stored RowOf(const TensorCoreAttentionParams& p, int64_t block) {
    return StateAt(p, block, p.paged.states_per_block - 2);
  }

  // Merges the open group into the row, or writes it to the workspace.
  __device__ void EndGroup() {
    if (!Is(kOpen)) return;
    Set(kOpen, false);
    if (Is(kKeeps)) {
      row_rows_ = AddToRow(p, RowOf(p, blockIdx.x), Is(kHasRow), group_rows_, row_rows_);
      Set(kHasRow, true);
    } else {
      WriteGroup(p, StateAt(p, blockIdx.x, flags_ / kWritten), group_rows_, number_);
      flags_ += kWritten;
    }
  }

  BATON_NOINLINE __device__ static RowSums AddToRow(const TensorCoreAttentionParams& p, Stored row,
                                                    bool has_row, RowSums group_rows,
                                                    RowSums row_rows) {
    if (!has_row) row_rows = EmptyRows();
    const Factors factors = MergeRows(row_rows, group_rows);
#pragma unroll 1
    for (int slice = 0; slice < kTiles; slice += kSlice) {
      float4 running[kSlice] = {};
#pragma unroll
      for (int n = 0; n < kSlice; ++n) {
        if (has_row) running[n] = row.tile(slice + n);
      }
#pragma unroll
      for (int n = 0; n < kSlice; ++n) {
        const float4 next = tile(p, slice + n);
        row.tile(slice + n) = has_row ? Merge(running[n], next, factors) : next;
      }
    }
    return row_rows;
  }

  BATON_NOINLINE __device__ static void WriteGroup(const TensorCoreAttentionParams& p, Stored to,
                                                   RowSums rows, int number) {
#pragma unroll 4
    for (int n = 0; n < kTiles; ++n) to.tile(n) = tile(p, n);
    to.WriteRows(rows);
    if (threadIdx.x == 0) to.group() = number;
  }

  // Merges the states that block `first` kept and the pieces of blocks (first, last]. Returns the
  // rows of the result. Its outputs take the place of the open group.
  //
  // `one_each`: every block wrote one piece, so their numbers need not be loaded. The loads of a
  // batch of states are issued together, because a load from L2 takes about 650 clocks. The first
  // batch begins with what block `first` kept. `states`, `per_block` and `pieces` are those of `p`,
  // by value: a function that is not inline would load them through its reference first.
  BATON_NOINLINE __device__ static RowSums MergeBlocks(const TensorCoreAttentionParams& p,
                                                       float* states, int64_t per_block,
                                                       const uint32_t* pieces, int64_t first,
                                                       int64_t last, bool one_each) {
    const auto state_at = [&](int64_t block, int64_t number) {
      return Stored{states + (block * per_block + number) * Stored::kFloats};
    };
    constexpr int kBatch = 4;
    const Stored kept = state_at(first, per_block - 1);
    RowSums row_rows{};
#pragma unroll 1
    for (int slice = 0; slice < kTiles; slice += kSlice) {
      const Stored row = state_at(first, per_block - 2);
      float4 row_tiles[kSlice];
#pragma unroll
      for (int n = 0; n < kSlice; ++n) row_tiles[n] = row.tile(slice + n);
      row_rows = row.ReadRows();
      RowSums group_rows{};
      float4 tiles[kSlice] = {};
      int number = 0;
      bool begins = true;
      int64_t block = first;  // of the next piece
      unsigned index = 0;
      unsigned count = 0;   // pieces of the block
      unsigned counts = 0;  // of 32 blocks, one in each lane
      while (true) {
        Stored batch[kBatch];
        int found = 0;
#pragma unroll
        for (int k = 0; k < kBatch; ++k) {
          batch[k] = kept;
          if (begins && k == 0) {
            found = 1;
            continue;
          }
          if (index == count) {
            if (block == last) continue;
            if ((block - first) % 32 == 0 && !one_each) {
              const int64_t of_lane = block + 1 + threadIdx.x % 32;
              counts = of_lane <= last ? pieces[of_lane] : 0;
            }
            count = one_each
                        ? 1
                        : __shfl_sync(kWholeWarp, counts, static_cast<int>((block - first) % 32));
            index = 0;
            ++block;
          }
          batch[k] = state_at(block, index);
          ++index;
          ++found;
        }
        if (found == 0) break;

        RowSums rows[kBatch];
        int numbers[kBatch];
        float4 next[kBatch][kSlice];
#pragma unroll
        for (int k = 0; k < kBatch; ++k) {
          rows[k] = batch[k].ReadRows();
          numbers[k] = batch[k].group();
#pragma unroll
          for (int n = 0; n < kSlice; ++n) next[k][n] = batch[k].tile(slice + n);
        }
#pragma unroll
        for (int k = 0; k < kBatch; ++k) {
          if (k >= found) continue;
          // A piece of a new group first ends the one before.
          const bool starts = begins && k == 0;
          const bool ends = !starts && numbers[k] != number;
          number = numbers[k];
          if (ends) {
            const Factors factors = MergeRows(row_rows, group_rows);
#pragma unroll
            for (int n = 0; n < kSlice; ++n) row_tiles[n] = Merge(row_tiles[n], tiles[n], factors);
          }
          if (starts || ends) {
            group_rows = rows[k];
#pragma unroll
            for (int n = 0; n < kSlice; ++n) tiles[n] = next[k][n];
          } else {
            const Factors factors = MergeRows(group_rows, rows[k]);
#pragma unroll
            for (int n = 0; n < kSlice; ++n) tiles[n] = Merge(tiles[n], next[k][n], factors);
          }
        }
        begins = false;
      }
      const Factors factors = MergeRows(row_rows, group_rows);
#pragma unroll
      for (int n = 0; n < kSlice; ++n) {
        tile(p, slice + n) = Merge(row_tiles[n], tiles[n], factors);
      }
    }
    return row_rows;
  }

  const TensorCoreAttentionParams& p;
  int flags_ = 0;
  // The group in progress.
  int number_ = 0;
  RowSums group_rows_;
  RowSums row_rows_;
};

}  // namespace baton::t1
