// Prefetching of weights and storing of results for all matrix products on AVX-512.
//
// Everything has internal linkage.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/matmul_tile.h"
#include "kernels/cpu/vector_math_avx512.h"

namespace baton::avx512 {
namespace {

inline constexpr int64_t kPrefetchBytes = 8192;

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

}  // namespace
}  // namespace baton::avx512
