// Common parts of float and int8 attention over Lanes (NUMERICS §8): which slots a token sees,
// where their rows lie, and the softmax step of one tile.
//
// attention_lanes.h and int8_attention_lanes.h include this header after a vector_math header.
// Everything has internal linkage.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/unroll.h"

namespace baton {
namespace {

inline uint64_t BitsBelow(int64_t count) {
  if (count <= 0) return 0;
  return count >= 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
}

// Bit j is set if run `run` of the token contains slot begin + j.
inline uint64_t VisibleBits(const PagedAttentionArgs& args, int64_t token, int64_t run,
                            int64_t begin) {
  const VisibleRun of = RunOf(args, token, run);
  return BitsBelow(of.end - begin) & ~BitsBelow(of.begin - begin);
}

// Returns the slots of the tile at `begin` that at least one token of the unit sees.
inline uint64_t SeenBits(const PagedAttentionArgs& args, const AttentionUnit& unit, int64_t begin) {
  uint64_t seen = 0;
  for (int64_t token = unit.token_begin; token < unit.token_end; ++token) {
    seen |= VisibleBits(args, token, unit.run, begin);
  }
  return seen;
}

// Addresses of a tile's rows in the pool.
struct TileRows {
  int64_t begin;  // first slot
  uint64_t seen;  // bit j: a token of the unit sees slot begin + j
  // K row (kv head 0, d 0) of every slot. A slot that no token sees has the row of a visible slot.
  // Unset if `seen` is 0.
  const std::byte* key[kAttentionTile];
};

inline const std::byte* BlockBase(const PagedAttentionArgs& args, int64_t sequence, int64_t index) {
  const int64_t block = args.block_tables != nullptr
                            ? int64_t{args.block_tables[sequence * args.table_stride + index]}
                            : args.first_block[sequence] + index;
  return static_cast<const std::byte*>(args.kv.base) +
         block * args.kv.block_stride * KvTypeBytes(args.kv.type);
}

inline void LocateRows(const PagedAttentionArgs& args, const AttentionUnit& unit, int64_t begin,
                       TileRows* rows) {
  rows->begin = begin;
  rows->seen = SeenBits(args, unit, begin);
  if (rows->seen == 0) return;
  const int64_t sequence = args.sequence_of_token[unit.token_begin];
  const int64_t row_bytes = args.kv.token_stride * KvTypeBytes(args.kv.type);
  const int64_t mask = (int64_t{1} << args.kv.block_size_log2) - 1;
  const std::byte* some = nullptr;
  for (int64_t j = 0; j < kAttentionTile;) {
    const int64_t slot = begin + j;
    const int64_t end = std::min<int64_t>(kAttentionTile, j + mask + 1 - (slot & mask));
    if ((rows->seen & BitsBelow(end) & ~BitsBelow(j)) != 0) {  // an unseen slot may have no block
      const std::byte* row =
          BlockBase(args, sequence, slot >> args.kv.block_size_log2) + (slot & mask) * row_bytes;
      for (int64_t i = j; i < end; ++i, row += row_bytes) {
        rows->key[i] = row;
        if (rows->seen >> i & 1) some = row;
      }
    }
    j = end;
  }
  if (rows->seen == ~uint64_t{0}) return;
  for (int64_t j = 0; j < kAttentionTile; ++j) {
    if ((rows->seen >> j & 1) == 0) rows->key[j] = some;
  }
}

// Calls tile(rows, next) for every tile of the unit's segment that a token of the unit sees. `next`
// is the following tile of the run, for prefetching. It may be in the next segment.
template <typename Tile>
inline void ForEachTile(const PagedAttentionArgs& args, const AttentionUnit& unit,
                        const Tile& tile) {
  if (unit.token_begin == unit.token_end) return;
  constexpr int kTiles = kAttentionSegment / kAttentionTile;
  const int64_t begin =
      RunOf(args, unit.token_begin, unit.run).tile_origin + unit.segment * kAttentionSegment;
  TileRows rows[2];
  LocateRows(args, unit, begin, &rows[0]);
  for (int i = 0; i < kTiles; ++i) {
    LocateRows(args, unit, begin + (i + 1) * kAttentionTile, &rows[(i + 1) % 2]);
    if (rows[i % 2].seen != 0) tile(rows[i % 2], rows[(i + 1) % 2]);
  }
}

// Always inline, because GCC removes calls of a function that only prefetches.
[[gnu::always_inline]] inline void PrefetchRow(const std::byte* row, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(row) + i, _MM_HINT_T0);
  }
}

