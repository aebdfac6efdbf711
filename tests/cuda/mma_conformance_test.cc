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

#include <array>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "kernels/tensor_core/fused_dot.h"
#include "tests/cuda/chosen_launcher.h"
#include "tests/cuda/mma_conformance_params.h"

namespace baton {
namespace {

constexpr int64_t kResultsOfTile = 128;
constexpr int64_t kTilesOfLaunch = 4096;
constexpr int kDepth = 16;  // of bf16 and f16

enum class Operands { kPlain, kWide, kCancelling, kLargeAccumulator, kSubnormal, kSpecial, kBits };
constexpr std::array kOperandKinds = {
    Operands::kPlain,     Operands::kWide,    Operands::kCancelling, Operands::kLargeAccumulator,
    Operands::kSubnormal, Operands::kSpecial, Operands::kBits};
constexpr std::array kNamesOfKinds = {"plain",     "wide exponents", "cancelling", "large c",
                                      "subnormal", "inf and NaN",    "any bits"};

int64_t WantedResults() {
  const char* const text = std::getenv("BATON_CONFORMANCE_RESULTS");
  return text == nullptr ? 20000 : std::atoll(text);
}

uint64_t OperandSeed() {
  const char* const text = std::getenv("BATON_SEED");
  return text == nullptr ? 16 : std::strtoull(text, nullptr, 0);
}

// Bits of a number of the type, by its fields.
uint16_t HalfBits(HalfType type, bool negative, uint32_t exponent, uint32_t mantissa) {
  const int mantissa_bits = type == HalfType::kBF16 ? 7 : 10;
  const uint32_t most = (1u << (15 - mantissa_bits)) - 1;
  return static_cast<uint16_t>((negative ? 0x8000u : 0u) |
                               (std::min(exponent, most) << mantissa_bits) |
                               (mantissa & ((1u << mantissa_bits) - 1)));
}

class HalfTiles {
 public:
  HalfTiles(HalfType type, int64_t tiles, std::mt19937_64& random)
      : type_(type), a_(tiles * 256), b_(tiles * 128), c_(tiles * 128), d_(tiles * 128, -1.0f) {
    for (int64_t tile = 0; tile < tiles; ++tile) Fill(tile, random);
  }
  static Operands KindOf(int64_t tile) { return kOperandKinds[tile % kOperandKinds.size()]; }

  HalfTilesParams Params() {
    return {a_.data(), b_.data(), c_.data(), d_.data(), static_cast<int64_t>(d_.size()) / 128};
  }
  float Got(int64_t result) const { return d_[result]; }
  float Expected(int64_t result, const DotModel& model) const {
    const int64_t tile = result / 128;
    const int64_t row = result % 128 / 8;
    const int64_t col = result % 8;
    return FusedDot(model, type_, &a_[(tile * 16 + row) * kDepth], &b_[(tile * 8 + col) * kDepth],
                    kDepth, c_[result]);
  }

 private:
  void Fill(int64_t tile, std::mt19937_64& random) {
    const Operands kind = KindOf(tile);
    const uint32_t one = type_ == HalfType::kBF16 ? 127 : 15;  // exponent field of 1.0
    const auto number = [&]() -> uint16_t {
      const auto bits = static_cast<uint32_t>(random());
      const bool negative = bits % 2 != 0;
      const uint32_t mantissa = bits >> 8;
      const uint32_t choice = bits / 2 % 64;
      switch (kind) {
        case Operands::kWide:
          return HalfBits(type_, negative, one - 8 + choice % 16, mantissa);
        case Operands::kSubnormal:
          return HalfBits(type_, negative, choice % 2 == 0 ? 0 : one - 12 + choice % 24, mantissa);
        case Operands::kSpecial:
          if (choice == 0) return HalfBits(type_, negative, 255, mantissa % 4 == 0 ? 1 : 0);
          return HalfBits(type_, negative, choice < 4 ? 0 : one - 2 + choice % 4,
                          choice < 4 ? 0 : mantissa);
        case Operands::kBits:
          return static_cast<uint16_t>(mantissa);
        default:
          return HalfBits(type_, negative, one - 2 + choice % 4, mantissa);
      }
    };
    uint16_t* const a = &a_[tile * 256];
    uint16_t* const b = &b_[tile * 128];
    for (int i = 0; i < 256; ++i) a[i] = number();
    for (int i = 0; i < 128; ++i) b[i] = number();
    if (kind == Operands::kCancelling) {  // all products but the last cancel in pairs
      for (int row = 0; row < 16; ++row) {
        for (int k = 8; k < 16; ++k) a[row * 16 + k] = a[row * 16 + k - 8] ^ 0x8000;
      }
      for (int col = 0; col < 8; ++col) {
        for (int k = 8; k < 15; ++k) b[col * 16 + k] = b[col * 16 + k - 8];
      }
    }
    for (int i = 0; i < 128; ++i) c_[tile * 128 + i] = Accumulator(kind, random);
  }
  static float Accumulator(Operands kind, std::mt19937_64& random) {
    const auto bits = static_cast<uint32_t>(random());
    const auto sum = [&](uint32_t exponent) {  // the bits' sign and mantissa
      return std::bit_cast<float>((bits & 0x807fffffu) | (exponent << 23));
    };
    const auto choice = static_cast<uint32_t>(random() % 64);
    switch (kind) {
      case Operands::kWide:
        return sum(127 - 16 + choice % 32);
      case Operands::kCancelling:
        return choice == 0 ? 0.0f : sum(127 - 20 + choice % 16);
      case Operands::kLargeAccumulator:
        return sum(127 + 14 + choice % 16);
      case Operands::kSubnormal:
        return sum(choice % 2 == 0 ? 0 : choice);
      case Operands::kSpecial:
        return choice == 0 ? sum(255) : choice < 8 ? 0.0f : sum(127);
      case Operands::kBits:
        return std::bit_cast<float>(bits);
      default:
        return sum(125 + choice % 4);
    }
  }

