// Common parts of decode attention over Lanes (one token at a time, NUMERICS §8) for all types
// of pools.
//
// Such attention is bound by memory. Blocks lie anywhere, so no hardware prefetcher can predict the
// next one. The code therefore reads sixteen slots at a time and all kv heads of a slot together,
// as they lie in memory. It reads each row once for all query heads of its kv head, and copies
// nothing. Meanwhile it prefetches the sixteen slots of a later turn, line by line in rising order.
// That is one stream of addresses, which the hardware prefetcher then follows.
//
// direct_attention_lanes.h and direct_int8_lanes.h include this header. Everything has internal
// linkage.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/cpu_kernels.h"

namespace baton {
namespace {

// With more query heads per kv head, widening a tile once is cheaper than widening each row again.
inline constexpr int64_t kMostDirectQueries = 8;
// Query heads processed together.
inline constexpr int64_t kDirectRows = 32;

// The kv heads of a one-token unit that are processed together.
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

// A turn reads sixteen slots of a tile: their K rows or their V rows. A tile has eight turns, first
// K, then V.
inline constexpr int kTurns = 2 * kAttentionTile / kLanes;
// A turn is prefetched this number of turns before its own. For int8 the number is large enough
// that V's scales have arrived when all turns of K are done.
constexpr int TurnsAhead(KvType type) { return type == KvType::kInt8 ? kTurns / 2 : 2; }
// Bytes of one head's row. Scales add 4, because they follow the last head's row. 0 if `head_dim`
// is 0.
constexpr int64_t DirectRowBytes(KvType type, int64_t head_dim) {
  return head_dim * KvTypeBytes(type) + (HasScales(type) && head_dim > 0 ? 4 : 0);
}
// Bytes from a K row to the scale of the unit's kv head i.
inline int64_t ScaleOffset(const DirectUnit& unit, int64_t i) {
  return unit.args.kv.scale_offset + (unit.kv_head_begin + i) * int64_t{sizeof(float)};
}

// Prefetches the rows of one turn. Each step prefetches one kv head of one slot.
class TurnAhead {
 public:
  // `turn` counts from the beginning of the tile `rows` and may lie in the tile after it.
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
    bytes_ = DirectRowBytes(unit.args.kv.type, unit.args.head_dim);
    left_ = kLanes * heads_;
  }

  // kBytes is the size of a head's row if known at compile time, else 0.
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

// Does steps 2 and 3 and the exponentials of step 4 for every query of the unit.
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

// Prefetches the first turns of a unit's first tile. No earlier turn has prefetched them.
inline void PrefetchFirstTurns(const DirectUnit& unit, const TileRows& rows) {
  for (int turn = 0; turn < TurnsAhead(unit.args.kv.type); ++turn) {
    TurnAhead ahead(unit, rows, rows, turn);
    for (int64_t step = 0; step < kLanes * unit.kv_heads; ++step) ahead.Step<0>();
  }
}

// Returns true if the direct code can compute the unit. head_dim must be a multiple of `step`.
inline bool IsDirect(const PagedAttentionArgs& args, const AttentionUnit& unit, int64_t step) {
  return unit.tokens() == 1 && args.query_heads / args.kv_heads <= kMostDirectQueries &&
         args.head_dim % step == 0;
}

// Calls run(unit, tile, next tile) for every tile of every DirectUnit, and begin(unit) before a
// unit's first tile. REQUIRES: IsDirect; the states were reset.
template <typename Run, typename Begin>
inline void ForEachDirectTile(const PagedAttentionArgs& args, const AttentionUnit& unit,
                              AttentionState* states, const Begin& begin, const Run& run) {
  const int64_t heads = args.query_heads / args.kv_heads;
  const int64_t at_once = kDirectRows / heads;  // kv heads
  for (int64_t i = 0; i < unit.kv_heads(); i += at_once) {
    const DirectUnit direct{.args = args,
                            .kv_head_begin = unit.kv_head_begin + i,
                            .kv_heads = std::min(at_once, unit.kv_heads() - i),
                            .heads = heads,
                            .q = QueryRow(args, unit, unit.kv_head_begin + i, 0),
                            .states = states + i * heads};
    bool first = true;
    ForEachTile(args, unit, [&](const TileRows& rows, const TileRows& next) {
      if (first) {
        PrefetchFirstTurns(direct, rows);
        begin(direct);
      }
      first = false;
      run(direct, rows, next);
    });
  }
}

}  // namespace
}  // namespace baton
