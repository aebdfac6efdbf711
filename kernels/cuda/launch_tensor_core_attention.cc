#include "kernels/cuda/launch_tensor_core_attention.h"

#include <algorithm>
#include <bit>
#include <span>
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
// The kernel names only blocks that exist, so any number that is large enough will do.
constexpr uint64_t kMostBlocksOfPool = uint64_t{1} << 31;
constexpr int64_t kCounterBytes = 2 * kMostBlocks * static_cast<int64_t>(sizeof(uint32_t));

// What the launch of one kernel needs.
struct Variant {
  const char* kind = nullptr;  // the first part of its name
  int dim = 0;
  int rows = 0;
  int threads = 0;
  int shared_bytes = 0;
  int blocks_by_registers = 0;
  bool warpgroups = false;
  bool groups_in_workspace = false;
};

int DimOf(int64_t head_dim, std::span<const int> dims) {
  for (const int dim : dims) {
    if (head_dim <= dim) return dim;
  }
  CHECK(false) << "head_dim " << head_dim << " exceeds " << kMaxHeadDim;
  return 0;
}

Variant VariantFor(const PagedAttentionArgs& args, Numerics numerics, bool decode) {
  const bool is_scaled = HasScales(args.kv.type);
  Variant variant;
  variant.dim = DimOf(args.head_dim, t1::kDims);
  variant.warpgroups = !decode && numerics == Numerics::kT1Sm90 &&
                       t1::UsesWarpgroups(static_cast<int>(KvTypeBytes(args.kv.type)), variant.dim);
  variant.kind = decode ? "decode_" : "chunks_";
  if (variant.warpgroups) {
    variant.kind = "warpgroups_";
    variant.dim = DimOf(args.head_dim, t1::kWarpgroupsDims);
    variant.rows = t1::kWarpgroupsRows;
    variant.threads = t1::kWarpgroupsThreads;
    variant.shared_bytes = t1::WarpgroupsLayoutOf(variant.dim).bytes;
    variant.blocks_by_registers = 1;
    return variant;
  }
  const int warps = decode ? t1::kDecodeSplit : t1::WarpsOfChunks(variant.dim);
  variant.rows = decode ? t1::kMmaRows : t1::kMmaRows * warps;
  variant.threads = 32 * warps;
  const t1::SharedLayout layout = t1::LayoutOf(is_scaled, variant.dim, decode);
  variant.shared_bytes = layout.bytes;
  variant.groups_in_workspace = layout.group < 0;
  variant.blocks_by_registers = t1::BlocksByRegisters(decode);
  return variant;
}

// Describes the pool for tile copies, if its rows permit them and blocks are not smaller than the
// swizzle's pattern. Otherwise there are no tile copies.
void EncodePool(KernelLauncher& launcher, TensorCoreAttentionParams& params) {
  params.box_tokens_log2 = -1;
  const PagedAttentionParams& p = params.paged;
  const int64_t block_tokens = int64_t{1} << p.kv.block_size_log2;
  const int64_t box_tokens = std::min<int64_t>(block_tokens, kAttentionTile);
  if (!p.copies_16_bytes || box_tokens < t1::kLeastBoxTokens) return;
  const auto bytes = [](int64_t elements) { return static_cast<uint64_t>(2 * elements); };
  const TiledTensor pool{
      .address = p.kv.base,
      .element_bytes = 2,
      .rank = 5,
      .sizes = {static_cast<uint64_t>(p.head_dim), static_cast<uint64_t>(block_tokens),
                static_cast<uint64_t>(p.kv_heads), 2, kMostBlocksOfPool},
      .stride_bytes = {0, bytes(p.kv.token_stride), bytes(p.kv.head_stride),
                       bytes(p.kv.value_offset), bytes(p.kv.block_stride)},
      .box = {t1::kPanelCols, static_cast<uint32_t>(box_tokens), 1, 1, 1},
      .swizzle = SharedSwizzle::k128Bytes};
  if (launcher.EncodeTiles(pool, params.pool)) {
    params.box_tokens_log2 = std::countr_zero(static_cast<uint64_t>(box_tokens));
  }
}

