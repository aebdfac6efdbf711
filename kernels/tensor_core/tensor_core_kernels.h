// The kernels of t1 on the CPU: those of an instruction set, where the ops that NUMERICS_T1 changes
// are replaced by its twins.
//
// Thread safety: as CpuKernels.
#pragma once

#include "kernels/cpu/cpu_kernels.h"

namespace baton {

const CpuKernels& TensorCoreKernels(InstructionSet set);

}  // namespace baton
