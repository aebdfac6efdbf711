// Matrix products (NUMERICS §4) on AVX2: two registers are a row group.
//
// Weights are unsigned (q + bias). VPMADDUBSW multiplies them with broadcast activations and adds
// in int16 as long as that is exact. VPMADDWD then adds in int32. One broadcast serves both
// registers of a row group.
#include "kernels/cpu/matmul_tiles.h"
#include "kernels/cpu/matmul_unpack_avx2.h"
#include "kernels/cpu/vector_kernels.h"
#include "kernels/cpu/vector_math_avx2.h"
// This must come after the header that defines Lanes.
#include "kernels/cpu/activation_lanes.h"

namespace baton::avx2 {
namespace {

inline constexpr int64_t kPrefetchBytes = 8192;

inline __m256i Broadcast4(const void* p) {
  int32_t word;
  std::memcpy(&word, p, sizeof(word));
  return _mm256_set1_epi32(word);
}

inline void Prefetch(const std::byte* p, int64_t bytes) {
  for (int64_t line = 0; line < bytes; line += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(p + line), _MM_HINT_T0);
  }
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

inline __m256i SumPairs(__m256i sum) { return _mm256_madd_epi16(sum, _mm256_set1_epi16(1)); }

// Adds the product of 32 columns of eight rows with a token to `acc`.
template <bool kHasMinimum>
inline __m256 AddGroup(__m256 acc, __m256 factor, __m256 minimum, __m256 sum, const float* scale,
                       const float* scaled_sum) {
  const __m256 product = _mm256_mul_ps(factor, _mm256_set1_ps(*scale));
  acc = _mm256_fmadd_ps(product, sum, acc);
  if constexpr (kHasMinimum) acc = _mm256_fmadd_ps(minimum, _mm256_set1_ps(*scaled_sum), acc);
  return acc;
}

// Sets sum[half][t] to the exact sums of 32 columns, of both halves of a row group (kHalves = 2) or
// of one half. word(plane, i, half) returns weights. `q8` and `start` point to the group.
template <WeightFormat kFormat, int kHalves, int kTileTokens, typename Word, typename HalfScale>
[[gnu::always_inline]] inline void SumGroup(const Word& word, const HalfScale& half_scale,
                                            const int8_t* q8, int64_t q8_stride,
                                            const int32_t* start, int64_t start_stride,
                                            __m256 sum[kHalves][kTileTokens]) {
  constexpr int kParts = SumKindOf(kFormat) == SumKind::kHalves ? 2 : 1;
  constexpr int kRun = RunOf(kFormat);
  constexpr int kRuns = 8 / kRun / kParts * PlanesOf(kFormat);  // of one part
  Unroll<kParts>([&](auto part) __attribute__((always_inline)) {
    __m256i isum[kHalves][kTileTokens];
    Unroll<kRuns>([&](auto n) __attribute__((always_inline)) {
      const int plane = PlanesOf(kFormat) == 2 ? n : 0;
      const int first = PlanesOf(kFormat) == 2 ? 0 : part * 8 / kParts + n * kRun;
      __m256i pairs[kHalves][kTileTokens];
      Unroll<kRun>([&](auto j) __attribute__((always_inline)) {
        __m256i w[kHalves];
        for (int h = 0; h < kHalves; ++h) w[h] = word(plane, first + j, h);
        Unroll<kTileTokens>([&](auto t) __attribute__((always_inline)) {
          const __m256i a = Broadcast4(q8 + t * q8_stride + 4 * (first + j));
          for (int h = 0; h < kHalves; ++h) {
            const __m256i product = _mm256_maddubs_epi16(w[h], a);
            pairs[h][t] = j == 0 ? product : _mm256_add_epi16(pairs[h][t], product);
            // Forces the addition here: a compiler that delays the additions spills the products.
            asm volatile("" : "+x"(pairs[h][t]));
          }
        });
      });
      Unroll<kTileTokens * kHalves>([&](auto k) __attribute__((always_inline)) {
        const int t = k / kHalves;
        const int h = k % kHalves;
        __m256i added = SumPairs(pairs[h][t]);
        if (plane == 1) added = _mm256_slli_epi32(added, 4);
        if (n == 0 && BiasOf(kFormat) != 0) {
          isum[h][t] = _mm256_set1_epi32(start[t * start_stride + part]);
        }
        isum[h][t] = n == 0 && BiasOf(kFormat) == 0 ? added : _mm256_add_epi32(isum[h][t], added);
      });
    });
    Unroll<kTileTokens * kHalves>([&](auto k) __attribute__((always_inline)) {
      const int t = k / kHalves;
      const int h = k % kHalves;
      const __m256 exact = _mm256_cvtepi32_ps(isum[h][t]);
      if constexpr (kParts == 1) {
        sum[h][t] = exact;
      } else {
        sum[h][t] = part == 0 ? _mm256_mul_ps(half_scale(part, h), exact)
                              : _mm256_fmadd_ps(half_scale(part, h), exact, sum[h][t]);
      }
    });
  });
}

// The sums stay in memory, because sixteen registers are too few for them.
template <WeightFormat kFormat, int kTileTokens>
void MultiplyTile(const SlabTile& at) {
  constexpr int kWords = 8 * PlanesOf(kFormat);
  constexpr int kStarts = StartsOf(kFormat);
  const Slab& slab = *at.slab;
  for (int64_t g = 0; g < at.groups; ++g) {
    if (at.ahead[0] != nullptr) {
      Prefetch(at.ahead[0] + g * GroupBytes(kFormat), GroupBytes(kFormat));
    }
    const std::byte* words = slab.words + g * kWords * 64;
    const float* half_scales = slab.half_scales + g * 2 * kRowGroup;
    __m256 sum[2][kTileTokens];
    SumGroup<kFormat, 2, kTileTokens>(
        [&](int plane, int i, int half) __attribute__((always_inline)) {
          return LoadBytes(words + (8 * plane + i) * 64 + 32 * half);
        },
        [&](int part, int half) __attribute__((always_inline)) {
          return _mm256_load_ps(half_scales + part * kRowGroup + 8 * half);
        },
        at.q8 + g * kQuantGroup, at.row_stride * kQuantGroup,
        kStarts == 0 ? nullptr : at.start + g * kStarts, at.row_stride * kStarts, sum);
    Unroll<kTileTokens * 2>([&](auto k) __attribute__((always_inline)) {
      const int64_t t = k / 2;
      const int h = k % 2;
      float* acc = at.acc + t * at.acc_stride + 8 * h;
      const int64_t header = g * kRowGroup + 8 * h;
      const int64_t scale = t * at.row_stride + g;
      _mm256_store_ps(acc, AddGroup<HasMinimum(kFormat)>(
                               _mm256_load_ps(acc), _mm256_load_ps(slab.factor + header),
                               _mm256_load_ps(slab.minimum + header), sum[h][t], at.scale + scale,
                               HasMinimum(kFormat) ? at.scaled_sum + scale : nullptr));
    });
  }
}

// Multiplies a few tokens with one row group, in place. One stream of weights is faster than
// several.
template <WeightFormat kFormat, int kTileTokens>
void MultiplyFew(const MatMulTile& at) {
  constexpr BlockLayout kLayout = BlockLayoutOf(kFormat);
  constexpr int kStarts = StartsOf(kFormat);
  const int64_t groups = at.cols / kQuantGroup;
  const std::byte* block = at.weights;
  __m256 acc[2][kTileTokens];
  for (auto& of_half : acc) {
    for (__m256& of_token : of_half) of_token = _mm256_setzero_ps();
  }
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t in_block = g % kLayout.groups;
    Prefetch(block + in_block * GroupBytes(kFormat) + kPrefetchBytes, GroupBytes(kFormat));
    for (int half = 0; half < 2; ++half) {
      const HalfGroup<kFormat> unpacked = UnpackHalf<kFormat>(block, in_block, half);
      __m256 sum[1][kTileTokens];
      SumGroup<kFormat, 1, kTileTokens>(
          [&](int plane, int i, int)
              __attribute__((always_inline)) { return unpacked.word[plane][i]; },
          [&](int part, int) __attribute__((always_inline)) { return unpacked.half_scales[part]; },
          at.q8 + g * kQuantGroup, at.cols, kStarts == 0 ? nullptr : at.start + g * kStarts,
          groups * kStarts, sum);
      Unroll<kTileTokens>([&](auto t) __attribute__((always_inline)) {
        const int64_t scale = t * groups + g;
        acc[half][t] = AddGroup<HasMinimum(kFormat)>(
            acc[half][t], unpacked.factor, unpacked.minimum, sum[0][t], at.scale + scale,
            HasMinimum(kFormat) ? at.scaled_sum + scale : nullptr);
      });
    }
    if (in_block == kLayout.groups - 1) block += kLayout.bytes();
  }
  for (int t = 0; t < kTileTokens; ++t) {
    StoreRows(at, t, 0, acc[0][t]);
    StoreRows(at, t, 8, acc[1][t]);
  }
}

// Sets start to −bias · Σ a over each group's 32 activations, or over each of its halves. Works on
// four groups at a time.
template <WeightFormat kFormat>
void FillStartsOf(const int8_t* q8, int64_t groups, int32_t* start) {
  const __m256i ones = _mm256_set1_epi8(1);
  for (int64_t g = 0; g < groups; g += 4) {
    const int64_t count = SmallerOf(4, groups - g);
    __m256i four[4];  // sums of four columns
    for (int i = 0; i < 4; ++i) {
      const __m256i a = i < count ? LoadBytes(q8 + (g + i) * kQuantGroup) : _mm256_setzero_si256();
      four[i] = SumPairs(_mm256_maddubs_epi16(ones, a));
    }
    const __m256i low = _mm256_hadd_epi32(four[0], four[1]);
    const __m256i high = _mm256_hadd_epi32(four[2], four[3]);
    // Order: [first halves of the four groups, second halves].
    const __m256i sums =
        _mm256_mullo_epi32(_mm256_hadd_epi32(low, high), _mm256_set1_epi32(-BiasOf(kFormat)));
    const __m128i first = _mm256_castsi256_si128(sums);
    const __m128i second = _mm256_extracti128_si256(sums, 1);
    alignas(16) int32_t values[8];
    if constexpr (StartsOf(kFormat) == 2) {
      _mm_store_si128(reinterpret_cast<__m128i*>(values), _mm_unpacklo_epi32(first, second));
      _mm_store_si128(reinterpret_cast<__m128i*>(values + 4), _mm_unpackhi_epi32(first, second));
    } else {
      _mm_store_si128(reinterpret_cast<__m128i*>(values), _mm_add_epi32(first, second));
    }
    std::memcpy(start + g * StartsOf(kFormat), values, 4 * StartsOf(kFormat) * count);
  }
}

struct Product {
  template <WeightFormat kFormat>
  static constexpr int64_t kRowGroups = 1;
  template <WeightFormat kFormat>
  static constexpr int64_t kFewTokens = 2;
  template <WeightFormat kFormat>
  static constexpr int64_t kTokens = RunOf(kFormat) < 8 ? 2 : 4;

