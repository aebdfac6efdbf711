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
#include "tests/cuda/mma_conformance_params.h"
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

// Computes the products of `tiles` tiles on the device.
void MultiplyByWgmma(ChosenLauncher& launcher, const Variant& variant, const std::string& type,
                     HalfTiles& operands, int64_t tiles) {
  std::vector<uint8_t> images(tiles * 2 * kWgmmaMatrixBytes, 0x7f);  // NaNs between them
  for (int64_t tile = 0; tile < tiles; ++tile) {
    uint8_t* const image = &images[tile * 2 * kWgmmaMatrixBytes];
    Lay(variant.a, operands.a(tile), image);
    Lay(variant.b, operands.b(tile), image + kWgmmaMatrixBytes);
  }
  const WgmmaTilesParams params = {
      images.data(),    operands.a(),      operands.c(),     operands.d(),      variant.a.leading,
      variant.a.stride, variant.b.leading, variant.b.stride, variant.a.swizzle, variant.b.swizzle};
  launcher.Launch(variant.kernel + type, {{tiles, 1, 1}, {128, 1, 1}, 2 * kWgmmaMatrixBytes},
                  &params, sizeof(params));
}

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
      MultiplyByWgmma(launcher, variant, type, operands, tiles);
      tally.Add(operands);
    }
  }
  tally.Expect("wgmma " + type);
  EXPECT_GE(tally.results(), WantedResults());
}

// The products of one tile as mma.sync computes them: 4 by 8 tiles of 16 rows and 8 columns.
std::vector<float> ByMma(ChosenLauncher& launcher, const std::string& type, HalfTiles& operands,
                         int64_t tiles) {
  constexpr int kDepth = kConformanceDepth;
  constexpr int kRowTiles = kWgmmaTileRows / 16;
  constexpr int kColTiles = kWgmmaTileCols / 8;
  const int64_t count = tiles * kRowTiles * kColTiles;
  std::vector<uint16_t> a(count * 16 * kDepth), b(count * 8 * kDepth);
  std::vector<float> c(count * 128), d(count * 128);
  // The place of element (row, col) of tile `tile` in the tiles of mma.sync.
  const auto place = [&](int64_t tile, int row, int col) {
    const int64_t small = (tile * kRowTiles + row / 16) * kColTiles + col / 8;
    return small * 128 + row % 16 * 8 + col % 8;
  };
  const auto each = [&](const auto& visit) {
    for (int64_t tile = 0; tile < tiles; ++tile) {
      for (int row = 0; row < kWgmmaTileRows; ++row) {
        for (int col = 0; col < kWgmmaTileCols; ++col) {
          visit(place(tile, row, col), (tile * kWgmmaTileRows + row) * kWgmmaTileCols + col);
        }
      }
    }
  };
  each([&](int64_t small, int64_t large) { c[small] = operands.c()[large]; });
  for (int64_t small = 0; small < count; ++small) {
    const int64_t tile = small / (kRowTiles * kColTiles);
    const int64_t row = small / kColTiles % kRowTiles * 16;
    const int64_t col = small % kColTiles * 8;
    std::copy_n(operands.a(tile) + row * kDepth, 16 * kDepth, &a[small * 16 * kDepth]);
    std::copy_n(operands.b(tile) + col * kDepth, 8 * kDepth, &b[small * 8 * kDepth]);
  }
  const HalfTilesParams params = {a.data(), b.data(), c.data(), d.data(), count};
  launcher.Launch("baton_conformance_" + type, {{(count + 3) / 4, 1, 1}, {128, 1, 1}, 0}, &params,
                  sizeof(params));
  std::vector<float> results(d.size());
  each([&](int64_t small, int64_t large) { results[large] = d[small]; });
  return results;
}

// Without the model between them, so this also holds where both differ from it alike.
TEST_P(WgmmaConformance, EqualsMmaSyncOnTheSameOperands) {
  if (ModelOfDevice().step != kHopperDot.step) {
    GTEST_SKIP() << "not run: the GPU does not have compute capability 9.0";
  }
  const std::string type = GetParam() == HalfType::kBF16 ? "bf16" : "f16";
  const Variant& variant = kVariants[0];
  ChosenLauncher launcher;
  std::mt19937_64 random(OperandSeed());
  int64_t compared = 0, different = 0;
  while (compared < WantedResults()) {
    const int64_t tiles = std::clamp(WantedResults() / kResultsOfTile + 1,
                                     static_cast<int64_t>(kOperandKinds.size()), kTilesOfLaunch);
    HalfTiles operands(GetParam(), kWgmmaTileRows, kWgmmaTileCols, tiles, random);
    MultiplyByWgmma(launcher, variant, type, operands, tiles);
    const std::vector<float> by_mma = ByMma(launcher, type, operands, tiles);
    for (int64_t i = 0; i < operands.results(); ++i, ++compared) {
      const float by_wgmma = operands.Got(i);
      if (std::memcmp(&by_wgmma, &by_mma[i], sizeof(float)) == 0) continue;
      if (++different <= 3) {
        ADD_FAILURE() << "kind " << operands.KindOf(i) << ": wgmma " << by_wgmma << ", mma.sync "
                      << by_mma[i];
      }
    }
  }
  std::printf("mma.sync and wgmma %s: %ld of %ld results differ\n", type.c_str(), different,
              compared);
  EXPECT_EQ(different, 0);
}

}  // namespace
}  // namespace baton
