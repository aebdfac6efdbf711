// Parameters of the kernels that copy runs of bytes and compute their checksums.
//
// Thread safety: plain data.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/byte_run.h"

namespace baton {

inline constexpr int kCopyThreads = 256;
// Number of thread blocks that share one run. A piece of a Llama block has 16 to 256 KiB; a whole
// block-major block has a few MiB.
inline constexpr int kCopySlices = 8;
// A slice begins at a multiple of this. In one step of a thread block, each thread takes 16 bytes.
inline constexpr int64_t kCopyStep = 16 * kCopyThreads;
// powers[i] is x^(8 * 2^i) modulo CRC32C's polynomial: the factor that moves a remainder over 2^i
// bytes.
inline constexpr int kCrcPowers = 40;
inline constexpr int kChecksumSharedBytes = 21 << 10;  // of a block that computes checksums

// Number of runs that fit into the parameters of a kernel (4 KiB). A list in the parameters needs
// no memory that outlives the call.
inline constexpr int kListedRuns = 168;
inline constexpr int kCheckedRuns = 160;  // with checksums

struct CopyListParams {
  const std::byte* from;
  std::byte* to;
  int64_t count;
  ByteRun runs[kListedRuns];
};
static_assert(sizeof(CopyListParams) <= 4096);

// Runs of at most kSmallRunBytes, each copied by one block: the inputs of a step.
inline constexpr int64_t kSmallRunBytes = 32 << 10;
inline constexpr int kSmallRuns = 160;

struct SmallRunsParams {
  const std::byte* from;
  std::byte* to;
  ByteRun runs[kSmallRuns];
};
static_assert(sizeof(SmallRunsParams) <= 4096);

inline constexpr int kListedRowRuns = 84;  // the same for rows

struct CopyRowsParams {
  const std::byte* from;
  std::byte* to;
  int64_t count;
  int64_t slices;  // parts of each run, which blocks take in turn
  ByteRows runs[kListedRowRuns];
};
static_assert(sizeof(CopyRowsParams) <= 4096);

struct CheckedListParams {
  const std::byte* from;
  std::byte* to;
  int64_t count;
  uint32_t* parts;  // [count, kCopySlices], of the checksums
  uint32_t powers[kCrcPowers];
  ByteRun runs[kCheckedRuns];
};
static_assert(sizeof(CheckedListParams) <= 4096);

struct JoinChecksumsParams {
  const uint32_t* parts;
  uint32_t* checksums;  // [count]
  int64_t count;
};

}  // namespace baton
