#include <cstdint>

#include "kernels/cuda/kv_staging.cuh"

namespace baton {
namespace {

constexpr int kThreads = 256;
// Thread blocks that share one run. A piece of a Llama block is 16 to 256 KiB; a whole block-major
// block is a few MiB.
constexpr int kSlices = 8;

enum class Direction { kGather, kScatter };

__device__ bool IsAligned(const void* address) {
  return reinterpret_cast<uintptr_t>(address) % sizeof(uint4) == 0;
}

// Grid: [runs, kSlices].
template <Direction kDirection>
__global__ void __launch_bounds__(kThreads)
    CopyRuns(const std::byte* __restrict__ from, std::byte* __restrict__ to,
             const StagingRun* __restrict__ runs) {
  const StagingRun run = runs[blockIdx.x];
  constexpr bool kGathers = kDirection == Direction::kGather;
  const std::byte* source = from + (kGathers ? run.pool_offset : run.staging_offset);
  std::byte* target = to + (kGathers ? run.staging_offset : run.pool_offset);

  const int64_t first = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  constexpr int64_t kStride = int64_t{kSlices} * kThreads;
  if (IsAligned(source) && IsAligned(target) && run.bytes % int64_t{sizeof(uint4)} == 0) {
    const auto* vectors = reinterpret_cast<const uint4*>(source);
    auto* targets = reinterpret_cast<uint4*>(target);
    for (int64_t i = first; i < run.bytes / int64_t{sizeof(uint4)}; i += kStride) {
      targets[i] = vectors[i];
    }
  } else {
    for (int64_t i = first; i < run.bytes; i += kStride) target[i] = source[i];
  }
}

template <Direction kDirection>
cudaError_t Launch(const std::byte* from, std::byte* to, const StagingRun* runs, int64_t count,
                   cudaStream_t stream) {
  if (count < 0 || count > INT32_MAX) return cudaErrorInvalidValue;
  if (count == 0) return cudaSuccess;
  const dim3 grid(static_cast<unsigned int>(count), kSlices);
  CopyRuns<kDirection><<<grid, kThreads, 0, stream>>>(from, to, runs);
  return cudaGetLastError();
}

}  // namespace

cudaError_t GatherRuns(const std::byte* pool, std::byte* staging, const StagingRun* runs,
                       int64_t count, cudaStream_t stream) {
  return Launch<Direction::kGather>(pool, staging, runs, count, stream);
}

cudaError_t ScatterRuns(const std::byte* staging, std::byte* pool, const StagingRun* runs,
                        int64_t count, cudaStream_t stream) {
  return Launch<Direction::kScatter>(staging, pool, runs, count, stream);
}

}  // namespace baton
