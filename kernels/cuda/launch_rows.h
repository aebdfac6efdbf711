// Launches the kernels that work on rows of activations: EmbedTokens, RmsNorm, SiluMul, Quantize
// and GatherRows of kernels/ops.h, on device memory. The contracts are those of ops.h. In addition,
// pointers to f32 and q8 are 16-byte aligned, and tables are packed by PackDeviceMatrix.
//
// Thread safety: as the launcher.
#pragma once

#include <cstdint>

#include "kernels/cuda/cuda_launch.h"
#include "kernels/ops.h"

namespace baton {

void LaunchEmbedTokens(KernelLauncher& launcher, const EmbedTokensArgs& args);
void LaunchRmsNorm(KernelLauncher& launcher, const RmsNormArgs& args);
void LaunchSiluMul(KernelLauncher& launcher, const SiluMulArgs& args);
void LaunchQuantize(KernelLauncher& launcher, const float* x, int64_t tokens, int64_t cols,
                    const Activations& out);
void LaunchGatherRows(KernelLauncher& launcher, const GatherRowsArgs& args);

}  // namespace baton
