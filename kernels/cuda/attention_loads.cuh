// Copies tiles of K and V to shared memory.
//
// If no row of the thread block sees a slot, nothing is read for the slot, because its KV block may
// not exist. Its bytes in shared memory are then zeros or old data.
#pragma once

#include "kernels/cuda/attention_state.cuh"
#include "kernels/cuda/ptx.cuh"

namespace baton::attention {

// Returns the offset of a slot's row of K (kv head 0) in the pool.
__device__ inline int64_t SlotOffset(const PagedAttentionParams& p, int32_t sequence,
                                     int64_t slot) {
  const int64_t index = slot >> p.kv.block_size_log2;
  const int64_t block = p.block_tables != nullptr
                            ? p.block_tables[sequence * p.table_stride + index]
                            : p.first_block[sequence] + index;
  const int64_t in_block = slot - (index << p.kv.block_size_log2);
  return block * p.kv.block_stride + in_block * p.kv.token_stride;
}

// The offset of slot `tile_slot` + thread for the first 64 threads; -1: no row sees it.
template <typename Shared>
__device__ int64_t TileOffset(const PagedAttentionParams& p, const Shared& shared, int32_t sequence,
                              int32_t tile_slot) {
  if (threadIdx.x >= kAttentionTile) return -1;
  const int64_t slot = int64_t{tile_slot} + threadIdx.x;
  bool seen = false;
  // Rows of one token have equal bounds, so one of them is enough.
  for (int row = 0; row < shared.rows && !seen; row += p.heads_per_group) {
    seen = slot >= shared.row_begin(row) && slot < shared.row_end(row);
  }
  return seen ? SlotOffset(p, sequence, slot) : -1;
}

// Copies the rows of K and V of one kv head at `offsets` (see SharedLayout) into `stage`. The
// copies are asynchronous if p.copies_16_bytes.
template <typename Elements, typename Shared>
__device__ void CopyTile(const PagedAttentionParams& p, const Shared& shared, int stage,
                         int kv_head, const int64_t* offsets) {
  using Value = typename Elements::Value;
  const auto* base = static_cast<const Value*>(p.kv.base);
  const int64_t head_offset = kv_head * p.kv.head_stride;
  if (p.copies_16_bytes) {
    constexpr int kValues = 16 / sizeof(Value);
    const int pieces = p.head_dim / kValues;  // of a row
    for (int i = threadIdx.x; i < kAttentionTile * pieces; i += blockDim.x) {
      const int slot = i / pieces;
      const int d = (i - slot * pieces) * kValues;
      const int64_t offset = offsets[slot];
      const Value* const from = base + (offset < 0 ? 0 : offset + head_offset + d);
      CopyAsync16(shared.key(stage, slot) + d * sizeof(Value), from, offset >= 0);
      CopyAsync16(shared.value(stage, slot) + d * sizeof(Value),
                  from + (offset < 0 ? 0 : p.kv.value_offset), offset >= 0);
    }
    return;
  }
  for (int i = threadIdx.x; i < kAttentionTile * p.head_dim; i += blockDim.x) {
    const int slot = i / p.head_dim;
    const int d = i - slot * p.head_dim;
    const int64_t offset = offsets[slot];
    const Value* const from = base + offset + head_offset + d;
    reinterpret_cast<Value*>(shared.key(stage, slot))[d] = offset < 0 ? Value{} : from[0];
    reinterpret_cast<Value*>(shared.value(stage, slot))[d] =
        offset < 0 ? Value{} : from[p.kv.value_offset];
  }
}

// The scale of slot (thread % 64) of pools with scales: of K for the first 64 threads, of V for the
// next. A scale may lie at any byte.
__device__ inline float LoadScale(const PagedAttentionParams& p, int kv_head,
                                  const int64_t* offsets) {
  if (threadIdx.x >= 2 * kAttentionTile) return 0;
  const int64_t offset = offsets[threadIdx.x % kAttentionTile];
  if (offset < 0) return 0;
  const bool value = threadIdx.x >= kAttentionTile;
  const std::byte* const at = static_cast<const std::byte*>(p.kv.base) + offset +
                              (value ? p.kv.value_offset : 0) + p.kv.scale_offset +
                              kv_head * int64_t{sizeof(float)};
  if (reinterpret_cast<uintptr_t>(at) % sizeof(float) == 0) {
    return *reinterpret_cast<const float*>(at);
  }
  uint32_t bits = 0;
  for (int byte = 0; byte < 4; ++byte) bits |= static_cast<uint32_t>(at[byte]) << (8 * byte);
  return __uint_as_float(bits);
}
template <typename Shared>
__device__ void StoreScale(const Shared& shared, int stage, float scale) {
  if (threadIdx.x >= 2 * kAttentionTile) return;
  shared.scales(stage, threadIdx.x >= kAttentionTile)[threadIdx.x % kAttentionTile] = scale;
}

}  // namespace baton::attention
