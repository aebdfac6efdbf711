// Copies runs of bytes between a paged KV pool and staging memory, both in device memory. One
// launch copies a batch of blocks. A copy engine would need one call for each run.
//
// A block-major block is one run. A layer-major block has one run for each piece {layer, K or V}.
// kvtransfer/protocol/transfer_plan.h defines the pieces and their order in staging memory.
//
// The code is compiled for sm_80 and sm_90a, but it has never run on a device.
//
// Thread safety: the functions are stream-ordered and safe from any thread.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace baton {

struct StagingRun {
  int64_t pool_offset = 0;     // bytes from the start of the pool
  int64_t staging_offset = 0;  // bytes from the start of the staging memory
  int64_t bytes = 0;
};

// `runs` points to `count` runs in memory that the device can read. They must stay unchanged until
// the copy has run. The written ranges must not overlap. Runs whose addresses and sizes are
// multiples of 16 bytes are copied 16 bytes at a time, others byte by byte. Returns
// cudaErrorInvalidValue if `count` is not in [0, INT32_MAX], otherwise the result of the launch.
cudaError_t GatherRuns(const std::byte* pool, std::byte* staging, const StagingRun* runs,
                       int64_t count, cudaStream_t stream);
cudaError_t ScatterRuns(const std::byte* staging, std::byte* pool, const StagingRun* runs,
                        int64_t count, cudaStream_t stream);

}  // namespace baton
