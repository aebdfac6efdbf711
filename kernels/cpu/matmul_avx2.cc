// NUMERICS §4 on AVX2: two registers are a row group.
//
// Weights are unsigned (q + bias), VPMADDUBSW multiplies them by broadcast activations and sums in
// int16 as long as that is exact, then VPMADDWD in int32. A broadcast feeds both registers of a row
// group.
#include "kernels/cpu/matmul_tiles.h"
#include "kernels/cpu/matmul_unpack_avx2.h"
#include "kernels/cpu/plain_kernels.h"
#include "kernels/cpu/vector_kernels.h"
#include "kernels/cpu/vector_math_avx2.h"

namespace baton::avx2 {
namespace {

inline constexpr int64_t kFloatTokens = 4;     // most tokens of a tile of float weights
inline constexpr int64_t kFloatRowGroups = 4;  // row groups of fewer tokens
inline constexpr int64_t kPrefetchBytes = 8192;

inline __m256i Broadcast4(const void* p) {
  int32_t word;
  std::memcpy(&word, p, sizeof(word));
  return _mm256_set1_epi32(word);
}

inline void StoreRows(const MatMulTile& at, int64_t token, int64_t row, __m256 acc) {
  float* out = at.out + token * at.out_stride + row;
  const int64_t rows = at.rows - row;
  if (rows >= 8) {
    _mm256_storeu_ps(out, at.accumulate ? _mm256_add_ps(_mm256_loadu_ps(out), acc) : acc);
    return;
  }
  float values[8];
  _mm256_storeu_ps(values, acc);
  for (int64_t i = 0; i < rows; ++i) out[i] = at.accumulate ? out[i] + values[i] : values[i];
}

// How many VPMADDUBSW an int16 holds: 2 · 128 · (largest q + bias) each.
constexpr int RunOf(WeightFormat format) {
  if (BlockLayoutOf(format).words == 6) return 2;   // 63
  return BlockLayoutOf(format).words == 5 ? 4 : 8;  // 31, 15
}

inline __m256i SumPairs(__m256i sum) { return _mm256_madd_epi16(sum, _mm256_set1_epi16(1)); }

// acc += what 32 columns of eight rows give a token.
template <bool kHasMinimum>
inline __m256 AddGroup(__m256 acc, __m256 factor, __m256 minimum, __m256i isum, const float* scale,
                       const float* scaled_sum) {
  const __m256 product = _mm256_mul_ps(factor, _mm256_set1_ps(*scale));
  acc = _mm256_fmadd_ps(product, _mm256_cvtepi32_ps(isum), acc);
  if constexpr (kHasMinimum) acc = _mm256_fmadd_ps(minimum, _mm256_set1_ps(*scaled_sum), acc);
  return acc;
}

// isum[half][t]: the integer sums of 32 columns, of both halves of a row group (kHalves = 2) or of
// one. word(plane, i, half) are the weights; `q8` and `start` are at the group.
template <WeightFormat kFormat, int kHalves, int kTileTokens, typename Word, typename HalfScale>
[[gnu::always_inline]] inline void SumGroup(const Word& word, const HalfScale& half_scale,
                                            const int8_t* q8, int64_t q8_stride,
                                            const int32_t* start, int64_t start_stride,
                                            __m256i isum[kHalves][kTileTokens]) {
  constexpr int kParts = SumKindOf(kFormat) == SumKind::kHalves ? 2 : 1;
  constexpr int kRun = RunOf(kFormat);
  constexpr int kRuns = 8 / kRun;  // of a plane
  Unroll<PlanesOf(kFormat) * kRuns>([&](auto n) __attribute__((always_inline)) {
    const int plane = n / kRuns;
    const int run = n % kRuns;
    __m256i sum[kHalves][kTileTokens];
    Unroll<kRun>([&](auto j) __attribute__((always_inline)) {
      const int i = run * kRun + j;
      __m256i w[kHalves];
      for (int h = 0; h < kHalves; ++h) w[h] = word(plane, i, h);
      Unroll<kTileTokens>([&](auto t) __attribute__((always_inline)) {
        const __m256i a = Broadcast4(q8 + t * q8_stride + 4 * i);
        for (int h = 0; h < kHalves; ++h) {
          const __m256i product = _mm256_maddubs_epi16(w[h], a);
          sum[h][t] = j == 0 ? product : _mm256_add_epi16(sum[h][t], product);
          // Add now: a compiler that puts the additions off spills the products.
          asm volatile("" : "+x"(sum[h][t]));
        }
      });
    });
    const int part = run * kParts / kRuns;
    const bool begins_part = plane == 0 && run % (kRuns / kParts) == 0;
    Unroll<kTileTokens * kHalves>([&](auto k) __attribute__((always_inline)) {
      const int t = k / kHalves;
      const int h = k % kHalves;
      __m256i pairs = SumPairs(sum[h][t]);
      if (plane == 1) pairs = _mm256_slli_epi32(pairs, 4);
      if (BiasOf(kFormat) != 0 && begins_part) {
        pairs = _mm256_add_epi32(pairs, _mm256_set1_epi32(start[t * start_stride + part]));
      }
      if (kParts == 2) pairs = _mm256_mullo_epi32(pairs, half_scale(part, h));
      isum[h][t] = n == 0 ? pairs : _mm256_add_epi32(isum[h][t], pairs);
    });
  });
}

// The sums stay in memory: sixteen registers have no room for them.
template <WeightFormat kFormat, int kTileTokens>
void MultiplyTile(const SlabTile& at) {
  constexpr int kWords = 8 * PlanesOf(kFormat);
  constexpr int kStarts = StartsOf(kFormat);
  const Slab& slab = *at.slab;
  for (int64_t g = 0; g < at.groups; ++g) {
    const std::byte* words = slab.words + g * kWords * 64;
    const int32_t* half_scales = slab.half_scales + g * 2 * kRowGroup;
    __m256i isum[2][kTileTokens];
    SumGroup<kFormat, 2, kTileTokens>(
        [&](int plane, int i, int half) __attribute__((always_inline)) {
          return LoadBytes(words + (8 * plane + i) * 64 + 32 * half);
        },
        [&](int part, int half) __attribute__((always_inline)) {
          return LoadBytes(half_scales + part * kRowGroup + 8 * half);
        },
        at.q8 + g * kQuantGroup, at.row_stride * kQuantGroup,
        kStarts == 0 ? nullptr : at.start + g * kStarts, at.row_stride * kStarts, isum);
    Unroll<kTileTokens * 2>([&](auto k) __attribute__((always_inline)) {
      const int64_t t = k / 2;
      const int h = k % 2;
      float* acc = at.acc + t * kRowGroup + 8 * h;
      const int64_t header = g * kRowGroup + 8 * h;
      const int64_t scale = t * at.row_stride + g;
      _mm256_store_ps(acc, AddGroup<HasMinimum(kFormat)>(
                               _mm256_load_ps(acc), _mm256_load_ps(slab.factor + header),
                               _mm256_load_ps(slab.minimum + header), isum[h][t], at.scale + scale,
                               HasMinimum(kFormat) ? at.scaled_sum + scale : nullptr));
    });
  }
}

// start = −bias · Σ a over each group's 32 activations, or over each of its halves.
template <WeightFormat kFormat>
void FillStartsOf(const int8_t* q8, int64_t groups, int32_t* start) {
  const __m256i ones = _mm256_set1_epi8(1);
  for (int64_t g = 0; g < groups; ++g) {
    const __m256i four = SumPairs(_mm256_maddubs_epi16(ones, LoadBytes(q8 + g * kQuantGroup)));
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
  static constexpr int64_t kRowGroups = 1;
  template <WeightFormat kFormat>
  static constexpr int64_t kTokens = RunOf(kFormat) < 8 ? 2 : 4;

  template <WeightFormat kFormat, int kTileGroups>
  static void Unpack(const std::byte* weights, int64_t, int64_t first, int64_t groups, Slab& slab) {
    constexpr int kWords = 8 * PlanesOf(kFormat);
    for (int64_t g = 0; g < groups; ++g) {
      Prefetch<kFormat>(weights, first + g);
      for (int half = 0; half < 2; ++half) {
        const HalfGroup<kFormat> unpacked = UnpackHalf<kFormat>(weights, first + g, half);
        std::byte* words = slab.words + g * kWords * 64 + 32 * half;
        Unroll<kWords>([&](auto i) __attribute__((always_inline)) {
          _mm256_store_si256(reinterpret_cast<__m256i*>(words + 64 * i),
                             unpacked.word[i / 8][i % 8]);
        });
        const int64_t at = g * kRowGroup + 8 * half;
        _mm256_store_ps(slab.factor + at, unpacked.factor);
        if constexpr (HasMinimum(kFormat)) _mm256_store_ps(slab.minimum + at, unpacked.minimum);
        if constexpr (StartsOf(kFormat) == 2) {
          for (int part = 0; part < 2; ++part) {
            _mm256_store_si256(reinterpret_cast<__m256i*>(slab.half_scales +
                                                          (2 * g + part) * kRowGroup + 8 * half),
                               unpacked.half_scales[part]);
          }
        }
      }
    }
  }

  template <WeightFormat kFormat, int kTileGroups>
  static void MultiplySlab(int64_t tokens, const SlabTile& at) {
    using Tile = void (*)(const SlabTile&);
    static constexpr Tile kByTokens[] = {MultiplyTile<kFormat, 1>, MultiplyTile<kFormat, 2>,
                                         MultiplyTile<kFormat, 3>, MultiplyTile<kFormat, 4>};
    kByTokens[tokens - 1](at);
  }

  // One token against one row group, straight from memory: one stream is faster than several.
  template <WeightFormat kFormat>
  static void MultiplyToken(const MatMulTile& at) {
    constexpr int kStarts = StartsOf(kFormat);
    __m256 acc[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    for (int64_t g = 0; g < at.cols / kQuantGroup; ++g) {
      Prefetch<kFormat>(at.weights, g);
      for (int half = 0; half < 2; ++half) {
        const HalfGroup<kFormat> unpacked = UnpackHalf<kFormat>(at.weights, g, half);
        __m256i isum[1][1];
        SumGroup<kFormat, 1, 1>(
            [&](int plane, int i, int)
                __attribute__((always_inline)) { return unpacked.word[plane][i]; },
            [&](int part, int)
                __attribute__((always_inline)) { return unpacked.half_scales[part]; },
            at.q8 + g * kQuantGroup, 0, kStarts == 0 ? nullptr : at.start + g * kStarts, 0, isum);
        acc[half] = AddGroup<HasMinimum(kFormat)>(
            acc[half], unpacked.factor, unpacked.minimum, isum[0][0], at.scale + g,
            HasMinimum(kFormat) ? at.scaled_sum + g : nullptr);
      }
    }
    StoreRows(at, 0, 0, acc[0]);
    StoreRows(at, 0, 8, acc[1]);
  }

  template <WeightFormat kFormat>
  static void FillStarts(const int8_t* q8, int64_t groups, int32_t* start) {
    FillStartsOf<kFormat>(q8, groups, start);
  }
  static void StoreToken(const MatMulTile& at, int64_t token, int64_t row, const float* acc) {
    StoreRows(at, token, row, _mm256_load_ps(acc));
    StoreRows(at, token, row + 8, _mm256_load_ps(acc + 8));
  }

 private:
  // Memory is read ahead of the unpacking.
  template <WeightFormat kFormat>
  static void Prefetch(const std::byte* weights, int64_t column_group) {
    constexpr int64_t kBytes = BlockLayoutOf(kFormat).bytes() / BlockLayoutOf(kFormat).groups;
    const char* ahead = reinterpret_cast<const char*>(weights + column_group * kBytes);
    for (int64_t line = 0; line < kBytes; line += 64) {
      _mm_prefetch(ahead + kPrefetchBytes + line, _MM_HINT_T0);
    }
  }
};

template <WeightFormat kFormat>
inline __m256 LoadColumn(const std::byte* group, int64_t column, int half) {
  const std::byte* p = group + column * kRowGroup * (kFormat == WeightFormat::kF32 ? 4 : 2);
  if constexpr (kFormat == WeightFormat::kF32) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(p) + 8 * half);
  }
  const __m128i halves = LoadEight(reinterpret_cast<const uint16_t*>(p) + 8 * half);
  return kFormat == WeightFormat::kF16 ? _mm256_cvtph_ps(halves) : WidenBF16(halves);
}

template <WeightFormat kFormat, int kTileTokens, int kHalves>
inline void FloatTile(const MatMulTile& at) {
  __m256 acc[kHalves][kTileTokens];
  for (auto& of_half : acc) {
    for (__m256& of_token : of_half) of_token = _mm256_setzero_ps();
  }
  for (int64_t k = 0; k < at.cols; ++k) {
    __m256 w[kHalves];
    for (int h = 0; h < kHalves; ++h) {
      w[h] = LoadColumn<kFormat>(at.weights + h / 2 * at.group_bytes, k, h & 1);
    }
    for (int t = 0; t < kTileTokens; ++t) {
      const __m256 x = _mm256_set1_ps(at.f32[t * at.cols + k]);
      for (int h = 0; h < kHalves; ++h) acc[h][t] = _mm256_fmadd_ps(w[h], x, acc[h][t]);
    }
  }
  for (int h = 0; h < kHalves; ++h) {
    for (int t = 0; t < kTileTokens; ++t) StoreRows(at, t, 8 * h, acc[h][t]);
  }
}

// How many row groups a tile of so many tokens takes: float sums need about eight registers in
// flight to hide the latency of fma.
constexpr int RowGroupsOf(int tokens) { return tokens == 1 ? 4 : tokens == 2 ? 2 : 1; }

template <WeightFormat kFormat, int kTileTokens>
void RunFloatTiles(int64_t row_groups, const MatMulTile& at) {
  constexpr int kTileGroups = RowGroupsOf(kTileTokens);
  int64_t first = 0;
  for (; first + kTileGroups <= row_groups; first += kTileGroups) {
    FloatTile<kFormat, kTileTokens, 2 * kTileGroups>(FromRowGroup(at, first));
  }
  for (; first < row_groups; ++first) FloatTile<kFormat, kTileTokens, 2>(FromRowGroup(at, first));
}

template <WeightFormat kFormat>
void ChooseFloatTiles(int64_t tokens, int64_t row_groups, const MatMulTile& at) {
  using Tiles = void (*)(int64_t, const MatMulTile&);
  static constexpr Tiles kByTokens[kFloatTokens] = {
      RunFloatTiles<kFormat, 1>, RunFloatTiles<kFormat, 2>, RunFloatTiles<kFormat, 3>,
      RunFloatTiles<kFormat, 4>};
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

}  // namespace baton::avx2
