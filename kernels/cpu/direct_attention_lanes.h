// NUMERICS §8 over Lanes, one token at a time (decode): K and V are read straight from the pool of
// floats, each row once for all query heads of its kv head, and nothing is copied.
//
// The rows of the next tile are prefetched while this one computes: blocks lie anywhere, so no
// hardware prefetcher can know them. Heads of one slot are neighbours in memory, so all heads of a
// tile are taken before the next tile. Included by attention_lanes.h; internal linkage.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/cpu_kernels.h"

namespace baton {
namespace {

// With more query heads to a kv head, a widened tile is cheaper than widening rows again.
inline constexpr int64_t kMostDirectQueries = 8;

// One kv head of a tile.
struct DirectHead {
  const TileRows& rows;
  const TileRows& next;
  int64_t head;          // elements from a row's beginning
  int64_t value_offset;  // elements
  int64_t dims;
  uint64_t visible;
};

template <KvType kType>
[[gnu::always_inline]] inline void PrefetchNext(const DirectHead& at, int64_t j, int64_t offset) {
  if (at.next.seen == 0) return;
  constexpr int64_t kBytes = KvTypeBytes(kType);
  PrefetchRow(at.next.key[j] + offset * kBytes, at.dims * kBytes);
}

// sums[n] = the lanes of Dot16 of query n with the key of slot j. kChunks: dims / 16 where known.
template <KvType kType, int kQueries, int kChunks>
inline void DotRow(const DirectHead& at, int64_t j, const float* const* q, Lanes* sums) {
  const int64_t end = kChunks > 0 ? kChunks * kLanes : at.dims;
  for (int n = 0; n < kQueries; ++n) sums[n] = Set(0.0f);
  for (int64_t d = 0; d < end; d += kLanes) {
    const Lanes key = LoadStored<kType>(at.rows.key[j], at.head + d);
    for (int n = 0; n < kQueries; ++n) sums[n] = Fma(Load(q[n] + d), key, sums[n]);
  }
}

// output[n][d…] = fma(p[n][j], v[j], output) for visible j rising, over kOutputTile registers.
template <KvType kType, int kQueries, int kRegisters>
inline void AddDirectValues(const DirectHead& at, const float (*p)[kAttentionTile], int64_t d,
                            AttentionState* states) {
  Lanes sum[kQueries][kRegisters];
  for (int n = 0; n < kQueries; ++n) {
    for (int r = 0; r < kRegisters; ++r) sum[n][r] = Load(states[n].output + d + r * kLanes);
  }
  for (uint64_t left = at.visible; left != 0; left &= left - 1) {
    const int j = std::countr_zero(left);
    if (d == 0) PrefetchNext<kType>(at, j, at.head + at.value_offset);
    Lanes value[kRegisters];
    for (int r = 0; r < kRegisters; ++r) {
      value[r] = LoadStored<kType>(at.rows.key[j], at.head + at.value_offset + d + r * kLanes);
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
inline void AddDirectHead(const DirectHead& at, float softmax_scale, const float* const* q,
                          AttentionState* states) {
  alignas(64) float weights[kQueries][kAttentionTile];  // scores, then exponentials
  Lanes largest[kQueries];
  for (int n = 0; n < kQueries; ++n) largest[n] = Set(states[n].maximum);
  const Lanes hidden = Set(-__builtin_inff());
  for (int64_t j = 0; j < kAttentionTile; j += kLanes) {
    const uint32_t bits = at.visible >> j & 0xffff;
    if (bits == 0) continue;
    Lanes dots[kQueries];
    Tree16OfEach<kQueries>(
        [&](int key, Lanes* sums) __attribute__((always_inline)) {
          PrefetchNext<kType>(at, j + key, at.head);
          DotRow<kType, kQueries, kChunks>(at, j + key, q, sums);
        },
        dots);
    for (int n = 0; n < kQueries; ++n) {
      const Lanes score = Multiply(dots[n], Set(softmax_scale));
      Store(weights[n] + j, score);
      largest[n] = Maximum(Select(bits, score, hidden), largest[n]);
    }
  }
  for (int n = 0; n < kQueries; ++n) {
    TakeScores(weights[n], at.visible, largest[n], at.dims, states[n]);
  }
  int64_t d = 0;
  for (; d + kOutputTile * kLanes <= at.dims; d += kOutputTile * kLanes) {
    AddDirectValues<kType, kQueries, kOutputTile>(at, weights, d, states);
  }
  for (; d < at.dims; d += kLanes) AddDirectValues<kType, kQueries, 1>(at, weights, d, states);
}

// Query heads [0, count) of one kv head.
template <KvType kType, int kQueries>
inline void AddDirectHeadOf(int64_t count, const DirectHead& at, float softmax_scale,
                            const float* const* q, AttentionState* states) {
  if constexpr (kQueries > 0) {
    if (count < kQueries) {
      AddDirectHeadOf<kType, kQueries - 1>(count, at, softmax_scale, q, states);
    } else if (at.dims == 64) {
      AddDirectHead<kType, kQueries, 4>(at, softmax_scale, q, states);
    } else {
      AddDirectHead<kType, kQueries, 0>(at, softmax_scale, q, states);
    }
  }
}

template <KvType kType>
inline void DirectSegmentOf(const PagedAttentionArgs& args, const AttentionUnit& unit,
                            AttentionState* states) {
  const int64_t heads = args.query_heads / args.kv_heads;
  ForEachTile(args, unit, [&](const TileRows& rows, const TileRows& next) {
    for (int64_t i = 0; i < unit.kv_heads(); ++i) {
      const int64_t kv_head = unit.kv_head_begin + i;
      const DirectHead at{
          rows,          next,     kv_head * args.kv.head_stride, args.kv.value_offset,
          args.head_dim, rows.seen};
      for (int64_t first = 0; first < heads; first += kQueryTile) {
        const int64_t left = heads - first;
        const int64_t count = left < kQueryTile ? left : kQueryTile;
        const float* q[kQueryTile];
        for (int64_t n = 0; n < count; ++n) q[n] = QueryRow(args, unit, kv_head, first + n);
        AddDirectHeadOf<kType, kQueryTile>(count, at, args.softmax_scale, q,
                                           states + i * heads + first);
      }
    }
  });
}

// REQUIRES: a unit of one token, head_dim a multiple of 16, states that were reset.
inline void DirectSegment(const PagedAttentionArgs& args, const AttentionUnit& unit,
                          AttentionState* states) {
  switch (args.kv.type) {
    case KvType::kF32:
      return DirectSegmentOf<KvType::kF32>(args, unit, states);
    case KvType::kF16:
      return DirectSegmentOf<KvType::kF16>(args, unit, states);
    case KvType::kBF16:
      return DirectSegmentOf<KvType::kBF16>(args, unit, states);
    case KvType::kInt8:  // int8_attention_lanes.h
      return;
  }
}

}  // namespace
}  // namespace baton
