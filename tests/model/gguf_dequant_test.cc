#include "model/gguf/gguf_dequant.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/cpu/packed_weights.h"
#include "model/gguf/gguf_reader.h"

namespace baton {
namespace {

// Returns true for equal bits, or if both are NaN. A NaN's payload is unspecified.
bool SameFloat(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (a != a && b != b);
}

// Golden values from the `gguf` package, made by tests/oracle/make_tiny_gguf.py.
struct Golden {
  std::string name;
  WeightFormat format;
};
const Golden kGolden[] = {{"F16", WeightFormat::kF16},   {"BF16", WeightFormat::kBF16},
                          {"Q8_0", WeightFormat::kQ8_0}, {"Q4_0", WeightFormat::kQ4_0},
                          {"Q4_1", WeightFormat::kQ4_1}, {"Q5_0", WeightFormat::kQ5_0},
                          {"Q5_1", WeightFormat::kQ5_1}, {"Q4_K", WeightFormat::kQ4_K},
                          {"Q5_K", WeightFormat::kQ5_K}, {"Q6_K", WeightFormat::kQ6_K}};

// The blocks are random. Some have zero, subnormal, largest, infinite or NaN scales.
TEST(GgufDequant, EqualsTheGgufPackageBitForBit) {
  const auto file = GgufFile::Open(std::string(BATON_TESTDATA) + "/models/dequant_golden.gguf");
  ASSERT_TRUE(file.ok()) << file.status();
  for (const auto& [name, format] : kGolden) {
    const GgufTensor* blocks = (*file)->FindTensor(name + ".blocks");
    const GgufTensor* floats = (*file)->FindTensor(name + ".floats");
    ASSERT_TRUE(blocks != nullptr && floats != nullptr) << name;
    ASSERT_EQ(blocks->values, 40u * std::max<uint64_t>(32, GgmlBlockValues(blocks->type))) << name;
    ASSERT_EQ(floats->values, blocks->values) << name;
    std::vector<float> expected(floats->values);
    ASSERT_TRUE(Dequantize(floats->type, floats->data, expected).ok());
    std::vector<float> actual(blocks->values);
    ASSERT_TRUE(Dequantize(blocks->type, blocks->data, actual).ok());
    // An embedding look-up of the packed weights gives the same values.
    const auto cols = static_cast<int64_t>(blocks->values);
    std::vector<std::byte> packed(PackedMatrixBytes(format, 1, cols));
    PackMatrixRows(format, 1, cols, blocks->data.data(), packed.data());
    std::vector<float> unpacked(blocks->values);
    UnpackRow({format, 1, cols, packed.data()}, 0, unpacked.data());
    for (size_t i = 0; i < actual.size(); ++i) {
      ASSERT_TRUE(SameFloat(actual[i], expected[i]))
          << name << " value " << i << ": " << actual[i] << " for " << expected[i];
      ASSERT_TRUE(SameFloat(unpacked[i], expected[i]))
          << name << " value " << i << ": " << unpacked[i] << " for " << expected[i];
    }
  }
}

TEST(GgufDequant, EveryF16WidensToItsValue) {
  std::vector<uint16_t> halves(65536);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  std::vector<float> values(halves.size());
  ASSERT_TRUE(Dequantize(GgmlType::kF16, std::as_bytes(std::span(halves)), values).ok());
  for (size_t i = 0; i < halves.size(); ++i) {
    const int exponent = (i >> 10) & 31;
    const int mantissa = i & 1023;
    float expected = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                     : exponent == 31
                         ? (mantissa == 0 ? INFINITY : NAN)
                         : std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
    if (i & 0x8000) expected = -expected;
    ASSERT_TRUE(SameFloat(values[i], expected)) << i;
  }
}

TEST(GgufDequant, RefusesSizesThatDoNotBelongTogether) {
  const std::vector<std::byte> data(34);
  std::vector<float> values(64);
  EXPECT_EQ(Dequantize(GgmlType::kQ8_0, data, values).message(),
            "34 bytes are not 64 values of type Q8_0");
  EXPECT_FALSE(Dequantize(GgmlType::kQ8_0, data, std::span(values).first(31)).ok());
  EXPECT_TRUE(Dequantize(GgmlType::kQ8_0, data, std::span(values).first(32)).ok());
  EXPECT_TRUE(Dequantize(GgmlType::kQ8_0, {}, {}).ok());
  EXPECT_TRUE(Dequantize(GgmlType::kF32, {}, {}).ok());
}

TEST(GgufDequant, RefusesATypeThatIsNotLoadable) {
  const std::vector<std::byte> data(84);
  std::vector<float> values(256);
  EXPECT_EQ(Dequantize(GgmlType::kQ2_K, data, values).message(),
            "tensor type Q2_K is not supported");
}

}  // namespace
}  // namespace baton
