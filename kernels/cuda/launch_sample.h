// Launches Sample and FeedDrawnTokens of kernels/ops.h (NUMERICS §9).
//
// Workspace: Sample asks the launcher for memory of the purpose "sample chunks": 12 bytes for every
// 1024 logits of each draw.
//
// Thread safety: as the launcher.
#pragma once

#include "kernels/cuda/cuda_launch.h"
#include "kernels/ops.h"

namespace baton {

// REQUIRES: args.vocabulary <= 2^19.
void LaunchSample(KernelLauncher& launcher, const SampleArgs& args);
void LaunchFeedDrawnTokens(KernelLauncher& launcher, const FeedDrawnTokensArgs& args);

}  // namespace baton
