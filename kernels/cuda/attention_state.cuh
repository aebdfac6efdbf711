// State of a paged attention kernel: the part of one thread, and the places of the rest in shared
// memory. attention_tile.cuh defines the terms and the mapping of threads.
#pragma once

#include "kernels/cuda/attention_params.h"
#include "kernels/cuda/device_code.cuh"
#include "kernels/elementary.h"
#include "kernels/fp8.h"
#include "kernels/half.h"

namespace baton::attention {

// Element types of a pool. kInt8: products are integer. kScaled: rows have a scale.
struct F32Elements {
  using Value = float;
  static constexpr bool kInt8 = false;
  static constexpr bool kScaled = false;
  __device__ static float Widen(float value) { return value; }
};
struct F16Elements {
  using Value = uint16_t;
  static constexpr bool kInt8 = false;
  static constexpr bool kScaled = false;
  __device__ static float Widen(uint16_t value) {
#ifdef __CUDA_ARCH__
    float wide;  // exact; a NaN is quiet
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value));
    return wide;
#else
    return F16ToF32(value);
#endif
  }
};
struct Bf16Elements {
  using Value = uint16_t;
  static constexpr bool kInt8 = false;
  static constexpr bool kScaled = false;
  __device__ static float Widen(uint16_t value) { return BF16ToF32(value); }
};
struct Int8Elements {
  using Value = int8_t;
  static constexpr bool kInt8 = true;
  static constexpr bool kScaled = true;
  __device__ static float Widen(int8_t) { return 0; }  // not used
};
struct Fp8Elements {
  using Value = uint8_t;
  static constexpr bool kInt8 = false;
  static constexpr bool kScaled = true;
  __device__ static float Widen(uint8_t value) { return Fp8ToF32(value); }
};

// Values of a row in shared memory.
enum RowValue : int {
  kAlpha = 0,        // factor for the row's outputs in this tile, if the row sees a slot of it
  kFactor = 1,       // int8: scale of the query, times softmax_scale
  kWeightScale = 2,  // int8: scale of the tile's weights
  kMergeA = 3,       // factors of the merge (NUMERICS §8): of the running state, or a code
  kMergeB = 4,       // of the segment's state
  kRowSum = 5,       // sum of the row's weights at the end; kSkip: the row sees nothing at all
};
// Codes in place of a factor. Exp gives no negative number.
inline constexpr float kSkip = -1;  // the state stays as it is
inline constexpr float kCopy = -2;  // the state becomes the segment's

// Mapping of a block's threads, fixed at compile time but for the number of chunks.
template <typename Elements, int kDim, int kSplit>
struct Mapping {
  static constexpr int kDimension = kDim;
  static constexpr int kRows = RowsPerChunk(kDim);
  static constexpr int kThreads = 32 * kSplit;  // of a chunk
  static constexpr int kBatch = 8 / kRows;      // slots whose scores a thread computes at once
  static constexpr int kSteps = kDim / kLanes;  // pairs of lanes that a thread reads of a row
  // Softmax: 16 threads take a row. Each takes every (2 * kSplit)-th row of the chunk.
  static constexpr int kSoftRows = kRows > 2 * kSplit ? kRows / (2 * kSplit) : 1;
  // Outputs: a thread takes kQuads times four neighbouring d of kOut rows.
  static constexpr int kRowQuads = kDim / 4;
  static constexpr int kQuads = kRowQuads > kThreads ? kRowQuads / kThreads : 1;
  static constexpr int kAcross = kRowQuads / kQuads;  // threads that share a row
  static constexpr int kOut = kRows * kAcross / kThreads;
  static constexpr int kOutputs = kOut * kQuads * 4;
};

// Pointers into shared memory.
template <typename Elements, int kDim, int kRows>
struct Shared {
  static constexpr int rows = kRows;
  std::byte* base;

