// Shared code of the vector kernels' tests: the instruction sets to compare with the plain one,
// seeds, buffers of exact size, and comparison of bits.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_kernels.h"

namespace baton {

// Instantiated for every instruction set. On a processor without it, the test reports that it was
// not run.
class InstructionSetTest : public testing::TestWithParam<InstructionSet> {
 protected:
  void SetUp() override {
    if (IsSupported(GetParam())) return;
    GTEST_SKIP() << "not run: this processor has no " << InstructionSetName(GetParam());
  }
};

inline auto FastInstructionSets() {
  return testing::Values(InstructionSet::kAvx2, InstructionSet::kAvx512NoVnni,
                         InstructionSet::kAvx512);
}

// GoogleTest takes no hyphens in names.
inline std::string NameOf(const testing::TestParamInfo<InstructionSet>& info) {
  std::string name(InstructionSetName(info.param));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// Returns a new seed and prints it. BATON_TEST_SEED replays a seed.
inline uint64_t TestSeed() {
  const char* given = std::getenv("BATON_TEST_SEED");
  const uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  std::cout << "BATON_TEST_SEED=" << seed << std::endl;
  return seed;
}

// Returns ordinary values mixed with zeros, subnormals, huge and tiny values. All are finite.
inline std::vector<float> ExtremeFloats(std::mt19937_64& random, size_t count) {
  std::vector<float> values(count);
  for (float& value : values) {
    const uint64_t dice = random();
    switch (dice % 8) {
      case 0:
        value = dice & 8 ? 0.0f : -0.0f;
        break;
      case 1:
        value = std::bit_cast<float>(static_cast<uint32_t>(dice >> 32) & 0x807fffffu);
        break;
      case 2: {
        const uint32_t bits = static_cast<uint32_t>(dice >> 32);
        value = std::bit_cast<float>((bits & 0xff800000u) == 0x7f800000u ||
                                             (bits & 0xff800000u) == 0xff800000u
                                         ? bits & 0x80ffffffu
                                         : bits);
        break;
      }
      default:
        value = std::normal_distribution<float>(0, 3)(random);
    }
  }
  return values;
}

// Heap block of exactly `size` bytes on a 64-byte boundary, as PackedMatrix requires.
// AddressSanitizer finds reads past its end.
class ExactBytes {
 public:
  explicit ExactBytes(size_t size) : data_(nullptr, &std::free) {
    void* block = nullptr;
    if (posix_memalign(&block, 64, size) == 0) data_.reset(static_cast<std::byte*>(block));
  }
  std::byte* data() const { return data_.get(); }

 private:
  std::unique_ptr<std::byte, decltype(&std::free)> data_;
};

// Compares bits, but all NaNs are equal. Which of two NaN operands a fused operation returns
// depends on the order of operands, which NUMERICS.md does not define.
inline void ExpectSameBits(const std::vector<float>& expected, const std::vector<float>& actual,
                           const std::string& what) {
  ASSERT_EQ(expected.size(), actual.size()) << what;
  for (size_t i = 0; i < expected.size(); ++i) {
    const bool both_nan = expected[i] != expected[i] && actual[i] != actual[i];
    if (both_nan) continue;
    ASSERT_EQ(std::bit_cast<uint32_t>(expected[i]), std::bit_cast<uint32_t>(actual[i]))
        << what << " at " << i << ": " << expected[i] << " and " << actual[i];
  }
}

}  // namespace baton
