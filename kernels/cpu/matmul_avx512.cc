// NUMERICS §4 on AVX-512: one register is a row group, VPDPBUSD sums four columns at a time.
//
// Tiles of two row groups by six tokens: a broadcast of activations feeds two products, a register
// of weights six; twelve sums and twelve accumulators fit the 32 registers.
#include "kernels/cpu/matmul_tiles.h"
#include "kernels/cpu/matmul_unpack_avx512.h"
#include "kernels/cpu/plain_kernels.h"
#include "kernels/cpu/vector_kernels.h"
#include "kernels/cpu/vector_math_avx512.h"

namespace baton::avx512 {
namespace {

inline constexpr int64_t kFloatTokens = 8;     // most tokens of a tile of float weights
inline constexpr int64_t kFloatRowGroups = 8;  // row groups of fewer tokens
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

// Memory is read ahead of the unpacking.
template <WeightFormat kFormat>
[[gnu::always_inline]] inline void PrefetchGroup(const std::byte* weights, int64_t column_group) {
  constexpr int64_t kBytes = BlockLayoutOf(kFormat).bytes() / BlockLayoutOf(kFormat).groups;
  const char* ahead = reinterpret_cast<const char*>(weights + column_group * kBytes);
  for (int64_t line = 0; line < kBytes; line += 64) {
    _mm_prefetch(ahead + kPrefetchBytes + line, _MM_HINT_T0);
  }
}

template <SumKind kKind, int kTileGroups, int kTileTokens>
void MultiplyTile(const SlabTile& at) {
  constexpr int kParts = kKind == SumKind::kHalves ? 2 : 1;
  Lanes acc[kTileGroups][kTileTokens];
  Unroll<kTileGroups * kTileTokens>([&](auto i) __attribute__((always_inline)) {
    acc[i % kTileGroups][i / kTileGroups] = Load(at.acc + i * kRowGroup);
  });
  const std::byte* words = at.slab->words;
  const float* factor = at.slab->factor;
  const float* minimum = at.slab->minimum;
  const int32_t* half_scales = at.slab->half_scales;
  for (int64_t g = 0; g < at.groups; ++g) {
    __m512i sum[kTileGroups][kTileTokens];
    __m512i scaled[kTileGroups][kTileTokens];
    Unroll<kParts>([&](auto part) __attribute__((always_inline)) {
      Unroll<kTileTokens>([&](auto t) __attribute__((always_inline)) {
        const __m512i start =
            kKind == SumKind::kMinimum
                ? _mm512_setzero_si512()
                : _mm512_set1_epi32(at.start[(t * at.row_stride + g) * kParts + part]);
        for (int r = 0; r < kTileGroups; ++r) sum[r][t] = start;
      });
      Unroll<8 / kParts>([&](auto j) __attribute__((always_inline)) {
        const int word_index = part * 8 / kParts + j;
        __m512i word[kTileGroups];
        Unroll<kTileGroups>([&](auto r) __attribute__((always_inline)) {
          word[r] = _mm512_load_si512(words + (word_index * kTileGroups + r) * 64);
        });
        Unroll<kTileTokens>([&](auto t) __attribute__((always_inline)) {
          const __m512i a =
              Broadcast4(at.q8 + (t * at.row_stride + g) * kQuantGroup + 4 * word_index);
          Unroll<kTileGroups>([&](auto r) __attribute__((always_inline)) {
            sum[r][t] = _mm512_dpbusd_epi32(sum[r][t], word[r], a);
          });
        });
      });
      if constexpr (kKind == SumKind::kHalves) {
        Unroll<kTileGroups * kTileTokens>([&](auto i) __attribute__((always_inline)) {
          const int r = i % kTileGroups;
          const int t = i / kTileGroups;
          const __m512i scale = _mm512_load_si512(half_scales + (2 * r + part) * kRowGroup);
          const __m512i product = _mm512_mullo_epi32(sum[r][t], scale);
          scaled[r][t] = part == 0 ? product : _mm512_add_epi32(scaled[r][t], product);
        });
      }
    });
    Unroll<kTileTokens>([&](auto t) __attribute__((always_inline)) {
      const Lanes scale = Set(at.scale[t * at.row_stride + g]);
      Unroll<kTileGroups>([&](auto r) __attribute__((always_inline)) {
        const __m512i isum = kKind == SumKind::kHalves ? scaled[r][t] : sum[r][t];
        const Lanes product = Multiply(Load(factor + r * kRowGroup), scale);
        acc[r][t] = Fma(product, {_mm512_cvtepi32_ps(isum)}, acc[r][t]);
        if constexpr (kKind == SumKind::kMinimum) {
          acc[r][t] = Fma(Load(minimum + r * kRowGroup), Set(at.scaled_sum[t * at.row_stride + g]),
                          acc[r][t]);
        }
      });
    });
    words += 8 * kTileGroups * 64;
    factor += kTileGroups * kRowGroup;
    minimum += kTileGroups * kRowGroup;
    half_scales += kTileGroups * 2 * kRowGroup;
  }
  Unroll<kTileGroups * kTileTokens>([&](auto i) __attribute__((always_inline)) {
    Store(at.acc + i * kRowGroup, acc[i % kTileGroups][i / kTileGroups]);
  });
}

// start = −bias · Σ a over each group's 32 activations, or over each of its halves.
template <WeightFormat kFormat>
void FillStartsOf(const int8_t* q8, int64_t groups, int32_t* start) {
  for (int64_t g = 0; g < groups; ++g) {
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(q8 + g * kQuantGroup));
    const __m256i four = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), a);
    const __m256i two = _mm256_add_epi32(four, _mm256_srli_si256(four, 8));
    const __m256i one = _mm256_add_epi32(two, _mm256_srli_si256(two, 4));
    const int first = _mm256_cvtsi256_si32(one);
    const int second = _mm_cvtsi128_si32(_mm256_extracti128_si256(one, 1));
    if constexpr (StartsOf(kFormat) == 2) {
      start[2 * g] = -BiasOf(kFormat) * first;
      start[2 * g + 1] = -BiasOf(kFormat) * second;
    } else {
      start[g] = -BiasOf(kFormat) * (first + second);
    }
  }
}

