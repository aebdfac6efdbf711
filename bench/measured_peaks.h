// Measures this machine's peaks of arithmetic for one instruction set and thread count: int8
// multiply-adds and f32 fused multiply-adds. Benchmarks measure them in the same run as the figures
// that they compare with them. bench/read_bandwidth.h measures the peak of memory.
//
// The loops are in assembly. They execute only the measured instruction, on independent registers.
// Callers must check IsSupported first.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "bench/run_times.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/thread_pool.h"

namespace baton {

struct MeasuredPeaks {
  double int8_per_second;  // multiply-adds
  double f32_per_second;   // fused multiply-adds
  // int8 multiply-adds if each group of 32 columns also needs the float sums that NUMERICS §4
  // specifies for a format with a minimum (Q4_1). The sums use the same execution units, so a
  // product kernel cannot be faster than this.
  double product_per_second;
};

inline MeasuredPeaks Best(const MeasuredPeaks& a, const MeasuredPeaks& b) {
  return {.int8_per_second = std::max(a.int8_per_second, b.int8_per_second),
          .f32_per_second = std::max(a.f32_per_second, b.f32_per_second),
          .product_per_second = std::max(a.product_per_second, b.product_per_second)};
}

namespace peaks {

inline constexpr int64_t kRounds = 100'000;
inline constexpr int kInstructions = 12;  // independent ones per round, to hide the latency

// A loop of kInstructions on registers 0–11, with registers 14 and 15 as operands.
#define BATON_PEAK_LOOP(instruction, width)                                                      \
  int64_t rounds = kRounds;                                                                      \
  asm volatile(                                                                                  \
      ".irp r,0,1,2,3,4,5,6,7,8,9,10,11,14,15\n"                                                 \
      "vpxor %%xmm\\r, %%xmm\\r, %%xmm\\r\n.endr\n"                                              \
      "1:\n.irp r,0,1,2,3,4,5,6,7,8,9,10,11\n" instruction " %%" width "15, %%" width            \
      "14, %%" width                                                                             \
      "\\r\n.endr\n"                                                                             \
      "dec %0\njnz 1b\nvzeroupper\n"                                                             \
      : "+r"(rounds)                                                                             \
      :                                                                                          \
      : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
        "xmm11", "xmm14", "xmm15", "cc")

inline int64_t Int8Avx512() {
  BATON_PEAK_LOOP("vpdpbusd", "zmm");
  return kRounds * kInstructions * 64;
}
inline int64_t Int8Avx512NoVnni() {
  BATON_PEAK_LOOP("vpmaddubsw", "zmm");
  return kRounds * kInstructions * 64;
}
inline int64_t Int8Avx2() {
  BATON_PEAK_LOOP("vpmaddubsw", "ymm");
  return kRounds * kInstructions * 32;
}
inline int64_t FmaAvx512() {
  BATON_PEAK_LOOP("vfmadd231ps", "zmm");
  return kRounds * kInstructions * 16;
}
inline int64_t FmaAvx2() {
  BATON_PEAK_LOOP("vfmadd231ps", "ymm");
  return kRounds * kInstructions * 8;
}

#undef BATON_PEAK_LOOP

// A loop of eight groups of 32 columns per round: `products` on registers 0–7, then for each group
// a product of scales, a conversion and two fused multiply-adds, on four accumulators.
#define BATON_PRODUCT_LOOP(products, width)                                                      \
  int64_t rounds = kRounds / 8;                                                                  \
  asm volatile(                                                                                  \
      ".irp r,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n"                                           \
      "vpxor %%xmm\\r, %%xmm\\r, %%xmm\\r\n.endr\n"                                              \
      "1:\n" products                                                                            \
      ".irp r,8,9,10,11,8,9,10,11\n"                                                             \
      "vmulps %%" width "15, %%" width "14, %%" width                                            \
      "12\n"                                                                                     \
      "vcvtdq2ps %%" width "15, %%" width                                                        \
      "13\n"                                                                                     \
      "vfmadd231ps %%" width "13, %%" width "12, %%" width                                       \
      "\\r\n"                                                                                    \
      "vfmadd231ps %%" width "15, %%" width "14, %%" width                                       \
      "\\r\n.endr\n"                                                                             \
      "dec %0\njnz 1b\nvzeroupper\n"                                                             \
      : "+r"(rounds)                                                                             \
      :                                                                                          \
      : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
        "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "cc")

inline int64_t ProductAvx512() {
  BATON_PRODUCT_LOOP(
      ".rept 8\n.irp r,0,1,2,3,4,5,6,7\nvpdpbusd %%zmm15, %%zmm14, %%zmm\\r\n.endr\n.endr\n",
      "zmm");
  return kRounds / 8 * 8 * 8 * 64;
}
// Adds eight products in 16 bits, then pairs of these sums in 32 bits.
#define BATON_ADDED_PRODUCTS(width)                                                        \
  ".rept 8\n.irp r,0,1,2,3,4,5,6,7\n"                                                      \
  "vpmaddubsw %%" width "15, %%" width "14, %%" width "12\nvpaddw %%" width "12, %%" width \
  "\\r, %%" width                                                                          \
  "\\r\n.endr\n.endr\n"                                                                    \
  ".irp r,0,1,2,3,4,5,6,7\nvpmaddwd %%" width "15, %%" width "\\r, %%" width "12\n.endr\n"
inline int64_t ProductAvx512NoVnni() {
  BATON_PRODUCT_LOOP(BATON_ADDED_PRODUCTS("zmm"), "zmm");
  return kRounds / 8 * 8 * 8 * 64;
}
inline int64_t ProductAvx2() {
  BATON_PRODUCT_LOOP(BATON_ADDED_PRODUCTS("ymm"), "ymm");
  return kRounds / 8 * 8 * 8 * 32;
}

#undef BATON_ADDED_PRODUCTS
#undef BATON_PRODUCT_LOOP

struct Loops {
  int64_t (*int8)();
  int64_t (*fma)();
  int64_t (*product)();
};
// The plain set is compared with AVX2's peaks.
inline Loops LoopsOf(InstructionSet set) {
  switch (set) {
    case InstructionSet::kAvx512:
      return {Int8Avx512, FmaAvx512, ProductAvx512};
    case InstructionSet::kAvx512NoVnni:
      return {Int8Avx512NoVnni, FmaAvx512, ProductAvx512NoVnni};
    default:
      return {Int8Avx2, FmaAvx2, ProductAvx2};
  }
}

// Returns operations per second of all threads together.
template <typename Loop>
double Rate(ThreadPool& pool, const Loop& loop) {
  std::atomic<int64_t> operations{0};
  const double seconds = BestSeconds(
      [&] {
        operations = 0;
        pool.ParallelFor(4 * pool.threads(), [&](int64_t, int) { operations += loop(); });
      },
      0.1);
  return static_cast<double>(operations) / seconds;
}

}  // namespace peaks

inline MeasuredPeaks MeasurePeaks(InstructionSet set, int threads) {
  ThreadPool pool(threads);
  const peaks::Loops loops = peaks::LoopsOf(set);
  return {.int8_per_second = peaks::Rate(pool, loops.int8),
          .f32_per_second = peaks::Rate(pool, loops.fma),
          .product_per_second = peaks::Rate(pool, loops.product)};
}

}  // namespace baton
