// Collectives between the GPUs of one process, over NCCL.
//
// NCCL moves contiguous memory of equal size. The columns of a rank are not contiguous, and ranks
// may have different numbers of columns. So a collective packs the columns into memory of its
// stream, lets NCCL move that memory, and unpacks the columns of the other ranks. A single row
// whose columns divide evenly is gathered in place, without packing.
//
// The communicators are non-blocking (ncclConfig_t::blocking = 0). A call of NCCL may then still be
// in progress when it returns. The enqueueing thread waits until NCCL has put the work on the
// stream. So an Abort by another thread can always end the wait.
//
// NCCL may connect the ranks inside their first collective or capture. So each rank must enqueue on
// its own thread. One thread for several ranks would wait for itself.
//
// Row limits have no effect, because all ranks must use the same size in a collective.
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
