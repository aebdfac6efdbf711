#include "kernels/cuda/launch_attention.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "kernels/cuda/attention_params.h"

namespace baton {
namespace {

using attention::LayoutOf;
using attention::RowsPerChunk;
using attention::SharedLayout;
using attention::StateFloats;

constexpr int64_t kSharedBytesPerMultiprocessor = 227 << 10;  // of sm_90
constexpr int64_t kSharedBytesOfSystem = 1 << 10;             // for each block
constexpr int64_t kArrivalBytes = 64 << 10;  // one counter for each block; before the states

int DimOf(int64_t head_dim) {
  for (const int dim : attention::kDims) {
    if (head_dim <= dim) return dim;
  }
  CHECK(false) << "head_dim " << head_dim << " exceeds " << kMaxHeadDim;
  return 0;
}

// Returns true if all rows of K and V begin at multiples of 16 bytes and are multiples of them.
bool CopiesSixteenBytes(const PagedAttentionArgs& args) {
  const KvLayerView& kv = args.kv;
  const int64_t size = KvTypeBytes(kv.type);
  for (const int64_t elements :
       {kv.block_stride, kv.token_stride, kv.head_stride, kv.value_offset, args.head_dim}) {
    if (elements * size % 16 != 0) return false;
  }
  return reinterpret_cast<uintptr_t>(kv.base) % 16 == 0;
}

// A kernel for a batch: the first part of its name, the warps that share a chunk of rows, and the
// chunks of a thread block.
struct Variant {
  const char* kind;
  int split;
  int chunks;
};
constexpr Variant kChunksVariant = {"attention_", attention::kChunkSplit,
                                    attention::kMaxThreads / (32 * attention::kChunkSplit)};
constexpr Variant kWideDecodeVariant = {"wide_decode_", attention::kDecodeSplit,
                                        attention::kMaxThreads / (32 * attention::kDecodeSplit)};
constexpr Variant kDecodeVariant = {"decode_", attention::kDecodeSplit, 1};

// Returns the variant for the batch, or one with fewer rows if the device has too little shared
// memory for it. Every variant gives the same bits. If none fits, the launch of the smallest one
// fails with the device's limit.
Variant VariantFor(const PagedAttentionArgs& args, AttentionBatch batch, int dim,
                   uint32_t max_shared_bytes) {
  const auto fits = [&](const Variant& variant) {
    const SharedLayout layout =
        LayoutOf(static_cast<int>(KvTypeBytes(args.kv.type)), args.kv.type == KvType::kInt8, dim,
                 variant.chunks * RowsPerChunk(dim));
    return static_cast<uint32_t>(layout.bytes) <= max_shared_bytes;
  };
  // Decode takes as many warps as its rows need. For chunks, all rows are used by more tokens.
  const int64_t heads = args.query_heads / args.kv_heads;
  const bool wide = batch == AttentionBatch::kChunks || heads > RowsPerChunk(dim);
  if (batch == AttentionBatch::kChunks && fits(kChunksVariant)) return kChunksVariant;
  return wide && fits(kWideDecodeVariant) ? kWideDecodeVariant : kDecodeVariant;
}

}  // namespace

int64_t MostAttentionSegments(const PagedAttentionArgs& args) {
  constexpr int64_t kUnknown = 1 << 10;
  constexpr int64_t kRuns = 16;  // each run may begin inside a segment
  if (args.block_tables == nullptr) return kUnknown;
  return (args.table_stride << args.kv.block_size_log2) / kAttentionSegment + 1 + kRuns;
}

void SetAttentionProblem(const PagedAttentionArgs& args, PagedAttentionParams& params) {
  params.q = args.q;
  params.q_stride = args.q_stride;
  params.out = args.out;
  params.kv = args.kv;
  params.sequence_of_token = args.sequence_of_token;
  params.runs = args.runs;
  params.row_runs = args.row_runs;
  params.block_tables = args.block_tables;
  params.table_stride = args.table_stride;
  params.first_block = args.first_block;
  params.tokens = args.tokens;
  params.query_heads = static_cast<int32_t>(args.query_heads);
  params.kv_heads = static_cast<int32_t>(args.kv_heads);
  params.head_dim = static_cast<int32_t>(args.head_dim);
  params.softmax_scale = args.softmax_scale;
  params.copies_16_bytes = CopiesSixteenBytes(args);
}

void LaunchPagedAttention(KernelLauncher& launcher, const PagedAttentionArgs& args,
                          AttentionBatch batch, int64_t most_state_bytes) {
  if (args.tokens == 0) return;
  const int dim = DimOf(args.head_dim);
  const Variant variant = VariantFor(args, batch, dim, launcher.max_shared_bytes());
  const int64_t heads = args.query_heads / args.kv_heads;
  const int rows = variant.chunks * RowsPerChunk(dim);
  const bool is_int8 = args.kv.type == KvType::kInt8;
  const SharedLayout layout =
      LayoutOf(static_cast<int>(KvTypeBytes(args.kv.type)), is_int8, dim, rows);

  PagedAttentionParams params{};
  SetAttentionProblem(args, params);
  params.head_groups = static_cast<int32_t>((heads + rows - 1) / rows);
  params.heads_per_group =
      static_cast<int32_t>((heads + params.head_groups - 1) / params.head_groups);
  params.tile_tokens = batch == AttentionBatch::kDecode ? 1 : rows / params.heads_per_group;

  // All blocks run at once: the work is divided equally, so a second wave would double the time.
  const int threads = 32 * variant.split * variant.chunks;
  const int64_t per_multiprocessor =
      std::clamp<int64_t>(kSharedBytesPerMultiprocessor / (layout.bytes + kSharedBytesOfSystem), 1,
                          attention::BlocksByRegisters(threads));
  const int64_t blocks = std::min<int64_t>(launcher.multiprocessors() * per_multiprocessor,
                                           kArrivalBytes / static_cast<int64_t>(sizeof(uint32_t)));
  const int64_t state_bytes = StateFloats(dim, rows) * static_cast<int64_t>(sizeof(float));
  const int64_t wanted = MostAttentionSegments(args) + 1;
  const int64_t most = std::max<int64_t>(1, most_state_bytes / (blocks * state_bytes));
  params.states_per_block = std::min(wanted, most);
  int64_t bytes = blocks * params.states_per_block * state_bytes;
  // All launches that reach the limit want the same size. Otherwise a slightly larger one would
  // double the workspace.
  if (wanted >= most) bytes = std::max(bytes, most_state_bytes);
  std::byte* const workspace =
      launcher.Workspace("attention states", static_cast<size_t>(kArrivalBytes + bytes));
  if (workspace == nullptr) return;
  params.arrivals = reinterpret_cast<uint32_t*>(workspace);
  params.states = reinterpret_cast<float*>(workspace + kArrivalBytes);

  const std::string kernel =
      absl::StrCat("baton_paged_", variant.kind, std::string(KvTypeName(args.kv.type)), "_", dim);
  launcher.Launch(kernel,
                  {.grid = {blocks, 1, 1},
                   .block = {static_cast<uint32_t>(threads), 1, 1},
                   .shared_bytes = static_cast<uint32_t>(layout.bytes)},
                  &params, sizeof(params));
}

}  // namespace baton
