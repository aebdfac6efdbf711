// Parameters of the kernels that measure a GPU's limits (bench/device_limits.cu).
#pragma once

#include <cstddef>
#include <cstdint>

namespace baton {

inline constexpr int kLimitThreads = 256;
inline constexpr int kL2Threads = 1024;
inline constexpr int kWarpSums = 8;         // independent sums of a warp's products
inline constexpr int kWgmmaPeakCols = 256;  // of one wgmma
inline constexpr int kWgmmaPeakSteps = 4;   // wgmmas of one turn
inline constexpr size_t kWgmmaPeakBytes = (64 + kWgmmaPeakCols) * 16 * 2;  // shared memory: a, b
inline constexpr size_t kPrologueBytes = 1024;                             // of the first copy

struct PeakParams {
  const uint32_t* operands;  // [at least 1 << 14], random
  uint32_t* sink;            // [1]; written only if all sums are zero
  int64_t turns;
};

struct L2ReadParams {
  const void* bytes;  // 16-byte aligned; in the second-level cache after the first turn
  int64_t count;      // of 16-byte words; a multiple of 4 · kL2Threads
  int64_t turns;
  uint64_t* clocks;  // [blocks]; of all turns but the first
  uint32_t* sink;    // [1]; written only if all words are zero
};

// Clocks after the begin of a block, and nanoseconds.
struct PrologueTimes {
  uint64_t began_ns, ended_ns;
  uint64_t params;   // the first parameter is in a register
  uint64_t barrier;  // barriers are initialised, and all threads have seen it
  uint64_t load;     // a first load of 16 bytes has come
  uint64_t copy;     // a first copy to shared memory has landed
};

struct PrologueParams {
  const void* bytes;     // kPrologueBytes for each block
  PrologueTimes* times;  // [blocks]
  uint32_t* sink;        // [1]
};

struct EmptyParams {
  int64_t unused;
};

}  // namespace baton
