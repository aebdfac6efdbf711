// Copies queries and tiles of K and V to shared memory, for the tensor-core attention.
//
// If no row of the thread block sees a slot, nothing is read for the slot, because its KV block may
// not exist. The slot becomes zeros in shared memory, because a product with arbitrary bytes could
// be a NaN (NUMERICS_T1 §6).
#pragma once

#include "kernels/cuda/attention_loads.cuh"
#include "kernels/cuda/tensor_core_operands.cuh"
#include "kernels/cuda/tensor_core_plan.cuh"

namespace baton::t1 {

// Pointers into shared memory. Passed by value, so that nothing that holds one needs an address.
template <typename PoolType, int kHeadDim, bool kDecode>
struct Shared {
  using Pool = PoolType;
  static constexpr int kDim = kHeadDim;
  static constexpr bool kOneToken = kDecode;  // all rows of a block are of one token
  std::byte* base;

  __device__ static constexpr SharedLayout layout() {
    return LayoutOf(Pool::kScaled, kDim, kDecode);
  }
  // Matrix of K or V of a tile: [64 slots, kDim].
  __device__ std::byte* tile(int stage, bool value) const {
    return base + layout().tiles +
           (2 * (Pool::kScaled ? 0 : stage) + (value ? 1 : 0)) * MatrixBytes(kDim, kAttentionTile);
  }
  // Pools with scales: the bytes of a slot.
  __device__ std::byte* raw(int stage, bool value, int slot) const {
    return base + layout().raw + ((2 * stage + (value ? 1 : 0)) * kAttentionTile + slot) * kDim;
  }
  __device__ std::byte* queries() const { return base + layout().queries; }
  __device__ std::byte* weights(int which) const {
    return base + layout().weights + which * MatrixBytes(kAttentionTile, kMmaRows);
  }
  __device__ float* maxima(int part) const {
    return reinterpret_cast<float*>(base + layout().maxima) + part * kMmaRows;
  }
  __device__ float* scales(int tile, bool value) const {
    return reinterpret_cast<float*>(base + layout().scales) +
           (tile % 2 * 2 + (value ? 1 : 0)) * kAttentionTile;
  }
  __device__ int64_t* offsets(int tile) const {
    return reinterpret_cast<int64_t*>(base + layout().offsets) +
           tile % layout().stages * kAttentionTile;
  }
  __device__ int64_t* scratch() const {
    return reinterpret_cast<int64_t*>(base + layout().scratch);
  }
  __device__ BlockWork& work() const { return *reinterpret_cast<BlockWork*>(base + layout().work); }
  // Slots [0] to [1] are visible to all rows of the block. Chunks: [2] is the first row that sees
  // any; [3] and [4] belong to Unit::ForRuns.
  __device__ int32_t* all_see() const {
    constexpr int kRows = kDecode ? kMmaRows : kMmaRows * WarpsOfChunks(kDim);
    return bounds() + 2 * kRows;
  }
  __device__ int32_t* bounds() const { return reinterpret_cast<int32_t*>(base + layout().bounds); }
  __device__ int32_t* items_before() const {
    return kDecode ? nullptr : reinterpret_cast<int32_t*>(base + layout().before);
  }
  // The place of byte `byte` of a slot's row in `stage`.
  __device__ std::byte* place(int stage, bool value, int slot, int byte) const {
    if constexpr (Pool::kScaled) {
      return raw(stage, value, slot) + byte;
    } else {
      return tile(stage, value) + ChunkOffset(kAttentionTile, slot, byte / 16) + byte % 16;
    }
  }
};

// Copies the rows of K and V of one kv head at `offsets` (-1: zeros) into `stage`, in pieces of 16
// bytes, asynchronously: those of slots [first, first + slots). `chunks` is the number of pieces of
// a row. `thread` is one of kThreads.
template <int kThreads, int kUnroll, typename SharedMemory>
__device__ __forceinline__ void CopyChunks(const PagedAttentionParams& p, SharedMemory shared,
                                           int stage, int kv_head, const int64_t* offsets,
                                           int chunks, int thread, int first, int slots) {
  using Element = typename SharedMemory::Pool::Element;
  constexpr int kElements = 16 / sizeof(Element);
  const auto* base = static_cast<const Element*>(p.kv.base) + kv_head * p.kv.head_stride;
#pragma unroll kUnroll
  for (int i = thread; i < slots * chunks; i += kThreads) {
    const int row = i / chunks;
    const int chunk = i - row * chunks;
    const int slot = first + row;
    const int64_t offset = offsets[slot];
    const bool is_seen = offset >= 0;
    const Element* const key = base + (is_seen ? offset + chunk * kElements : int64_t{0});
    const Element* const value = key + (is_seen ? p.kv.value_offset : int64_t{0});
    CopyAsync16(shared.place(stage, false, slot, 16 * chunk), key, is_seen);
    CopyAsync16(shared.place(stage, true, slot, 16 * chunk), value, is_seen);
  }
}

// The same, element by element, where rows are not pieces of 16 bytes.
template <int kThreads, typename SharedMemory>
__device__ __forceinline__ void CopyElements(const PagedAttentionParams& p, SharedMemory shared,
                                             int stage, int kv_head, const int64_t* offsets,
                                             int thread, int first, int slots) {
  using Element = typename SharedMemory::Pool::Element;
  const auto* base = static_cast<const Element*>(p.kv.base) + kv_head * p.kv.head_stride;
#pragma unroll 1
  for (int i = thread; i < slots * p.head_dim; i += kThreads) {
    const int row = i / p.head_dim;
    const int d = i - row * p.head_dim;
    const int slot = first + row;
    const int64_t offset = offsets[slot];
    const int byte = d * static_cast<int>(sizeof(Element));
    *reinterpret_cast<Element*>(shared.place(stage, false, slot, byte)) =
        offset < 0 ? Element{0} : base[offset + d];
    *reinterpret_cast<Element*>(shared.place(stage, true, slot, byte)) =
        offset < 0 ? Element{0} : base[offset + p.kv.value_offset + d];
  }
}

// The same, where a row has kDim elements and the threads divide it evenly, for kSlots slots. The
// number of steps is then known to nvcc, and a thread computes its two places in shared memory
// once: each step adds a constant to them. REQUIRES: `first` is a multiple of 8.
template <int kThreads, int kSlots, typename SharedMemory>
__device__ __forceinline__ void CopyFullRows(const PagedAttentionParams& p, SharedMemory shared,
                                             int stage, int kv_head, const int64_t* offsets,
                                             int thread, int first) {
  using Element = typename SharedMemory::Pool::Element;
  constexpr int kDim = SharedMemory::kDim;
  constexpr int kElements = 16 / sizeof(Element);
  constexpr int kChunks = kDim / kElements;
  constexpr int kRowsAtOnce = kThreads / kChunks;
  constexpr int kRowBytes = SharedMemory::Pool::kScaled ? kDim : kPanelRowBytes;
  constexpr int kPlaces = kRowsAtOnce < kSwizzledRows ? kSwizzledRows / kRowsAtOnce : 1;
  static_assert(kSlots % (kRowsAtOnce * kPlaces) == 0);
  const int row = first + thread / kChunks;
  const int byte = thread % kChunks * 16;
  const auto* const base = static_cast<const Element*>(p.kv.base) + kv_head * p.kv.head_stride +
                           thread % kChunks * kElements;
  std::byte* keys[kPlaces];
  std::byte* values[kPlaces];
#pragma unroll
  for (int i = 0; i < kPlaces; ++i) {
    keys[i] = shared.place(stage, false, row + i * kRowsAtOnce, byte);
    values[i] = shared.place(stage, true, row + i * kRowsAtOnce, byte);
  }
#pragma unroll
  for (int k = 0; k < kSlots / kRowsAtOnce; ++k) {
    const int64_t offset = offsets[row + k * kRowsAtOnce];
    const int step = k / kPlaces * kPlaces * kRowsAtOnce * kRowBytes;
    std::byte* const key_to = keys[k % kPlaces] + step;
    std::byte* const value_to = values[k % kPlaces] + step;
    if (offset >= 0) {
      const Element* const key = base + offset;
      CopyAsync16(key_to, key);
      CopyAsync16(value_to, key + p.kv.value_offset);
    } else {
      *reinterpret_cast<uint4*>(key_to) = make_uint4(0, 0, 0, 0);
      *reinterpret_cast<uint4*>(value_to) = make_uint4(0, 0, 0, 0);
    }
  }
}

// Copies kSlots slots of a tile, from `first` on.
template <int kThreads, int kSlots, typename SharedMemory>
__device__ __forceinline__ void CopyTile(const PagedAttentionParams& p, SharedMemory shared,
                                         int stage, int kv_head, const int64_t* offsets, int thread,
                                         int first = 0) {
  constexpr int kDim = SharedMemory::kDim;
  constexpr int kElements = 16 / sizeof(typename SharedMemory::Pool::Element);
  constexpr int kChunks = kDim / kElements;
  constexpr bool kIsStatic = kThreads % kChunks == 0;
  if (!p.copies_16_bytes) {
    CopyElements<kThreads>(p, shared, stage, kv_head, offsets, thread, first, kSlots);
  } else if (p.head_dim != kDim) {
    CopyChunks<kThreads, 1>(p, shared, stage, kv_head, offsets, p.head_dim / kElements, thread,
                            first, kSlots);
  } else if constexpr (kIsStatic) {
    CopyFullRows<kThreads, kSlots>(p, shared, stage, kv_head, offsets, thread, first);
  } else {
    constexpr int kUnroll = kThreads <= 128 ? 4 : 1;  // by registers
    CopyChunks<kThreads, kUnroll>(p, shared, stage, kv_head, offsets, kChunks, thread, first,
                                  kSlots);
  }
}

// Pools with scales: turns the bytes of a stage into the operands of both products.
template <int kThreads, typename Pool, int kDim, bool kDecode>
__device__ void ConvertTile(Shared<Pool, kDim, kDecode> shared, int stage) {
  constexpr int kPieces = kDim / 16;  // of 16 bytes, in a row
#pragma unroll 2
  for (int i = threadIdx.x; i < 2 * kAttentionTile * kPieces; i += kThreads) {
    const bool value = i >= kAttentionTile * kPieces;
    const int slot = i / kPieces % kAttentionTile;
    const int piece = i % kPieces;
    const uint4 bytes =
        *reinterpret_cast<const uint4*>(shared.raw(stage, value, slot) + 16 * piece);
    const auto convert = [value](unsigned four) {
      return value ? Pool::template Widen<typename Pool::Value>(four)
                   : Pool::template Widen<typename Pool::Score>(four);
    };
    const uint2 x = convert(bytes.x);
    const uint2 y = convert(bytes.y);
    const uint2 z = convert(bytes.z);
    const uint2 w = convert(bytes.w);
    std::byte* const to = shared.tile(0, value);
    *reinterpret_cast<uint4*>(to + ChunkOffset(kAttentionTile, slot, 2 * piece)) =
        make_uint4(x.x, x.y, y.x, y.y);
    *reinterpret_cast<uint4*>(to + ChunkOffset(kAttentionTile, slot, 2 * piece + 1)) =
        make_uint4(z.x, z.y, w.x, w.y);
  }
}

// Rounds the queries of kRows rows to operands. `query(row)` points to a row's query, or is null.
template <int kThreads, int kRows, typename Pool, int kDim, bool kDecode, typename QueryOf>
__device__ void LoadQueries(const PagedAttentionParams& p, Shared<Pool, kDim, kDecode> shared,
                            const QueryOf& query) {
  constexpr int kPieces = kDim / 4;  // of four elements, in a row
  static_assert(kRows * kPieces % kThreads == 0);
#pragma unroll 4
  for (int i = 0; i < kRows * kPieces / kThreads; ++i) {
    const int piece = i * kThreads + threadIdx.x;
    const int row = piece / kPieces;
    const int d = piece % kPieces * 4;
    const float* const from = query(row);
    float4 values = make_float4(0, 0, 0, 0);
    if (from != nullptr && d + 4 <= p.head_dim && reinterpret_cast<uintptr_t>(from) % 16 == 0) {
      values = *reinterpret_cast<const float4*>(from + d);
    } else if (from != nullptr) {
      if (d < p.head_dim) values.x = from[d];
      if (d + 1 < p.head_dim) values.y = from[d + 1];
      if (d + 2 < p.head_dim) values.z = from[d + 2];
      if (d + 3 < p.head_dim) values.w = from[d + 3];
    }
    *reinterpret_cast<uint2*>(shared.queries() + ChunkOffset(kRows, row, d / 8) + d % 8 * 2) =
        make_uint2(Pool::Score::Pack(values.x, values.y), Pool::Score::Pack(values.z, values.w));
  }
}

}  // namespace baton::t1
