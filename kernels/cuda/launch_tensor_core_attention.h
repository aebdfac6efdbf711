// Launches paged attention of t1 (NUMERICS_T1 §5) over pools of f16, bf16, int8 and fp8:
// PagedAttention of kernels/ops.h. launch_attention.h says what holds for both numerics.
//
// Thread safety: as the launcher.
#pragma once

#include <cstdint>

#include "kernels/cuda/cuda_launch.h"
#include "kernels/cuda/launch_attention.h"
#include "kernels/numerics.h"
#include "kernels/ops.h"

namespace baton {

// The kernel for chunks (AttentionBatch::kChunks) with shared segments: whether it runs on
// warpgroups, the tokens of a unit, and the threads of a thread block. Of `shape`, they use the
// heads and the type of the pool.
bool UsesWarpgroups(const PagedAttentionArgs& shape, Numerics numerics);
int64_t TokensOfSharingTile(const PagedAttentionArgs& shape, Numerics numerics);
int64_t ThreadsOfSharing(const PagedAttentionArgs& shape, Numerics numerics);

// Enqueues the op. Its states take at most `most_state_bytes`, or two states for each block. The
// workspace is of the purpose "t1 attention states".
// REQUIRES: args.head_dim <= kMaxHeadDim, IsTensorCorePool(args.kv.type), IsT1(numerics), a device
// of T1ComputeCapability(numerics).
void LaunchTensorCoreAttention(KernelLauncher& launcher, const PagedAttentionArgs& args,
                               AttentionBatch batch, Numerics numerics,
                               int64_t most_state_bytes = kMostAttentionStateBytes);

}  // namespace baton
