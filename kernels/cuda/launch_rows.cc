#include "kernels/cuda/launch_rows.h"

#include <algorithm>

#include "kernels/cuda/kernel_shapes.h"
#include "kernels/cuda/rows_params.h"
#include "kernels/cuda/weight_layout.h"

namespace baton {
namespace {

// Shape of a kernel whose blocks take slices of rows.
LaunchShape SliceShape(int64_t rows, int64_t cols, int64_t slice_columns, uint32_t threads) {
  return {{rows, BlocksFor(cols, slice_columns), 1}, {threads, 1, 1}, 0};
}

}  // namespace

void LaunchEmbedTokens(KernelLauncher& launcher, const EmbedTokensArgs& args) {
  if (args.tokens == 0) return;
  const PackedMatrix& table = args.table;
  const EmbedTokensParams params = {
      .table = reinterpret_cast<const uint8_t*>(table.data),
      .tile_bytes = WeightTileBytes(table.format, table.cols),
      .token_ids = args.token_ids,
      .embedding_rows = args.embedding_rows,
      .embeddings = args.embeddings,
      .out = args.out,
      .cols = KernelSize(table.cols),
  };
  launcher.Launch(
      KernelName("baton_embed_", table.format),
      SliceShape(KernelSize(args.tokens), table.cols, kEmbedSliceColumns, kEmbedThreads), &params,
      sizeof(params));
}

void LaunchRmsNorm(KernelLauncher& launcher, const RmsNormArgs& args) {
  if (args.tokens == 0) return;
  const RmsNormParams params = {.x = args.x,
                                .weight = args.weight,
                                .out = KernelActivations(args.out),
                                .epsilon = args.epsilon,
                                .cols = KernelSize(args.cols)};
  const LaunchShape shape = {{KernelSize(args.tokens), 1, 1},
                             {kNormThreads, 1, 1},
                             static_cast<uint32_t>(NormSharedFloats(params.cols) * 4)};
  launcher.Launch("baton_rms_norm", shape, &params, sizeof(params));
}

void LaunchSiluMul(KernelLauncher& launcher, const SiluMulArgs& args) {
  if (args.tokens == 0) return;
  const SiluMulParams params = {
      .gate_up = args.gate_up, .out = KernelActivations(args.out), .cols = KernelSize(args.cols)};
  launcher.Launch("baton_silu_mul",
                  SliceShape(KernelSize(args.tokens), args.cols, kRowSliceColumns, kRowThreads),
                  &params, sizeof(params));
}

void LaunchQuantize(KernelLauncher& launcher, const float* x, int64_t tokens, int64_t cols,
                    const Activations& out) {
  if (tokens == 0) return;
  const QuantizeParams params = {.x = x, .out = KernelActivations(out), .cols = KernelSize(cols)};
  launcher.Launch("baton_quantize",
                  SliceShape(KernelSize(tokens), cols, kRowSliceColumns, kRowThreads), &params,
                  sizeof(params));
}

void LaunchGatherRows(KernelLauncher& launcher, const GatherRowsArgs& args) {
  if (args.rows == 0) return;
  const GatherRowsParams params = {.x = args.x,
                                   .indices = args.indices,
                                   .out = args.out,
                                   .stride = args.stride > 0 ? args.stride : args.cols,
                                   .cols = KernelSize(args.cols)};
  launcher.Launch("baton_gather_rows",
                  SliceShape(KernelSize(args.rows), args.cols, kRowSliceColumns, kRowThreads),
                  &params, sizeof(params));
}

}  // namespace baton
