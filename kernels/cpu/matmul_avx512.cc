// NUMERICS §4 on AVX-512: one register is a row group, VPDPBUSD sums four columns at a time.
//
// Unpacked weights of 32 columns (eight registers) are held across a tile of tokens, whose
// activations are broadcast four bytes at a time.
#include "kernels/cpu/matmul_tiles.h"
#include "kernels/cpu/plain_kernels.h"
#include "kernels/cpu/vector_kernels.h"
#include "kernels/cpu/vector_math_avx512.h"

namespace baton::avx512 {
namespace {

inline constexpr int64_t kTokens = 8;     // most tokens of a tile
inline constexpr int64_t kRowGroups = 8;  // row groups of fewer tokens
inline constexpr int64_t kPrefetchBytes = 8192;

inline __m512i Broadcast4(const int8_t* p) {
  int32_t word;
  std::memcpy(&word, p, sizeof(word));
  return _mm512_set1_epi32(word);
}

constexpr int64_t HeaderBytes(WeightFormat format) {
  return format == WeightFormat::kQ4_1 ? 64 : 32;
}
constexpr int64_t BlockBytes(WeightFormat format) {
  return HeaderBytes(format) + (format == WeightFormat::kQ8_0 ? 512 : 256);
}

inline Lanes LoadHeader(const std::byte* p) {
  return LoadF16(reinterpret_cast<const uint16_t*>(p));
}

// word[i]: columns 4i…4i+3 of sixteen rows as unsigned bytes (Q8_0: biased by 128).
template <WeightFormat kFormat>
inline void Unpack(const std::byte* p, __m512i word[8]) {
  if constexpr (kFormat == WeightFormat::kQ8_0) {
    for (int i = 0; i < 8; ++i) {
      word[i] = _mm512_xor_si512(_mm512_loadu_si512(p + 64 * i), _mm512_set1_epi8(-128));
    }
  } else {
    const __m512i nibble = _mm512_set1_epi8(15);
    for (int i = 0; i < 4; ++i) {
      const __m512i both = _mm512_loadu_si512(p + 64 * i);
      word[i] = _mm512_and_si512(both, nibble);
      word[i + 4] = _mm512_and_si512(_mm512_srli_epi16(both, 4), nibble);
    }
  }
}

inline void StoreRows(const MatMulTile& at, int64_t token, int64_t row_group, Lanes acc) {
  float* out = at.out + token * at.out_stride + row_group * kRowGroup;
  const int64_t rows = at.rows - row_group * kRowGroup;
  if (rows >= kRowGroup) {
    Store(out, at.accumulate ? Add(Load(out), acc) : acc);
  } else {
    StoreFirst(out, at.accumulate ? Add(LoadFirst(out, rows), acc) : acc, rows);
  }
}

template <WeightFormat kFormat, int kTileTokens, int kTileGroups>
void QuantizedTile(const MatMulTile& at) {
  constexpr bool kHasMinimum = kFormat == WeightFormat::kQ4_1;
  const int64_t groups = at.cols / kQuantGroup;
  Lanes acc[kTileGroups][kTileTokens];
  for (auto& of_group : acc) {
    for (Lanes& of_token : of_group) of_token = Set(0.0f);
  }
  for (int64_t g = 0; g < groups; ++g) {
    for (int r = 0; r < kTileGroups; ++r) {
      const std::byte* block = at.weights + r * at.group_bytes + g * BlockBytes(kFormat);
      if constexpr (kTileTokens == 1) {
        for (int64_t line = 0; line < BlockBytes(kFormat); line += 64) {
          _mm_prefetch(reinterpret_cast<const char*>(block) + kPrefetchBytes + line, _MM_HINT_T0);
        }
      }
      const Lanes d = LoadHeader(block);
      __m512i word[8];
      Unpack<kFormat>(block + HeaderBytes(kFormat), word);
      Unroll<kTileTokens>([&](int t) __attribute__((always_inline)) {
        const int8_t* a = at.q8 + t * at.cols + g * kQuantGroup;
        __m512i sum =
            kHasMinimum ? _mm512_setzero_si512() : _mm512_set1_epi32(at.start[t * groups + g]);
        for (int i = 0; i < 8; ++i) sum = _mm512_dpbusd_epi32(sum, word[i], Broadcast4(a + 4 * i));
        const Lanes scale = Multiply(d, Set(at.scale[t * groups + g]));
        acc[r][t] = Fma(scale, {_mm512_cvtepi32_ps(sum)}, acc[r][t]);
        if constexpr (kHasMinimum) {
          acc[r][t] = Fma(LoadHeader(block + 32), Set(at.scaled_sum[t * groups + g]), acc[r][t]);
        }
      });
    }
  }
  for (int r = 0; r < kTileGroups; ++r) {
    for (int t = 0; t < kTileTokens; ++t) StoreRows(at, t, r, acc[r][t]);
  }
}

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
    for (int t = 0; t < kTileTokens; ++t) StoreRows(at, t, r, acc[r][t]);
  }
}

