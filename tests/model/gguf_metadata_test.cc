#include "model/gguf/gguf_metadata.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/model/gguf_builder.h"

namespace baton {
namespace {

using ::testing::ElementsAre;

class GgufMetadataTest : public ::testing::Test {
 protected:
  GgufMetadataTest()
      : bytes_(GgufBuilder()
                   .String("text", "hello")
                   .Scalar<uint8_t>("u8", GgufValueType::kUint8, 200)
                   .Scalar<int8_t>("i8", GgufValueType::kInt8, -5)
                   .Scalar<uint16_t>("u16", GgufValueType::kUint16, 60000)
                   .Scalar<int16_t>("i16", GgufValueType::kInt16, -300)
                   .Scalar<uint32_t>("u32", GgufValueType::kUint32, 4000000000)
                   .Scalar<int32_t>("i32", GgufValueType::kInt32, -7)
                   .Scalar<uint64_t>("u64", GgufValueType::kUint64, ~uint64_t{0})
                   .Scalar<int64_t>("i64", GgufValueType::kInt64, INT64_MIN)
                   .Scalar<float>("f32", GgufValueType::kFloat32, 1e-5f)
                   .Scalar<double>("f64", GgufValueType::kFloat64, 0.1)
                   .Scalar<uint8_t>("bool", GgufValueType::kBool, 1)
                   .Array("strings", GgufValueType::kString, 3,
                          GgufBuilder::Text("a") + GgufBuilder::Text("") + GgufBuilder::Text("c\n"))
                   .Array("ints", GgufValueType::kInt32, 2,
                          GgufBuilder::Raw(int32_t{3}) + GgufBuilder::Raw(int32_t{-4}))
                   .Array("bytes", GgufValueType::kUint8, 2, "\x01\xff")
                   .Array("wide", GgufValueType::kUint32, 1, GgufBuilder::Raw(0x80000000u))
                   .Array("floats", GgufValueType::kFloat32, 2,
                          GgufBuilder::Raw(1.5f) + GgufBuilder::Raw(-0.25f))
                   .Array("empty", GgufValueType::kFloat32, 0, "")
                   .Build()),
        file_(std::move(ParseGguf(bytes_)).value()) {}

  std::string Format(std::string_view key, size_t max_characters = 120) {
    return GgufMetadata::FormatValue(*file_->Find(key), max_characters);
  }

