#include "kernels/cuda/launch_matmul.h"

#include "absl/strings/str_cat.h"
#include "kernels/cuda/kernel_shapes.h"
#include "kernels/cuda/launch_rows.h"
#include "kernels/cuda/matmul_params.h"
#include "kernels/cuda/matmul_shape.h"
#include "kernels/numerics.h"

namespace baton {
namespace {

// Calls fn with the format as a template argument. REQUIRES: a quantised format.
template <typename Function>
auto ForQuantizedFormat(WeightFormat format, const Function& fn) {
  switch (format) {
    case WeightFormat::kQ8_0:
      return fn.template operator()<WeightFormat::kQ8_0>();
    case WeightFormat::kQ4_1:
      return fn.template operator()<WeightFormat::kQ4_1>();
    case WeightFormat::kQ5_0:
      return fn.template operator()<WeightFormat::kQ5_0>();
    case WeightFormat::kQ5_1:
      return fn.template operator()<WeightFormat::kQ5_1>();
    case WeightFormat::kQ4_K:
      return fn.template operator()<WeightFormat::kQ4_K>();
    case WeightFormat::kQ5_K:
      return fn.template operator()<WeightFormat::kQ5_K>();
    case WeightFormat::kQ6_K:
      return fn.template operator()<WeightFormat::kQ6_K>();
    default:
      return fn.template operator()<WeightFormat::kQ4_0>();
  }
}

MatMulParams ParamsOf(const MatMulArgs& args) {
  return {.q8 = args.x.q8,
          .scale = args.x.scale,
          .scaled_sum = args.x.scaled_sum,
          .f32 = args.x.f32,
          .weight = reinterpret_cast<const uint8_t*>(args.weight.data),
          .out = args.out,
          .out_stride = args.out_stride,
          .tile_bytes = WeightTileBytes(args.weight.format, args.weight.cols),
          .rows = KernelSize(args.weight.rows),
          .cols = KernelSize(args.weight.cols),
          .tokens = KernelSize(args.tokens),
          .accumulate = args.accumulate ? 1 : 0};
}

// Shape of a launch for few tokens. kTokens: of the kernel.
template <int kTokens>
LaunchShape FewTokensLaunch(WeightFormat format, int64_t rows) {
  const size_t shared = ForQuantizedFormat(format, []<WeightFormat kFormat>() {
    constexpr size_t kBytes = sizeof(FewTokensShared<kFormat, kTokens>);
    static_assert(kBytes <= 99 << 10, "every GPU has this much for a block");
    return kBytes;
  });
  return {{BlocksFor(rows, kWeightTileRows), 1, 1},
          {FewTokensShape<kTokens>::kThreads, 1, 1},
          static_cast<uint32_t>(shared)};
}

void LaunchFewTokens(KernelLauncher& launcher, const MatMulArgs& args) {
  static_assert(kFewMaxTokens == 32);
  const WeightFormat format = args.weight.format;
  const int64_t rows = args.weight.rows;
  const MatMulParams params = ParamsOf(args);
  const auto launch = [&](int tokens, const LaunchShape& shape) {
    launcher.Launch(KernelName(absl::StrCat("baton_matmul_few_", tokens, "_"), format), shape,
                    &params, sizeof(params));
  };
  if (args.tokens == 1) return launch(1, FewTokensLaunch<1>(format, rows));
  if (args.tokens <= 8) return launch(8, FewTokensLaunch<8>(format, rows));
  if (args.tokens <= 16) return launch(16, FewTokensLaunch<16>(format, rows));
  launch(32, FewTokensLaunch<32>(format, rows));
}

// Blocks of tokens are the first dimension: they run together and share the weights in the cache.
LaunchShape ManyTokensShape(WeightFormat format, int64_t tokens, int64_t row_blocks) {
  const auto shared = ForQuantizedFormat(
      format, []<WeightFormat kFormat>() { return sizeof(ManyTokensShared<kFormat>); });
  return {{BlocksFor(tokens, kManyTokens), row_blocks, 1},
          {kManyThreads, 1, 1},
          static_cast<uint32_t>(shared)};
}

void LaunchFloat(KernelLauncher& launcher, const MatMulArgs& args) {
  const WeightFormat format = args.weight.format;
  const int per_warp = args.tokens <= 4 ? 1 : (args.tokens <= 8 ? 2 : 8);
  const int tokens = kFloatWarps * per_warp;
  const MatMulParams params = ParamsOf(args);
  launcher.Launch(KernelName(absl::StrCat("baton_matmul_float_", tokens, "_"), format),
                  {{BlocksFor(args.weight.rows, kFloatRows), BlocksFor(args.tokens, tokens), 1},
                   {kFloatThreads, 1, 1},
                   static_cast<uint32_t>(kFloatStages * FloatStageBytes(format, per_warp))},
                  &params, sizeof(params));
}

}  // namespace

void LaunchMatMul(KernelLauncher& launcher, const MatMulArgs& args) {
  if (args.tokens == 0 || args.weight.rows == 0) return;
  if (!IsQuantized(args.weight.format)) return LaunchFloat(launcher, args);
  if (args.tokens <= kFewMaxTokens) return LaunchFewTokens(launcher, args);
  const MatMulParams params = ParamsOf(args);
  launcher.Launch(
      KernelName("baton_matmul_many_", args.weight.format),
      ManyTokensShape(args.weight.format, args.tokens, BlocksFor(args.weight.rows, kManyRows)),
      &params, sizeof(params));
}

void LaunchGatedMatMul(KernelLauncher& launcher, const GatedMatMulArgs& args) {
  const MatMulArgs& product = args.product;
  const int64_t cols = product.weight.rows / 2;
  if (product.tokens == 0 || cols == 0) return;
  if (product.tokens <= kFewMaxTokens || !IsQuantized(product.weight.format) ||
      cols % kQuantGroup != 0) {
    LaunchMatMul(launcher, product);
    LaunchSiluMul(launcher, {product.out, product.tokens, cols, args.out});
    return;
  }
  const GatedMatMulParams params = {ParamsOf(product), KernelActivations(args.out)};
  launcher.Launch(
      KernelName("baton_gated_matmul_", product.weight.format),
      ManyTokensShape(product.weight.format, product.tokens, BlocksFor(cols, kGatedColumns)),
      &params, sizeof(params));
}

}  // namespace baton
