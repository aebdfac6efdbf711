// NUMERICS §4 on AVX2: two registers are a row group.
//
// 4-bit weights stay unsigned: VPMADDUBSW against broadcast activations, eight times in int16
// (15 · 128 · 2 · 8 = 30720 fits) before one VPMADDWD. int8 weights are widened to int16 first,
// even and odd columns apart, because an int16 sum of two of their products can overflow.
#include "kernels/cpu/matmul_tiles.h"
#include "kernels/cpu/plain_kernels.h"
#include "kernels/cpu/vector_kernels.h"
#include "kernels/cpu/vector_math_avx2.h"

namespace baton::avx2 {
namespace {

inline constexpr int64_t kTokens = 4;     // most tokens of a tile
inline constexpr int64_t kRowGroups = 4;  // row groups of fewer tokens
inline constexpr int64_t kPrefetchBytes = 8192;

inline __m256i LoadBytes(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
inline __m256i Broadcast4(const void* p) {
  int32_t word;
  std::memcpy(&word, p, sizeof(word));
  return _mm256_set1_epi32(word);
}

constexpr int64_t HeaderBytes(WeightFormat format) {
  return format == WeightFormat::kQ4_1 ? 64 : 32;
}
constexpr int64_t BlockBytes(WeightFormat format) {
  return HeaderBytes(format) + (format == WeightFormat::kQ8_0 ? 512 : 256);
}

// Eight of the sixteen rows: `half` is 0 or 1.
inline __m256 LoadHeader(const std::byte* p, int half) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16 * half)));
}

// sum[t] += eight rows of four-bit weights times the activations of kTileTokens tokens, in int16.
// Low nibbles (columns 0…15) first, then high ones: four registers of weights at a time leave room
// for the sums.
template <int kTileTokens>
[[gnu::always_inline]] inline void SumNibbles(const std::byte* words, int half, const int8_t* q8,
                                              int64_t stride, __m256i sum[kTileTokens]) {
  const __m256i nibble = _mm256_set1_epi8(15);
  for (int high = 0; high < 2; ++high) {
    __m256i word[4];
    for (int i = 0; i < 4; ++i) {
      const __m256i both = LoadBytes(words + 64 * i + 32 * half);
      word[i] = _mm256_and_si256(high == 0 ? both : _mm256_srli_epi16(both, 4), nibble);
    }
    Unroll<kTileTokens>([&](int t) __attribute__((always_inline)) {
      const int8_t* a = q8 + t * stride + 16 * high;
      for (int i = 0; i < 4; ++i) {
        const __m256i product = _mm256_maddubs_epi16(word[i], Broadcast4(a + 4 * i));
        sum[t] = high == 0 && i == 0 ? product : _mm256_add_epi16(sum[t], product);
      }
      // Add now: a compiler that puts the additions off spills the products.
      asm volatile("" : "+x"(sum[t]));
    });
  }
}

// Bytes as int16: even ones, then odd ones, so that a 32-bit lane holds bytes (0, 2) and (1, 3).
inline __m256i EvenBytes(__m256i bytes) {
  return _mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8);
}
inline __m256i OddBytes(__m256i bytes) { return _mm256_srai_epi16(bytes, 8); }

struct WideActivations {
  alignas(32) int16_t even[16];
  alignas(32) int16_t odd[16];
};

// Adds columns 4i…4i+3 of eight int8 rows.
inline __m256i AddInt8(__m256i sum, __m256i even, __m256i odd, const WideActivations& a, int i) {
  sum = _mm256_add_epi32(sum, _mm256_madd_epi16(even, Broadcast4(a.even + 2 * i)));
  return _mm256_add_epi32(sum, _mm256_madd_epi16(odd, Broadcast4(a.odd + 2 * i)));
}

