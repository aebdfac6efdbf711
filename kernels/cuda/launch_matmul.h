// Launches the kernels of matrix products: MatMul and GatedMatMul of kernels/ops.h, on device
// memory. The contracts are those of ops.h. In addition, q8 and f32 activations are 16-byte
// aligned, and weights are packed by PackDeviceMatrix.
//
// The number of tokens determines the kernel, but no bit of the result depends on it.
//
// Thread safety: as the launcher.
#pragma once

#include "kernels/cuda/cuda_launch.h"
#include "kernels/ops.h"

namespace baton {

void LaunchMatMul(KernelLauncher& launcher, const MatMulArgs& args);
// Fuses the gate into the product of more than 32 tokens, if the weight is quantised and its gate
// has a multiple of 32 rows. Otherwise uses args.product.out as an intermediate buffer.
void LaunchGatedMatMul(KernelLauncher& launcher, const GatedMatMulArgs& args);

}  // namespace baton
