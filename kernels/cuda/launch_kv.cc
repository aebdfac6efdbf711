#include "kernels/cuda/launch_kv.h"

#include "kernels/cuda/kernel_shapes.h"
#include "kernels/cuda/kv_params.h"

namespace baton {
namespace {

constexpr uint32_t kRopeThreads = 256;
constexpr uint32_t kRotaryThreads = 128;
constexpr uint32_t kWriteThreads = 128;
constexpr int64_t kWriteRows = kWriteThreads / 32;  // a warp takes a row
constexpr uint32_t kCompareThreads = 128;
constexpr int64_t kComparedTokens = kCompareThreads / 32;  // a warp takes a token

}  // namespace

void LaunchRotaryTable(KernelLauncher& launcher, const RotaryTableArgs& args) {
  if (args.tokens == 0 || args.half == 0) return;
  const RotaryTableParams params{args.positions, args.frequencies, args.components, args.cosines,
                                 args.sines,     args.half,        args.factor};
  launcher.Launch("baton_rotary_table",
                  {.grid = {args.tokens, BlocksFor(args.half, kRotaryThreads), 1},
                   .block = {kRotaryThreads, 1, 1}},
                  &params, sizeof(params));
}

void LaunchRope(KernelLauncher& launcher, const RopeArgs& args) {
  if (args.tokens == 0 || args.heads * args.half == 0) return;
  const RopeParams params{args.x,       args.stride, args.heads, args.head_dim,
                          args.cosines, args.sines,  args.half,  args.neighbours};
  launcher.Launch("baton_rope",
                  {.grid = {args.tokens, BlocksFor(args.heads * args.half, kRopeThreads), 1},
                   .block = {kRopeThreads, 1, 1}},
                  &params, sizeof(params));
}

void LaunchRopeKvWrite(KernelLauncher& launcher, const RopeKvWriteArgs& args, Numerics numerics) {
  const int64_t rows = args.query_heads + 2 * args.kv_heads;
  if (args.tokens == 0 || rows == 0) return;
  const int64_t staged = args.half == 0 ? 0 : BlocksFor(args.head_dim, 4) * 4;
  const RopeKvWriteParams params{.qk = args.qk,
                                 .v = args.v,
                                 .stride = args.stride,
                                 .query_heads = args.query_heads,
                                 .kv_heads = args.kv_heads,
                                 .head_dim = args.head_dim,
                                 .cosines = args.cosines,
                                 .sines = args.sines,
                                 .half = args.half,
                                 .neighbours = args.neighbours,
                                 .finite_values = IsT1(numerics),
                                 .slot_mapping = args.slot_mapping,
                                 .kv = args.kv,
                                 .staged_floats = staged};
  launcher.Launch("baton_rope_kv_write",
                  {.grid = {args.tokens, BlocksFor(rows, kWriteRows), 1},
                   .block = {kWriteThreads, 1, 1},
                   .shared_bytes = static_cast<uint32_t>(kWriteRows * staged * sizeof(float))},
                  &params, sizeof(params));
}

void LaunchCompareKv(KernelLauncher& launcher, const CompareKvArgs& args) {
  if (args.tokens == 0) return;
  const CompareKvParams params{.k = args.k,
                               .v = args.v,
                               .stride = args.stride,
                               .kv_heads = args.kv_heads,
                               .head_dim = args.head_dim,
                               .slots = args.slots,
                               .kv = args.kv,
                               .changes = args.changes,
                               .tokens = args.tokens};
  launcher.Launch(
      "baton_compare_kv",
      {.grid = {BlocksFor(args.tokens, kComparedTokens), 1, 1}, .block = {kCompareThreads, 1, 1}},
      &params, sizeof(params));
}

}  // namespace baton
