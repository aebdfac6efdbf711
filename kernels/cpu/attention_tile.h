// What float and int8 attention over Lanes share (NUMERICS §8): which slots a token sees, where
// their rows lie, and the step of the softmax for one tile.
//
// Included by attention_lanes.h and int8_attention_lanes.h after a vector_math header. Everything
// has internal linkage.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cpu/cpu_kernels.h"

namespace baton {
namespace {

inline uint64_t BitsBelow(int64_t count) {
  if (count <= 0) return 0;
  return count >= 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
}

// Bit j: the token sees slot begin + j.
inline uint64_t VisibleBits(const VisibleRange* ranges, int64_t begin) {
  uint64_t bits = 0;
  for (int i = 0; i < kMaxVisibleRanges; ++i) {
    bits |= BitsBelow(ranges[i].end - begin) & ~BitsBelow(ranges[i].begin - begin);
  }
  return bits;
}

// Slots of the tile at `begin` that some token of the call sees.
inline uint64_t SeenBits(const PagedAttentionArgs& args, int64_t token_begin, int64_t token_end,
                         int64_t begin) {
  uint64_t seen = 0;
  for (int64_t token = token_begin; token < token_end; ++token) {
    seen |= VisibleBits(args.visible + token * kMaxVisibleRanges, begin);
  }
  return seen;
}

// Element offset of a slot's K row (kv head 0, d 0).
inline int64_t RowOffset(const PagedAttentionArgs& args, int64_t sequence, int64_t slot) {
  const KvLayerView& kv = args.kv;
  const int64_t index = slot >> kv.block_size_log2;
  const int64_t block = args.block_tables != nullptr
                            ? int64_t{args.block_tables[sequence * args.table_stride + index]}
                            : args.first_block[sequence] + index;
  const int64_t in_block = slot - (index << kv.block_size_log2);
  return block * kv.block_stride + in_block * kv.token_stride;
}

// The row of query `query` of a call that starts at token_begin; queries are ordered by token, then
// head of the group.
inline const float* QueryRow(const PagedAttentionArgs& args, int64_t token_begin, int64_t kv_head,
                             int64_t query) {
  const int64_t heads = args.query_heads / args.kv_heads;
  const int64_t token = token_begin + query / heads;
  return args.q + token * args.q_stride + (kv_head * heads + query % heads) * args.head_dim;
}

inline void ResetStates(AttentionState* states, int64_t count, int64_t dims) {
  for (int64_t i = 0; i < count; ++i) {
    states[i].maximum = -__builtin_inff();
    states[i].any_visible = false;
    std::memset(states[i].lane_sums, 0, sizeof(states[i].lane_sums));
    std::memset(states[i].output, 0, static_cast<size_t>(dims) * sizeof(float));
  }
}

// Steps 3 and 4 without the values: scales the state to the new maximum and turns the scores of
// visible slots into exponentials; the others keep what they are. `largest`: lanes whose largest is
// the new maximum. REQUIRES: visible != 0.
inline void TakeScores(float* scores, uint64_t visible, Lanes largest, int64_t dims,
                       AttentionState& state) {
  const float maximum = LargestLane(largest);
  const Lanes alpha = Exp(Set(state.maximum - maximum));
  for (int64_t d = 0; d < dims; d += kLanes) {
    Store(state.output + d, Multiply(Load(state.output + d), alpha));
  }
  Lanes sums = Multiply(Load(state.lane_sums), alpha);
  for (int64_t j = 0; j < kAttentionTile; j += kLanes) {
    const uint32_t bits = visible >> j & 0xffff;
    if (bits == 0) continue;
    const Lanes weight = Exp(Subtract(Load(scores + j), Set(maximum)));
    Store(scores + j, weight);
    sums = Select(bits, Add(sums, weight), sums);
  }
  Store(state.lane_sums, sums);
  state.maximum = maximum;
  state.any_visible = true;
}

}  // namespace
}  // namespace baton
