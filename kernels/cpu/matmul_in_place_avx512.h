// Products that unpack quantised weights as they read them (AVX-512). They serve a few tokens of
// any format, and more tokens of formats whose unpacking is cheap.
//
// Only quantized_matmul_avx512.h includes this header. Everything has internal linkage.
#pragma once

#include <cstring>

#include "kernels/cpu/matmul_lines_avx512.h"
#include "kernels/cpu/matmul_tiles.h"
#include "kernels/cpu/matmul_unpack_avx512.h"
#include "kernels/cpu/vector_math_avx512.h"

namespace baton::avx512 {
namespace {

inline __m512i Broadcast4(const int8_t* p) {
  int32_t word;
  std::memcpy(&word, p, sizeof(word));
  return _mm512_set1_epi32(word);
}

// Prefetches a group of any format (GroupBytes). The lines that every format has need no loop.
inline void PrefetchGroup(const std::byte* p, int64_t bytes) {
  constexpr int64_t kLeastBytes = 5 * 64;
  Prefetch(p, kLeastBytes);
  if (bytes > kLeastBytes) Prefetch(p + kLeastBytes, bytes - kLeastBytes);
}

// Multiplies a few tokens with one row group, in place. One stream of weights is faster than
// several.
template <WeightFormat kFormat, int kTileTokens>
void MultiplyFew(const MatMulTile& at) {
  constexpr BlockLayout kLayout = BlockLayoutOf(kFormat);
  constexpr ProductKind kKind = ProductKindOf(kFormat);
  constexpr int kParts = PartsOf(kKind);
  const int64_t groups = at.cols / kQuantGroup;
  Lanes acc[kTileTokens];
  for (Lanes& of_token : acc) of_token = Set(0.0f);
  const std::byte* block = at.weights;
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t in_block = g % kLayout.groups;
    Prefetch(block + in_block * GroupBytes(kFormat) + kPrefetchBytes, GroupBytes(kFormat));
    const auto weights = UnpackGroup<kFormat>(block, in_block);
    if (in_block == kLayout.groups - 1) block += kLayout.bytes();
    Unroll<kTileTokens>([&](auto t) __attribute__((always_inline)) {
      const int8_t* a = at.q8 + t * at.cols + g * kQuantGroup;
      Lanes isum;
      Unroll<kParts>([&](auto part) __attribute__((always_inline)) {
        const int32_t* start = StartAt<kKind>(at.start, (t * groups + g) * kParts + part);
        ByteSum<kKind> sum;
        BeginSum(sum, start);
        Unroll<8 / kParts>([&](auto i) __attribute__((always_inline)) {
          const int word = part * 8 / kParts + i;
          AddWord<i>(sum, weights.word[word], Broadcast4(a + 4 * word));
        });
        const Lanes exact = {_mm512_cvtepi32_ps(FinishSum(sum, start))};
        if constexpr (kParts == 1) {
          isum = exact;
        } else {
          const Lanes scale = weights.half_scales[part];
          isum = part == 0 ? Multiply(scale, exact) : Fma(scale, exact, isum);
        }
      });
      const Lanes product = Multiply(weights.factor, Set(at.scale[t * groups + g]));
      acc[t] = Fma(product, isum, acc[t]);
      if constexpr (HasMinimum(kFormat)) {
        acc[t] = Fma(weights.minimum, Set(at.scaled_sum[t * groups + g]), acc[t]);
      }
    });
  }
  Unroll<kTileTokens>([&](auto t) __attribute__((always_inline)) { StoreRows(at, t, 0, acc[t]); });
}

// Returns true for formats with four-bit weights and a block for every 32 columns. Unpacking them
// again for every tile of tokens is cheaper than a slab.
constexpr bool IsUnpackedInPlace(WeightFormat format) {
  return BlockLayoutOf(format).words == 4 && BlockLayoutOf(format).groups == 1;
}

// Multiplies more tokens with one or two row groups of a format for which IsUnpackedInPlace is
// true. `sums` is [tokens, kAccStride]. If `ahead` is not null, it points to the following row
// groups, which are prefetched.
template <WeightFormat kFormat, int kTileGroups, int kTileTokens>
void MultiplyNibbles(const MatMulTile& at, float* sums, const std::byte* ahead) {
  constexpr BlockLayout kLayout = BlockLayoutOf(kFormat);
  constexpr ProductKind kKind = ProductKindOf(kFormat);
  constexpr bool kMinimum = kKind.sums == SumKind::kMinimum;
  const __m512i nibble = _mm512_set1_epi8(15);
  const int64_t groups = at.cols / kQuantGroup;
  Lanes acc[kTileGroups][kTileTokens];
  Unroll<kTileGroups * kTileTokens>([&](auto i) __attribute__((always_inline)) {
    acc[i % kTileGroups][i / kTileGroups] = Set(0.0f);
  });
  for (int64_t g = 0; g < groups; ++g) {
    const std::byte* block[kTileGroups];
    for (int r = 0; r < kTileGroups; ++r) {
      block[r] = at.weights + r * at.group_bytes + g * kLayout.bytes();
      if (ahead != nullptr) {
        PrefetchGroup(ahead + r * at.group_bytes + g * kLayout.bytes(), kLayout.bytes());
      }
    }
    ByteSum<kKind> sum[kTileGroups][kTileTokens];
    Unroll<kTileGroups * kTileTokens>([&](auto i) __attribute__((always_inline)) {
      const int t = i / kTileGroups;
      BeginSum(sum[i % kTileGroups][t], StartAt<kKind>(at.start, t * groups + g));
    });
    Unroll<8>([&](auto i) __attribute__((always_inline)) {
      constexpr int kWord = i / 2;  // the low halves of a word, then its high halves
      constexpr bool kHigh = i % 2 == 1;
      __m512i word[kTileGroups];
      Unroll<kTileGroups>([&](auto r) __attribute__((always_inline)) {
        const __m512i both = _mm512_loadu_si512(block[r] + kLayout.WordsAt(0) + 64 * kWord);
        word[r] = _mm512_and_si512(kHigh ? _mm512_srli_epi16(both, 4) : both, nibble);
      });
      Unroll<kTileTokens>([&](auto t) __attribute__((always_inline)) {
        const __m512i a =
            Broadcast4(at.q8 + t * at.cols + g * kQuantGroup + 4 * kWord + (kHigh ? 16 : 0));
        Unroll<kTileGroups>([&](auto r) __attribute__((always_inline)) {
          AddWord<i>(sum[r][t], &word[r], a);
        });
      });
    });
    Lanes factor[kTileGroups];
    Lanes minimum[kTileGroups];
    Unroll<kTileGroups>([&](auto r) __attribute__((always_inline)) {
      factor[r] = LoadHeader(block[r]);
      if constexpr (kMinimum) minimum[r] = LoadHeader(block[r] + 32);
    });
    Unroll<kTileTokens>([&](auto t) __attribute__((always_inline)) {
      const Lanes scale = Set(at.scale[t * groups + g]);
      Unroll<kTileGroups>([&](auto r) __attribute__((always_inline)) {
        const __m512i isum = FinishSum(sum[r][t], StartAt<kKind>(at.start, t * groups + g));
        acc[r][t] = Fma(Multiply(factor[r], scale), {_mm512_cvtepi32_ps(isum)}, acc[r][t]);
        if constexpr (kMinimum) {
          acc[r][t] = Fma(minimum[r], Set(at.scaled_sum[t * groups + g]), acc[r][t]);
        }
      });
    });
  }
  Unroll<kTileGroups * kTileTokens>([&](auto i) __attribute__((always_inline)) {
    const int r = i % kTileGroups;
    const int t = i / kTileGroups;
    Store(sums + t * kAccStride + r * kRowGroup, acc[r][t]);
  });
}

}  // namespace
}  // namespace baton::avx512
