// Launches copies of many runs of bytes: gather and scatter of KV between a pool and other memory,
// and copies of blocks inside a pool (copy on write). The list is part of the launch's parameters.
//
// Without checksums, a block-major block is one run. With checksums, each piece {layer, K or V} is
// a run (kvtransfer/pool/pieces.h). These kernels replace the copy engine, which would need one
// call for each run.
//
// Workspace: checksums ask the launcher for 5 KiB of the purpose "checksum parts".
//
// Thread safety: as the launcher.
#pragma once

#include "kernels/cuda/copy_params.h"
#include "kernels/cuda/cuda_launch.h"
#include "kernels/ops.h"

namespace baton {

// Implements Ops::CopyRuns, with one launch for each kListedRuns runs. With checksums, two launches
// for each kCheckedRuns runs. Staging memory must be pinned: kernels read and write it over PCIe,
// on few multiprocessors. Runs whose addresses are multiples of 16 are fast.
void LaunchCopyList(KernelLauncher& launcher, const CopyRunsArgs& args);

// The same without checksums, for runs of at most kSmallRunBytes, with one launch for each
// kSmallRuns runs.
void LaunchCopySmallRuns(KernelLauncher& launcher, const CopyRunsArgs& args);

// Implements Ops::CopyRows, with one launch for each kListedRowRuns runs. Staging memory must be
// pinned. Rows whose addresses, sizes and strides are multiples of 16 are fast.
void LaunchCopyRows(KernelLauncher& launcher, const CopyRowsArgs& args);

}  // namespace baton
