// Launches the kernels of t1's matrix products (NUMERICS_T1 §3): MatMul and GatedMatMul of
// kernels/ops.h for BF16 and F16 weights, on device memory. The contracts are those of ops.h.
// In addition, f32 activations and weights are 16-byte aligned, which is checked, and weights are
// packed by PackDeviceMatrix.
//
// `numerics` chooses the kernels: those of t1-sm90 have instructions that only compute capability
// 9.0 has. Otherwise the shape determines the kernel, but no bit of the result depends on the
// kernel.
//
// Thread safety: as the launcher.
#pragma once

#include "kernels/cuda/cuda_launch.h"
#include "kernels/cuda/tensor_matmul_shape.h"
#include "kernels/numerics.h"
#include "kernels/ops.h"

namespace baton {

// REQUIRES, here and below: IsTensorCoreFormat(weight.format), IsT1(numerics), and a device of at
// least T1ComputeCapability(numerics).
void LaunchTensorMatMul(KernelLauncher& launcher, const MatMulArgs& args, Numerics numerics);
// Fuses the gate if it has a multiple of 8 rows and only out.f32 is requested. Otherwise uses
// args.product.out as an intermediate buffer.
void LaunchGatedTensorMatMul(KernelLauncher& launcher, const GatedMatMulArgs& args,
                             Numerics numerics);

// Returns the tile that is predicted to be fastest for more than 8 tokens.
TensorTile FastestTensorTile(int64_t rows, int64_t tokens, int multiprocessors, Numerics numerics);
// The product by the kernel of one of kTensorTiles, for any number of tokens. `gated`: as
// LaunchGatedTensorMatMul, where args.out [tokens, out_stride] are the gated columns.
void LaunchTensorMatMulTile(KernelLauncher& launcher, const MatMulArgs& args, bool gated,
                            const TensorTile& tile, Numerics numerics);

}  // namespace baton
