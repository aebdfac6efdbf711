// Computes the number of compute threads to use by default. It is the number of processors that
// this process may run on, limited by the CPU quotas of its control groups.
//
// Thread safety: the function only reads files.
#pragma once

#include "kernels/cpu/control_groups.h"

namespace baton {

// Returns at least 1. A quota of 2.5 processors gives 2: with a third thread the kernel would stop
// all threads for a part of every period, and an op waits for its slowest thread.
int UsableProcessors(const ControlGroupPaths& paths = {});

}  // namespace baton
