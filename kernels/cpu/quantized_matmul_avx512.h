// Matrix products with quantised weights (NUMERICS §4) on AVX-512: one register is a row group.
//
// With many tokens, a tile has two row groups and six tokens. A broadcast of activations serves two
// products, a register of weights serves six. Twelve sums and twelve accumulators fit the 32
// registers.
//
// matmul_avx512.cc and matmul_avx512_no_vnni.cc include this header after a byte_sums header, which
// defines how bytes are multiplied and added. Everything has internal linkage.
#pragma once

#include <iterator>

#include "kernels/cpu/matmul_in_place_avx512.h"
#include "kernels/cpu/matmul_tiles.h"
#include "kernels/cpu/matmul_unpack_avx512.h"
#include "kernels/cpu/vector_math_avx512.h"
// This must come after the header that defines Lanes.
#include "kernels/cpu/activation_lanes.h"

namespace baton::avx512 {
namespace {

template <ProductKind kKind, int kTileGroups, int kTileTokens>
void MultiplyTile(const SlabTile& at) {
  constexpr int kParts = PartsOf(kKind);
  constexpr int kWords = 8 / kParts;  // of a sum
  Lanes acc[kTileGroups][kTileTokens];
  Unroll<kTileGroups * kTileTokens>([&](auto i) __attribute__((always_inline)) {
    const int r = i % kTileGroups;
    const int t = i / kTileGroups;
    acc[r][t] = Load(at.acc + t * at.acc_stride + r * kRowGroup);
  });
  const std::byte* words = at.slab->words;
  const float* factor = at.slab->factor;
  const float* minimum = at.slab->minimum;
  const float* half_scales = at.slab->half_scales;
  for (int64_t g = 0; g < at.groups; ++g) {
    for (int r = 0; r < kTileGroups; ++r) {
      if (at.ahead[r] != nullptr) PrefetchGroup(at.ahead[r] + g * at.ahead_bytes, at.ahead_bytes);
    }
    Lanes sums[kTileGroups][kTileTokens];  // times the scales of the halves, if there are any
    Unroll<kParts>([&](auto part) __attribute__((always_inline)) {
      const auto start = [&](int t) __attribute__((always_inline)) {
        return StartAt<kKind>(at.start, (t * at.row_stride + g) * kParts + part);
      };
      ByteSum<kKind> sum[kTileGroups][kTileTokens];
      Unroll<kTileGroups * kTileTokens>([&](auto i) __attribute__((always_inline)) {
        BeginSum(sum[i % kTileGroups][i / kTileGroups], start(i / kTileGroups));
      });
      Unroll<kWords>([&](auto j) __attribute__((always_inline)) {
        const int word_index = part * kWords + j;
        __m512i word[kTileGroups][kKind.planes];
        Unroll<kTileGroups * kKind.planes>([&](auto i) __attribute__((always_inline)) {
          word[i % kTileGroups][i / kTileGroups] =
              _mm512_load_si512(words + (word_index * kKind.planes * kTileGroups + i) * 64);
        });
        Unroll<kTileTokens>([&](auto t) __attribute__((always_inline)) {
          const __m512i a =
              Broadcast4(at.q8 + (t * at.row_stride + g) * kQuantGroup + 4 * word_index);
          Unroll<kTileGroups>([&](auto r) __attribute__((always_inline)) {
            AddWord<j>(sum[r][t], word[r], a);
          });
        });
      });
      Unroll<kTileGroups * kTileTokens>([&](auto i) __attribute__((always_inline)) {
        const int r = i % kTileGroups;
        const int t = i / kTileGroups;
        const Lanes exact = {_mm512_cvtepi32_ps(FinishSum(sum[r][t], start(t)))};
        if constexpr (kParts == 1) {
          sums[r][t] = exact;
        } else {
          const Lanes scale = Load(half_scales + (2 * r + part) * kRowGroup);
          sums[r][t] = part == 0 ? Multiply(scale, exact) : Fma(scale, exact, sums[r][t]);
        }
      });
    });
    Unroll<kTileTokens>([&](auto t) __attribute__((always_inline)) {
      const Lanes scale = Set(at.scale[t * at.row_stride + g]);
      Unroll<kTileGroups>([&](auto r) __attribute__((always_inline)) {
        const Lanes product = Multiply(Load(factor + r * kRowGroup), scale);
        acc[r][t] = Fma(product, sums[r][t], acc[r][t]);
        if constexpr (kKind.sums == SumKind::kMinimum) {
          acc[r][t] = Fma(Load(minimum + r * kRowGroup), Set(at.scaled_sum[t * at.row_stride + g]),
                          acc[r][t]);
        }
      });
    });
    words += 8 * kKind.planes * kTileGroups * 64;
    factor += kTileGroups * kRowGroup;
    minimum += kTileGroups * kRowGroup;
    half_scales += kTileGroups * 2 * kRowGroup;
  }
  Unroll<kTileGroups * kTileTokens>([&](auto i) __attribute__((always_inline)) {
    const int r = i % kTileGroups;
    const int t = i / kTileGroups;
    Store(at.acc + t * at.acc_stride + r * kRowGroup, acc[r][t]);
  });
}

template <ProductKind kKind, int kTileGroups, int... kTileTokens>
void ChooseTile(std::integer_sequence<int, kTileTokens...>, int64_t tokens, const SlabTile& at) {
  using Tile = void (*)(const SlabTile&);
  static constexpr Tile kByTokens[] = {MultiplyTile<kKind, kTileGroups, kTileTokens + 1>...};
  kByTokens[tokens - 1](at);
}

template <WeightFormat kFormat, int kTileGroups, int... kTileTokens>
void ChooseInPlace(std::integer_sequence<int, kTileTokens...>, int64_t tokens, const MatMulTile& at,
                   float* sums, const std::byte* ahead) {
  using Tile = void (*)(const MatMulTile&, float*, const std::byte*);
  static constexpr Tile kByTokens[] = {MultiplyNibbles<kFormat, kTileGroups, kTileTokens + 1>...};
  kByTokens[tokens - 1](at, sums, ahead);
}

// Sets start to −bias · Σ a over each group's 32 activations, or over each of its halves. Works on
// eight groups at a time.
template <WeightFormat kFormat>
void FillStartsOf(const int8_t* q8, int64_t groups, int32_t* start) {
  const __m512i by_half = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
  const __m512i by_group = _mm512_set_epi32(0, 0, 0, 0, 0, 0, 0, 0, 11, 3, 10, 2, 9, 1, 8, 0);
  for (int64_t g = 0; g < groups; g += 8) {
    const int64_t bytes = SmallerOf(8, groups - g) * kQuantGroup;
    __m512i four[4];  // sums of four columns: groups 2i and 2i + 1
    for (int i = 0; i < 4; ++i) {
      const int64_t left = bytes - 64 * i;
      const __mmask64 mask = left >= 64 ? ~uint64_t{0} : left > 0 ? 0xffffffffu : 0;
      const __m512i a = _mm512_maskz_loadu_epi8(mask, q8 + g * kQuantGroup + 64 * i);
      four[i] = SumOfFour(a);
    }
    __m512i two[2];
    for (int i = 0; i < 2; ++i) {
      two[i] = _mm512_add_epi32(_mm512_unpacklo_epi32(four[2 * i], four[2 * i + 1]),
                                _mm512_unpackhi_epi32(four[2 * i], four[2 * i + 1]));
    }
    // Order: [first halves of groups 0 2 4 6, second halves, first of 1 3 5 7, second].
    __m512i sums = _mm512_add_epi32(_mm512_unpacklo_epi64(two[0], two[1]),
                                    _mm512_unpackhi_epi64(two[0], two[1]));
    if constexpr (StartsOf(kFormat) == 1) {
      sums = _mm512_add_epi32(sums, _mm512_shuffle_i32x4(sums, sums, 0xb1));
    }
    sums = _mm512_permutexvar_epi32(StartsOf(kFormat) == 1 ? by_group : by_half, sums);
    sums = _mm512_mullo_epi32(sums, _mm512_set1_epi32(-BiasOf(kFormat)));
    const int64_t count = bytes / kQuantGroup * StartsOf(kFormat);
    _mm512_mask_storeu_epi32(start + g * StartsOf(kFormat),
                             static_cast<__mmask16>((1u << count) - 1), sums);
  }
}

struct Product {
  template <WeightFormat kFormat>
  static constexpr int64_t kRowGroups = TileRowGroupsOf(kFormat);
  template <WeightFormat kFormat>
  static constexpr int64_t kFewTokens = FewTokensOf(kFormat);
  template <WeightFormat kFormat>
  static constexpr int64_t kTokens = TileTokensOf(kFormat);