// How many row groups a tile of so many tokens takes: float sums need eight or more registers in
// flight to hide the latency of fma.
constexpr int RowGroupsOf(WeightFormat format, int tokens) {
  if (IsFloat(format)) return tokens == 1 ? 8 : tokens <= 3 ? 4 : tokens < kTokens ? 2 : 1;
  return 1;  // one stream from memory is faster than several
}

template <WeightFormat kFormat, int kTileTokens, int kTileGroups>
inline void RunTile(const MatMulTile& at) {
  if constexpr (IsFloat(kFormat)) {
    FloatTile<kFormat, kTileTokens, kTileGroups>(at);
  } else {
    QuantizedTile<kFormat, kTileTokens, kTileGroups>(at);
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
  static constexpr Tiles kByTokens[kTokens] = {
      RunTiles<kFormat, 1>, RunTiles<kFormat, 2>, RunTiles<kFormat, 3>, RunTiles<kFormat, 4>,
      RunTiles<kFormat, 5>, RunTiles<kFormat, 6>, RunTiles<kFormat, 7>, RunTiles<kFormat, 8>};
  kByTokens[tokens - 1](row_groups, at);
}

// start[g] = −bias · Σ a over the group's 32 activations.
void FillStart(int bias, const int8_t* q8, int64_t groups, int32_t* start) {
  for (int64_t g = 0; g < groups; ++g) {
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(q8 + g * kQuantGroup));
    const __m256i four = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), a);
    const __m128i two =
        _mm_add_epi32(_mm256_castsi256_si128(four), _mm256_extracti128_si256(four, 1));
    const __m128i one = _mm_add_epi32(two, _mm_srli_si128(two, 8));
    start[g] = -bias * (_mm_cvtsi128_si32(one) + _mm_extract_epi32(one, 1));
  }
}

}  // namespace

void MatMul(const MatMulArgs& args, int64_t row_begin, int64_t row_end, int64_t token_begin,
            int64_t token_end) {
  if (args.weight.cols > kStartCapacity / kTokens * kQuantGroup) {
    plain::MatMul(args, row_begin, row_end, token_begin, token_end);
    return;
  }
  const auto run = [&](int bias, const auto& tile) {
    ForEachTile<kTokens, kRowGroups>(
        args, row_begin, row_end, token_begin, token_end, bias != 0,
        [bias](const int8_t* q8, int64_t groups, int32_t* start) {
          FillStart(bias, q8, groups, start);
        },
        tile);
  };
  switch (args.weight.format) {
    case WeightFormat::kF32:
      return run(0, ChooseTiles<WeightFormat::kF32>);
    case WeightFormat::kF16:
      return run(0, ChooseTiles<WeightFormat::kF16>);
    case WeightFormat::kBF16:
      return run(0, ChooseTiles<WeightFormat::kBF16>);
    case WeightFormat::kQ8_0:
      return run(128, ChooseTiles<WeightFormat::kQ8_0>);
    case WeightFormat::kQ4_0:
      return run(8, ChooseTiles<WeightFormat::kQ4_0>);
    case WeightFormat::kQ4_1:
      return run(0, ChooseTiles<WeightFormat::kQ4_1>);
  }
}

}  // namespace baton::avx512
