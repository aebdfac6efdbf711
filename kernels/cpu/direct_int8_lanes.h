// Attention over Lanes for one token at a time (decode) and int8 pools (NUMERICS §8). Both products
// multiply pairs of 16-bit numbers and are exact in any order.
//
// int8_attention_lanes.h includes this header. Everything has internal linkage.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/direct_attention_tile.h"

namespace baton {
namespace {

// Number of 16-bit numbers in a Pairs.
inline constexpr int64_t kPairLanes = 2 * kLanes;

// Rounds `count` values to 16-bit integers of magnitude up to 32767 and returns their scale. `amax`
// is the largest magnitude of the values. REQUIRES: `count` is a multiple of 16.
inline float RoundBy(const float* x, int64_t count, float amax, int16_t* out) {
  const Lanes inverse = Set(amax > 0.0f ? 32767.0f / amax : 0.0f);
  for (int64_t i = 0; i < count; i += kLanes) {
    StoreRounded16(out + i, Multiply(Load(x + i), inverse));
  }
  return amax / 32767.0f;
}

// The 16-bit queries of a DirectUnit, computed once per segment.
struct DirectInt8Queries {
  alignas(64) int16_t rows[kDirectRows * kMaxHeadDim];  // [rows, head_dim]
  float factors[kDirectRows];                           // scale of the row times softmax_scale
};

inline void RoundQueries(const DirectUnit& unit, DirectInt8Queries& out) {
  const int64_t dims = unit.args.head_dim;
  for (int64_t row = 0; row < unit.rows(); ++row) {
    const float* q = unit.q + row * dims;
    Lanes largest = Set(0.0f);
    for (int64_t d = 0; d < dims; d += kLanes) {
      largest = Maximum(Magnitude(Load(q + d)), largest);
    }
    out.factors[row] =
        RoundBy(q, dims, LargestLane(largest), out.rows + row * dims) * unit.args.softmax_scale;
  }
}

// Work space for one tile.
struct DirectInt8Tile {
  alignas(64) float scores[kDirectRows]
                          [kAttentionTile];  // scores, then exponentials, then weights of V
  alignas(64) int16_t weights[kDirectRows][kAttentionTile];
  alignas(64) float sums[kDirectRows * kMaxHeadDim];  // integers, [rows, head_dim], PairUp's order
  float scales[kDirectRows];                          // scales of the weights
};

// Computes the scores of kQueries queries with the keys of slots j…j + 15. kParts is head_dim / 32
// if known at compile time, else 0.
template <int kQueries, int kParts>
inline void ScoreInt8Keys(const DirectUnit& unit, const TileRows& rows, int64_t j, int64_t head,
                          const int16_t* q, Lanes key_scales, const float* factors,
                          TurnAhead& ahead, float (*scores)[kAttentionTile]) {
  constexpr int64_t kBytes = DirectRowBytes(KvType::kInt8, kParts * kPairLanes);
  const int64_t end = kParts > 0 ? kParts * kPairLanes : unit.args.head_dim;
  Lanes dots[kQueries];
  Tree16OfEach<kQueries, true>(
      [&](int key, Lanes* sums) __attribute__((always_inline)) {
        ahead.Step<kBytes>();
        for (int n = 0; n < kQueries; ++n) sums[n] = Set(0.0f);  // the integer 0
        const auto* row = reinterpret_cast<const int8_t*>(rows.key[j + key]) + head;
        for (int64_t d = 0; d < end; d += kPairLanes) {
          const Pairs of_key = WidenToPairs(row + d);
          for (int n = 0; n < kQueries; ++n) {
            sums[n] = AddPairProducts(sums[n], LoadPairs(q + n * end + d), of_key);
          }
        }
      },
      dots);
  for (int n = 0; n < kQueries; ++n) {
    const Lanes scale = Multiply(Set(factors[n]), key_scales);
    Store(scores[n] + j, Multiply(FloatsOfIntegers(dots[n]), scale));
  }
}

// sums[n] += weights[n][slot] · value[slot] over slots j…j + 15.
template <int kQueries, int kParts>
inline void AddInt8Rows(const DirectUnit& unit, const TileRows& rows, int64_t j, int64_t at,
                        const int16_t (*weights)[kAttentionTile], TurnAhead& ahead, float* sums) {
  constexpr int64_t kBytes = DirectRowBytes(KvType::kInt8, kParts * kPairLanes);
  const int64_t dims = kParts > 0 ? kParts * kPairLanes : unit.args.head_dim;
  for (int64_t d = 0; d < dims; d += kPairLanes) {
    Lanes sum[kQueries][2];
    for (int n = 0; n < kQueries; ++n) {
      for (int k = 0; k < 2; ++k) sum[n][k] = Load(sums + n * dims + d + k * kLanes);
    }
    for (int64_t slot = j; slot < j + kLanes; slot += 2) {
      if (d == 0) {
        ahead.Step<kBytes>();
        ahead.Step<kBytes>();
      }
      const auto widen = [&](int64_t i) __attribute__((always_inline)) {
        return WidenToPairs(reinterpret_cast<const int8_t*>(rows.key[i]) + at + d);
      };
      Pairs values[2];
      PairUp(widen(slot), widen(slot + 1), values);
      for (int n = 0; n < kQueries; ++n) {
        const Pairs weight = SetPair(weights[n] + slot);
        for (int k = 0; k < 2; ++k) sum[n][k] = AddPairProducts(sum[n][k], values[k], weight);
      }
    }
    for (int n = 0; n < kQueries; ++n) {
      for (int k = 0; k < 2; ++k) Store(sums + n * dims + d + k * kLanes, sum[n][k]);
    }
  }
}

// Converts exponentials to 16-bit weights of V: times V's scale where visible, else 0.
inline void RoundWeights(const DirectUnit& unit, const TileRows& rows, DirectInt8Tile& tile) {
  const Lanes zero = Set(0.0f);
  for (int64_t i = 0; i < unit.kv_heads; ++i) {
    Lanes scales[kAttentionTile / kLanes];
    for (int64_t k = 0; k < kAttentionTile / kLanes; ++k) {
      scales[k] = LoadScales(rows, k * kLanes, unit.args.kv.value_offset + ScaleOffset(unit, i));
    }
    for (int64_t row = i * unit.heads; row < (i + 1) * unit.heads; ++row) {
      Lanes largest = zero;
      for (int64_t k = 0; k < kAttentionTile / kLanes; ++k) {
        float* p = tile.scores[row] + k * kLanes;
        const Lanes weight =
            Select(rows.seen >> (k * kLanes) & 0xffff, Multiply(Load(p), scales[k]), zero);
        Store(p, weight);
        largest = Maximum(weight, largest);
      }
      tile.scales[row] =
          RoundBy(tile.scores[row], kAttentionTile, LargestLane(largest), tile.weights[row]);
    }
  }
}

// output = fma(scale of the weights, sums, output).
inline void AddSums(const DirectUnit& unit, DirectInt8Tile& tile) {
  const int64_t dims = unit.args.head_dim;
  for (int64_t row = 0; row < unit.rows(); ++row) {
    float* output = unit.states[row].output;
    for (int64_t d = 0; d < dims; d += kPairLanes) {
      const float* at = tile.sums + row * dims + d;
      Lanes sums[2] = {Load(at), Load(at + kLanes)};
      SortPairedUp(sums);
      for (int k = 0; k < 2; ++k) {
        float* out = output + d + k * kLanes;
        Store(out, Fma(Set(tile.scales[row]), FloatsOfIntegers(sums[k]), Load(out)));
      }
    }
  }
}

template <int kParts>
inline void AddDirectInt8Tile(const DirectUnit& unit, const TileRows& rows, const TileRows& next,
                              const DirectInt8Queries& queries, DirectInt8Tile& tile) {
  const int64_t dims = unit.args.head_dim;
  constexpr int kAhead = TurnsAhead(KvType::kInt8);
  for (int turn = 0; turn < kTurns / 2; ++turn) {
    const int64_t j = turn * kLanes;
    if ((rows.seen >> j & 0xffff) == 0) continue;
    TurnAhead ahead(unit, rows, next, turn + kAhead);
    for (int64_t i = 0; i < unit.kv_heads; ++i) {
      const Lanes scales = LoadScales(rows, j, ScaleOffset(unit, i));
      ForEachFew<kDirectQueries>(unit.heads, [&](int64_t first, auto count) {
        const int64_t row = i * unit.heads + first;
        ScoreInt8Keys<decltype(count)::value, kParts>(
            unit, rows, j, unit.Head(i), queries.rows + row * dims, scales, queries.factors + row,
            ahead, tile.scores + row);
      });
    }
  }
  TakeDirectScores(unit, rows.seen, tile.scores);
  RoundWeights(unit, rows, tile);
  std::memset(tile.sums, 0, static_cast<size_t>(unit.rows() * dims) * sizeof(float));
  for (int turn = kTurns / 2; turn < kTurns; ++turn) {
    const int64_t j = (turn - kTurns / 2) * kLanes;
    if ((rows.seen >> j & 0xffff) == 0) continue;
    TurnAhead ahead(unit, rows, next, turn + kAhead);
    for (int64_t i = 0; i < unit.kv_heads; ++i) {
      ForEachFew<kDirectQueries>(unit.heads, [&](int64_t first, auto count) {
        const int64_t row = i * unit.heads + first;
        AddInt8Rows<decltype(count)::value, kParts>(
            unit, rows, j, unit.Head(i) + unit.args.kv.value_offset, tile.weights + row, ahead,
            tile.sums + row * dims);
      });
    }
  }
  AddSums(unit, tile);
}

// REQUIRES: IsDirect(args, unit, kPairLanes); the states were reset.
inline void DirectInt8Segment(const PagedAttentionArgs& args, const AttentionUnit& unit,
                              AttentionState* states) {
  DirectInt8Queries queries;
  DirectInt8Tile tile;
  ForEachDirectTile(
      args, unit, states, [&](const DirectUnit& direct) { RoundQueries(direct, queries); },
      [&](const DirectUnit& direct, const TileRows& rows, const TileRows& next) {
        if (args.head_dim == 64) {
          AddDirectInt8Tile<2>(direct, rows, next, queries, tile);
        } else {
          AddDirectInt8Tile<0>(direct, rows, next, queries, tile);
        }
      });
}

}  // namespace
}  // namespace baton
