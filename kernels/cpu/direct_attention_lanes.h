// NUMERICS §8 over Lanes, one token at a time (decode): K and V are read straight from the pool of
// floats, each row once for all query heads of its kv head, and nothing is copied.
//
// Such attention is bound by memory, and blocks lie anywhere, so no hardware prefetcher can know
// the next one. Rows are taken sixteen slots at a time, all kv heads of a slot together, as they
// lie in memory; the sixteen that come two turns later are prefetched meanwhile, line by line in
// rising order: one stream, which the hardware then runs ahead of. Included by attention_lanes.h;
// internal linkage.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/cpu_kernels.h"

namespace baton {
namespace {

// With more query heads to a kv head, a widened tile is cheaper than widening rows again.
inline constexpr int64_t kMostDirectQueries = 8;
// Query heads that are taken together.
inline constexpr int64_t kDirectRows = 32;

// What one call of a unit works on.
struct DirectUnit {
  const PagedAttentionArgs& args;
  int64_t kv_head_begin;
  int64_t kv_heads;
  int64_t heads;           // query heads of a kv head
  const float* q;          // [kv heads, heads, head_dim]
  AttentionState* states;  // [kv heads, heads]

  int64_t rows() const { return kv_heads * heads; }
  int64_t Head(int64_t i) const { return (kv_head_begin + i) * args.kv.head_stride; }  // elements
};

// A turn: K rows of sixteen slots of a tile, or their V rows; a tile has eight turns, K first.
inline constexpr int kTurns = 2 * kAttentionTile / kLanes;
inline constexpr int kTurnsAhead = 2;

// Prefetches the rows of a turn, a kv head of a slot at each step.
class TurnAhead {
 public:
  // `turn` counts from the beginning of the tile `rows`, and may be in the tile after it.
  [[gnu::always_inline]] TurnAhead(const DirectUnit& unit, const TileRows& rows,
                                   const TileRows& next, int turn)
      : heads_(unit.kv_heads) {
    const TileRows& of = turn < kTurns ? rows : next;
    const int64_t first = turn % (kTurns / 2) * kLanes;
    if ((of.seen >> first & 0xffff) == 0) return;
    const int64_t value = turn % kTurns < kTurns / 2 ? 0 : unit.args.kv.value_offset;
    const int64_t element = KvTypeBytes(unit.args.kv.type);
    row_ = of.key + first;
    offset_ = (unit.Head(0) + value) * element;
    stride_ = unit.args.kv.head_stride * element;
    bytes_ = unit.args.head_dim * element;
    left_ = kLanes * heads_;
  }

  // kBytes: of a head's row where known, else 0.
  template <int64_t kBytes>
  [[gnu::always_inline]] void Step() {
    if (left_ == 0) return;
    PrefetchRow(*row_ + offset_ + head_ * stride_, kBytes > 0 ? kBytes : bytes_);
    --left_;
    if (++head_ < heads_) return;
    head_ = 0;
    ++row_;
  }

