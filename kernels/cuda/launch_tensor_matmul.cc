#include "kernels/cuda/launch_tensor_matmul.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/kernel_shapes.h"
#include "kernels/cuda/launch_rows.h"
#include "kernels/cuda/matmul_params.h"

namespace baton {
namespace {

TensorMatMulParams ParamsOf(const MatMulArgs& args) {
  CheckAligned16("activations", args.x.f32);
  CheckAligned16("weights", args.weight.data);
  return {.f32 = args.x.f32,
          .halves = nullptr,
          .weight = reinterpret_cast<const uint8_t*>(args.weight.data),
          .out = args.out,
          .out_stride = args.out_stride,
          .tile_bytes = WeightTileBytes(args.weight.format, args.weight.cols),
          .rows = KernelSize(args.weight.rows),
          .cols = KernelSize(args.weight.cols),
          .tokens = KernelSize(args.tokens),
          .accumulate = args.accumulate ? 1 : 0};
}

std::string NameOf(const std::string& kernel, bool gated, WeightFormat format) {
  return KernelName(absl::StrCat("baton_", gated ? "gated_" : "", kernel), format);
}

// Returns the number of pairs of 8-row tiles.
int64_t PairsOf(const PackedMatrix& weight) {
  return (weight.rows + kTensorPairRows - 1) / kTensorPairRows;
}

void LaunchFewTokens(KernelLauncher& launcher, const MatMulArgs& args, bool gated,
                     Numerics numerics) {
  const bool sm80 = numerics == Numerics::kT1Sm80;
  const TensorMatMulParams params = ParamsOf(args);
  const int threads = sm80 ? kSm80FewThreads : kTensorFewThreads;
  const int shared =
      sm80 ? Sm80FewSharedBytes(params.tokens) : TensorFewSharedBytes(gated, params.tokens);
  launcher.Launch(
      NameOf(sm80 ? "tensor_matmul_sm80_few_" : "tensor_matmul_few_", gated, args.weight.format),
      {{BlocksFor(PairsOf(args.weight), kTensorFewWarps), 1, 1},
       {static_cast<uint32_t>(threads), 1, 1},
       static_cast<uint32_t>(shared)},
      &params, sizeof(params));
}

// Rounds the activations to 16 bits. Returns null if there is no memory for them.
const uint8_t* LaunchHalfRows(KernelLauncher& launcher, const MatMulArgs& args) {
  const int64_t blocks = HalfColumnBlocks(args.weight.cols);
  const int64_t tiles = HalfTokenTiles(args.tokens);
  std::byte* const halves = launcher.Workspace(
      "operands of tensor cores", static_cast<size_t>(blocks * tiles * kHalfTileBytes));
  if (halves == nullptr) return nullptr;
  const HalfRowsParams params = {.x = args.x.f32,
                                 .halves = reinterpret_cast<uint8_t*>(halves),
                                 .tokens = KernelSize(args.tokens),
                                 .cols = KernelSize(args.weight.cols)};
  launcher.Launch(
      KernelName("baton_half_rows_", args.weight.format),
      {{tiles, BlocksFor(blocks * kHalfColumns, kHalfRowsColumns), 1}, {kHalfRowsThreads, 1, 1}},
      &params, sizeof(params));
  return params.halves;
}

void Multiply(KernelLauncher& launcher, const MatMulArgs& args, bool gated, Numerics numerics) {
  if (args.tokens <= kTensorFewTokens && args.weight.cols % 4 == 0) {
    return LaunchFewTokens(launcher, args, gated, numerics);
  }
  const TensorTile tile =
      FastestTensorTile(args.weight.rows, args.tokens, launcher.multiprocessors(), numerics);
  LaunchTensorMatMulTile(launcher, args, gated, tile, numerics);
}

}  // namespace

// Predicted clocks for 64 columns of all tiles are the largest of: the tensor cores, at 2048
// products a clock, or 1024 on compute capability 8.0; the copies of one multiprocessor, at 48
// bytes a clock; and the copies of all, from the second-level cache, at 27 bytes a clock for each
// multiprocessor.
TensorTile FastestTensorTile(int64_t rows, int64_t tokens, int multiprocessors, Numerics numerics) {
  const int64_t products = numerics == Numerics::kT1Sm80 ? 1024 : 2048;
  TensorTile best = kTensorTiles[0];
  int64_t least = INT64_MAX;
  for (const TensorTile& tile : kTensorTiles) {
    const int64_t tiles = int64_t{BlocksFor(rows, tile.rows())} * BlocksFor(tokens, tile.tokens);
    const int64_t turns = (tiles + multiprocessors - 1) / multiprocessors;
    const int64_t clocks = std::max({turns * tile.rows() * tile.tokens * kHalfColumns / products,
                                     turns * tile.stage_bytes() / 48,
                                     tiles * tile.stage_bytes() / (27 * multiprocessors)});
    if (clocks < least) best = tile;
    least = std::min(least, clocks);
  }
  return best;
}

void LaunchTensorMatMulTile(KernelLauncher& launcher, const MatMulArgs& args, bool gated,
                            const TensorTile& tile, Numerics numerics) {
  TensorMatMulParams params = ParamsOf(args);
  params.halves = LaunchHalfRows(launcher, args);
  if (params.halves == nullptr) return;
  const bool sm80 = numerics == Numerics::kT1Sm80;
  const Sm80TensorTile sm80_tile = {tile};
  const int64_t tiles =
      int64_t{BlocksFor(PairsOf(args.weight), tile.pairs())} * BlocksFor(args.tokens, tile.tokens);
  const int64_t resident = int64_t{tile.blocks()} * launcher.multiprocessors();
  const int threads = sm80 ? sm80_tile.threads() : tile.threads();
  const int shared = sm80 ? sm80_tile.shared_bytes() : tile.shared_bytes();
  launcher.Launch(NameOf(absl::StrCat("tensor_matmul_", sm80 ? "sm80_" : "", tile.rows(), "x",
                                      tile.tokens, "_"),
                         gated, args.weight.format),
                  {{std::min(tiles, resident), 1, 1},
                   {static_cast<uint32_t>(threads), 1, 1},
                   static_cast<uint32_t>(shared)},
                  &params, sizeof(params));
}

void LaunchTensorMatMul(KernelLauncher& launcher, const MatMulArgs& args, Numerics numerics) {
  if (args.tokens == 0 || args.weight.rows == 0) return;
  Multiply(launcher, args, /*gated=*/false, numerics);
}

void LaunchGatedTensorMatMul(KernelLauncher& launcher, const GatedMatMulArgs& args,
                             Numerics numerics) {
  const MatMulArgs& product = args.product;
  const int64_t cols = product.weight.rows / 2;
  if (product.tokens == 0 || cols == 0) return;
  if (cols % kFloatTileRows != 0 || args.out.f32 == nullptr || args.out.q8 != nullptr) {
    LaunchTensorMatMul(launcher, product, numerics);
    LaunchSiluMul(launcher, {product.out, product.tokens, cols, args.out});
    return;
  }
  MatMulArgs gated = product;
  gated.out = args.out.f32;
  gated.out_stride = cols;
  Multiply(launcher, gated, /*gated=*/true, numerics);
}

}  // namespace baton
