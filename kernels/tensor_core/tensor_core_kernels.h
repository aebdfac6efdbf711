// The kernels of t1 on the CPU: those of an instruction set, where the ops that NUMERICS_T1 changes
// are replaced by its twins, with the sums of one family of tensor cores.
//
// Thread safety: as CpuKernels.
#pragma once

#include "kernels/cpu/cpu_kernels.h"

namespace baton {

// REQUIRES: IsT1(numerics).
const CpuKernels& TensorCoreKernels(InstructionSet set, Numerics numerics);

}  // namespace baton