struct Product {
  static constexpr int64_t kRowGroups = 2;
  template <WeightFormat kFormat>
  static constexpr int64_t kTokens = SumKindOf(kFormat) == SumKind::kHalves ? 4 : 6;

  template <WeightFormat kFormat, int kTileGroups>
  static void Unpack(const std::byte* weights, int64_t group_bytes, int64_t first, int64_t groups,
                     Slab& slab) {
    for (int r = 0; r < kTileGroups; ++r) {
      for (int64_t g = 0; g < groups; ++g) {
        PrefetchGroup<kFormat>(weights, first + g);
        const WeightGroup unpacked = UnpackGroup<kFormat>(weights, first + g);
        const int64_t at = g * kTileGroups + r;
        Unroll<8>([&](auto i) __attribute__((always_inline)) {
          _mm512_store_si512(slab.words + ((8 * g + i) * kTileGroups + r) * 64, unpacked.word[i]);
        });
        Store(slab.factor + at * kRowGroup, unpacked.factor);
        if constexpr (SumKindOf(kFormat) == SumKind::kMinimum) {
          Store(slab.minimum + at * kRowGroup, unpacked.minimum);
        }
        if constexpr (SumKindOf(kFormat) == SumKind::kHalves) {
          for (int half = 0; half < 2; ++half) {
            _mm512_store_si512(slab.half_scales + (2 * at + half) * kRowGroup,
                               unpacked.half_scales[half]);
          }
        }
      }
      weights += group_bytes;
    }
  }

  template <WeightFormat kFormat, int kTileGroups>
  static void MultiplySlab(int64_t tokens, const SlabTile& at) {
    constexpr SumKind kKind = SumKindOf(kFormat);
    using Tile = void (*)(const SlabTile&);
    static constexpr Tile kByTokens[] = {
        MultiplyTile<kKind, kTileGroups, 1>, MultiplyTile<kKind, kTileGroups, 2>,
        MultiplyTile<kKind, kTileGroups, 3>, MultiplyTile<kKind, kTileGroups, 4>,
        MultiplyTile<kKind, kTileGroups, 5>, MultiplyTile<kKind, kTileGroups, 6>};
    kByTokens[tokens - 1](at);
  }

  // One token against one row group, straight from memory: one stream is faster than several.
  template <WeightFormat kFormat>
  static void MultiplyToken(const MatMulTile& at) {
    constexpr int kParts = StartsOf(kFormat) == 2 ? 2 : 1;
    Lanes acc = Set(0.0f);
    for (int64_t g = 0; g < at.cols / kQuantGroup; ++g) {
      PrefetchGroup<kFormat>(at.weights, g);
      const WeightGroup weights = UnpackGroup<kFormat>(at.weights, g);
      __m512i sum[kParts];
      for (int part = 0; part < kParts; ++part) {
        sum[part] = BiasOf(kFormat) == 0 ? _mm512_setzero_si512()
                                         : _mm512_set1_epi32(at.start[g * kParts + part]);
      }
      Unroll<8>([&](auto i) __attribute__((always_inline)) {
        const int part = i * kParts / 8;
        sum[part] = _mm512_dpbusd_epi32(sum[part], weights.word[i],
                                        Broadcast4(at.q8 + g * kQuantGroup + 4 * i));
      });
      if constexpr (kParts == 2) {
        sum[0] = _mm512_add_epi32(_mm512_mullo_epi32(sum[0], weights.half_scales[0]),
                                  _mm512_mullo_epi32(sum[1], weights.half_scales[1]));
      }
      const Lanes product = Multiply(weights.factor, Set(at.scale[g]));
      acc = Fma(product, {_mm512_cvtepi32_ps(sum[0])}, acc);
      if constexpr (HasMinimum(kFormat)) acc = Fma(weights.minimum, Set(at.scaled_sum[g]), acc);
    }
    StoreRows(at, 0, 0, acc);
  }