 private:
  int64_t heads_;
  int64_t head_ = 0;
  int64_t left_ = 0;
  const std::byte* const* row_ = nullptr;
  int64_t offset_ = 0;
  int64_t stride_ = 0;
  int64_t bytes_ = 0;
};

// sums[n] = the lanes of Dot16 of query n with a row of K. kChunks: dims / 16 where known.
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

// Scores of kQueries queries with the keys of slots j…j + 15.
template <KvType kType, int kQueries, int kChunks>
inline void ScoreKeys(const DirectUnit& unit, const TileRows& rows, int64_t j, int64_t head,
                      const float* q, TurnAhead& ahead, float (*scores)[kAttentionTile]) {
  Lanes dots[kQueries];
  Tree16OfEach<kQueries>(
      [&](int key, Lanes* sums) __attribute__((always_inline)) {
        ahead.Step<kChunks * kLanes * KvTypeBytes(kType)>();
        DotRow<kType, kQueries, kChunks>(rows.key[j + key], head, unit.args.head_dim, q, sums);
      },
      dots);
  for (int n = 0; n < kQueries; ++n) {
    Store(scores[n] + j, Multiply(dots[n], Set(unit.args.softmax_scale)));
  }
}

// output[n][d…] = fma(p[n][j], v[j], output) for slots of `bits` rising, over kRegisters.
template <KvType kType, int kQueries, int kRegisters, int kChunks>
inline void AddRows(const TileRows& rows, uint64_t bits, int64_t at, int64_t d,
                    const float (*p)[kAttentionTile], TurnAhead& ahead, AttentionState* states) {
  Lanes sum[kQueries][kRegisters];
  for (int n = 0; n < kQueries; ++n) {
    for (int r = 0; r < kRegisters; ++r) sum[n][r] = Load(states[n].output + d + r * kLanes);
  }
  for (uint64_t left = bits; left != 0; left &= left - 1) {
    const int j = std::countr_zero(left);
    if (d == 0) ahead.Step<kChunks * kLanes * KvTypeBytes(kType)>();
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

// Steps 2 and 3, and the exponentials of step 4, for every query of the unit.
inline void TakeDirectScores(const DirectUnit& unit, uint64_t seen,
                             float (*scores)[kAttentionTile]) {
  const Lanes hidden = Set(-__builtin_inff());
  ForEachFew<kDirectQueries>(unit.rows(), [&](int64_t first, auto count) {
    constexpr int kQueries = decltype(count)::value;
    uint64_t visible[kQueries];
    AttentionState* states[kQueries];
    Lanes largest[kQueries];
    Lanes alphas[kQueries];
    for (int n = 0; n < kQueries; ++n) {
      visible[n] = seen;
      states[n] = &unit.states[first + n];
      largest[n] = Set(states[n]->maximum);
      for (int64_t j = 0; j < kAttentionTile; j += kLanes) {
        const uint32_t bits = seen >> j & 0xffff;
        if (bits == 0) continue;
        largest[n] = Maximum(Select(bits, Load(scores[first + n] + j), hidden), largest[n]);
      }
    }
    TakeScores<kQueries>(scores + first, visible, largest, states, alphas);
    for (int n = 0; n < kQueries; ++n) Rescale(*states[n], alphas[n], unit.args.head_dim);
  });
}

// kChunks: head_dim / 16 where known, else 0.
template <KvType kType, int kChunks>
inline void AddDirectTile(const DirectUnit& unit, const TileRows& rows, const TileRows& next) {
  alignas(64) float scores[kDirectRows][kAttentionTile];  // then exponentials
  for (int turn = 0; turn < kTurns / 2; ++turn) {
    const int64_t j = turn * kLanes;
    if ((rows.seen >> j & 0xffff) == 0) continue;
    TurnAhead ahead(unit, rows, next, turn + kTurnsAhead);
    for (int64_t i = 0; i < unit.kv_heads; ++i) {
      ForEachFew<kDirectQueries>(unit.heads, [&](int64_t first, auto count) {
        const int64_t row = i * unit.heads + first;
        ScoreKeys<kType, decltype(count)::value, kChunks>(
            unit, rows, j, unit.Head(i), unit.q + row * unit.args.head_dim, ahead, scores + row);
      });
    }
  }
  TakeDirectScores(unit, rows.seen, scores);
  for (int turn = kTurns / 2; turn < kTurns; ++turn) {
    const int64_t j = (turn - kTurns / 2) * kLanes;
    const uint64_t bits = rows.seen & uint64_t{0xffff} << j;
    if (bits == 0) continue;
    TurnAhead ahead(unit, rows, next, turn + kTurnsAhead);
    for (int64_t i = 0; i < unit.kv_heads; ++i) {
      ForEachFew<kDirectQueries>(unit.heads, [&](int64_t first, auto count) {
        const int64_t row = i * unit.heads + first;
        AddRowsOf<kType, decltype(count)::value, kChunks>(unit, rows, bits,
                                                          unit.Head(i) + unit.args.kv.value_offset,
                                                          scores + row, ahead, unit.states + row);
      });
    }
  }
}

// Rows of a tile that nothing prefetched.
inline void PrefetchFirstTurns(const DirectUnit& unit, const TileRows& rows) {
  for (int turn = 0; turn < kTurnsAhead; ++turn) {
    TurnAhead ahead(unit, rows, rows, turn);
    for (int64_t step = 0; step < kLanes * unit.kv_heads; ++step) ahead.Step<0>();
  }
}

template <KvType kType>
inline void DirectSegmentOf(const DirectUnit& direct, const AttentionUnit& unit) {
  bool first = true;
  ForEachTile(direct.args, unit, [&](const TileRows& rows, const TileRows& next) {
    if (first) PrefetchFirstTurns(direct, rows);
    first = false;
    if (direct.args.head_dim == 64) {
      AddDirectTile<kType, 4>(direct, rows, next);
    } else {
      AddDirectTile<kType, 0>(direct, rows, next);
    }
  });
}

// REQUIRES: a unit of one token, head_dim a multiple of 16, at most kMostDirectQueries query heads
// to a kv head, states that were reset.
inline void DirectSegment(const PagedAttentionArgs& args, const AttentionUnit& unit,
                          AttentionState* states) {
  const int64_t heads = args.query_heads / args.kv_heads;
  const int64_t at_once = kDirectRows / heads;  // kv heads
  for (int64_t i = 0; i < unit.kv_heads(); i += at_once) {
    const DirectUnit direct{.args = args,
                            .kv_head_begin = unit.kv_head_begin + i,
                            .kv_heads = std::min(at_once, unit.kv_heads() - i),
                            .heads = heads,
                            .q = QueryRow(args, unit, unit.kv_head_begin + i, 0),
                            .states = states + i * heads};
    switch (args.kv.type) {
      case KvType::kF32:
        DirectSegmentOf<KvType::kF32>(direct, unit);
        break;
      case KvType::kF16:
        DirectSegmentOf<KvType::kF16>(direct, unit);
        break;
      case KvType::kBF16:
        DirectSegmentOf<KvType::kBF16>(direct, unit);
        break;
      case KvType::kInt8:  // int8_attention_lanes.h
        break;
    }
  }
}

}  // namespace
}  // namespace baton
