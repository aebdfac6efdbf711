// Parameters of the kernels that write the KV pool, compare rows with it and rotate rows. Fields
// have the meaning that they have in the argument structs of kernels/ops.h.
//
// Thread safety: plain data.
#pragma once

#include <cstdint>

#include "kernels/paged_kv.h"

namespace baton {

// Grid: [tokens, blocks of rows]. A warp takes one row: a head of Q, behind them one of K, behind
// them one of V.
struct RopeKvWriteParams {
  float* qk;
  const float* v;
  int64_t stride;
  int64_t query_heads;
  int64_t kv_heads;
  int64_t head_dim;
  const float* cosines;
  const float* sines;
  int64_t half;
  bool neighbours;
  bool finite_values;  // 16-bit V is stored as NUMERICS_T1 §4 says
  const int64_t* slot_mapping;
  KvLayerView kv;
  int64_t staged_floats;  // of each warp's row in shared memory; a multiple of 4
};

// Grid: [blocks of tokens]. A warp takes one token.
struct CompareKvParams {
  const float* k;
  const float* v;
  int64_t stride;
  int64_t kv_heads;
  int64_t head_dim;
  const int64_t* slots;
  KvLayerView kv;
  float* changes;
  int64_t tokens;
};

// Grid: [tokens, blocks of pairs].
struct RotaryTableParams {
  const int32_t* positions;
  const double* frequencies;
  const uint8_t* components;
  float* cosines;
  float* sines;
  int64_t half;
  double factor;
};

// Grid: [tokens, blocks of pairs of all heads].
struct RopeParams {
  float* x;
  int64_t stride;
  int64_t heads;
  int64_t head_dim;
  const float* cosines;
  const float* sines;
  int64_t half;
  bool neighbours;
};

}  // namespace baton