  template <WeightFormat kFormat, int kTileGroups>
  static void Unpack(const std::byte* weights, int64_t group_bytes, int64_t first, int64_t groups,
                     Slab& slab) {
    constexpr BlockLayout kLayout = BlockLayoutOf(kFormat);
    constexpr int kPlanes = ProductKindOf(kFormat).planes;
    static_assert(8 * kPlanes * kTileGroups <= kSlabRegisters);
    for (int r = 0; r < kTileGroups; ++r) {
      for (int64_t g = 0; g < groups; ++g) {
        const std::byte* block = weights + (first + g) / kLayout.groups * kLayout.bytes();
        const WeightGroup<kPlanes> unpacked =
            UnpackGroup<kFormat>(block, (first + g) % kLayout.groups);
        const int64_t at = g * kTileGroups + r;
        Unroll<8 * kPlanes>([&](auto i) __attribute__((always_inline)) {
          _mm512_store_si512(slab.words + ((8 * kPlanes * g + i) * kTileGroups + r) * 64,
                             unpacked.word[i / kPlanes][i % kPlanes]);
        });
        Store(slab.factor + at * kRowGroup, unpacked.factor);
        if constexpr (SumKindOf(kFormat) == SumKind::kMinimum) {
          Store(slab.minimum + at * kRowGroup, unpacked.minimum);
        }
        if constexpr (SumKindOf(kFormat) == SumKind::kHalves) {
          for (int half = 0; half < 2; ++half) {
            Store(slab.half_scales + (2 * at + half) * kRowGroup, unpacked.half_scales[half]);
          }
        }
      }
      weights += group_bytes;
    }
  }