// Query heads of a kv head that a block computes together, and the number of such groups.
struct HeadGroups {
  int64_t heads;
  int64_t groups;
};
HeadGroups HeadGroupsOf(const PagedAttentionArgs& args, int rows) {
  const int64_t heads = args.query_heads / args.kv_heads;
  const int64_t groups = (heads + rows - 1) / rows;
  return {(heads + groups - 1) / groups, groups};
}

}  // namespace

bool UsesWarpgroups(const PagedAttentionArgs& shape, Numerics numerics) {
  return VariantFor(shape, numerics, /*decode=*/false).warpgroups;
}
int64_t TokensOfSharingTile(const PagedAttentionArgs& shape, Numerics numerics) {
  const int rows = VariantFor(shape, numerics, /*decode=*/false).rows;
  return std::min<int64_t>(rows / HeadGroupsOf(shape, rows).heads, attention::kPlannedTokens);
}
int64_t ThreadsOfSharing(const PagedAttentionArgs& shape, Numerics numerics) {
  return VariantFor(shape, numerics, /*decode=*/false).threads;
}

void LaunchTensorCoreAttention(KernelLauncher& launcher, const PagedAttentionArgs& args,
                               AttentionBatch batch, Numerics numerics, int64_t most_state_bytes) {
  if (args.tokens == 0) return;
  CHECK(IsTensorCorePool(args.kv.type)) << "pools of " << KvTypeName(args.kv.type) << " use r1";
  CHECK(IsT1(numerics));
  const bool decode = batch == AttentionBatch::kDecode;
  const Variant variant = VariantFor(args, numerics, decode);
  const int rows = variant.rows;
  const HeadGroups heads = HeadGroupsOf(args, rows);

  TensorCoreAttentionParams params{};
  PagedAttentionParams& paged = params.paged;
  SetAttentionProblem(args, paged);
  params.factor = args.softmax_scale * kLog2E;
  params.inverse_factor = 1 / params.factor;
  paged.head_groups = static_cast<int32_t>(heads.groups);
  paged.heads_per_group = static_cast<int32_t>(heads.heads);
  paged.tile_tokens = decode ? 1 : rows / paged.heads_per_group;
  paged.shared_segments = decode ? nullptr : args.shared_segments;
  if (paged.shared_segments != nullptr) {
    paged.tile_tokens = static_cast<int32_t>(TokensOfSharingTile(args, numerics));
  }

  // All blocks run at once, as in r1. A multiprocessor has what one block can have, and the
  // system's part.
  const int64_t per_multiprocessor =
      std::clamp<int64_t>((launcher.max_shared_bytes() + kSharedBytesOfSystem) /
                              (variant.shared_bytes + kSharedBytesOfSystem),
                          1, variant.blocks_by_registers);
  const int64_t blocks = std::min(launcher.multiprocessors() * per_multiprocessor, kMostBlocks);
  const int64_t state_bytes =
      t1::StateFloats(variant.dim, rows) * static_cast<int64_t>(sizeof(float));
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
  if (variant.groups_in_workspace) bytes += blocks * state_bytes;
  std::byte* const workspace =
      launcher.Workspace("t1 attention states", static_cast<size_t>(kCounterBytes + bytes));
  if (workspace == nullptr) return;
  paged.arrivals = reinterpret_cast<uint32_t*>(workspace);
  params.pieces = paged.arrivals + kMostBlocks;
  paged.states = reinterpret_cast<float*>(workspace + kCounterBytes);

  if (variant.warpgroups) EncodePool(launcher, params);

  launcher.Launch(absl::StrCat("baton_t1_", variant.kind, std::string(KvTypeName(args.kv.type)),
                               "_", variant.dim),
                  {.grid = {blocks, 1, 1},
                   .block = {static_cast<uint32_t>(variant.threads), 1, 1},
                   .shared_bytes = static_cast<uint32_t>(variant.shared_bytes)},
                  &params, sizeof(params));
}

}  // namespace baton
