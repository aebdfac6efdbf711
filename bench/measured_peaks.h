// Measures this machine's peaks for one instruction set and thread count: int8 multiply-adds, f32
// fused multiply-adds, and bytes read from memory. Benchmarks measure them in the same run as the
// figures that they compare with them.
//
// The loops are in assembly. They execute only the measured instruction, on independent registers.
// Callers must check IsSupported first.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

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
  double bytes_per_second;  // read from memory
};

// Returns the seconds of the fastest of several runs of fn(). All runs together take at least
// `least_s`.
template <typename Function>
double BestSeconds(const Function& fn, double least_s) {
  using Clock = std::chrono::steady_clock;
  double best = 1e9;
  double total = 0;
  for (int run = 0; run < 3 || (total < least_s && run < 10000); ++run) {
    const auto start = Clock::now();
    fn();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    best = std::min(best, seconds);
    total += seconds;
  }
  return best;
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
inline int64_t ProductAvx2() {
  BATON_PRODUCT_LOOP(
      ".rept 8\n.irp r,0,1,2,3,4,5,6,7\n"
      "vpmaddubsw %%ymm15, %%ymm14, %%ymm12\nvpaddw %%ymm12, %%ymm\\r, %%ymm\\r\n.endr\n.endr\n"
      ".irp r,0,1,2,3,4,5,6,7\nvpmaddwd %%ymm15, %%ymm\\r, %%ymm12\n.endr\n",
      "ymm");
  return kRounds / 8 * 8 * 8 * 32;
}

#undef BATON_PRODUCT_LOOP

// Reads all bytes as one stream, which was faster than several on the processors tried. Prefetches
// `ahead` bytes in advance, in addition to the processor's own prefetcher. REQUIRES: bytes is a
// multiple of 256.
inline void ReadAll(const std::byte* data, int64_t bytes, int64_t ahead) {
  const std::byte* end = data + bytes;
  asm volatile(
      "1:\n.irp at,0,64,128,192\nprefetcht0 \\at(%0,%2)\n.endr\n"
      ".irp at,0,32,64,96,128,160,192,224\nvmovdqu \\at(%0), %%ymm0\n.endr\n"
      "add $256, %0\ncmp %1, %0\njb 1b\nvzeroupper\n"
      : "+r"(data)
      : "r"(end), "r"(ahead)
      : "xmm0", "cc", "memory");
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

// Measures all peaks. The bandwidth is that of the best prefetch distance. `memory` should use huge
// pages if the measured program does, and should be about as large as its data: part of a smaller
// buffer stays in the caches. REQUIRES: `bytes` is a multiple of 1 MiB.
inline MeasuredPeaks MeasurePeaks(InstructionSet set, int threads, const std::byte* memory,
                                  int64_t bytes) {
  ThreadPool pool(threads);
  const bool wide = set == InstructionSet::kAvx512;
  MeasuredPeaks result;
  result.int8_per_second = peaks::Rate(pool, wide ? peaks::Int8Avx512 : peaks::Int8Avx2);
  result.f32_per_second = peaks::Rate(pool, wide ? peaks::FmaAvx512 : peaks::FmaAvx2);
  result.product_per_second = peaks::Rate(pool, wide ? peaks::ProductAvx512 : peaks::ProductAvx2);
  const int64_t piece = 1 << 20;
  double seconds = 1e9;
  for (const int64_t ahead : {0, 2048, 4096, 8192, 16384}) {
    const auto read = [&] {
      pool.ParallelFor(bytes / piece, [&](int64_t unit, int) {
        peaks::ReadAll(memory + unit * piece, piece, ahead);
      });
    };
    seconds = std::min(seconds, BestSeconds(read, 0.1));
  }
  result.bytes_per_second = static_cast<double>(bytes) / seconds;
  return result;
}

}  // namespace baton
