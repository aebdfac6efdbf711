// Where K and V lie in a pool, and which slots a row of the batch attends to. Ops and CUDA kernels
// share these plain structs, which also lie in device memory.
//
// Offsets are 64-bit and count elements.
//
// Thread safety: plain data.
#pragma once

#include <cstdint>

#include "common/kv_type.h"

namespace baton {

// View of one layer of a KV pool.
//
// Element (K, block, offset in block, head, d) lies at
//   base + block * block_stride + offset * token_stride + head * head_stride + d.
// In a pool with scales (HasScales), the f32 scale of (K, block, offset, head) lies at byte
//   base + block * block_stride + offset * token_stride + scale_offset + 4 * head.
// V's elements and scales lie value_offset further than K's.
struct KvLayerView {
  void* base = nullptr;
  KvType type = KvType::kF16;
  int32_t block_size_log2 = 4;
  int64_t block_stride = 0;  // all strides and offsets in elements
  int64_t token_stride = 0;
  int64_t head_stride = 0;
  int64_t value_offset = 0;
  int64_t scale_offset = 0;  // pools with scales only
};

// Slots [begin, end) of a sequence that rows attend to (NUMERICS §8). Several rows may use one run.
struct VisibleRun {
  int32_t begin = 0;
  int32_t end = 0;
  // Segments and tiles are counted from this slot. REQUIRES: tile_origin <= begin.
  int32_t tile_origin = 0;
  // Row t scores this run with row t + query_offset of Q. That row is a copy of its query, rotated
  // for another position. 0: row t uses its own query.
  int32_t query_offset = 0;
};
// The runs that one row sees, in order: [first_run, first_run + run_count). The row's own
// last_begin and last_end replace the bounds of its last run. So all rows of a chunk can share
// their runs.
struct RowRuns {
  int32_t first_run = 0;
  int32_t run_count = 0;  // 0: the row is padding and its result is zeros
  int32_t last_begin = 0;
  int32_t last_end = 0;
};

}  // namespace baton
