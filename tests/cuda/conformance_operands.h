// Operands of products on tensor cores that tell bit models apart, and the count of results that
// differ from a model. For tests that run single instructions (mma_conformance_test.cc,
// wgmma_conformance_test.cc).
//
// Thread safety: belongs to one thread.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/tensor_core/fused_dot.h"
#include "tests/cuda/chosen_launcher.h"

namespace baton {

inline constexpr int kConformanceDepth = 16;  // of bf16 and f16

enum class Operands { kPlain, kWide, kCancelling, kLargeAccumulator, kSubnormal, kSpecial, kBits };
inline constexpr std::array kOperandKinds = {
    Operands::kPlain,     Operands::kWide,    Operands::kCancelling, Operands::kLargeAccumulator,
    Operands::kSubnormal, Operands::kSpecial, Operands::kBits};
inline constexpr std::array kNamesOfKinds = {"plain",     "wide exponents", "cancelling", "large c",
                                             "subnormal", "inf and NaN",    "any bits"};

// Results of each instruction that the test must compare at least.
inline int64_t WantedResults() {
  const char* const text = std::getenv("BATON_CONFORMANCE_RESULTS");
  return text == nullptr ? 20000 : std::atoll(text);
}

inline uint64_t OperandSeed() {
  const char* const text = std::getenv("BATON_SEED");
  return text == nullptr ? 16 : std::strtoull(text, nullptr, 0);
}

// Bits of a number of the type, by its fields.
inline uint16_t HalfBits(HalfType type, bool negative, uint32_t exponent, uint32_t mantissa) {
  const int mantissa_bits = type == HalfType::kBF16 ? 7 : 10;
  const uint32_t most = (1u << (15 - mantissa_bits)) - 1;
  return static_cast<uint16_t>((negative ? 0x8000u : 0u) |
                               (std::min(exponent, most) << mantissa_bits) |
                               (mantissa & ((1u << mantissa_bits) - 1)));
}

// Tiles d [rows, cols] = a [rows, 16] · b^T [cols, 16] + c, one after the other. Tiles have kinds
// of operands in turn.
class HalfTiles {
 public:
  HalfTiles(HalfType type, int rows, int cols, int64_t tiles, std::mt19937_64& random)
      : type_(type),
        rows_(rows),
        cols_(cols),
        a_(tiles * rows * kConformanceDepth),
        b_(tiles * cols * kConformanceDepth),
        c_(tiles * rows * cols),
        d_(c_.size(), -1.0f) {
    for (int64_t tile = 0; tile < tiles; ++tile) Fill(tile, random);
  }
  int64_t results() const { return static_cast<int64_t>(d_.size()); }
  // Index in kOperandKinds.
  size_t KindOf(int64_t result) const { return result / (rows_ * cols_) % kOperandKinds.size(); }
  const uint16_t* a(int64_t tile = 0) const { return &a_[tile * rows_ * kConformanceDepth]; }
  const uint16_t* b(int64_t tile = 0) const { return &b_[tile * cols_ * kConformanceDepth]; }
  const float* c() const { return c_.data(); }
  float* d() { return d_.data(); }

  float Got(int64_t result) const { return d_[result]; }
  float Expected(int64_t result, const DotModel& model) const {
    const int64_t tile = result / (rows_ * cols_);
    const int64_t row = result % (rows_ * cols_) / cols_;
    const int64_t col = result % cols_;
    return FusedDot(model, type_, a(tile) + row * kConformanceDepth,
                    b(tile) + col * kConformanceDepth, kConformanceDepth, c_[result]);
  }