  template <WeightFormat kFormat, int kTileGroups>
  static void Unpack(const std::byte* weights, int64_t, int64_t first, int64_t groups, Slab& slab) {
    constexpr BlockLayout kLayout = BlockLayoutOf(kFormat);
    constexpr int kWords = 8 * PlanesOf(kFormat);
    for (int64_t g = 0; g < groups; ++g) {
      const std::byte* block = weights + (first + g) / kLayout.groups * kLayout.bytes();
      for (int half = 0; half < 2; ++half) {
        const HalfGroup<kFormat> unpacked =
            UnpackHalf<kFormat>(block, (first + g) % kLayout.groups, half);
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
            _mm256_store_ps(slab.half_scales + (2 * g + part) * kRowGroup + 8 * half,
                            unpacked.half_scales[part]);
          }
        }
      }
    }
  }

  template <WeightFormat kFormat>
  static constexpr bool kInPlace = false;
  template <WeightFormat kFormat, int kTileGroups>
  static void MultiplySlab(int64_t tokens, const SlabTile& at) {
    using Tile = void (*)(const SlabTile&);
    static constexpr Tile kByTokens[] = {MultiplyTile<kFormat, 1>, MultiplyTile<kFormat, 2>,
                                         MultiplyTile<kFormat, 3>, MultiplyTile<kFormat, 4>};
    kByTokens[tokens - 1](at);
  }

  template <WeightFormat kFormat>
  static void MultiplyTokens(int64_t tokens, const MatMulTile& at) {
    using Tile = void (*)(const MatMulTile&);
    static constexpr Tile kByTokens[] = {MultiplyFew<kFormat, 1>, MultiplyFew<kFormat, 2>};
    kByTokens[tokens - 1](at);
  }

  template <WeightFormat kFormat>
  static void FillStarts(const int8_t* q8, int64_t groups, int32_t* start) {
    FillStartsOf<kFormat>(q8, groups, start);
  }
  static void StoreToken(const MatMulTile& at, int64_t token, int64_t row, const float* acc) {
    StoreRows(at, token, row, _mm256_load_ps(acc));
    StoreRows(at, token, row + 8, _mm256_load_ps(acc + 8));
  }
  static void GateToken(const float* gate, const float* up, int64_t rows, const Activations& out) {
    GateRow(gate, up, rows, out);
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

// Tiles of float weights. Eight or more sums in flight hide the latency of fma. Twelve fit the
// registers.
struct FloatProduct {
  static constexpr int64_t kTokens = 6;
  static constexpr int64_t RowGroups(int64_t tokens) {
    return tokens == 1 ? 4 : tokens == 2 ? 2 : 1;
  }

  template <WeightFormat kFormat, int kTileTokens, int kTileGroups>
  static void Multiply(const MatMulTile& at) {
    constexpr int kHalves = 2 * kTileGroups;
    constexpr int64_t kColumnBytes = kRowGroup * (kFormat == WeightFormat::kF32 ? 4 : 2);
    __m256 acc[kHalves][kTileTokens];
    for (auto& of_half : acc) {
      for (__m256& of_token : of_half) of_token = _mm256_setzero_ps();
    }
    for (int64_t k = 0; k < at.cols; ++k) {
      __m256 w[kHalves];
      Unroll<kHalves>([&](auto h) __attribute__((always_inline)) {
        const std::byte* group = at.weights + h / 2 * at.group_bytes;
        if (h % 2 == 0) Prefetch(group + k * kColumnBytes + kPrefetchBytes, kColumnBytes);
        w[h] = LoadColumn<kFormat>(group, k, h % 2);
      });
      Unroll<kTileTokens>([&](auto t) __attribute__((always_inline)) {
        const __m256 x = _mm256_set1_ps(at.f32[t * at.cols + k]);
        Unroll<kHalves>([&](auto h) __attribute__((always_inline)) {
          acc[h][t] = _mm256_fmadd_ps(w[h], x, acc[h][t]);
        });
      });
    }
    Unroll<kHalves * kTileTokens>([&](auto i) __attribute__((always_inline)) {
      const int h = i % kHalves;
      const int t = i / kHalves;
      StoreRows(at, t, 8 * h, acc[h][t]);
    });
  }
};

}  // namespace

void MatMul(const MatMulArgs& args, int64_t row_begin, int64_t row_end, int64_t token_begin,
            int64_t token_end) {
  const auto multiply = IsQuantized(args.weight.format) ? MultiplyQuantizedUnit<Product>
                                                        : MultiplyFloatUnit<FloatProduct>;
  multiply(args, row_begin, row_end, token_begin, token_end);
}

void GatedMatMul(const MatMulArgs& product, const Activations& out, int64_t row_begin,
                 int64_t row_end, int64_t token_begin, int64_t token_end) {
  MultiplyGatedUnit<Product>(product, out, row_begin, row_end, token_begin, token_end);
}

}  // namespace baton::avx2