  __device__ static constexpr SharedLayout layout() {
    return LayoutOf(sizeof(typename Elements::Value), Elements::kInt8, kDim, rows);
  }
  __device__ std::byte* key(int stage, int slot) const {
    const SharedLayout at = layout();
    return base + at.keys + (stage * kAttentionTile + slot) * at.key_row_bytes;
  }
  __device__ std::byte* value(int stage, int slot) const {
    const SharedLayout at = layout();
    return base + at.values + (stage * kAttentionTile + slot) * at.value_row_bytes;
  }
  __device__ float* scores(int row) const {
    return reinterpret_cast<float*>(base + layout().scores) + row * ScoreStride(kDim);
  }
  __device__ float* query(int row) const {
    return reinterpret_cast<float*>(base + layout().queries) + row * kDim;
  }
  __device__ float* running() const { return reinterpret_cast<float*>(base + layout().running); }
  // half 0: high bytes; 1: low bytes less 128.
  __device__ int8_t* weight_bytes(int half, int row) const {
    return reinterpret_cast<int8_t*>(base + layout().weight_bytes) +
           (half * rows + row) * kAttentionTile;
  }
  __device__ float* scales(int stage, bool value) const {
    return reinterpret_cast<float*>(base + layout().scales) +
           (2 * stage + (value ? 1 : 0)) * kAttentionTile;
  }
  __device__ float& row_value(RowValue which, int row) const {
    return reinterpret_cast<float*>(base + layout().row_values)[which * rows + row];
  }
  __device__ int32_t& row_begin(int row) const {
    return reinterpret_cast<int32_t*>(base + layout().row_bounds)[row];
  }
  __device__ int32_t& row_end(int row) const {
    return reinterpret_cast<int32_t*>(base + layout().row_bounds)[rows + row];
  }
  __device__ int64_t* offsets(int parity) const {
    return reinterpret_cast<int64_t*>(base + layout().offsets) + parity * kAttentionTile;
  }
  __device__ int64_t* scratch() const {
    return reinterpret_cast<int64_t*>(base + layout().scratch);
  }
};

// Factors that merge a segment's state into the running one (NUMERICS §8). `a` may be a code.
struct MergeFactors {
  float a = kSkip;
  float b = 0;
};
__device__ inline float Merge(float running, float next, const MergeFactors& factors) {
  if (factors.a == kSkip) return running;
  if (factors.a == kCopy) return next;
  return r1::Fma(next, factors.b, r1::Multiply(running, factors.a));
}

// The part of a segment's or of the running state that this thread keeps for the softmax.
template <int kSoftRows>
struct SoftState {
  float maximum[kSoftRows];
  float sum[kSoftRows];  // of the thread's lane
  bool any[kSoftRows];

  __device__ void Clear() {
#pragma unroll
    for (int i = 0; i < kSoftRows; ++i) {
      maximum[i] = -__uint_as_float(0x7f800000u);
      sum[i] = 0;
      any[i] = false;
    }
  }

  // Merges a state with a visible slot into row i. Returns the factors for its outputs.
  __device__ MergeFactors MergeRow(int i, float next_maximum, float next_sum) {
    MergeFactors factors{kCopy, 0};
    float merged = next_maximum;
    if (any[i]) {
      merged = next_maximum > maximum[i] ? next_maximum : maximum[i];
      factors.a = r1::Exp(r1::Subtract(maximum[i], merged));
      factors.b = r1::Exp(r1::Subtract(next_maximum, merged));
    }
    sum[i] = Merge(sum[i], next_sum, factors);
    maximum[i] = merged;
    any[i] = true;
    return factors;
  }
};

// A state in the workspace: of all rows of a block, after one segment or several.
template <int kDim, int kRows>
struct StoredState {
  static constexpr int64_t kFloats = StateFloats(kDim, kRows);
  float* base;

  __device__ float& output(int at) const { return base[at]; }  // [kRows * kDim], by thread
  __device__ float& sum(int row, int lane) const {
    return base[kRows * kDim + kLanes * row + lane];
  }
  __device__ float& maximum(int row) const { return base[kRows * (kDim + kLanes) + row]; }
  // 1 if the row saw a slot, otherwise 0.
  __device__ float& any(int row) const { return base[kRows * (kDim + kLanes + 1) + row]; }
};

}  // namespace baton::attention
