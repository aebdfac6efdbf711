// Copies runs of bytes inside device memory, and computes the CRC32C of each run on the way.
//
// Every source byte is read once, and the checksum is that of the stored bytes. The inputs of a
// step have a kernel of their own, because latency limits them: one block for each run.
//
// Predicted limits: without checksums, memory. With them, shared memory: 20 table look-ups of a
// warp move 512 bytes, at some three cycles each for their bank conflicts. That is about 8 bytes in
// a cycle for each multiprocessor, 1.8 TB/s for 132 of them.
#include "kernels/cuda/copy_params.h"
#include "kernels/cuda/crc32c.cuh"
#include "kernels/cuda/device_code.cuh"
#include "kernels/cuda/kernel_order.cuh"

namespace baton::copy_runs {
namespace {

__device__ bool AreAligned(const void* a, const void* b) {
  return ((reinterpret_cast<uintptr_t>(a) | reinterpret_cast<uintptr_t>(b)) % 16) == 0;
}

__device__ uint4 LoadPiece(const std::byte* from, bool aligned) {
  if (aligned) return *reinterpret_cast<const uint4*>(from);
  uint32_t words[4] = {};
  for (int i = 0; i < 16; ++i) words[i / 4] |= static_cast<uint32_t>(from[i]) << (8 * (i % 4));
  return make_uint4(words[0], words[1], words[2], words[3]);
}

__device__ void StorePiece(std::byte* to, const uint4& piece, bool aligned) {
  if (aligned) {
    *reinterpret_cast<uint4*>(to) = piece;
    return;
  }
  const uint32_t words[4] = {piece.x, piece.y, piece.z, piece.w};
  for (int i = 0; i < 16; ++i) {
    to[i] = static_cast<std::byte>(words[i / 4] >> (8 * (i % 4)) & 0xff);
  }
}

// Copies `bytes` bytes. Returns in thread 0 their remainder, if kChecks.
template <bool kChecks, typename Params>
__device__ uint32_t CopySlice(const Params& p, crc::CrcShared& shared, const std::byte* from,
                              std::byte* to, int64_t bytes) {
  const bool aligned = AreAligned(from, to);
  const int64_t pieces = bytes / crc::kPiece;
  const int64_t rows = (pieces + kCopyThreads - 1) / kCopyThreads;
  // The first row begins with absent pieces, so that the last one ends with the last piece.
  int64_t piece = static_cast<int64_t>(threadIdx.x) - (rows * kCopyThreads - pieces);
  uint32_t remainder = 0;
#pragma unroll 4
  for (int64_t row = 0; row < rows; ++row, piece += kCopyThreads) {
    if (piece < 0) continue;
    const uint4 value = LoadPiece(from + piece * crc::kPiece, aligned);
    StorePiece(to + piece * crc::kPiece, value, aligned);
    if (kChecks) remainder = crc::AddPiece(shared, remainder, value);
  }
  if constexpr (kChecks) remainder = crc::JoinThreads(shared, remainder, p.powers);
  if (threadIdx.x == 0) {
    for (int64_t i = pieces * crc::kPiece; i < bytes; ++i) {
      const std::byte value = from[i];
      to[i] = value;
      if (kChecks) remainder = crc::AddByte(shared, remainder, static_cast<uint32_t>(value));
    }
  }
  return remainder;
}

// Items are slices of runs; blocks take them in turn.
template <bool kChecks, typename Params>
__device__ void CopyRuns(const Params& p) {
  BeginKernel();
  crc::CrcShared& shared = *SharedMemory<crc::CrcShared>();
  if constexpr (kChecks) crc::MakeTables(shared, p.powers);
  for (int64_t item = blockIdx.x; item < p.count * kCopySlices; item += gridDim.x) {
    const ByteRun run = p.runs[item / kCopySlices];
    const int64_t slice = item % kCopySlices;
    const int64_t steps = (run.bytes + kCopyStep - 1) / kCopyStep;
    const int64_t slice_bytes = (steps + kCopySlices - 1) / kCopySlices * kCopyStep;
    int64_t begin = slice * slice_bytes;
    begin = begin < run.bytes ? begin : run.bytes;
    int64_t end = begin + slice_bytes;
    end = end < run.bytes ? end : run.bytes;
    [[maybe_unused]] uint32_t remainder = CopySlice<kChecks>(p, shared, p.from + run.from + begin,
                                                             p.to + run.to + begin, end - begin);
    if constexpr (kChecks) {
      if (threadIdx.x != 0) continue;
      remainder = crc::Move(remainder, run.bytes - end, p.powers);
      // CRC32C begins with all bits set: they are moved over the whole run.
      if (slice == 0) remainder ^= crc::Move(0xffffffffu, run.bytes, p.powers);
      p.parts[item] = remainder;
    }
  }
}

// Copies values of type T from byte `begin` on, and returns the byte behind them.
template <typename T>
__device__ int CopyValues(std::byte* to, const std::byte* from, int begin, int bytes) {
  constexpr int kBytes = static_cast<int>(sizeof(T));
  const int end = begin + (bytes - begin) / kBytes * kBytes;
  for (int at = begin + static_cast<int>(threadIdx.x) * kBytes; at < end;
       at += kCopyThreads * kBytes) {
    *reinterpret_cast<T*>(to + at) = *reinterpret_cast<const T*>(from + at);
  }
  return end;
}

__device__ void CopySmallRun(const SmallRunsParams& p) {
  BeginKernel();
  const ByteRun run = p.runs[blockIdx.x];
  const std::byte* const from = p.from + run.from;
  std::byte* const to = p.to + run.to;
  const uintptr_t both = reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to);
  const int bytes = static_cast<int>(run.bytes);
  int done = 0;
  if (both % sizeof(uint4) == 0) done = CopyValues<uint4>(to, from, done, bytes);
  if (both % sizeof(uint32_t) == 0) done = CopyValues<uint32_t>(to, from, done, bytes);
  CopyValues<uint8_t>(to, from, done, bytes);
}

}  // namespace
}  // namespace baton::copy_runs

// Grid: [runs]. The runs lie in staging memory, which the threads read over PCIe, neighbours
// together.
extern "C" __global__ void __launch_bounds__(baton::kCopyThreads)
    baton_copy_small_runs(const __grid_constant__ baton::SmallRunsParams p) {
  baton::copy_runs::CopySmallRun(p);
}

extern "C" __global__ void __launch_bounds__(baton::kCopyThreads)
    baton_copy_list(const __grid_constant__ baton::CopyListParams p) {
  baton::copy_runs::CopyRuns<false>(p);
}

extern "C" __global__ void __launch_bounds__(baton::kCopyThreads)
    baton_copy_list_with_checksums(const __grid_constant__ baton::CheckedListParams p) {
  baton::copy_runs::CopyRuns<true>(p);
}

extern "C" __global__ void __launch_bounds__(baton::kCopyThreads)
    baton_join_checksums(const __grid_constant__ baton::JoinChecksumsParams p) {
  baton::BeginKernel();
  const int64_t run = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (run >= p.count) return;
  uint32_t remainder = 0;
  for (int slice = 0; slice < baton::kCopySlices; ++slice) {
    remainder ^= p.parts[run * baton::kCopySlices + slice];
  }
  p.checksums[run] = ~remainder;
}

BATON_KERNEL(baton_copy_small_runs, baton::SmallRunsParams);
BATON_KERNEL(baton_copy_list, baton::CopyListParams);
BATON_KERNEL(baton_copy_list_with_checksums, baton::CheckedListParams);
BATON_KERNEL(baton_join_checksums, baton::JoinChecksumsParams);
