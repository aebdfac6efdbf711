#include "model/gguf/gguf_types.h"

#include <gtest/gtest.h>

#include <string>

namespace baton {
namespace {

TEST(GgufTypes, KnownTensorTypesHaveNamesAndSizes) {
  EXPECT_EQ(GgmlTypeName(GgmlType::kQ4_1), "Q4_1");
  EXPECT_EQ(GgmlBlockValues(GgmlType::kQ4_1), 32u);
  EXPECT_EQ(GgmlBlockBytes(GgmlType::kQ4_1), 20u);
  EXPECT_EQ(GgmlBlockBytes(GgmlType::kQ6_K), 210u);
  EXPECT_EQ(GgmlBlockBytes(GgmlType::kBF16), 2u);
}

TEST(GgufTypes, UnknownAndRemovedNumbersHaveNoType) {
  int known = 0;
  for (uint32_t number = 0; number < 1000; ++number) {
    const auto type = GgmlTypeFromNumber(number);
    if (!type) continue;
    ++known;
    EXPECT_EQ(static_cast<uint32_t>(*type), number);
    EXPECT_FALSE(GgmlTypeName(*type).empty());
    EXPECT_GT(GgmlBlockBytes(*type), 0u);
  }
  EXPECT_EQ(known, 34);
  for (const uint32_t removed : {4u, 5u, 31u, 36u, 0xffffffffu}) {
    EXPECT_FALSE(GgmlTypeFromNumber(removed)) << removed;
  }
}

TEST(GgufTypes, LoadableTypesEqualTheDocumentedList) {
  std::string names;
  for (const GgmlType type : {GgmlType::kF32, GgmlType::kF16, GgmlType::kBF16, GgmlType::kQ8_0,
                              GgmlType::kQ4_0, GgmlType::kQ4_1, GgmlType::kQ5_0, GgmlType::kQ5_1,
                              GgmlType::kQ4_K, GgmlType::kQ5_K, GgmlType::kQ6_K}) {
    EXPECT_TRUE(IsLoadable(type)) << GgmlTypeName(type);
    names += (names.empty() ? "" : ", ") + std::string(GgmlTypeName(type));
  }
  EXPECT_EQ(names, kLoadableTypes);
  EXPECT_FALSE(IsLoadable(GgmlType::kQ2_K));
  EXPECT_FALSE(IsLoadable(GgmlType::kI32));
}

TEST(GgufTypes, ValueTypesHaveNamesAndSizes) {
  EXPECT_EQ(GgufValueTypeName(GgufValueType::kUint32), "uint32");
  EXPECT_EQ(GgufScalarBytes(GgufValueType::kFloat64), 8u);
  EXPECT_EQ(GgufScalarBytes(GgufValueType::kString), 0u);
  EXPECT_TRUE(IsInteger(GgufValueType::kInt8));
  EXPECT_FALSE(IsInteger(GgufValueType::kBool));
  EXPECT_EQ(GgufValueTypeFromNumber(12), GgufValueType::kFloat64);
  EXPECT_FALSE(GgufValueTypeFromNumber(13));
}

}  // namespace
}  // namespace baton
