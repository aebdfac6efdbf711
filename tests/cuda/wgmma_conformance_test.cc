// Matrix products of a warpgroup (wgmma m64n64k16) on the chosen device against the bit model, for
// operands of every kind in the layouts of shared memory. mma_conformance_test.cc has the
// environment variables.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/tensor_core/fused_dot.h"
#include "tests/cuda/chosen_launcher.h"
#include "tests/cuda/conformance_operands.h"
#include "tests/cuda/matrix_layout.h"
#include "tests/cuda/wgmma_conformance_params.h"

namespace baton {
namespace {

constexpr int64_t kResultsOfTile = kWgmmaTileRows * kWgmmaTileCols;
constexpr int64_t kTilesOfLaunch = 126;  // each kind 18 times

struct Variant {
  const char* kernel;  // without the type
  MatrixLayout a, b;
};
constexpr MatrixLayout kPlain = {false, SharedSwizzle::kNone, 128, 256};
constexpr Variant kVariants[] = {
    {"baton_wgmma_shared_", kPlain, kPlain},
    {"baton_wgmma_shared_",
     {false, SharedSwizzle::k32Bytes, 16, 256},
     {false, SharedSwizzle::k128Bytes, 16, 1024}},
    {"baton_wgmma_registers_", kPlain, kPlain},
    {"baton_wgmma_registers_", kPlain, {false, SharedSwizzle::k64Bytes, 16, 512}},
    {"baton_wgmma_columns_", kPlain, {true, SharedSwizzle::kNone, 1024, 128}},
    {"baton_wgmma_columns_", kPlain, {true, SharedSwizzle::k128Bytes, 2048, 1024}}};

void Lay(const MatrixLayout& layout, const uint16_t* matrix, uint8_t* image) {
  for (int row = 0; row < 64; ++row) {
    for (int k = 0; k < kConformanceDepth; ++k) {
      std::memcpy(image + OffsetIn(layout, row, k), matrix + row * kConformanceDepth + k, 2);
    }
  }
}

class WgmmaConformance : public testing::TestWithParam<HalfType> {};
INSTANTIATE_TEST_SUITE_P(Types, WgmmaConformance, testing::Values(HalfType::kBF16, HalfType::kF16),
                         [](const auto& info) {
                           return info.param == HalfType::kBF16 ? "bf16" : "f16";
                         });

TEST_P(WgmmaConformance, EveryBitIsThatOfTheModel) {
  if (ModelOfDevice().step != kHopperDot.step) {
    GTEST_SKIP() << "not run: the GPU does not have compute capability 9.0";
  }
  const std::string type = GetParam() == HalfType::kBF16 ? "bf16" : "f16";
  ChosenLauncher launcher;
  std::mt19937_64 random(OperandSeed());
  ConformanceTally tally(kHopperDot);
  const int64_t of_variant =
      std::max(static_cast<int64_t>(kOperandKinds.size()),
               WantedResults() / kResultsOfTile / static_cast<int64_t>(std::size(kVariants)) + 1);
  for (const Variant& variant : kVariants) {
    for (int64_t left = of_variant; left > 0; left -= kTilesOfLaunch) {
      const int64_t tiles = std::min(left, kTilesOfLaunch);
      HalfTiles operands(GetParam(), kWgmmaTileRows, kWgmmaTileCols, tiles, random);
      std::vector<uint8_t> images(tiles * 2 * kWgmmaMatrixBytes, 0x7f);  // NaNs between them
      for (int64_t tile = 0; tile < tiles; ++tile) {
        uint8_t* const image = &images[tile * 2 * kWgmmaMatrixBytes];
        Lay(variant.a, operands.a(tile), image);
        Lay(variant.b, operands.b(tile), image + kWgmmaMatrixBytes);
      }
      const WgmmaTilesParams params = {images.data(),     operands.a(),      operands.c(),
                                       operands.d(),      variant.a.leading, variant.a.stride,
                                       variant.b.leading, variant.b.stride,  variant.a.swizzle,
                                       variant.b.swizzle};
      launcher.Launch(variant.kernel + type, {{tiles, 1, 1}, {128, 1, 1}, 2 * kWgmmaMatrixBytes},
                      &params, sizeof(params));
      tally.Add(operands);
    }
  }
  tally.Expect("wgmma " + type);
  EXPECT_GE(tally.results(), WantedResults());
}

}  // namespace
}  // namespace baton