  const HalfType type_;
  std::vector<uint16_t> a_, b_;
  std::vector<float> c_, d_;
};

// The model of the device that runs the test. The emulator's default is a Hopper.
DotModel ModelOfDevice() {
  if (ChosenDeviceName().empty()) return kHopperDot;
  const std::string description = ChosenDevice::Get().device().Description();
  return description.find("compute capability 8.") != std::string::npos ? kAmpereDot : kHopperDot;
}

struct Model {
  const char* name;
  DotModel dot;
};
constexpr Model kRelatedModels[] = {
    {"25 bits, 16 products", {25, 16}}, {"24 bits, 16 products", {24, 16}},
    {"26 bits, 16 products", {26, 16}}, {"23 bits, 16 products", {23, 16}},
    {"25 bits, 8 products", {25, 8}},   {"24 bits, 8 products", {24, 8}},
    {"23 bits, 8 products", {23, 8}}};

class MmaConformance : public testing::TestWithParam<HalfType> {};
INSTANTIATE_TEST_SUITE_P(Types, MmaConformance, testing::Values(HalfType::kBF16, HalfType::kF16),
                         [](const auto& info) {
                           return info.param == HalfType::kBF16 ? "bf16" : "f16";
                         });

TEST_P(MmaConformance, EveryBitIsThatOfTheModel) {
  const char* const name = GetParam() == HalfType::kBF16 ? "bf16" : "f16";
  const DotModel model = ModelOfDevice();
  ChosenLauncher launcher;
  std::mt19937_64 random(OperandSeed());
  std::array<int64_t, kOperandKinds.size()> results = {}, different = {};
  std::array<std::array<int64_t, std::size(kRelatedModels)>, kOperandKinds.size()> of_models = {};
  std::string examples;
  for (int64_t left = WantedResults() / kResultsOfTile + 1; left > 0; left -= kTilesOfLaunch) {
    const int64_t tiles = std::min(left, kTilesOfLaunch);
    HalfTiles operands(GetParam(), tiles, random);
    const HalfTilesParams params = operands.Params();
    launcher.Launch(std::string("baton_conformance_") + name,
                    {{static_cast<uint32_t>((tiles + 3) / 4), 1, 1}, {128, 1, 1}, 0}, &params,
                    sizeof(params));
    for (int64_t i = 0; i < tiles * kResultsOfTile; ++i) {
      const auto kind = static_cast<size_t>(HalfTiles::KindOf(i / kResultsOfTile));
      const uint32_t got = std::bit_cast<uint32_t>(operands.Got(i));
      const uint32_t expected = std::bit_cast<uint32_t>(operands.Expected(i, model));
      ++results[kind];
      if (got == expected) continue;
      if (++different[kind] <= 3) {
        char line[120];
        std::snprintf(line, sizeof(line), "  %s: got 0x%08x, the model gives 0x%08x\n",
                      kNamesOfKinds[kind], got, expected);
        examples += line;
      }
      for (size_t m = 0; m < std::size(kRelatedModels); ++m) {
        const float other = operands.Expected(i, kRelatedModels[m].dot);
        of_models[kind][m] += std::bit_cast<uint32_t>(other) != got;
      }
    }
  }
  for (size_t kind = 0; kind < kOperandKinds.size(); ++kind) {
    std::printf("conformance %s, %s: %lld of %lld results differ\n", name, kNamesOfKinds[kind],
                static_cast<long long>(different[kind]), static_cast<long long>(results[kind]));
    EXPECT_EQ(different[kind], 0) << name << ", " << kNamesOfKinds[kind];
    EXPECT_GT(results[kind], 0);
    if (different[kind] == 0) continue;
    for (size_t m = 0; m < std::size(kRelatedModels); ++m) {
      std::printf("  of these, %lld also differ from a model of %s\n",
                  static_cast<long long>(of_models[kind][m]), kRelatedModels[m].name);
    }
  }
  std::printf("%s", examples.c_str());
}

// The operands must tell related models apart. Otherwise a GPU could pass with a wrong model.
TEST(MmaConformanceOperands, TellEveryRelatedModelFromTheOthers) {
  std::mt19937_64 random(OperandSeed());
  for (const HalfType type : {HalfType::kBF16, HalfType::kF16}) {
    const HalfTiles operands(type, 140, random);
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
