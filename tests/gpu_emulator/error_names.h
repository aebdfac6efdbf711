// Names of the errors that the emulated driver returns.
//
// Thread safety: a pure function.
#pragma once

#include "kernels/cuda/cuda_driver.h"

namespace baton::gpu_emulator {

// Returns null for other values.
const char* ErrorName(CuResult error);

}  // namespace baton::gpu_emulator
