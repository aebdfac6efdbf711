// Attention over Lanes for int8 pools (NUMERICS §8): one segment, a tile of 64 slots at a time,
// with integer dot products.
//
// The code serves all instruction sets: attention_avx2.cc and the int8_attention files include it
// after their vector_math and int8_products headers. Rows are padded with zeros to a multiple of 64
// dimensions, which changes no integer sum.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/direct_int8_lanes.h"

namespace baton {
namespace {

inline int64_t PaddedInt8Dims(int64_t head_dim) { return (head_dim + 63) / 64 * 64; }
// Number of queries for which 16-bit rows are kept during a whole segment.
inline constexpr int64_t kPreparedQueries = 64;

struct Int8Tile {
  alignas(64) int8_t rows[kAttentionTile * kMaxHeadDim];  // [slot, dims], unpacked
  KeyTile keys;
  ValueTile values;
  alignas(64) float key_scales[kAttentionTile];
  alignas(64) float value_scales[kAttentionTile];
};

// Gathers K or V rows of one tile and kv head and their scales. `at` is 0 for K and value_offset
// for V. Unseen slots become zeros. Also prefetches the rows of the next tile.
inline void GatherInt8Rows(const PagedAttentionArgs& args, int64_t kv_head, int64_t dims,
                           int64_t at, const TileRows& from, const TileRows& next, int8_t* rows,
                           float* scales) {
  const auto head_dim = static_cast<size_t>(args.head_dim);
  const int64_t head = at + kv_head * args.kv.head_stride;
  const int64_t scale = at + args.kv.scale_offset + kv_head * int64_t{sizeof(float)};
  for (int64_t j = 0; j < kAttentionTile; ++j, rows += dims) {
    if (next.seen != 0) PrefetchRow(next.key[j] + head, args.head_dim);
    if ((from.seen >> j & 1) == 0) {
      std::memset(rows, 0, static_cast<size_t>(dims));
      scales[j] = 0;
      continue;
    }
    std::memcpy(&scales[j], from.key[j] + scale, sizeof(float));
    if (head_dim == 64) {
      std::memcpy(rows, from.key[j] + head, 64);
    } else {
      std::memcpy(rows, from.key[j] + head, head_dim);
      std::memset(rows + head_dim, 0, static_cast<size_t>(dims) - head_dim);
    }
  }
}

inline void FillInt8Tile(const PagedAttentionArgs& args, int64_t kv_head, int64_t dims,
                         const TileRows& rows, const TileRows& next, Int8Tile& tile) {
  GatherInt8Rows(args, kv_head, dims, 0, rows, next, tile.rows, tile.key_scales);
  PackKeys(tile.rows, dims, &tile.keys);
  GatherInt8Rows(args, kv_head, dims, args.kv.value_offset, rows, next, tile.rows,
                 tile.value_scales);
  PackValues(tile.rows, dims, &tile.values);
}

// Rounds `count` values to 16-bit integers of magnitude up to 32767 and returns their scale. `amax`
// is the largest magnitude of the values. REQUIRES: `count` is a multiple of 16.
inline float PackBy(const float* x, int64_t count, float amax, Int16Operand* out) {
  alignas(64) int16_t values[kMaxHeadDim];
  const float scale = RoundBy(x, count, amax, values);
  PackOperand(values, count, out);
  return scale;
}

inline float PackQuery(const float* q, int64_t head_dim, int64_t dims, Int16Operand* out) {
  alignas(64) float padded[kMaxHeadDim] = {};
  std::memcpy(padded, q, static_cast<size_t>(head_dim) * sizeof(float));
  Lanes largest = Set(0.0f);
  for (int64_t d = 0; d < dims; d += kLanes)
    largest = Maximum(Magnitude(Load(padded + d)), largest);
  return PackBy(padded, dims, LargestLane(largest), out);
}

// Converts exponentials to 16-bit weights of V: times V's scale where visible, else 0.
inline float PackWeights(const Int8Tile& tile, uint64_t visible, float* weights,
                         Int16Operand* out) {
  const Lanes zero = Set(0.0f);
  Lanes largest = zero;
  for (int64_t j = 0; j < kAttentionTile; j += kLanes) {
    const Lanes weight = Select(visible >> j & 0xffff,
                                Multiply(Load(weights + j), Load(tile.value_scales + j)), zero);
    Store(weights + j, weight);
    largest = Maximum(weight, largest);
  }
  return PackBy(weights, kAttentionTile, LargestLane(largest), out);
}

struct Int8Query {
  const Int16Operand* row;
  float factor;  // scale of the row times softmax_scale
  uint64_t visible;
  AttentionState* state;
};

// Adds the tile to kQueries states. REQUIRES: each query sees something of the tile.
template <int kQueries>
inline void AddInt8Tile(const Int8Tile& tile, int64_t dims, const Int8Query* queries) {
  alignas(64) float weights[kQueries][kAttentionTile];  // scores, later exponentials
  Int16Operand operands[kQueries];
  float scales[kQueries];
  float* outputs[kQueries];
  const Int16Operand* rows[kQueries];
  const Int16Operand* packed[kQueries];
  uint64_t visible[kQueries];
  AttentionState* states[kQueries];
  Lanes largest[kQueries];
  Lanes alphas[kQueries];
  for (int n = 0; n < kQueries; ++n) {
    rows[n] = queries[n].row;
    packed[n] = &operands[n];
    visible[n] = queries[n].visible;
    states[n] = queries[n].state;
    outputs[n] = states[n]->output;
  }
  DotKeys<kQueries>(tile.keys, dims, rows, weights);
  const Lanes hidden = Set(-__builtin_inff());
  for (int n = 0; n < kQueries; ++n) {
    largest[n] = Set(states[n]->maximum);
    for (int64_t j = 0; j < kAttentionTile; j += kLanes) {
      const Lanes scale = Multiply(Set(queries[n].factor), Load(tile.key_scales + j));
      const Lanes score = Multiply(Load(weights[n] + j), scale);
      Store(weights[n] + j, score);
      largest[n] = Maximum(Select(visible[n] >> j & 0xffff, score, hidden), largest[n]);
    }
  }
  TakeScores<kQueries>(weights, visible, largest, states, alphas);
  for (int n = 0; n < kQueries; ++n) {
    Rescale(*states[n], alphas[n], dims);
    scales[n] = PackWeights(tile, visible[n], weights[n], &operands[n]);
  }
  AddInt8Values<kQueries>(tile.values, dims, packed, scales, outputs);
}

template <int kQueries>
inline void AddInt8TileOf(int count, const Int8Tile& tile, int64_t dims, const Int8Query* queries) {
  if constexpr (kQueries > 0) {
    if (count == kQueries) {
      AddInt8Tile<kQueries>(tile, dims, queries);
    } else {
      AddInt8TileOf<kQueries - 1>(count, tile, dims, queries);
    }
  }
}

// 16-bit rows of some queries of a unit's kv heads, [kv head][query]. They are kept for a whole
// segment.
struct PreparedQueries {
  Int16Operand rows[kPreparedQueries];
  float factors[kPreparedQueries];
};

// Adds a filled tile to queries [first, first + count) of one kv head. `index` is the position of
// query `first` in `prepared`. `states` holds the states of the unit's queries for this kv head.
inline void AddInt8TileToQueries(const PagedAttentionArgs& args, const AttentionUnit& unit,
                                 const Int8Tile& tile, int64_t dims, int64_t begin,
                                 const PreparedQueries& prepared, int64_t index, int64_t first,
                                 int64_t count, AttentionState* states) {
  const int64_t heads = args.query_heads / args.kv_heads;
  Int8Query queries[kInt8Queries];
  int waiting = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t token = unit.token_begin + (first + i) / heads;
    const uint64_t visible = VisibleBits(args, token, unit.run, begin);
    if (visible == 0) continue;
    queries[waiting++] = {&prepared.rows[index + i], prepared.factors[index + i], visible,
                          &states[first + i]};
    if (waiting < kInt8Queries) continue;
    AddInt8Tile<kInt8Queries>(tile, dims, queries);
    waiting = 0;
  }
  AddInt8TileOf<kInt8Queries - 1>(waiting, tile, dims, queries);
}

// Computes queries [first, first + count) of every kv head of the unit. REQUIRES: at most
// kPreparedQueries in all.
inline void Int8Queries(const PagedAttentionArgs& args, const AttentionUnit& unit, int64_t first,
                        int64_t count, AttentionState* states) {
  const int64_t dims = PaddedInt8Dims(args.head_dim);
  const int64_t queries_per_kv = unit.tokens() * (args.query_heads / args.kv_heads);
  PreparedQueries prepared;
  for (int64_t i = 0; i < unit.kv_heads() * count; ++i) {
    const float* q = QueryRow(args, unit, unit.kv_head_begin + i / count, first + i % count);
    prepared.factors[i] = PackQuery(q, args.head_dim, dims, &prepared.rows[i]) * args.softmax_scale;
  }
  Int8Tile tile;
  ForEachTile(args, unit, [&](const TileRows& rows, const TileRows& next) {
    for (int64_t i = 0; i < unit.kv_heads(); ++i) {
      FillInt8Tile(args, unit.kv_head_begin + i, dims, rows, next, tile);
      AddInt8TileToQueries(args, unit, tile, dims, rows.begin, prepared, i * count, first, count,
                           states + i * queries_per_kv);
    }
  });
}

inline void Int8SegmentOverLanes(const PagedAttentionArgs& args, const AttentionUnit& unit,
                                 AttentionState* states) {
  const int64_t queries_per_kv = unit.tokens() * (args.query_heads / args.kv_heads);
  ResetStates(states, unit.kv_heads() * queries_per_kv, PaddedInt8Dims(args.head_dim));
  if (IsDirect(args, unit, kPairLanes)) {
    DirectInt8Segment(args, unit, states);
    return;
  }
  if (unit.kv_heads() * queries_per_kv <= kPreparedQueries) {
    Int8Queries(args, unit, 0, queries_per_kv, states);
    return;
  }
  for (int64_t i = 0; i < unit.kv_heads(); ++i) {
    AttentionUnit one = unit;
    one.kv_head_begin = unit.kv_head_begin + i;
    one.kv_head_end = one.kv_head_begin + 1;
    for (int64_t first = 0; first < queries_per_kv; first += kPreparedQueries) {
      const int64_t left = queries_per_kv - first;
      Int8Queries(args, one, first, left < kPreparedQueries ? left : kPreparedQueries,
                  states + i * queries_per_kv);
    }
  }
}

}  // namespace
}  // namespace baton
