// NUMERICS §8 over Lanes, int8 pools: one attention segment, a tile of 64 slots at a time, on
// integer dot products.
//
// Written once for both instruction sets: included by attention_avx2.cc and attention_avx512.cc
// after their vector_math and int8_products headers. Rows are padded with zeros to a multiple of 64
// dimensions, which changes no integer sum.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/cpu_kernels.h"

namespace baton {
namespace {

inline constexpr int64_t kInt8DimStep = 64;
// Queries whose 16-bit rows are kept for a whole segment.
inline constexpr int64_t kPreparedQueries = 64;

struct Int8Tile {
  alignas(64) int8_t rows[kAttentionTile * kMaxHeadDim];  // [slot, dims], to pack from
  KeyTile keys;
  ValueTile values;
  alignas(64) float key_scales[kAttentionTile];
  alignas(64) float value_scales[kAttentionTile];
};

// The shape of a call for one kv head.
struct Int8Call {
  const PagedAttentionArgs& args;
  int64_t sequence;
  int64_t kv_head;
  int64_t dims;  // head_dim, padded
};

// Gathers K or V rows of one tile (`at`: 0 or value_offset) and their scales; slots that are not
// seen become zeros.
inline void GatherInt8Rows(const Int8Call& call, int64_t begin, uint64_t seen, int64_t at,
                           int8_t* rows, float* scales) {
  const KvLayerView& kv = call.args.kv;
  const auto* base = static_cast<const int8_t*>(kv.base) + at;
  const auto head_dim = static_cast<size_t>(call.args.head_dim);
  const auto dims = static_cast<size_t>(call.dims);
  for (int64_t j = 0; j < kAttentionTile; ++j, rows += dims) {
    if ((seen >> j & 1) == 0) {
      std::memset(rows, 0, dims);
      scales[j] = 0;
      continue;
    }
    const int8_t* row = base + RowOffset(call.args, call.sequence, begin + j);
    std::memcpy(&scales[j], row + kv.scale_offset + call.kv_head * int64_t{sizeof(float)},
                sizeof(float));
    row += call.kv_head * kv.head_stride;
    if (head_dim == 64) {
      std::memcpy(rows, row, 64);
    } else {
      std::memcpy(rows, row, head_dim);
      std::memset(rows + head_dim, 0, dims - head_dim);
    }
  }
}

inline void FillInt8Tile(const Int8Call& call, int64_t begin, uint64_t seen, Int8Tile& tile) {
  GatherInt8Rows(call, begin, seen, 0, tile.rows, tile.key_scales);
  PackKeys(tile.rows, call.dims, &tile.keys);
  GatherInt8Rows(call, begin, seen, call.args.kv.value_offset, tile.rows, tile.value_scales);
  PackValues(tile.rows, call.dims, &tile.values);
}

// Integers of magnitude 32767 from `count` values (a multiple of 16) whose largest magnitude is
// `amax`; returns their scale.
inline float PackBy(const float* x, int64_t count, float amax, Int16Operand* out) {
  alignas(64) int16_t values[kMaxHeadDim];
  const Lanes inverse = Set(amax > 0.0f ? 32767.0f / amax : 0.0f);
  for (int64_t i = 0; i < count; i += kLanes) {
    StoreRounded16(values + i, Multiply(Load(x + i), inverse));
  }
  PackOperand(values, count, out);
  return amax / 32767.0f;
}

inline float PackQuery(const float* q, int64_t head_dim, int64_t dims, Int16Operand* out) {
  alignas(64) float padded[kMaxHeadDim] = {};
  std::memcpy(padded, q, static_cast<size_t>(head_dim) * sizeof(float));
  Lanes largest = Set(0.0f);
  for (int64_t d = 0; d < dims; d += kLanes)
    largest = Maximum(Magnitude(Load(padded + d)), largest);
  return PackBy(padded, dims, LargestLane(largest), out);
}

// Turns exponentials into the weights of V: times V's scale where visible, else 0, as 16-bit.
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
  float factor;  // its scale times softmax_scale
  uint64_t visible;
  AttentionState* state;
};

// Takes the tile into kQueries states. REQUIRES: each sees something of it.
template <int kQueries>
inline void AddInt8Tile(const Int8Tile& tile, int64_t dims, const Int8Query* queries) {
  alignas(64) float weights[kQueries][kAttentionTile];  // scores, then exponentials
  Int16Operand operands[kQueries];
  float scales[kQueries];
  float* outputs[kQueries];
  const Int16Operand* rows[kQueries];
  for (int n = 0; n < kQueries; ++n) rows[n] = queries[n].row;
  DotKeys<kQueries>(tile.keys, dims, rows, weights);
  const Lanes hidden = Set(-__builtin_inff());
  for (int n = 0; n < kQueries; ++n) {
    const Int8Query& query = queries[n];
    Lanes largest = Set(query.state->maximum);
    for (int64_t j = 0; j < kAttentionTile; j += kLanes) {
      const Lanes scale = Multiply(Set(query.factor), Load(tile.key_scales + j));
      const Lanes score = Multiply(Load(weights[n] + j), scale);
      Store(weights[n] + j, score);
      largest = Maximum(Select(query.visible >> j & 0xffff, score, hidden), largest);
    }
    TakeScores(weights[n], query.visible, largest, dims, *query.state);
    scales[n] = PackWeights(tile, query.visible, weights[n], &operands[n]);
    outputs[n] = query.state->output;
  }
  AddInt8Values<kQueries>(tile.values, dims, operands, scales, outputs);
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

// Queries [first, first + count), count <= kPreparedQueries, against the whole segment.
inline void Int8Queries(const Int8Call& call, int64_t token_begin, int64_t token_end, int64_t first,
                        int64_t count, int64_t segment, Int8Tile& tile, AttentionState* states) {
  const PagedAttentionArgs& args = call.args;
  const int64_t heads = args.query_heads / args.kv_heads;
  Int16Operand rows[kPreparedQueries];
  float factors[kPreparedQueries];
  for (int64_t i = 0; i < count; ++i) {
    const float* q = QueryRow(args, token_begin, call.kv_head, first + i);
    factors[i] = PackQuery(q, args.head_dim, call.dims, &rows[i]) * args.softmax_scale;
  }
  const int64_t begin = segment * kAttentionSegment;
  for (int64_t slot = begin; slot < begin + kAttentionSegment; slot += kAttentionTile) {
    const uint64_t seen = SeenBits(args, token_begin, token_end, slot);
    if (seen == 0) continue;
    FillInt8Tile(call, slot, seen, tile);
    Int8Query queries[kInt8Queries];
    int waiting = 0;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t token = token_begin + (first + i) / heads;
      const uint64_t visible = VisibleBits(args.visible + token * kMaxVisibleRanges, slot);
      if (visible == 0) continue;
      queries[waiting++] = {&rows[i], factors[i], visible, &states[first + i]};
      if (waiting < kInt8Queries) continue;
      AddInt8Tile<kInt8Queries>(tile, call.dims, queries);
      waiting = 0;
    }
    AddInt8TileOf<kInt8Queries - 1>(waiting, tile, call.dims, queries);
  }
}

inline void Int8SegmentOverLanes(const PagedAttentionArgs& args, int64_t token_begin,
                                 int64_t token_end, int64_t kv_head, int64_t segment,
                                 AttentionState* states) {
  if (token_begin == token_end) return;
  const int64_t dims = (args.head_dim + kInt8DimStep - 1) / kInt8DimStep * kInt8DimStep;
  const Int8Call call{args, args.sequence_of_token[token_begin], kv_head, dims};
  const int64_t query_count = (token_end - token_begin) * (args.query_heads / args.kv_heads);
  ResetStates(states, query_count, dims);
  Int8Tile tile;
  for (int64_t first = 0; first < query_count; first += kPreparedQueries) {
    const int64_t left = query_count - first;
    const int64_t count = left < kPreparedQueries ? left : kPreparedQueries;
    Int8Queries(call, token_begin, token_end, first, count, segment, tile, states);
  }
}

}  // namespace
}  // namespace baton