// Returns the row of query `query` of a unit and kv head. Queries are ordered by token, then by
// head within the kv head.
inline const float* QueryRow(const PagedAttentionArgs& args, const AttentionUnit& unit,
                             int64_t kv_head, int64_t query) {
  const int64_t heads = args.query_heads / args.kv_heads;
  const int64_t first_run = args.row_runs[unit.token_begin].first_run;
  const int64_t offset = args.runs[first_run + unit.run].query_offset;  // the same for all tokens
  const int64_t row = unit.token_begin + offset + query / heads;
  return args.q + row * args.q_stride + (kv_head * heads + query % heads) * args.head_dim;
}

inline int64_t PaddedDims(int64_t head_dim) { return (head_dim + kLanes - 1) / kLanes * kLanes; }

// Loads sixteen stored numbers of a type other than int8, without their scale. `offset` counts
// elements.
template <KvType kType>
inline Lanes LoadStored(const void* base, int64_t offset) {
  if constexpr (kType == KvType::kF32) return Load(static_cast<const float*>(base) + offset);
  if constexpr (kType == KvType::kFp8) return LoadFp8(static_cast<const uint8_t*>(base) + offset);
  const uint16_t* halves = static_cast<const uint16_t*>(base) + offset;
  return kType == KvType::kF16 ? LoadF16(halves) : LoadBF16(halves);
}

// Loads the scales of slots j…j + 15. `row_offset` is the distance in bytes from the K row.
inline Lanes LoadScales(const TileRows& rows, int64_t j, int64_t row_offset) {
  alignas(64) float scales[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) {
    std::memcpy(&scales[i], rows.key[j + i] + row_offset, sizeof(float));
  }
  return Load(scales);
}

inline void ResetStates(AttentionState* states, int64_t count, int64_t dims) {
  for (int64_t i = 0; i < count; ++i) {
    states[i].maximum = -__builtin_inff();
    states[i].any_visible = false;
    std::memset(states[i].lane_sums, 0, sizeof(states[i].lane_sums));
    std::memset(states[i].output, 0, static_cast<size_t>(dims) * sizeof(float));
  }
}

// Second part of TakeScores, if every query sees every slot.
template <int kQueries>
[[gnu::always_inline]] inline void TakeAllScores(float (*scores)[kAttentionTile],
                                                 const Lanes* maximum,
                                                 AttentionState* const* states,
                                                 const Lanes* alphas) {
  constexpr int kRegisters = kAttentionTile / kLanes;
  constexpr int kTotal = kQueries * kRegisters;
  constexpr int kBatch = kTotal % kExpBatch == 0 ? kExpBatch : kRegisters;
  Lanes sums[kQueries];
  Unroll<kQueries>([&](int n) __attribute__((always_inline)) {
    sums[n] = Multiply(Load(states[n]->lane_sums), alphas[n]);
  });
  Unroll<kTotal / kBatch>([&](int batch) __attribute__((always_inline)) {
    Lanes weight[kBatch];
    Unroll<kBatch>([&](int i) __attribute__((always_inline)) {
      const int k = batch * kBatch + i;
      weight[i] =
          Subtract(Load(scores[k / kRegisters] + k % kRegisters * kLanes), maximum[k / kRegisters]);
    });
    ExpOfAll<kBatch>(weight, weight);
    Unroll<kBatch>([&](int i) __attribute__((always_inline)) {
      const int k = batch * kBatch + i;
      Store(scores[k / kRegisters] + k % kRegisters * kLanes, weight[i]);
      sums[k / kRegisters] = Add(sums[k / kRegisters], weight[i]);
    });
  });
  Unroll<kQueries>([&](int n)
                       __attribute__((always_inline)) { Store(states[n]->lane_sums, sums[n]); });
}

