// Collectives between the GPUs of one process, over NCCL.
//
// NCCL moves contiguous memory of equal size. A rank's columns are neither, so a collective packs
// them into memory of its stream, lets NCCL move it, and unpacks the columns of the others. One row
// whose columns divide evenly is gathered in place.
//
// The communicators are non-blocking (ncclConfig_t::blocking = 0). A call of NCCL may then still be
// in progress when it returns. The enqueueing thread waits until NCCL has put the work on the
// stream. So an Abort by another thread can always end the wait.
//
// NCCL may connect the ranks inside their first collective or capture. So each rank must enqueue on
// a thread of its own: one thread for several ranks would wait for itself.
//
// Row limits have no effect: all ranks must agree on the size of a collective.
//
// After Abort, a graph with collectives must not be launched any more.
//
// Thread safety: as Communicator.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/communicator.h"
#include "kernels/cuda/cuda_context.h"
#include "kernels/cuda/nccl_api.h"

namespace baton {

// Creates the communicators of a group with one rank for each context, in their order. Their
// streams must be CudaStreams of these devices. Blocks until NCCL has connected them. Unavailable:
// NCCL refuses, or needs longer than a minute.
absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> CreateNcclCommunicators(
    const NcclApi& nccl, const std::vector<std::shared_ptr<CudaContext>>& contexts);

}  // namespace baton
