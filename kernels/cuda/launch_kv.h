// Launches the ops of kernels/ops.h that prepare K and V: rotation, writing to the pool, and
// comparing with it.
//
// Each function enqueues one op. Its argument struct defines the meaning and the requirements.
//
// Thread safety: as the launcher.
#pragma once

#include "kernels/cuda/cuda_launch.h"
#include "kernels/ops.h"

namespace baton {

void LaunchRotaryTable(KernelLauncher& launcher, const RotaryTableArgs& args);
void LaunchRope(KernelLauncher& launcher, const RopeArgs& args);
void LaunchRopeKvWrite(KernelLauncher& launcher, const RopeKvWriteArgs& args,
                       Numerics numerics = Numerics::kR1);
void LaunchCompareKv(KernelLauncher& launcher, const CompareKvArgs& args);

}  // namespace baton