template <int kTileTokens>
inline void SumInt8(const std::byte* words, int half, const WideActivations* a,
                    __m256i sum[kTileTokens]) {
  for (int t = 0; t < kTileTokens; ++t) sum[t] = _mm256_setzero_si256();
  for (int i = 0; i < 8; ++i) {
    const __m256i bytes = LoadBytes(words + 64 * i + 32 * half);
    const __m256i even = EvenBytes(bytes);
    const __m256i odd = OddBytes(bytes);
    for (int t = 0; t < kTileTokens; ++t) {
      sum[t] = AddInt8(sum[t], even, odd, a[t], i);
      asm volatile("" : "+x"(sum[t]));  // as above
    }
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

// acc += what 32 columns of eight rows give a token (NUMERICS §4).
template <bool kHasMinimum>
inline __m256 AddGroup(__m256 acc, __m256 d, __m256 m, __m256i sum, const MatMulTile& at,
                       int64_t at_group) {
  const __m256 scale = _mm256_mul_ps(d, _mm256_set1_ps(at.scale[at_group]));
  acc = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(sum), acc);
  if constexpr (kHasMinimum) {
    acc = _mm256_fmadd_ps(m, _mm256_set1_ps(at.scaled_sum[at_group]), acc);
  }
  return acc;
}

// kHalves of eight rows, from half `first` on.
template <WeightFormat kFormat, int kTileTokens, int kHalves>
inline void QuantizedTile(const MatMulTile& at, int first) {
  constexpr bool kHasMinimum = kFormat == WeightFormat::kQ4_1;
  const int64_t groups = at.cols / kQuantGroup;
  __m256 acc[kHalves][kTileTokens];
  for (auto& of_half : acc) {
    for (__m256& of_token : of_half) of_token = _mm256_setzero_ps();
  }
  for (int64_t g = 0; g < groups; ++g) {
    WideActivations wide[kTileTokens];
    if constexpr (kFormat == WeightFormat::kQ8_0) {
      for (int t = 0; t < kTileTokens; ++t) {
        const __m256i a = LoadBytes(at.q8 + t * at.cols + g * kQuantGroup);
        _mm256_store_si256(reinterpret_cast<__m256i*>(wide[t].even), EvenBytes(a));
        _mm256_store_si256(reinterpret_cast<__m256i*>(wide[t].odd), OddBytes(a));
      }
    }
    for (int h = 0; h < kHalves; ++h) {
      const int half = (first + h) & 1;
      const std::byte* block =
          at.weights + (first + h) / 2 * at.group_bytes + g * BlockBytes(kFormat);
      if constexpr (kTileTokens == 1) {
        for (int64_t line = 64 * half; line < BlockBytes(kFormat); line += 128) {
          _mm_prefetch(reinterpret_cast<const char*>(block) + kPrefetchBytes + line, _MM_HINT_T0);
        }
      }
      const std::byte* words = block + HeaderBytes(kFormat);
      if constexpr (kFormat == WeightFormat::kQ8_0) {
        __m256i sum[kTileTokens];
        SumInt8<kTileTokens>(words, half, wide, sum);
        const __m256 d = LoadHeader(block, half);
        for (int t = 0; t < kTileTokens; ++t) {
          acc[h][t] = AddGroup<false>(acc[h][t], d, d, sum[t], at, t * groups + g);
        }
      } else {
        __m256i pairs[kTileTokens];
        SumNibbles<kTileTokens>(words, half, at.q8 + g * kQuantGroup, at.cols, pairs);
        const __m256 d = LoadHeader(block, half);
        const __m256 m = kHasMinimum ? LoadHeader(block + 32, half) : d;
        Unroll<kTileTokens>([&](int t) __attribute__((always_inline)) {
          __m256i sum = _mm256_madd_epi16(pairs[t], _mm256_set1_epi16(1));
          if constexpr (!kHasMinimum) {
            sum = _mm256_add_epi32(sum, _mm256_set1_epi32(at.start[t * groups + g]));
          }
          acc[h][t] = AddGroup<kHasMinimum>(acc[h][t], d, m, sum, at, t * groups + g);
        });
      }
    }
  }
  for (int h = 0; h < kHalves; ++h) {
    for (int t = 0; t < kTileTokens; ++t) StoreRows(at, t, 8 * (first + h), acc[h][t]);
  }
}

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
constexpr int RowGroupsOf(WeightFormat format, int tokens) {
  if (IsFloat(format)) return tokens == 1 ? 4 : tokens == 2 ? 2 : 1;
  return 1;  // one stream from memory is faster than several
}

// Quantised products of more than one token take eight rows at a time, whose unpacked weights fit
// the registers.
template <WeightFormat kFormat, int kTileTokens, int kTileGroups>
inline void RunTile(const MatMulTile& at) {
  if constexpr (IsFloat(kFormat)) {
    FloatTile<kFormat, kTileTokens, 2 * kTileGroups>(at);
  } else if constexpr (kTileTokens == 1) {
    QuantizedTile<kFormat, 1, 2 * kTileGroups>(at, 0);
  } else {
    QuantizedTile<kFormat, kTileTokens, 1>(at, 0);
    QuantizedTile<kFormat, kTileTokens, 1>(at, 1);
  }
}

template <WeightFormat kFormat, int kTileTokens>
void RunTiles(int64_t row_groups, const MatMulTile& at) {
  constexpr int kTileGroups = RowGroupsOf(kFormat, kTileTokens);
  int64_t first = 0;
  for (; first + kTileGroups <= row_groups; first += kTileGroups) {
    RunTile<kFormat, kTileTokens, kTileGroups>(FromRowGroup(at, first));
  }
  for (; first < row_groups; ++first) RunTile<kFormat, kTileTokens, 1>(FromRowGroup(at, first));
}

template <WeightFormat kFormat>
void ChooseTiles(int64_t tokens, int64_t row_groups, const MatMulTile& at) {
  using Tiles = void (*)(int64_t, const MatMulTile&);
  static constexpr Tiles kByTokens[kTokens] = {RunTiles<kFormat, 1>, RunTiles<kFormat, 2>,
                                               RunTiles<kFormat, 3>, RunTiles<kFormat, 4>};
  kByTokens[tokens - 1](row_groups, at);
}

// start[g] = −8 · Σ a over the group's 32 activations.
void FillStart(const int8_t* q8, int64_t groups, int32_t* start) {
  const __m256i ones = _mm256_set1_epi8(1);
  for (int64_t g = 0; g < groups; ++g) {
    const __m256i pairs = _mm256_maddubs_epi16(ones, LoadBytes(q8 + g * kQuantGroup));
    const __m256i four = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    const __m128i two =
        _mm_add_epi32(_mm256_castsi256_si128(four), _mm256_extracti128_si256(four, 1));
    const __m128i one = _mm_add_epi32(two, _mm_srli_si128(two, 8));
    start[g] = -8 * (_mm_cvtsi128_si32(one) + _mm_extract_epi32(one, 1));
  }
}

}  // namespace