 private:
  void Fill(int64_t tile, std::mt19937_64& random) {
    const Operands kind = kOperandKinds[tile % kOperandKinds.size()];
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
    uint16_t* const a = &a_[tile * rows_ * kConformanceDepth];
    uint16_t* const b = &b_[tile * cols_ * kConformanceDepth];
    for (int i = 0; i < rows_ * kConformanceDepth; ++i) a[i] = number();
    for (int i = 0; i < cols_ * kConformanceDepth; ++i) b[i] = number();
    if (kind == Operands::kCancelling) {  // all products but the last cancel in pairs
      for (int row = 0; row < rows_; ++row) {
        for (int k = 8; k < 16; ++k) a[row * 16 + k] = a[row * 16 + k - 8] ^ 0x8000;
      }
      for (int col = 0; col < cols_; ++col) {
        for (int k = 8; k < 15; ++k) b[col * 16 + k] = b[col * 16 + k - 8];
      }
    }
    for (int i = 0; i < rows_ * cols_; ++i) {
      c_[tile * rows_ * cols_ + i] = Accumulator(kind, random);
    }
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
  const int rows_, cols_;
  std::vector<uint16_t> a_, b_;
  std::vector<float> c_, d_;
};

// The model of the device that runs the test. The emulator's default is a Hopper.
inline DotModel ModelOfDevice() {
  if (ChosenDeviceName().empty()) return kHopperDot;
  const std::string description = ChosenDevice::Get().device().Description();
  return description.find("compute capability 8.") != std::string::npos ? kAmpereDot : kHopperDot;
}

struct RelatedModel {
  const char* name;
  DotModel dot;
};
inline constexpr RelatedModel kRelatedModels[] = {
    {"25 bits, 16 products", {25, 16}}, {"24 bits, 16 products", {24, 16}},
    {"26 bits, 16 products", {26, 16}}, {"23 bits, 16 products", {23, 16}},
    {"25 bits, 8 products", {25, 8}},   {"24 bits, 8 products", {24, 8}},
    {"23 bits, 8 products", {23, 8}}};

// Counts results by the kind of their operands. If a GPU differs from the model, it also counts for
// related models, so that one run names the right one.
class ConformanceTally {
 public:
  explicit ConformanceTally(const DotModel& model) : model_(model) {}

  void Add(const HalfTiles& tiles) {
    for (int64_t i = 0; i < tiles.results(); ++i) AddResult(tiles, i);
  }
  int64_t results() const {
    int64_t sum = 0;
    for (const int64_t of_kind : results_) sum += of_kind;
    return sum;
  }
  // Prints the counts. The test fails if a result differs, or if a kind is absent.
  void Expect(const std::string& name) const {
    for (size_t kind = 0; kind < kOperandKinds.size(); ++kind) {
      std::printf("conformance %s, %s: %lld of %lld results differ\n", name.c_str(),
                  kNamesOfKinds[kind], static_cast<long long>(different_[kind]),
                  static_cast<long long>(results_[kind]));
      EXPECT_EQ(different_[kind], 0) << name << ", " << kNamesOfKinds[kind];
      EXPECT_GT(results_[kind], 0);
      if (different_[kind] == 0) continue;
      for (size_t m = 0; m < std::size(kRelatedModels); ++m) {
        std::printf("  of these, %lld also differ from a model of %s\n",
                    static_cast<long long>(of_models_[kind][m]), kRelatedModels[m].name);
      }
    }
    std::printf("%s", examples_.c_str());
  }

 private:
  void AddResult(const HalfTiles& tiles, int64_t i) {
    const size_t kind = tiles.KindOf(i);
    const uint32_t got = std::bit_cast<uint32_t>(tiles.Got(i));
    const uint32_t expected = std::bit_cast<uint32_t>(tiles.Expected(i, model_));
    ++results_[kind];
    if (got == expected) return;
    if (++different_[kind] <= 3) {
      char line[120];
      std::snprintf(line, sizeof(line), "  %s: got 0x%08x, the model gives 0x%08x\n",
                    kNamesOfKinds[kind], got, expected);
      examples_ += line;
    }
    for (size_t m = 0; m < std::size(kRelatedModels); ++m) {
      const float other = tiles.Expected(i, kRelatedModels[m].dot);
      of_models_[kind][m] += std::bit_cast<uint32_t>(other) != got;
    }
  }

  const DotModel model_;
  std::array<int64_t, kOperandKinds.size()> results_ = {}, different_ = {};
  std::array<std::array<int64_t, std::size(kRelatedModels)>, kOperandKinds.size()> of_models_ = {};
  std::string examples_;
};

}  // namespace baton