// First part of TakeScores: sets `maximum` (every lane) and `alphas` from `largest`.
template <int kQueries>
[[gnu::always_inline]] inline void TakeMaxima(const Lanes* largest, AttentionState* const* states,
                                              Lanes* maximum, Lanes* alphas) {
  Lanes change[kQueries];
  LargestOfEach<kQueries>(largest, maximum);
  Unroll<kQueries>([&](int n) __attribute__((always_inline)) {
    change[n] = Subtract(Set(states[n]->maximum), maximum[n]);
    states[n]->maximum = FirstLane(maximum[n]);
    states[n]->any_visible = true;
  });
  ExpOfEach<kQueries>(change, alphas);
}

// Second part of TakeScores.
template <int kQueries>
[[gnu::always_inline]] inline void TakeExponentials(float (*scores)[kAttentionTile],
                                                    const uint64_t* visible, const Lanes* maximum,
                                                    const Lanes* alphas,
                                                    AttentionState* const* states) {
  uint64_t by_all = ~uint64_t{0};
  for (int n = 0; n < kQueries; ++n) by_all &= visible[n];
  if (by_all == ~uint64_t{0}) {
    TakeAllScores<kQueries>(scores, maximum, states, alphas);
    return;
  }
  for (int n = 0; n < kQueries; ++n) {
    Lanes sums = Multiply(Load(states[n]->lane_sums), alphas[n]);
    for (int64_t j = 0; j < kAttentionTile; j += kLanes) {
      const uint32_t bits = visible[n] >> j & 0xffff;
      if (bits == 0) continue;
      const Lanes weight = Exp(Subtract(Load(scores[n] + j), maximum[n]));
      Store(scores[n] + j, weight);
      sums = Select(bits, Add(sums, weight), sums);
    }
    Store(states[n]->lane_sums, sums);
  }
}

// Steps 3 and 4 of NUMERICS §8 without the outputs, for kQueries queries. Takes the new maxima,
// replaces the scores of visible slots by exponentials and adds these to the lane sums. Scores of
// other slots become unspecified. Sets `alphas`, the factors for the outputs. The largest lane of
// largest[n] is the new maximum of query n. REQUIRES: every query sees something.
template <int kQueries>
[[gnu::always_inline]] inline void TakeScores(float (*scores)[kAttentionTile],
                                              const uint64_t* visible, const Lanes* largest,
                                              AttentionState* const* states, Lanes* alphas) {
  Lanes maximum[kQueries];
  TakeMaxima<kQueries>(largest, states, maximum, alphas);
  TakeExponentials<kQueries>(scores, visible, maximum, alphas, states);
}

inline void Rescale(AttentionState& state, Lanes alpha, int64_t dims) {
  for (int64_t d = 0; d < dims; d += kLanes) {
    Store(state.output + d, Multiply(Load(state.output + d), alpha));
  }
}

// Calls run(first, count as an integral constant) for parts of [0, total). Each part has kMost
// elements, the last one perhaps fewer.
template <int kMost, typename Run>
inline void ForEachFew(int64_t total, const Run& run) {
  int64_t first = 0;
  for (; first + kMost <= total; first += kMost) run(first, std::integral_constant<int, kMost>());
  if constexpr (kMost > 1) {
    Unroll<kMost - 1>([&](auto n) __attribute__((always_inline)) {
      constexpr int kCount = decltype(n)::value + 1;
      if (total - first == kCount) run(first, std::integral_constant<int, kCount>());
    });
  }
}

}  // namespace
}  // namespace baton