void MatMul(const MatMulArgs& args, int64_t row_begin, int64_t row_end, int64_t token_begin,
            int64_t token_end) {
  const bool wants_start = args.weight.format == WeightFormat::kQ4_0;
  if (wants_start && args.weight.cols > kStartCapacity / kTokens * kQuantGroup) {
    plain::MatMul(args, row_begin, row_end, token_begin, token_end);
    return;
  }
  const auto run = [&](const auto& tile) {
    ForEachTile<kTokens, kRowGroups>(args, row_begin, row_end, token_begin, token_end, wants_start,
                                     FillStart, tile);
  };
  switch (args.weight.format) {
    case WeightFormat::kF32:
      return run(ChooseTiles<WeightFormat::kF32>);
    case WeightFormat::kF16:
      return run(ChooseTiles<WeightFormat::kF16>);
    case WeightFormat::kBF16:
      return run(ChooseTiles<WeightFormat::kBF16>);
    case WeightFormat::kQ8_0:
      return run(ChooseTiles<WeightFormat::kQ8_0>);
    case WeightFormat::kQ4_0:
      return run(ChooseTiles<WeightFormat::kQ4_0>);
    case WeightFormat::kQ4_1:
      return run(ChooseTiles<WeightFormat::kQ4_1>);
  }
}

}  // namespace baton::avx2
