// Launches paged attention of numerics r1 (NUMERICS §8): PagedAttention of kernels/ops.h.
//
// One launch serves every context length, because the kernel reads the lengths itself. So a
// captured launch may be replayed for other runs, tables and contexts.
//
// Workspace: the launch asks the launcher for memory of the purpose "attention states", at most
// kMostAttentionStateBytes. Thread blocks write the states of segments there, and one of them
// merges the states. The length of a block table determines the size. If contexts need more, the
// kernel splits no unit. The bits are the same, but few long sequences then use few
// multiprocessors.
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

// These two functions serve the launches of all numerics.
// Returns an upper bound for the segments of a row. Contexts without block tables may exceed it.
int64_t MostAttentionSegments(const PagedAttentionArgs& args);
// Sets the members of `params` that come from the op's arguments.
void SetAttentionProblem(const PagedAttentionArgs& args, PagedAttentionParams& params);

}  // namespace baton
