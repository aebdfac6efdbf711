// The two integer products of int8 attention (NUMERICS §8) over Lanes, without VNNI.
//
// Stored bytes are widened to 16 bits once per tile. VPMADDWD then multiplies them with the 16-bit
// operand and adds two products in a 32-bit lane, exactly. int8_products_avx512.h defines the same
// names for VNNI.
//
// int8_products_avx2.h and int8_products_avx512_no_vnni.h include this header after they define
// Pairs and kInt8Registers. Everything has internal linkage.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cpu/unroll.h"
#include "kernels/numerics.h"

namespace baton {
namespace {

// Most queries that a product takes at once. Their accumulators fit the registers.
inline constexpr int kInt8Queries = 3;

struct Int16Operand {
  alignas(64) int16_t values[kMaxHeadDim];
};

inline void PackOperand(const int16_t* values, int64_t count, Int16Operand* out) {
  std::memcpy(out->values, values, static_cast<size_t>(count) * sizeof(int16_t));
}

// Word [i][slot] holds dims 2i and 2i+1 of a slot.
struct KeyTile {
  alignas(64) uint32_t words[kMaxHeadDim / 2][kAttentionTile];
};

// `rows` is [slot, dims].
inline void PackKeys(const int8_t* rows, int64_t dims, KeyTile* out) {
  alignas(64) int16_t wide[kLanes][kMaxHeadDim];
  for (int64_t j = 0; j < kAttentionTile; j += kLanes) {
    for (int r = 0; r < kLanes; ++r) {
      for (int64_t d = 0; d < dims; d += 2 * kLanes) {
        Store(reinterpret_cast<float*>(&wide[r][d]),
              BitsOf(WidenToPairs(rows + (j + r) * dims + d)));
      }
    }
    for (int64_t d = 0; d < dims; d += 2 * kLanes) {
      Transpose16(reinterpret_cast<const float*>(&wide[0][d]), kMaxHeadDim / 2,
                  reinterpret_cast<float*>(&out->words[d / 2][j]), kAttentionTile);
    }
  }
}

template <int kQueries>
struct PairSums {
  Lanes of[kQueries][kInt8Registers];  // integers
};

template <int kQueries>
[[gnu::always_inline]] inline void ClearPairs(PairSums<kQueries>& sums) {
  Unroll<kQueries * kInt8Registers>([&](int k) __attribute__((always_inline)) {
    sums.of[k / kInt8Registers][k % kInt8Registers] = Set(0.0f);  // the integer 0
  });
}

// Adds the products of pair `i` of every operand with kInt8Registers registers at `words`.
template <int kQueries>
[[gnu::always_inline]] inline void AddPairs(const uint32_t* words, int64_t i,
                                            const Int16Operand* const* operands,
                                            PairSums<kQueries>& sums) {
  Pairs word[kInt8Registers];
  Unroll<kInt8Registers>([&](int r) __attribute__((always_inline)) {
    word[r] = LoadPairs(words + r * kLanes);
  });
  Unroll<kQueries>([&](int n) __attribute__((always_inline)) {
    const Pairs operand = SetPair(operands[n]->values + 2 * i);
    Unroll<kInt8Registers>([&](int r) __attribute__((always_inline)) {
      sums.of[n][r] = AddPairProducts(sums.of[n][r], word[r], operand);
    });
  });
}

// dots[n][slot] = float(Σ_d q[n][d] · key[slot][d]) for all slots of the tile.
template <int kQueries>
inline void DotKeys(const KeyTile& keys, int64_t dims, const Int16Operand* const* q,
                    float (*dots)[kAttentionTile]) {
  for (int64_t j = 0; j < kAttentionTile; j += kInt8Registers * kLanes) {
    PairSums<kQueries> sums;
    ClearPairs(sums);
    for (int64_t i = 0; i < dims / 2; ++i) AddPairs<kQueries>(&keys.words[i][j], i, q, sums);
    Unroll<kQueries * kInt8Registers>([&](int k) __attribute__((always_inline)) {
      const int n = k / kInt8Registers;
      const int r = k % kInt8Registers;
      Store(dots[n] + j + r * kLanes, FloatsOfIntegers(sums.of[n][r]));
    });
  }
}

// Word [i][d] holds slots 2i and 2i+1 of a dimension.
struct ValueTile {
  alignas(64) uint32_t words[kAttentionTile / 2][kMaxHeadDim];
};

// `rows` is [slot, dims].
inline void PackValues(const int8_t* rows, int64_t dims, ValueTile* out) {
  for (int64_t i = 0; i < kAttentionTile / 2; ++i) {
    for (int64_t d = 0; d < dims; d += 2 * kLanes) {
      const int8_t* even = rows + 2 * i * dims + d;
      Pairs paired[2];
      PairUp(WidenToPairs(even), WidenToPairs(even + dims), paired);
      Lanes words[2] = {BitsOf(paired[0]), BitsOf(paired[1])};
      SortPairedUp(words);
      for (int k = 0; k < 2; ++k) {
        Store(reinterpret_cast<float*>(&out->words[i][d + k * kLanes]), words[k]);
      }
    }
  }
}

// outputs[n][d] = fma(scales[n], float(Σ_slot u[n][slot] · value[slot][d]), outputs[n][d]).
template <int kQueries>
inline void AddInt8Values(const ValueTile& values, int64_t dims, const Int16Operand* const* u,
                          const float* scales, float* const* outputs) {
  for (int64_t d = 0; d < dims; d += kInt8Registers * kLanes) {
    PairSums<kQueries> sums;
    ClearPairs(sums);
    for (int64_t i = 0; i < kAttentionTile / 2; ++i) {
      AddPairs<kQueries>(&values.words[i][d], i, u, sums);
    }
    Unroll<kQueries * kInt8Registers>([&](int k) __attribute__((always_inline)) {
      const int n = k / kInt8Registers;
      const int r = k % kInt8Registers;
      float* output = outputs[n] + d + r * kLanes;
      Store(output, Fma(Set(scales[n]), FloatsOfIntegers(sums.of[n][r]), Load(output)));
    });
  }
}

}  // namespace
}  // namespace baton
