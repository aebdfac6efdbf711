// Tensor-core instructions of the chosen device against the bit model and exact integers.
//
// On the emulator this checks the layout of fragments. On a GPU it is the experiment that confirms
// or refutes kernels/tensor_core/fused_dot.h: operands of every kind, and a count of different
// bits for each kind. If a GPU differs, the test also counts for related models, so that one run
// names the right one.
//
// BATON_CONFORMANCE_RESULTS: number of results of each instruction (default 20,000). One tile has
// 128. BATON_SEED: of the operands.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "kernels/tensor_core/fused_dot.h"
#include "tests/cuda/chosen_launcher.h"
#include "tests/cuda/conformance_operands.h"
#include "tests/cuda/mma_conformance_params.h"

namespace baton {
namespace {

constexpr int64_t kResultsOfTile = 128;
constexpr int64_t kTilesOfLaunch = 4096;

class MmaConformance : public testing::TestWithParam<HalfType> {};
INSTANTIATE_TEST_SUITE_P(Types, MmaConformance, testing::Values(HalfType::kBF16, HalfType::kF16),
                         [](const auto& info) {
                           return info.param == HalfType::kBF16 ? "bf16" : "f16";
                         });

TEST_P(MmaConformance, EveryBitIsThatOfTheModel) {
  const char* const name = GetParam() == HalfType::kBF16 ? "bf16" : "f16";
  ChosenLauncher launcher;
  std::mt19937_64 random(OperandSeed());
  ConformanceTally tally(ModelOfDevice());
  for (int64_t left = WantedResults() / kResultsOfTile + 1; left > 0; left -= kTilesOfLaunch) {
    const int64_t tiles = std::min(left, kTilesOfLaunch);
    HalfTiles operands(GetParam(), 16, 8, tiles, random);
    const HalfTilesParams params = {operands.a(), operands.b(), operands.c(), operands.d(), tiles};
    launcher.Launch(std::string("baton_conformance_") + name,
                    {{static_cast<uint32_t>((tiles + 3) / 4), 1, 1}, {128, 1, 1}, 0}, &params,
                    sizeof(params));
    tally.Add(operands);
  }
  tally.Expect(name);
}

// The operands must tell related models apart. Otherwise a GPU could pass with a wrong model.
TEST(MmaConformanceOperands, TellEveryRelatedModelFromTheOthers) {
  std::mt19937_64 random(OperandSeed());
  for (const HalfType type : {HalfType::kBF16, HalfType::kF16}) {
    const HalfTiles operands(type, 16, 8, 140, random);
    for (size_t one = 0; one < std::size(kRelatedModels); ++one) {
      for (size_t other = 0; other < one; ++other) {
        int64_t different = 0;
        for (int64_t i = 0; i < 140 * kResultsOfTile; ++i) {
          different += std::bit_cast<uint32_t>(operands.Expected(i, kRelatedModels[one].dot)) !=
                       std::bit_cast<uint32_t>(operands.Expected(i, kRelatedModels[other].dot));
        }
        EXPECT_GT(different, 20) << kRelatedModels[one].name << ", " << kRelatedModels[other].name;
      }
    }
  }
}

TEST(MmaConformanceOfBytes, SumsAreExactAndWrapAround) {
  ChosenLauncher launcher;
  std::mt19937_64 random(OperandSeed());
  int64_t different = 0;
  int64_t results = 0;
  for (int64_t left = WantedResults() / kResultsOfTile + 1; left > 0; left -= kTilesOfLaunch) {
    const int64_t tiles = std::min(left, kTilesOfLaunch);
    std::vector<int8_t> a(tiles * 512), b(tiles * 256);
    std::vector<int32_t> c(tiles * 128), d(tiles * 128, -1);
    for (auto* operand : {&a, &b}) {
      for (int8_t& value : *operand) {
        const auto bits = static_cast<uint32_t>(random());
        value = bits % 8 == 0 ? (bits / 8 % 2 == 0 ? -128 : 127) : static_cast<int8_t>(bits >> 8);
      }
    }
    for (int32_t& value : c) {
      const auto bits = static_cast<uint32_t>(random());
      value = static_cast<int32_t>(bits % 4 == 0 ? bits | 0x7fffff00u : bits);
    }
    const ByteTilesParams params = {a.data(), b.data(), c.data(), d.data(), tiles};
    launcher.Launch("baton_conformance_s8",
                    {{static_cast<uint32_t>((tiles + 3) / 4), 1, 1}, {128, 1, 1}, 0}, &params,
                    sizeof(params));
    for (int64_t i = 0; i < tiles * kResultsOfTile; ++i) {
      auto sum = static_cast<uint32_t>(c[i]);
      const int8_t* const row = &a[(i / 128 * 16 + i % 128 / 8) * 32];
      const int8_t* const col = &b[(i / 128 * 8 + i % 8) * 32];
      for (int k = 0; k < 32; ++k) sum += static_cast<uint32_t>(row[k] * col[k]);
      different += sum != static_cast<uint32_t>(d[i]);
      ++results;
    }
  }
  std::printf("conformance s8: %lld of %lld results differ\n", static_cast<long long>(different),
              static_cast<long long>(results));
  EXPECT_EQ(different, 0);
}

}  // namespace
}  // namespace baton