  template <WeightFormat kFormat>
  static void FillStarts(const int8_t* q8, int64_t groups, int32_t* start) {
    FillStartsOf<kFormat>(q8, groups, start);
  }
  static void StoreToken(const MatMulTile& at, int64_t token, int64_t row, const float* acc) {
    StoreRows(at, token, row, Load(acc));
  }
};

template <WeightFormat kFormat>
inline Lanes LoadColumn(const std::byte* group, int64_t column) {
  const std::byte* p = group + column * kRowGroup * (kFormat == WeightFormat::kF32 ? 4 : 2);
  if constexpr (kFormat == WeightFormat::kF32) return Load(reinterpret_cast<const float*>(p));
  const auto* halves = reinterpret_cast<const uint16_t*>(p);
  return kFormat == WeightFormat::kF16 ? LoadF16(halves) : LoadBF16(halves);
}

template <WeightFormat kFormat, int kTileTokens, int kTileGroups>
void FloatTile(const MatMulTile& at) {
  Lanes acc[kTileGroups][kTileTokens];
  for (auto& of_group : acc) {
    for (Lanes& of_token : of_group) of_token = Set(0.0f);
  }
  for (int64_t k = 0; k < at.cols; ++k) {
    for (int r = 0; r < kTileGroups; ++r) {
      const Lanes w = LoadColumn<kFormat>(at.weights + r * at.group_bytes, k);
      for (int t = 0; t < kTileTokens; ++t) {
        acc[r][t] = Fma(w, Set(at.f32[t * at.cols + k]), acc[r][t]);
      }
    }
  }
  for (int r = 0; r < kTileGroups; ++r) {
    for (int t = 0; t < kTileTokens; ++t) StoreRows(at, t, r * kRowGroup, acc[r][t]);
  }
}

// How many row groups a tile of so many tokens takes: float sums need eight or more registers in
// flight to hide the latency of fma.
constexpr int RowGroupsOf(int tokens) {
  return tokens == 1 ? 8 : tokens <= 3 ? 4 : tokens < kFloatTokens ? 2 : 1;
}

template <WeightFormat kFormat, int kTileTokens>
void RunFloatTiles(int64_t row_groups, const MatMulTile& at) {
  constexpr int kTileGroups = RowGroupsOf(kTileTokens);
  int64_t first = 0;
  for (; first + kTileGroups <= row_groups; first += kTileGroups) {
    FloatTile<kFormat, kTileTokens, kTileGroups>(FromRowGroup(at, first));
  }
  for (; first < row_groups; ++first) FloatTile<kFormat, kTileTokens, 1>(FromRowGroup(at, first));
}

template <WeightFormat kFormat>
void ChooseFloatTiles(int64_t tokens, int64_t row_groups, const MatMulTile& at) {
  using Tiles = void (*)(int64_t, const MatMulTile&);
  static constexpr Tiles kByTokens[kFloatTokens] = {
      RunFloatTiles<kFormat, 1>, RunFloatTiles<kFormat, 2>, RunFloatTiles<kFormat, 3>,
      RunFloatTiles<kFormat, 4>, RunFloatTiles<kFormat, 5>, RunFloatTiles<kFormat, 6>,
      RunFloatTiles<kFormat, 7>, RunFloatTiles<kFormat, 8>};
  kByTokens[tokens - 1](row_groups, at);
}

template <WeightFormat kFormat>
void Run(const MatMulArgs& args, int64_t row_begin, int64_t row_end, int64_t token_begin,
         int64_t token_end) {
  if constexpr (!IsQuantized(kFormat)) {
    ForEachFloatTile<kFloatTokens, kFloatRowGroups>(args, row_begin, row_end, token_begin,
                                                    token_end, ChooseFloatTiles<kFormat>);
  } else if (args.weight.cols > MostColumns<kFormat>()) {
    plain::MatMul(args, row_begin, row_end, token_begin, token_end);
  } else {
    MultiplyQuantized<kFormat, Product>(args, row_begin, row_end, token_begin, token_end);
  }
}

}  // namespace

void MatMul(const MatMulArgs& args, int64_t row_begin, int64_t row_end, int64_t token_begin,
            int64_t token_end) {
  RunFormat(args.weight.format, [&](auto format) {
    Run<decltype(format)::value>(args, row_begin, row_end, token_begin, token_end);
  });
}

}  // namespace baton::avx512
