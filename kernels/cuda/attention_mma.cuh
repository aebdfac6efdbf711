// Matrix products of a warpgroup (wgmma) as attention of t1 needs them: a [64, 16] in registers, b
// in shared memory, sums in tiles of 8 columns. Tile n of d has the fragment of m16n8k16
// (kernels/cuda/ptx.cuh). kernels/cuda/hopper.cuh describes descriptors and waits.
//
// Scores: 64 columns; b has k fastest, the keys. Values: 72 or 136 columns, those of a head and 8
// for the sum of the weights; b has its columns fastest. d += a · b, or d = a · b if not
// `accumulate`. Elements of a and b are bf16 if kBF16, else f16.
#pragma once

#include "kernels/cuda/hopper.cuh"

#ifdef __CUDACC__

// An instruction names all its registers, and its text must be a literal. So macros write the
// lists. They end with this file.
#define BATON_REGISTERS_0_31                               \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15," \
  "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define BATON_REGISTERS_36_67                        \
  "%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47," \
  "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,%64,%65,%66,%67"
#define BATON_TILE(n) "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])
#define BATON_8_TILES(n)                                                                     \
  BATON_TILE(n), BATON_TILE(n + 1), BATON_TILE(n + 2), BATON_TILE(n + 3), BATON_TILE(n + 4), \
      BATON_TILE(n + 5), BATON_TILE(n + 6), BATON_TILE(n + 7)
#define BATON_OPERANDS \
  "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(accumulate))
#define BATON_WGMMA(shape, type) "wgmma.mma_async.sync.aligned." shape ".f32." type "." type " {"
#define BATON_SCORES(type)                                                           \
  asm volatile("{.reg .pred p; setp.ne.b32 p,%37,0; " BATON_WGMMA("m64n64k16", type) \
                   BATON_REGISTERS_0_31 "},{%32,%33,%34,%35},%36,p,1,1,0;}"          \
               : BATON_8_TILES(0)                                                    \
               : BATON_OPERANDS)
#define BATON_VALUES_OF_9_TILES(type)                                                       \
  asm volatile("{.reg .pred p; setp.ne.b32 p,%41,0; " BATON_WGMMA("m64n72k16", type)        \
                   BATON_REGISTERS_0_31 ",%32,%33,%34,%35},{%36,%37,%38,%39},%40,p,1,1,1;}" \
               : BATON_8_TILES(0), BATON_TILE(8)                                            \
               : BATON_OPERANDS)
#define BATON_VALUES_OF_17_TILES(type)                                                \
  asm volatile("{.reg .pred p; setp.ne.b32 p,%73,0; " BATON_WGMMA("m64n136k16", type) \
                   BATON_REGISTERS_0_31 ",%32,%33,%34,%35," BATON_REGISTERS_36_67     \
                                        "},{%68,%69,%70,%71},%72,p,1,1,1;}"           \
               : BATON_8_TILES(0), BATON_8_TILES(8), BATON_TILE(16)                   \
               : BATON_OPERANDS)

namespace baton {

template <bool kBF16>
__device__ __forceinline__ void WarpgroupScores(float (&d)[8][4], const unsigned (&a)[4],
                                                uint64_t b, bool accumulate) {
  if constexpr (kBF16) {
    BATON_SCORES("bf16");
  } else {
    BATON_SCORES("f16");
  }
}

template <bool kBF16, int kTiles>
__device__ __forceinline__ void WarpgroupValues(float (&d)[kTiles][4], const unsigned (&a)[4],
                                                uint64_t b, bool accumulate) {
  static_assert(kTiles == 9 || kTiles == 17, "no other shape has its instruction here");
  if constexpr (kTiles == 9 && kBF16) {
    BATON_VALUES_OF_9_TILES("bf16");
  } else if constexpr (kTiles == 9) {
    BATON_VALUES_OF_9_TILES("f16");
  } else if constexpr (kBF16) {
    BATON_VALUES_OF_17_TILES("bf16");
  } else {
    BATON_VALUES_OF_17_TILES("f16");
  }
}

}  // namespace baton

#undef BATON_REGISTERS_0_31
#undef BATON_REGISTERS_36_67
#undef BATON_TILE
#undef BATON_8_TILES
#undef BATON_OPERANDS
#undef BATON_WGMMA
#undef BATON_SCORES
#undef BATON_VALUES_OF_9_TILES
#undef BATON_VALUES_OF_17_TILES

#else
#include <gpu_emulator/attention_language.h>
#endif
