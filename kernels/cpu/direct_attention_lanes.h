// Attention over Lanes for one token at a time (decode) and float and fp8 pools (NUMERICS §8).
//
// attention_lanes.h includes this header. Everything has internal linkage.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/direct_attention_tile.h"

namespace baton {
namespace {

// Sets sums[n] to the sixteen lanes of Dot16 of query n with a row of K. kChunks is dims / 16 if
// known at compile time, else 0.
template <KvType kType, int kQueries, int kChunks>
[[gnu::always_inline]] inline void DotRow(const std::byte* key, int64_t head, int64_t dims,
                                          const float* q, Lanes* sums) {
  const int64_t end = kChunks > 0 ? kChunks * kLanes : dims;
  for (int n = 0; n < kQueries; ++n) sums[n] = Set(0.0f);
  for (int64_t d = 0; d < end; d += kLanes) {
    const Lanes of_key = LoadStored<kType>(key, head + d);
    for (int n = 0; n < kQueries; ++n) {
      sums[n] = Fma(Load(q + n * end + d), of_key, sums[n]);
    }
  }
}

// Computes the scores of kQueries queries with the keys of slots j…j + 15. `factors` are
// softmax_scale, times the keys' scales if the pool has them.
template <KvType kType, int kQueries, int kChunks>
inline void ScoreKeys(const DirectUnit& unit, const TileRows& rows, int64_t j, int64_t head,
                      const float* q, Lanes factors, TurnAhead& ahead,
                      float (*scores)[kAttentionTile]) {
  Lanes dots[kQueries];
  Tree16OfEach<kQueries>(
      [&](int key, Lanes* sums) __attribute__((always_inline)) {
        ahead.Step<DirectRowBytes(kType, kChunks * kLanes)>();
        DotRow<kType, kQueries, kChunks>(rows.key[j + key], head, unit.args.head_dim, q, sums);
      },
      dots);
  for (int n = 0; n < kQueries; ++n) {
    Store(scores[n] + j, Multiply(dots[n], factors));
  }
}

// output[n][d…] = fma(p[n][j], v[j], output) for the slots of `bits` in rising order, over
// kRegisters registers.
template <KvType kType, int kQueries, int kRegisters, int kChunks>
inline void AddRows(const TileRows& rows, uint64_t bits, int64_t at, int64_t d,
                    const float (*p)[kAttentionTile], TurnAhead& ahead, AttentionState* states) {
  Lanes sum[kQueries][kRegisters];
  for (int n = 0; n < kQueries; ++n) {
    for (int r = 0; r < kRegisters; ++r) sum[n][r] = Load(states[n].output + d + r * kLanes);
  }
  for (uint64_t left = bits; left != 0; left &= left - 1) {
    const int j = std::countr_zero(left);
    if (d == 0) ahead.Step<DirectRowBytes(kType, kChunks * kLanes)>();
    Lanes value[kRegisters];
    for (int r = 0; r < kRegisters; ++r) {
      value[r] = LoadStored<kType>(rows.key[j], at + d + r * kLanes);
    }
    for (int n = 0; n < kQueries; ++n) {
      const Lanes weight = Set(p[n][j]);
      for (int r = 0; r < kRegisters; ++r) sum[n][r] = Fma(weight, value[r], sum[n][r]);
    }
  }
  for (int n = 0; n < kQueries; ++n) {
    for (int r = 0; r < kRegisters; ++r) Store(states[n].output + d + r * kLanes, sum[n][r]);
  }
}

template <KvType kType, int kQueries, int kChunks>
inline void AddRowsOf(const DirectUnit& unit, const TileRows& rows, uint64_t bits, int64_t at,
                      const float (*p)[kAttentionTile], TurnAhead& ahead, AttentionState* states) {
  const int64_t dims = kChunks > 0 ? kChunks * kLanes : unit.args.head_dim;
  int64_t d = 0;
  for (; d + kOutputTile * kLanes <= dims; d += kOutputTile * kLanes) {
    AddRows<kType, kQueries, kOutputTile, kChunks>(rows, bits, at, d, p, ahead, states);
  }
  for (; d < dims; d += kLanes) {
    AddRows<kType, kQueries, 1, kChunks>(rows, bits, at, d, p, ahead, states);
  }
}

// Multiplies the weights of slots j…j + 15 for kv head i by the scales of V.
inline void ScaleWeights(const DirectUnit& unit, const TileRows& rows, int64_t j, int64_t i,
                         float (*weights)[kAttentionTile]) {
  const Lanes scales = LoadScales(rows, j, unit.args.kv.value_offset + ScaleOffset(unit, i));
  for (int64_t row = i * unit.heads; row < (i + 1) * unit.heads; ++row) {
    Store(weights[row] + j, Multiply(Load(weights[row] + j), scales));
  }
}

// kChunks is head_dim / 16 if known at compile time, else 0.
template <KvType kType, int kChunks>
inline void AddDirectTile(const DirectUnit& unit, const TileRows& rows, const TileRows& next) {
  alignas(64) float scores[kDirectRows][kAttentionTile];  // scores, later exponentials
  for (int turn = 0; turn < kTurns / 2; ++turn) {
    const int64_t j = turn * kLanes;
    if ((rows.seen >> j & 0xffff) == 0) continue;
    TurnAhead ahead(unit, rows, next, turn + TurnsAhead(kType));
    for (int64_t i = 0; i < unit.kv_heads; ++i) {
      Lanes factors = Set(unit.args.softmax_scale);
      if constexpr (HasScales(kType)) {
        factors = Multiply(factors, LoadScales(rows, j, ScaleOffset(unit, i)));
      }
      ForEachFew<kDirectQueries>(unit.heads, [&](int64_t first, auto count) {
        const int64_t row = i * unit.heads + first;
        ScoreKeys<kType, decltype(count)::value, kChunks>(unit, rows, j, unit.Head(i),
                                                          unit.q + row * unit.args.head_dim,
                                                          factors, ahead, scores + row);
      });
    }
  }
  TakeDirectScores(unit, rows.seen, scores);
  for (int turn = kTurns / 2; turn < kTurns; ++turn) {
    const int64_t j = (turn - kTurns / 2) * kLanes;
    const uint64_t bits = rows.seen & uint64_t{0xffff} << j;
    if (bits == 0) continue;
    TurnAhead ahead(unit, rows, next, turn + TurnsAhead(kType));
    for (int64_t i = 0; i < unit.kv_heads; ++i) {
      if constexpr (HasScales(kType)) ScaleWeights(unit, rows, j, i, scores);
      ForEachFew<kDirectQueries>(unit.heads, [&](int64_t first, auto count) {
        const int64_t row = i * unit.heads + first;
        AddRowsOf<kType, decltype(count)::value, kChunks>(unit, rows, bits,
                                                          unit.Head(i) + unit.args.kv.value_offset,
                                                          scores + row, ahead, unit.states + row);
      });
    }
  }
}

template <KvType kType>
inline void DirectSegmentOf(const PagedAttentionArgs& args, const AttentionUnit& unit,
                            AttentionState* states) {
  const auto begin = [](const DirectUnit&) {};
  ForEachDirectTile(args, unit, states, begin,
                    [&](const DirectUnit& direct, const TileRows& rows, const TileRows& next) {
                      if (args.head_dim == 64) {
                        AddDirectTile<kType, 4>(direct, rows, next);
                      } else {
                        AddDirectTile<kType, 0>(direct, rows, next);
                      }
                    });
}

// REQUIRES: IsDirect(args, unit, kLanes); the states were reset.
inline void DirectSegment(const PagedAttentionArgs& args, const AttentionUnit& unit,
                          AttentionState* states) {
  switch (args.kv.type) {
    case KvType::kF32:
      return DirectSegmentOf<KvType::kF32>(args, unit, states);
    case KvType::kF16:
      return DirectSegmentOf<KvType::kF16>(args, unit, states);
    case KvType::kBF16:
      return DirectSegmentOf<KvType::kBF16>(args, unit, states);
    case KvType::kFp8:
      return DirectSegmentOf<KvType::kFp8>(args, unit, states);
    case KvType::kInt8:  // in direct_int8_lanes.h
      return;
  }
}

}  // namespace
}  // namespace baton
