#include "kernels/cuda/launch_tensor_core_attention.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "kernels/cuda/tensor_core_params.h"
#include "kernels/tensor_core/tensor_core_attention.h"

namespace baton {
namespace {

constexpr float kLog2E = 1.44269504088896341f;
constexpr int64_t kSharedBytesOfSystem = 1 << 10;  // for each block
// Before the states: for each block a counter of arrivals, then its number of pieces.
constexpr int64_t kMostBlocks = 8 << 10;
constexpr int64_t kCounterBytes = 2 * kMostBlocks * static_cast<int64_t>(sizeof(uint32_t));

int DimOf(int64_t head_dim) {
  for (const int dim : t1::kDims) {
    if (head_dim <= dim) return dim;
  }
  CHECK(false) << "head_dim " << head_dim << " exceeds " << kMaxHeadDim;
  return 0;
}

}  // namespace

void LaunchTensorCoreAttention(KernelLauncher& launcher, const PagedAttentionArgs& args,
                               AttentionBatch batch, Numerics numerics, int64_t most_state_bytes) {
  if (args.tokens == 0) return;
  CHECK(IsTensorCorePool(args.kv.type)) << "pools of " << KvTypeName(args.kv.type) << " use r1";
  CHECK(IsT1(numerics));
  const bool decode = batch == AttentionBatch::kDecode;
  const int dim = DimOf(args.head_dim);
  const int warps = decode ? t1::kDecodeSplit : t1::WarpsOfChunks(dim);
  const int rows = decode ? t1::kMmaRows : t1::kMmaRows * warps;
  const int64_t heads = args.query_heads / args.kv_heads;
  const t1::SharedLayout layout = t1::LayoutOf(HasScales(args.kv.type), dim, decode);

  TensorCoreAttentionParams params{};
  PagedAttentionParams& paged = params.paged;
  SetAttentionProblem(args, paged);
  params.factor = args.softmax_scale * kLog2E;
  params.inverse_factor = 1 / params.factor;
  paged.head_groups = static_cast<int32_t>((heads + rows - 1) / rows);
  paged.heads_per_group = static_cast<int32_t>((heads + paged.head_groups - 1) / paged.head_groups);
  paged.tile_tokens = decode ? 1 : rows / paged.heads_per_group;

  // All blocks run at once, as in r1. A multiprocessor has what one block can have, and the
  // system's part.
  const int64_t per_multiprocessor = std::clamp<int64_t>(
      (launcher.max_shared_bytes() + kSharedBytesOfSystem) / (layout.bytes + kSharedBytesOfSystem),
      1, t1::BlocksByRegisters(decode));
  const int64_t blocks = std::min(launcher.multiprocessors() * per_multiprocessor, kMostBlocks);
  const int64_t state_bytes = t1::StateFloats(dim, rows) * static_cast<int64_t>(sizeof(float));
  // Pieces of a row (attention_plan.cuh), and the two states of a unit that the block began.
  constexpr int64_t kStatesOfBeginner = 2;
  const int64_t segments = MostAttentionSegments(args);
  const int64_t pieces = std::min(segments, segments / kT1GroupSegments + 40);
  const int64_t wanted = pieces + kStatesOfBeginner;
  const int64_t most = std::max(kStatesOfBeginner, most_state_bytes / (blocks * state_bytes));
  paged.states_per_block = std::min(wanted, most);
  int64_t bytes = blocks * paged.states_per_block * state_bytes;
  // As in r1: all launches that reach the limit want the same size.
  if (wanted >= most) bytes = std::max(bytes, most_state_bytes);
  if (layout.group < 0) bytes += blocks * state_bytes;
  std::byte* const workspace =
      launcher.Workspace("t1 attention states", static_cast<size_t>(kCounterBytes + bytes));
  if (workspace == nullptr) return;
  paged.arrivals = reinterpret_cast<uint32_t*>(workspace);
  params.pieces = paged.arrivals + kMostBlocks;
  paged.states = reinterpret_cast<float*>(workspace + kCounterBytes);

  launcher.Launch(absl::StrCat("baton_t1_", decode ? "decode_" : "chunks_",
                               std::string(KvTypeName(args.kv.type)), "_", dim),
                  {.grid = {blocks, 1, 1},
                   .block = {static_cast<uint32_t>(32 * warps), 1, 1},
                   .shared_bytes = static_cast<uint32_t>(layout.bytes)},
                  &params, sizeof(params));
}

}  // namespace baton
