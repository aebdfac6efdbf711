// Copies runs of bytes between a paged KV pool and staging memory, both in device memory: one
// launch for a batch of blocks, where a copy engine would take a call for each run.
//
// A block-major block is one run; a layer-major one has a run for each piece {layer, K or V}
// (kvtransfer/protocol/transfer_plan.h says which, and in what order they lie in staging memory).
//
// Compiled for sm_80 and sm_90a. It has never run: there was no device to run it on.
//
// Thread safety: functions are stream-ordered and safe from any thread.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace baton {

struct StagingRun {
  int64_t pool_offset = 0;     // bytes from the pool's base
  int64_t staging_offset = 0;  // bytes from the staging memory's
  int64_t bytes = 0;
};

// `runs` are `count` of them, in memory that the device can read, and stay until the copy has run.
// Runs do not overlap where they are written. Offsets and sizes that are multiples of 16 bytes are
// copied 16 bytes at a time, others byte by byte. cudaErrorInvalidValue for a count outside
// [0, INT32_MAX]; otherwise what the launch came to.
cudaError_t GatherRuns(const std::byte* pool, std::byte* staging, const StagingRun* runs,
                       int64_t count, cudaStream_t stream);
cudaError_t ScatterRuns(const std::byte* staging, std::byte* pool, const StagingRun* runs,
                        int64_t count, cudaStream_t stream);

}  // namespace baton
