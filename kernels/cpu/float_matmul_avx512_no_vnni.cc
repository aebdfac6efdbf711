// Matrix products with float weights (NUMERICS §4) on AVX-512: one register is a row group. VNNI
// would not help, so this file serves both AVX-512 sets.
#include "kernels/cpu/matmul_lines_avx512.h"
#include "kernels/cpu/matmul_tiles.h"
#include "kernels/cpu/vector_kernels.h"
#include "kernels/cpu/vector_math_avx512.h"

namespace baton::avx512_no_vnni {
namespace {

using avx512::kPrefetchBytes, avx512::Prefetch, avx512::StoreRows;

template <WeightFormat kFormat>
inline Lanes LoadColumn(const std::byte* group, int64_t column) {
  const std::byte* p = group + column * kRowGroup * (kFormat == WeightFormat::kF32 ? 4 : 2);
  if constexpr (kFormat == WeightFormat::kF32) return Load(reinterpret_cast<const float*>(p));
  const auto* halves = reinterpret_cast<const uint16_t*>(p);
  return kFormat == WeightFormat::kF16 ? LoadF16(halves) : LoadBF16(halves);
}

// Tiles of float weights. Enough sums in flight hide the latency of fma, in at most 24 registers.
struct FloatProduct {
  static constexpr int64_t kTokens = 12;
  static constexpr int64_t RowGroups(int64_t tokens) {
    return tokens == 1 ? 8 : tokens <= 4 ? 4 : 2;
  }

  template <WeightFormat kFormat, int kTileTokens, int kTileGroups>
  static void Multiply(const MatMulTile& at) {
    constexpr int64_t kColumnBytes = kRowGroup * (kFormat == WeightFormat::kF32 ? 4 : 2);
    Lanes acc[kTileGroups][kTileTokens];
    for (auto& of_group : acc) {
      for (Lanes& of_token : of_group) of_token = Set(0.0f);
    }
    for (int64_t k = 0; k < at.cols; ++k) {
      Lanes w[kTileGroups];
      Unroll<kTileGroups>([&](auto r) __attribute__((always_inline)) {
        const std::byte* group = at.weights + r * at.group_bytes;
        Prefetch(group + k * kColumnBytes + kPrefetchBytes, kColumnBytes);
        w[r] = LoadColumn<kFormat>(group, k);
      });
      Unroll<kTileTokens>([&](auto t) __attribute__((always_inline)) {
        const Lanes x = Set(at.f32[t * at.cols + k]);
        Unroll<kTileGroups>([&](auto r) __attribute__((always_inline)) {
          acc[r][t] = Fma(w[r], x, acc[r][t]);
        });
      });
    }
    Unroll<kTileGroups * kTileTokens>([&](auto i) __attribute__((always_inline)) {
      const int r = i % kTileGroups;
      const int t = i / kTileGroups;
      StoreRows(at, t, r * kRowGroup, acc[r][t]);
    });
  }
};

}  // namespace

void FloatMatMul(const MatMulArgs& args, int64_t row_begin, int64_t row_end, int64_t token_begin,
                 int64_t token_end) {
  MultiplyFloatUnit<FloatProduct>(args, row_begin, row_end, token_begin, token_end);
}

}  // namespace baton::avx512_no_vnni
