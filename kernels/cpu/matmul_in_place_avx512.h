// Products that unpack quantised weights as they read them (AVX-512). They serve a few tokens of
// any format, and more tokens of formats whose unpacking is cheap.
//
// Only matmul_avx512.cc includes this header. Everything has internal linkage.
#pragma once

#include <cstring>

#include "kernels/cpu/matmul_tiles.h"
#include "kernels/cpu/matmul_unpack_avx512.h"
#include "kernels/cpu/vector_math_avx512.h"

namespace baton::avx512 {
namespace {

inline constexpr int64_t kPrefetchBytes = 8192;

inline __m512i Broadcast4(const int8_t* p) {
  int32_t word;
  std::memcpy(&word, p, sizeof(word));
  return _mm512_set1_epi32(word);
}

inline void StoreRows(const MatMulTile& at, int64_t token, int64_t row, Lanes acc) {
  float* out = at.out + token * at.out_stride + row;
  const int64_t rows = at.rows - row;
  if (rows >= kRowGroup) {
    Store(out, at.accumulate ? Add(Load(out), acc) : acc);
  } else {
    StoreFirst(out, at.accumulate ? Add(LoadFirst(out, rows), acc) : acc, rows);
  }
}

inline void Prefetch(const std::byte* p, int64_t bytes) {
  for (int64_t line = 0; line < bytes; line += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(p + line), _MM_HINT_T0);
  }
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
  constexpr int kParts = StartsOf(kFormat) == 2 ? 2 : 1;
  const int64_t groups = at.cols / kQuantGroup;
  Lanes acc[kTileTokens];
  for (Lanes& of_token : acc) of_token = Set(0.0f);
  const std::byte* block = at.weights;
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t in_block = g % kLayout.groups;
    Prefetch(block + in_block * GroupBytes(kFormat) + kPrefetchBytes, GroupBytes(kFormat));
    const WeightGroup weights = UnpackGroup<kFormat>(block, in_block);
    if (in_block == kLayout.groups - 1) block += kLayout.bytes();
    Unroll<kTileTokens>([&](auto t) __attribute__((always_inline)) {
      const int8_t* a = at.q8 + t * at.cols + g * kQuantGroup;
      __m512i sum[kParts];
      for (int part = 0; part < kParts; ++part) {
        sum[part] = BiasOf(kFormat) == 0
                        ? _mm512_setzero_si512()
                        : _mm512_set1_epi32(at.start[(t * groups + g) * kParts + part]);
      }
      Unroll<8>([&](auto i) __attribute__((always_inline)) {
        const int part = i * kParts / 8;
        sum[part] = _mm512_dpbusd_epi32(sum[part], weights.word[i], Broadcast4(a + 4 * i));
      });
      Lanes isum = {_mm512_cvtepi32_ps(sum[0])};
      if constexpr (kParts == 2) {
        isum = Fma(weights.half_scales[1], {_mm512_cvtepi32_ps(sum[1])},
                   Multiply(weights.half_scales[0], isum));
      }
      const Lanes product = Multiply(weights.factor, Set(at.scale[t * groups + g]));
      acc[t] = Fma(product, isum, acc[t]);
      if constexpr (HasMinimum(kFormat)) {
        acc[t] = Fma(weights.minimum, Set(at.scaled_sum[t * groups + g]), acc[t]);
      }
    });
  }
  Unroll<kTileTokens>([&](auto t) __attribute__((always_inline)) { StoreRows(at, t, 0, acc[t]); });
}

// Returns true for formats with four-bit weights and a block for every 32 columns.
constexpr bool IsUnpackedInPlace(WeightFormat format) {
  return BlockLayoutOf(format).words == 4 && BlockLayoutOf(format).groups == 1;
}

// Multiplies more tokens with one or two row groups of a format for which IsUnpackedInPlace is
// true. Every tile of tokens unpacks the weights again, on pipes that the products leave free.
// `sums` is [tokens, kAccStride]. If `ahead` is not null, it points to the following row groups,
// which are prefetched.
template <WeightFormat kFormat, int kTileGroups, int kTileTokens>
void MultiplyNibbles(const MatMulTile& at, float* sums, const std::byte* ahead) {
  constexpr BlockLayout kLayout = BlockLayoutOf(kFormat);
  constexpr bool kMinimum = SumKindOf(kFormat) == SumKind::kMinimum;
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
    __m512i sum[kTileGroups][kTileTokens];
    Unroll<kTileTokens>([&](auto t) __attribute__((always_inline)) {
      const __m512i start =
          kMinimum ? _mm512_setzero_si512() : _mm512_set1_epi32(at.start[t * groups + g]);
      for (int r = 0; r < kTileGroups; ++r) sum[r][t] = start;
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
          sum[r][t] = _mm512_dpbusd_epi32(sum[r][t], word[r], a);
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
        acc[r][t] = Fma(Multiply(factor[r], scale), {_mm512_cvtepi32_ps(sum[r][t])}, acc[r][t]);
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