  template <WeightFormat kFormat>
  static constexpr bool kInPlace = IsUnpackedInPlace(kFormat);
  template <WeightFormat kFormat, int kTileGroups>
  static void MultiplyInPlace(int64_t tokens, const MatMulTile& at, float* sums,
                              const std::byte* ahead) {
    ChooseInPlace<kFormat, kTileGroups>(std::make_integer_sequence<int, kTokens<kFormat>>(), tokens,
                                        at, sums, ahead);
  }

  template <WeightFormat kFormat, int kTileGroups>
  static void MultiplySlab(int64_t tokens, const SlabTile& at) {
    ChooseTile<ProductKindOf(kFormat), kTileGroups>(
        std::make_integer_sequence<int, kTokens<kFormat>>(), tokens, at);
  }

  template <WeightFormat kFormat>
  static void MultiplyTokens(int64_t tokens, const MatMulTile& at) {
    using Tile = void (*)(const MatMulTile&);
    static constexpr Tile kByTokens[] = {MultiplyFew<kFormat, 1>, MultiplyFew<kFormat, 2>,
                                         MultiplyFew<kFormat, 3>, MultiplyFew<kFormat, 4>,
                                         MultiplyFew<kFormat, 5>, MultiplyFew<kFormat, 6>,
                                         MultiplyFew<kFormat, 7>, MultiplyFew<kFormat, 8>};
    ForEachTokenTile<std::size(kByTokens)>(tokens, [&](int64_t first, int64_t count) {
      kByTokens[count - 1](FromToken(at, first, StartsOf(kFormat)));
    });
  }

  template <WeightFormat kFormat>
  static void FillStarts(const int8_t* q8, int64_t groups, int32_t* start) {
    FillStartsOf<kFormat>(q8, groups, start);
  }
  static void StoreToken(const MatMulTile& at, int64_t token, int64_t row, const float* acc) {
    StoreRows(at, token, row, Load(acc));
  }
  static void GateToken(const float* gate, const float* up, int64_t rows, const Activations& out) {
    GateRow(gate, up, rows, out);
  }
};

}  // namespace
}  // namespace baton::avx512