  std::string bytes_;
  std::unique_ptr<GgufFile> file_;
};

TEST_F(GgufMetadataTest, GetsEveryKind) {
  EXPECT_EQ(*file_->GetString("text"), "hello");
  EXPECT_EQ(*file_->GetF32("f32"), 1e-5f);
  EXPECT_TRUE(*file_->GetBool("bool"));
  EXPECT_THAT(*file_->GetStringArray("strings"), ElementsAre("a", "", "c\n"));
  EXPECT_THAT(*file_->GetI32Array("ints"), ElementsAre(3, -4));
  EXPECT_THAT(*file_->GetI32Array("bytes"), ElementsAre(1, 255));
  EXPECT_THAT(*file_->GetF32Array("floats"), ElementsAre(1.5f, -0.25f));
  EXPECT_TRUE(file_->GetF32Array("empty")->empty());
  EXPECT_TRUE(file_->HasKey("text"));
  EXPECT_FALSE(file_->HasKey("tex"));
}

TEST_F(GgufMetadataTest, IntegersOfAnyWidthAreAcceptedWhereTheyFit) {
  EXPECT_EQ(*file_->GetU32("u8"), 200u);
  EXPECT_EQ(*file_->GetU32("u16"), 60000u);
  EXPECT_EQ(*file_->GetU32("u32"), 4000000000u);
  EXPECT_EQ(*file_->GetI64("i8"), -5);
  EXPECT_EQ(*file_->GetI64("i16"), -300);
  EXPECT_EQ(*file_->GetI64("i32"), -7);
  EXPECT_EQ(*file_->GetI64("i64"), INT64_MIN);
  EXPECT_EQ(*file_->GetI64("u32"), 4000000000);
  EXPECT_EQ(file_->GetU32("i32").status().message(), "gguf: key 'i32' is -7, outside 0…4294967295");
  EXPECT_EQ(file_->GetU32("u64").status().message(),
            "gguf: key 'u64' is 18446744073709551615, outside 0…4294967295");
  EXPECT_TRUE(absl::IsInvalidArgument(file_->GetI64("u64").status()));
  EXPECT_EQ(file_->GetI32Array("wide").status().message(),
            "gguf: key 'wide' is 2147483648, outside -2147483648…2147483647");
}

TEST_F(GgufMetadataTest, AWrongTypeNamesKeyExpectedAndActual) {
  EXPECT_EQ(file_->GetU32("text").status().message(),
            "gguf: key 'text' must be an integer but is string");
  EXPECT_EQ(file_->GetString("ints").status().message(),
            "gguf: key 'ints' must be string but is array of 2 int32");
  EXPECT_EQ(file_->GetF32("f64").status().message(),
            "gguf: key 'f64' must be float32 but is float64");
  EXPECT_EQ(file_->GetBool("u8").status().message(), "gguf: key 'u8' must be bool but is uint8");
  EXPECT_EQ(file_->GetStringArray("text").status().message(),
            "gguf: key 'text' must be an array of string but is string");
  EXPECT_EQ(file_->GetI32Array("floats").status().message(),
            "gguf: key 'floats' must be an array of integers but is array of 2 float32");
  EXPECT_TRUE(absl::IsInvalidArgument(file_->GetF32Array("ints").status()));
}

TEST_F(GgufMetadataTest, AnAbsentKeyIsNotFound) {
  EXPECT_EQ(file_->GetU32("none").status(), absl::NotFoundError("gguf: key 'none' is absent"));
  EXPECT_TRUE(absl::IsNotFound(file_->GetStringArray("none").status()));
}

TEST_F(GgufMetadataTest, DefaultsReplaceAbsentKeysButNotWrongTypes) {
  EXPECT_EQ(*file_->GetU32Or("none", 7), 7u);
  EXPECT_EQ(*file_->GetU32Or("u8", 7), 200u);
  EXPECT_EQ(*file_->GetI64Or("none", -7), -7);
  EXPECT_EQ(*file_->GetF32Or("none", 0.5f), 0.5f);
  EXPECT_FALSE(*file_->GetBoolOr("none", false));
  EXPECT_EQ(*file_->GetStringOr("none", "x"), "x");
  EXPECT_FALSE(file_->GetU32Or("text", 7).ok());
  EXPECT_FALSE(file_->GetF32Or("u8", 7).ok());
  EXPECT_FALSE(file_->GetBoolOr("u8", true).ok());
}

TEST_F(GgufMetadataTest, FormatsValuesForPeople) {
  EXPECT_EQ(Format("text"), "'hello'");
  EXPECT_EQ(Format("text", 4), "'hell…'");
  EXPECT_EQ(Format("i64"), "-9223372036854775808");
  EXPECT_EQ(Format("f32"), "9.99999975e-06");
  EXPECT_EQ(Format("bool"), "true");
  EXPECT_EQ(Format("strings"), "['a', '', 'c\\n']");
  EXPECT_EQ(Format("ints"), "[3, -4]");
  EXPECT_EQ(Format("ints", 2), "[3, …]");
  EXPECT_EQ(Format("empty"), "[]");
  EXPECT_EQ(GgufMetadata::DescribeType(*file_->Find("strings")), "array of 3 string");
  EXPECT_EQ(GgufMetadata::DescribeType(*file_->Find("u16")), "uint16");
}

TEST(GgufMetadata, AddRefusesASecondValueOfAKey) {
  GgufMetadata metadata;
  EXPECT_TRUE(metadata.Add("k", GgufValue{}));
  EXPECT_FALSE(metadata.Add("k", GgufValue{}));
  EXPECT_THAT(metadata.keys(), ElementsAre("k"));
}

TEST(GgufMetadata, PrintableNameEscapesAndCutsLongNames) {
  EXPECT_EQ(PrintableName("a\x01"), "a\\x01");
  EXPECT_EQ(PrintableName(std::string(100, 'x')), std::string(64, 'x') + "…");
}

}  // namespace
}  // namespace baton
