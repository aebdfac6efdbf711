// Measures reads of random cache lines in a buffer of a given size: lines per second if the reads
// are independent, and seconds per read if each waits for the one before.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <random>
#include <utility>
#include <vector>

#include "cache/index/reserved_memory.h"
#include "common/check.h"

namespace baton {

struct RandomAccess {
  double lines_per_s;      // independent reads
  double lines_per_cpu_s;  // the same by the thread's CPU time, without pauses of the thread
  double line_s;           // seconds of a read that waits for the one before
};

inline double ThreadCpuSeconds() {
  timespec time;
  CHECK_EQ(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time), 0);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

inline RandomAccess MeasureRandomAccess(size_t bytes, uint64_t seed) {
  using Clock = std::chrono::steady_clock;
  constexpr size_t kWordsPerLine = 8;
  const size_t lines = std::max<size_t>(bytes / 64, 1024);
  // Allocated like the index, so it has huge pages if the index has them.
  const ReservedMemory memory(std::max<size_t>(lines * 64, size_t{16} << 20));
  uint64_t* const words = memory.words();
  // Links all lines into one random cycle (Sattolo's algorithm).
  std::mt19937_64 random(seed);
  for (size_t i = 0; i < lines; ++i) words[i * kWordsPerLine] = i;
  for (size_t i = lines - 1; i > 0; --i) {
    std::swap(words[i * kWordsPerLine], words[random() % i * kWordsPerLine]);
  }
  const size_t reads = std::max<size_t>(lines, 1 << 20);
  RandomAccess best{.lines_per_s = 0, .lines_per_cpu_s = 0, .line_s = 1};
  volatile uint64_t sink = 0;
  for (int run = 0; run < 3; ++run) {
    auto start = Clock::now();
    const double cpu_start = ThreadCpuSeconds();
    uint64_t sum = 0;
    uint64_t state = seed;
    for (size_t i = 0; i < reads; ++i) {
      state = state * 6364136223846793005 + 1442695040888963407;
      sum += words[((state >> 32) * lines >> 32) * kWordsPerLine];
    }
    sink = sink + sum;
    double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    const double cpu_s = ThreadCpuSeconds() - cpu_start;
    best.lines_per_s = std::max(best.lines_per_s, static_cast<double>(reads) / seconds);
    best.lines_per_cpu_s = std::max(best.lines_per_cpu_s, static_cast<double>(reads) / cpu_s);
    start = Clock::now();
    uint64_t at = 0;
    for (size_t i = 0; i < reads; ++i) at = words[at * kWordsPerLine];
    sink = sink + at;
    seconds = std::chrono::duration<double>(Clock::now() - start).count();
    best.line_s = std::min(best.line_s, seconds / static_cast<double>(reads));
  }
  return best;
}

}  // namespace baton
