// Attention over Lanes for float and fp8 pools (NUMERICS §8): one segment, a tile of 64 slots at a
// time.
//
// The code serves AVX2 and AVX-512: attention_avx2.cc and attention_avx512_no_vnni.cc include it
// after their vector_math header. It widens K and V of a tile to f32 once for all queries of the
// call. Then there are two ways to compute Dot16:
// - With many queries, K is transposed too. A lane is a key. The sixteen accumulators of Dot16 are
//   sixteen registers, and Tree16 adds whole registers.
// - With few queries, a lane is a dimension, as in Dot16 itself. The trees of sixteen keys are
//   added while they are transposed.
// Both do the same additions in the same order.
//
// Rows are padded to a multiple of 16 dimensions, with −0 in K and +0 in the query. fma(+0, −0, a)
// is a for every a, so padding changes no bit.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/direct_attention_lanes.h"
#include "kernels/cpu/dot_tree_lanes.h"

namespace baton {
namespace {

// Transposing K pays from this number of queries on.
inline constexpr int64_t kQueriesToTranspose = 12;

struct AttentionTile {
  alignas(64) float keys[kAttentionTile * kMaxHeadDim];        // [slot, dims]
  alignas(64) float values[kAttentionTile * kMaxHeadDim];      // [slot, dims]
  alignas(64) float transposed[kMaxHeadDim * kAttentionTile];  // [dims, slot]
  alignas(64) float factors[kAttentionTile];       // softmax_scale, times the keys' scales if any
  alignas(64) float value_scales[kAttentionTile];  // set if is_scaled
  int64_t head_dim;
  int64_t dims;  // head_dim rounded up to a multiple of 16
  bool is_scaled;
  bool is_transposed;
};

// ---- filling a tile -------------------------------------------------------------------------

// Widens one row of head_dim values. Fills the rest of its last register with `padding`.
template <KvType kType>
inline void WidenRow(const void* base, int64_t offset, int64_t head_dim, float padding,
                     float* out) {
  int64_t d = 0;
  for (; d + kLanes <= head_dim; d += kLanes) Store(out + d, LoadStored<kType>(base, offset + d));
  if (d == head_dim) return;
  constexpr int64_t kBytes = KvTypeBytes(kType);
  alignas(64) char last[kLanes * 4] = {};
  std::memcpy(last, static_cast<const char*>(base) + (offset + d) * kBytes,
              static_cast<size_t>((head_dim - d) * kBytes));
  Store(out + d, LoadStored<kType>(last, 0));
  for (int64_t i = head_dim; i < d + kLanes; ++i) out[i] = padding;
}

template <KvType kType>
inline void WidenTile(const PagedAttentionArgs& args, int64_t kv_head, const TileRows& rows,
                      AttentionTile& tile) {
  const int64_t head = kv_head * args.kv.head_stride;
  for (int64_t j = 0; j < kAttentionTile; ++j) {
    float* key = tile.keys + j * tile.dims;
    if ((rows.seen >> j & 1) == 0) {  // its bytes are unspecified, or it has no block
      std::memset(key, 0, static_cast<size_t>(tile.dims) * sizeof(float));
      continue;
    }
    WidenRow<kType>(rows.key[j], head, tile.head_dim, -0.0f, key);
    WidenRow<kType>(rows.key[j], head + args.kv.value_offset, tile.head_dim, 0.0f,
                    tile.values + j * tile.dims);
  }
}

// Sets the factors of the tile's scores and weights. For slots that no token sees, they are those
// of some visible slot.
inline void FillFactors(const PagedAttentionArgs& args, int64_t kv_head, const TileRows& rows,
                        AttentionTile& tile) {
  const int64_t offset = args.kv.scale_offset + kv_head * int64_t{sizeof(float)};
  for (int64_t j = 0; j < kAttentionTile; j += kLanes) {
    const Lanes scale = LoadScales(rows, j, offset);
    Store(tile.factors + j, Multiply(Set(args.softmax_scale), scale));
    Store(tile.value_scales + j, LoadScales(rows, j, offset + args.kv.value_offset));
  }
}

// Fills a tile. Does not read slots that no token of the unit sees.
inline void FillTile(const PagedAttentionArgs& args, int64_t kv_head, const TileRows& rows,
                     AttentionTile& tile) {
  switch (args.kv.type) {
    case KvType::kF32:
      WidenTile<KvType::kF32>(args, kv_head, rows, tile);
      break;
    case KvType::kF16:
      WidenTile<KvType::kF16>(args, kv_head, rows, tile);
      break;
    case KvType::kBF16:
      WidenTile<KvType::kBF16>(args, kv_head, rows, tile);
      break;
    case KvType::kFp8:
      WidenTile<KvType::kFp8>(args, kv_head, rows, tile);
      FillFactors(args, kv_head, rows, tile);
      break;
    case KvType::kInt8:  // uses its own tiles: int8_attention_lanes.h
      break;
  }
  if (!tile.is_transposed) return;
  for (int64_t j = 0; j < kAttentionTile; j += kLanes) {
    // Scores are computed for kScoreGroups registers of slots at once, so each of these must be
    // defined.
    constexpr int64_t kStep = kScoreGroups * kLanes;
    if ((rows.seen >> (j / kStep * kStep) & BitsBelow(kStep)) == 0) continue;
    for (int64_t d = 0; d < tile.dims; d += kLanes) {
      Transpose16(tile.keys + j * tile.dims + d, tile.dims,
                  tile.transposed + d * kAttentionTile + j, kAttentionTile);
    }
  }
}

// ---- scores ---------------------------------------------------------------------------------

// Computes Dot16 of every query with keys j…j + 16 kScoreGroups − 1.
template <int kQueries>
inline void DotTransposed(const AttentionTile& tile, const float* const* q, int64_t j,
                          Dots<kQueries>& dots) {
  const float* keys = tile.transposed + j;
  if (tile.dims == 64) {
    DotTree<kQueries, 4>(q, keys, tile.dims, dots);
  } else if (tile.dims == 128) {
    DotTree<kQueries, 8>(q, keys, tile.dims, dots);
  } else {
    DotTree<kQueries, 0>(q, keys, tile.dims, dots);
  }
}

template <int kChunks>
inline Lanes DotRowsOf(const float* q, const float* keys, int64_t dims) {
  const int64_t end = kChunks > 0 ? kChunks * kLanes : dims;
  Lanes dots;
  Tree16OfEach<1>(
      [=](int key, Lanes* sum) {
        *sum = Set(0.0f);
        for (int64_t d = 0; d < end; d += kLanes) {
          *sum = Fma(Load(q + d), Load(keys + key * end + d), *sum);
        }
      },
      &dots);
  return dots;
}

inline Lanes DotRows(const AttentionTile& tile, const float* q, int64_t j) {
  const float* keys = tile.keys + j * tile.dims;
  if (tile.dims == 64) return DotRowsOf<4>(q, keys, tile.dims);
  if (tile.dims == 128) return DotRowsOf<8>(q, keys, tile.dims);
  return DotRowsOf<0>(q, keys, tile.dims);
}

// ---- outputs --------------------------------------------------------------------------------

// output[n] = fma(p[n][j], v[j], output[n]) for j in [begin, end), over kRegisters registers of
// dimensions. If `alphas` is given, output[n] is first multiplied by alphas[n].
template <int kQueries, int kRegisters>
inline void AddValues(const AttentionTile& tile, const float* const* p, const Lanes* alphas,
                      int64_t begin, int64_t end, int64_t d, float* const* outputs) {
  Lanes sum[kQueries][kRegisters];
  Unroll<kQueries * kRegisters>([&](int k) __attribute__((always_inline)) {
    const int n = k / kRegisters;
    const int r = k % kRegisters;
    sum[n][r] = Load(outputs[n] + d + r * kLanes);
    if (alphas != nullptr) sum[n][r] = Multiply(sum[n][r], alphas[n]);
  });
  for (int64_t j = begin; j < end; ++j) {
    const float* v = tile.values + j * tile.dims + d;
    Lanes value[kRegisters];
    Unroll<kRegisters>([&](int r) __attribute__((always_inline)) {
      value[r] = Load(v + r * kLanes);
      KeepInRegister(value[r]);
    });
    Unroll<kQueries>([&](int n) __attribute__((always_inline)) {
      const Lanes weight = Set(p[n][j]);
      Unroll<kRegisters>([&](int r) __attribute__((always_inline)) {
        sum[n][r] = Fma(weight, value[r], sum[n][r]);
      });
    });
  }
  Unroll<kQueries * kRegisters>([&](int k) __attribute__((always_inline)) {
    Store(outputs[k / kRegisters] + d + k % kRegisters * kLanes,
          sum[k / kRegisters][k % kRegisters]);
  });
}

template <int kQueries>
inline void AddValueRun(const AttentionTile& tile, const float* const* p, const Lanes* alphas,
                        int64_t begin, int64_t end, float* const* outputs) {
  int64_t d = 0;
  for (; d + kOutputTile * kLanes <= tile.dims; d += kOutputTile * kLanes) {
    AddValues<kQueries, kOutputTile>(tile, p, alphas, begin, end, d, outputs);
  }
  for (; d < tile.dims; d += kLanes) {
    AddValues<kQueries, 1>(tile, p, alphas, begin, end, d, outputs);
  }
}

// Adds values in rising order of slots for every query. Slots that all queries see are added
// together, other slots one by one.
template <int kQueries>
inline void AddVisibleValues(const AttentionTile& tile, const float* const* p,
                             const uint64_t* visible, const Lanes* alphas, float* const* outputs) {
  uint64_t by_all = ~uint64_t{0};
  uint64_t by_any = 0;
  for (int n = 0; n < kQueries; ++n) {
    by_all &= visible[n];
    by_any |= visible[n];
  }
  // The first run rescales the outputs. It may have no slots.
  int64_t j = std::countr_one(by_all);
  AddValueRun<kQueries>(tile, p, alphas, 0, j, outputs);
  for (; j < kAttentionTile; ++j) {
    if ((by_any >> j & 1) == 0) continue;
    int64_t end = j + 1;
    if (by_all >> j & 1) {
      while (end < kAttentionTile && (by_all >> end & 1)) ++end;
      AddValueRun<kQueries>(tile, p, nullptr, j, end, outputs);
    } else {
      for (int n = 0; n < kQueries; ++n) {
        if (visible[n] >> j & 1) AddValueRun<1>(tile, p + n, nullptr, j, end, outputs + n);
      }
    }
    j = end - 1;
  }
}

// ---- one tile for a few queries -------------------------------------------------------------

// Queries of a call that see something of a tile. They are collected and processed together,
// because the exponentials of many queries hide each other's latency better.
inline constexpr int kWaitingQueries = 4 * kQueryTile;
struct WaitingQueries {
  alignas(64) float padded[kWaitingQueries][kMaxHeadDim];
  alignas(64) float weights[kWaitingQueries][kAttentionTile];  // scores, later exponentials
  const float* q[kWaitingQueries];                             // rows of tile.dims values
  const float* p[kWaitingQueries];                             // rows of `weights`
  uint64_t visible[kWaitingQueries];
  AttentionState* states[kWaitingQueries];
  float* outputs[kWaitingQueries];
  Lanes largest[kWaitingQueries];
  Lanes maximum[kWaitingQueries];
  Lanes alphas[kWaitingQueries];
  int count = 0;
};

// Computes scores with the keys of kScoreGroups registers from j on. kAllVisible: every query sees
// every slot, and the tile is transposed.
template <int kQueries, bool kAllVisible>
[[gnu::always_inline]] inline void ScoreKeys(const AttentionTile& tile, const float* const* q,
                                             const uint64_t* visible, int64_t j,
                                             float (*weights)[kAttentionTile], Lanes* largest) {
  const bool is_transposed = kAllVisible || tile.is_transposed;
  const Lanes hidden = Set(-__builtin_inff());
  Dots<kQueries> dots;
  if (is_transposed) DotTransposed<kQueries>(tile, q, j, dots);
  Unroll<kQueries * kScoreGroups>([&](int k) __attribute__((always_inline)) {
    const int n = k / kScoreGroups;
    const int64_t key = j + k % kScoreGroups * kLanes;
    const Lanes dot = is_transposed ? dots[n][k % kScoreGroups] : DotRows(tile, q[n], key);
    Lanes score = Multiply(dot, Load(tile.factors + key));
    Store(weights[n] + key, score);
    if constexpr (!kAllVisible) score = Select(visible[n] >> key & 0xffff, score, hidden);
    largest[n] = Maximum(score, largest[n]);
  });
}

// Computes the scores of kQueries queries from `first` on. REQUIRES: every query sees something of
// the tile.
template <int kQueries>
inline void ScoreTile(const AttentionTile& tile, int64_t first, WaitingQueries& waiting) {
  const float* const* q = waiting.q + first;
  const uint64_t* visible = waiting.visible + first;
  float(*weights)[kAttentionTile] = waiting.weights + first;
  Lanes largest[kQueries];
  uint64_t by_all = ~uint64_t{0};
  uint64_t by_any = 0;
  for (int n = 0; n < kQueries; ++n) {
    largest[n] = Set(waiting.states[first + n]->maximum);
    by_all &= visible[n];
    by_any |= visible[n];
  }
  constexpr int kStep = kScoreGroups * kLanes;
  if (by_all == ~uint64_t{0} && tile.is_transposed) {
    Unroll<kAttentionTile / kStep>([&](int step) __attribute__((always_inline)) {
      ScoreKeys<kQueries, true>(tile, q, visible, step * kStep, weights, largest);
    });
  } else {
    for (int64_t j = 0; j < kAttentionTile; j += kStep) {
      if ((by_any >> j & BitsBelow(kStep)) == 0) continue;
      ScoreKeys<kQueries, false>(tile, q, visible, j, weights, largest);
    }
  }
  for (int n = 0; n < kQueries; ++n) waiting.largest[first + n] = largest[n];
}

// Multiplies the exponentials by the scales of V.
inline void ScaleWeights(const AttentionTile& tile, WaitingQueries& waiting) {
  for (int n = 0; n < waiting.count; ++n) {
    for (int64_t j = 0; j < kAttentionTile; j += kLanes) {
      float* weights = waiting.weights[n] + j;
      Store(weights, Multiply(Load(weights), Load(tile.value_scales + j)));
    }
  }
}

inline void AddTileToWaiting(const AttentionTile& tile, WaitingQueries& waiting) {
  ForEachFew<kQueryTile>(waiting.count, [&](int64_t first, auto count) {
    ScoreTile<decltype(count)::value>(tile, first, waiting);
  });
  ForEachFew<kQueryTile>(waiting.count, [&](int64_t first, auto count) {
    TakeMaxima<decltype(count)::value>(waiting.largest + first, waiting.states + first,
                                       waiting.maximum + first, waiting.alphas + first);
  });
  ForEachFew<kQueryTile>(waiting.count, [&](int64_t first, auto count) {
    TakeExponentials<decltype(count)::value>(waiting.weights + first, waiting.visible + first,
                                             waiting.maximum + first, waiting.alphas + first,
                                             waiting.states + first);
  });
  if (tile.is_scaled) ScaleWeights(tile, waiting);
  ForEachFew<kQueryTile>(waiting.count, [&](int64_t first, auto count) {
    AddVisibleValues<decltype(count)::value>(tile, waiting.p + first, waiting.visible + first,
                                             waiting.alphas + first, waiting.outputs + first);
  });
  waiting.count = 0;
}

// `states` holds the states of the unit's tokens for this kv head.
inline void AddTileToQueries(const PagedAttentionArgs& args, const AttentionUnit& unit,
                             int64_t kv_head, int64_t begin, const AttentionTile& tile,
                             AttentionState* states) {
  const int64_t heads = args.query_heads / args.kv_heads;
  const float* const first = QueryRow(args, unit, kv_head, 0);
  WaitingQueries waiting;
  for (int64_t token = unit.token_begin; token < unit.token_end; ++token) {
    const uint64_t visible = VisibleBits(args, token, unit.run, begin);
    if (visible == 0) continue;
    const float* q = first + (token - unit.token_begin) * args.q_stride;
    for (int64_t head = 0; head < heads; ++head) {
      const int64_t query = (token - unit.token_begin) * heads + head;
      const int at = waiting.count++;
      waiting.q[at] = q + head * args.head_dim;
      if (tile.dims != tile.head_dim) {
        WidenRow<KvType::kF32>(waiting.q[at], 0, tile.head_dim, 0.0f, waiting.padded[at]);
        waiting.q[at] = waiting.padded[at];
      }
      waiting.visible[at] = visible;
      waiting.states[at] = &states[query];
      waiting.outputs[at] = states[query].output;
      waiting.p[at] = waiting.weights[at];
      if (waiting.count == kWaitingQueries) AddTileToWaiting(tile, waiting);
    }
  }
  AddTileToWaiting(tile, waiting);
}

inline void TiledSegment(const PagedAttentionArgs& args, const AttentionUnit& unit,
                         AttentionState* states) {
  AttentionTile tile;
  tile.head_dim = args.head_dim;
  tile.dims = PaddedDims(args.head_dim);
  tile.is_scaled = HasScales(args.kv.type);
  for (float& factor : tile.factors) factor = args.softmax_scale;
  const int64_t query_count = unit.tokens() * (args.query_heads / args.kv_heads);
  tile.is_transposed = query_count >= kQueriesToTranspose;
  ForEachTile(args, unit, [&](const TileRows& rows, const TileRows&) {
    for (int64_t i = 0; i < unit.kv_heads(); ++i) {
      const int64_t kv_head = unit.kv_head_begin + i;
      FillTile(args, kv_head, rows, tile);
      AddTileToQueries(args, unit, kv_head, rows.begin, tile, states + i * query_count);
    }
  });
}

inline void SegmentOverLanes(const PagedAttentionArgs& args, const AttentionUnit& unit,
                             AttentionState* states) {
  const int64_t heads = args.query_heads / args.kv_heads;
  ResetStates(states, unit.kv_heads() * unit.tokens() * heads, PaddedDims(args.head_dim));
  if (IsDirect(args, unit, kLanes)) {
    DirectSegment(args, unit, states);
  } else {
    TiledSegment(args, unit, states);
  }
}

}  // namespace
}  // namespace baton
