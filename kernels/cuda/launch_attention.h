// Launches paged attention of numerics r1 (NUMERICS §8): PagedAttention of kernels/ops.h.
//
// One launch serves every context length, because the kernel reads the lengths itself. So a
// captured launch may be replayed for other runs, tables and contexts.
//
// Workspace: the launch asks the launcher for memory of the purpose "attention states", at most
// kMostAttentionStateBytes. Blocks put the states of segments there, which one of them merges. The
// size follows from the length of a block table. If contexts need more, the kernel splits no unit:
// the bits are the same, but few long sequences then use few multiprocessors.
//
// Thread safety: as the launcher.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention_params.h"
#include "kernels/cuda/cuda_launch.h"
#include "kernels/ops.h"

namespace baton {

// For which batches a launch is fast. Both give the same bits for every batch.
enum class AttentionBatch : uint8_t {
  kDecode,  // most tokens are alone in their sequence
  kChunks,  // most tokens have neighbours in their sequence
};

inline constexpr int64_t kMostAttentionStateBytes = int64_t{256} << 20;

// Enqueues the op. Its states take at most `most_state_bytes`, or one state for each block.
// REQUIRES: args.head_dim <= kMaxHeadDim.
void LaunchPagedAttention(KernelLauncher& launcher, const PagedAttentionArgs& args,
                          AttentionBatch batch,
                          int64_t most_state_bytes = kMostAttentionStateBytes);

// Parts that the launches of all numerics share. The first returns an upper bound for the segments
// of a row, which contexts without block tables may exceed. The second sets the members of `params`
// that come from the op's arguments.
int64_t MostAttentionSegments(const PagedAttentionArgs& args);
void SetAttentionProblem(const PagedAttentionArgs& args, PagedAttentionParams& params);

}  // namespace baton
