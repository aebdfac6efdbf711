// Launches copies of many runs of bytes: gather and scatter of KV between a pool and staging
// memory, and copies of blocks inside a pool (copy on write). LaunchCopyList takes the list from
// the host, LaunchCopyRuns from device memory.
//
// A block-major block is one run. A layer-major block has one run for each piece {layer, K or V}.
// kvtransfer/protocol/transfer_plan.h defines the pieces and their order in staging memory. One
// launch copies a batch of blocks. A copy engine would need one call for each run.
//
// Workspace: checksums ask the launcher for memory of the purpose "checksum parts", 32 bytes for
// each run.
//
// Thread safety: as the launcher.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/copy_params.h"
#include "kernels/cuda/cuda_launch.h"
#include "kernels/ops.h"

namespace baton {

// Implements Ops::CopyRuns, with one launch for each kListedRuns runs. Staging memory must be
// pinned: kernels read and write it over PCIe, on few multiprocessors.
void LaunchCopyList(KernelLauncher& launcher, const CopyRunsArgs& args);

// Implements Ops::CopyRows, with one launch for each kListedRowRuns runs. Staging memory must be
// pinned. Rows whose addresses, sizes and strides are multiples of 16 are fast.
void LaunchCopyRows(KernelLauncher& launcher, const CopyRowsArgs& args);

// Copies `count` runs from `from` to `to`. All pointers are device memory, `runs` too. No written
// range may overlap another range of the call. Runs whose addresses are multiples of 16 are fast.
//
// `checksums` [count], if not null, gets the CRC32C of each run, as common/crc32c.h computes it.
void LaunchCopyRuns(KernelLauncher& launcher, const std::byte* from, std::byte* to,
                    const ByteRun* runs, int64_t count, uint32_t* checksums);

}  // namespace baton
