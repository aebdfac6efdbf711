// Dot16 (NUMERICS §1) of a few queries with many keys over Lanes, where a lane is a key. The
// sixteen accumulators of Dot16 are sixteen registers, and Tree16 adds whole registers.
//
// The code serves AVX2 and AVX-512: attention_lanes.h includes it after a vector_math header.
#pragma once

#include <cstdint>

#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/unroll.h"

namespace baton {
namespace {

// Dot products of each query with the keys of kScoreGroups registers.
template <int kQueries>
using Dots = Lanes[kQueries][kScoreGroups];

// Computes a leaf of Tree16: lane `i` of Dot16. One broadcast query value is multiplied with
// kScoreGroups registers of keys. kChunks is dims / 16 if known at compile time, else 0.
template <int kQueries, int kChunks>
[[gnu::always_inline]] inline void DotLane(const float* const* q, const float* keys, int64_t dims,
                                           int64_t i, Dots<kQueries>& sum) {
  Unroll<kQueries * kScoreGroups>([&](int k) __attribute__((always_inline)) {
    sum[k / kScoreGroups][k % kScoreGroups] = Set(0.0f);
  });
  const auto add = [&](int64_t d) __attribute__((always_inline)) {
    Lanes key[kScoreGroups];
    Unroll<kScoreGroups>([&](int g) __attribute__((always_inline)) {
      key[g] = Load(keys + d * kAttentionTile + g * kLanes);
      KeepInRegister(key[g]);
    });
    Unroll<kQueries>([&](int n) __attribute__((always_inline)) {
      const Lanes value = Set(q[n][d]);
      Unroll<kScoreGroups>([&](int g) __attribute__((always_inline)) {
        sum[n][g] = Fma(value, key[g], sum[n][g]);
      });
    });
  };
  if constexpr (kChunks > 0) {
    Unroll<kChunks>([&](int c) __attribute__((always_inline)) { add(i + c * kLanes); });
  } else {
    for (int64_t d = i; d < dims; d += kLanes) add(d);
  }
}

constexpr int BitsReversed(int i) {  // four bits
  return (i & 1) << 3 | (i & 2) << 1 | (i & 4) >> 1 | (i & 8) >> 3;
}

// Computes a node of Tree16 over DotLane, `kLevel` levels above the leaves. kLeaf numbers its first
// leaf in the order of a depth-first walk. In this order at most one finished node of each level
// waits, in registers.
template <int kQueries, int kChunks, int kLevel, int kLeaf>
[[gnu::always_inline]] inline void DotNode(const float* const* q, const float* keys, int64_t dims,
                                           Dots<kQueries>& node) {
  if constexpr (kLevel == 0) {
    DotLane<kQueries, kChunks>(q, keys, dims, BitsReversed(kLeaf), node);
  } else {
    Dots<kQueries> first;
    DotNode<kQueries, kChunks, kLevel - 1, kLeaf>(q, keys, dims, first);
    Unroll<kQueries * kScoreGroups>([&](int k) __attribute__((always_inline)) {
      KeepInRegister(first[k / kScoreGroups][k % kScoreGroups]);
    });
    DotNode<kQueries, kChunks, kLevel - 1, kLeaf + (1 << (kLevel - 1))>(q, keys, dims, node);
    Unroll<kQueries * kScoreGroups>([&](int k) __attribute__((always_inline)) {
      const int n = k / kScoreGroups;
      const int g = k % kScoreGroups;
      node[n][g] = Add(first[n][g], node[n][g]);
    });
  }
}

template <int kQueries, int kChunks>
inline void DotTree(const float* const* q, const float* keys, int64_t dims, Dots<kQueries>& dots) {
  DotNode<kQueries, kChunks, 4, 0>(q, keys, dims, dots);
}

}  // namespace
}  // namespace baton
