#include "model/gguf_dequant.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "model/gguf_reader.h"

namespace baton {
namespace {

// Equal bits, or both NaN (whose payload is nobody's promise).
bool SameFloat(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (a != a && b != b);
}

// Golden values from the `gguf` package, made by tests/oracle/make_tiny_gguf.py.
TEST(GgufDequant, EqualsTheGgufPackageBitForBit) {
  const auto file = GgufFile::Open(std::string(BATON_TESTDATA) + "/models/dequant_golden.gguf");
  ASSERT_TRUE(file.ok()) << file.status();
  for (const std::string name : {"F16", "BF16", "Q8_0", "Q4_0", "Q4_1"}) {
    const GgufTensor* blocks = (*file)->FindTensor(name + ".blocks");
    const GgufTensor* floats = (*file)->FindTensor(name + ".floats");
    ASSERT_TRUE(blocks != nullptr && floats != nullptr) << name;
    ASSERT_EQ(blocks->values, 40u * 32) << name;
    ASSERT_EQ(floats->values, blocks->values) << name;
    std::vector<float> expected(floats->values);
    ASSERT_TRUE(Dequantize(floats->type, floats->data, expected).ok());
    std::vector<float> actual(blocks->values);
    ASSERT_TRUE(Dequantize(blocks->type, blocks->data, actual).ok());
    for (size_t i = 0; i < actual.size(); ++i) {
      ASSERT_TRUE(SameFloat(actual[i], expected[i]))
          << name << " value " << i << ": " << actual[i] << " for " << expected[i];
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
  const std::vector<std::byte> data(144);
  std::vector<float> values(256);
  EXPECT_EQ(Dequantize(GgmlType::kQ4_K, data, values).message(),
            "tensor type Q4_K is not supported");
}

}  // namespace
}  // namespace baton
