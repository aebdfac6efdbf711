// How many compute threads are worth their while: the processors that this process may run on, and
// no more than the CPU quotas of its control groups pay for.
//
// Thread safety: pure but for the files that are read.
#pragma once

#include "kernels/cpu/control_groups.h"

namespace baton {

// At least 1. A quota of 2.5 processors is 2: with a third thread the kernel would stop all of them
// for part of every period, and an op waits for its last thread.
int UsableProcessors(const ControlGroupPaths& paths = {});

}  // namespace baton
