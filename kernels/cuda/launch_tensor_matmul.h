// Starts the kernels of t1's matrix products (NUMERICS_T1 §3): MatMul and GatedMatMul of
// kernels/ops.h for BF16 and F16 weights, on device memory of a GPU of compute capability 9.0. The
// contracts are those of ops.h. Besides, f32 activations and weights are 16-byte aligned, which is
// checked, and weights are packed by PackDeviceMatrix.
//
// Which kernels run depends on the shape. No bit of the result does.
//
// Thread safety: that of the launcher.
#pragma once

#include "kernels/cuda/cuda_launch.h"
#include "kernels/cuda/tensor_matmul_shape.h"
#include "kernels/ops.h"

namespace baton {

// REQUIRES, here and below: IsTensorCoreFormat(weight.format).
void LaunchTensorMatMul(KernelLauncher& launcher, const MatMulArgs& args);
// Fuses the gate if it has a multiple of 8 rows and only out.f32 is requested. Otherwise uses
// args.product.out as an intermediate buffer.
void LaunchGatedTensorMatMul(KernelLauncher& launcher, const GatedMatMulArgs& args);

// Returns the tile that is predicted to be fastest for more than 8 tokens.
TensorTile FastestTensorTile(int64_t rows, int64_t tokens, int multiprocessors);
// The product by the kernel of one of kTensorTiles, for any number of tokens. `gated`: as
// LaunchGatedTensorMatMul, where args.out [tokens, out_stride] are the gated columns.
void LaunchTensorMatMulTile(KernelLauncher& launcher, const MatMulArgs& args, bool gated,
                            const TensorTile& tile);

}  // namespace baton
