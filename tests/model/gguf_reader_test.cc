#include "model/gguf/gguf_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

#include "tests/model/gguf_builder.h"
#include "tests/model/gguf_exercise.h"

namespace baton {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string ModelPath(const std::string& name) {
  return std::string(BATON_TESTDATA) + "/models/" + name;
}

std::string ReadFile(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

constexpr auto kF32 = static_cast<uint32_t>(GgmlType::kF32);

// A file with every type of value and two tensors.
std::string SmallFile() {
  return GgufBuilder()
      .String("general.architecture", "llama")
      .Scalar("general.alignment", GgufValueType::kUint32, uint32_t{32})
      .Scalar<uint8_t>("a.u8", GgufValueType::kUint8, 7)
      .Scalar<float>("a.f32", GgufValueType::kFloat32, 0.5f)
      .Scalar<double>("a.f64", GgufValueType::kFloat64, 0.25)
      .Scalar<uint8_t>("a.bool", GgufValueType::kBool, 1)
      .Array("a.strings", GgufValueType::kString, 2,
             GgufBuilder::Text("one") + GgufBuilder::Text(""))
      .Array("a.ints", GgufValueType::kInt32, 2,
             GgufBuilder::Raw(int32_t{-1}) + GgufBuilder::Raw(int32_t{5}))
      .Array("a.bools", GgufValueType::kBool, 3, std::string("\1\0\1", 3))
      .Tensor("blk.0.attn_q.weight", {32, 2}, GgmlType::kQ8_0, std::string(68, '\3'))
      .Tensor("norm", {4}, GgmlType::kF32, std::string(16, '\0'))
      .Build();
}

// Any damage must give either a file or a status that names the position.
void ExpectFileOrNamedError(std::string_view bytes) {
  const auto file = ParseGguf(bytes);
  if (file.ok()) {
    EXPECT_GT(ExerciseGguf(**file), 0u);
    return;
  }
  const std::string message(file.status().message());
  EXPECT_THAT(file.status().code(),
              AnyOf(absl::StatusCode::kInvalidArgument, absl::StatusCode::kDataLoss))
      << message;
  EXPECT_THAT(message, AllOf(StartsWith("gguf: "),
                             AnyOf(HasSubstr("magic"), HasSubstr("version"), HasSubstr("_count "),
                                   HasSubstr("key "), HasSubstr("tensor "))));
}

TEST(GgufReader, ReadsMetadataAndTensorsOfASmallFile) {
  const std::string bytes = SmallFile();
  const auto file = ParseGguf(bytes);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->version(), 3u);
  EXPECT_EQ((*file)->alignment(), 32u);
  EXPECT_EQ((*file)->keys().size(), 9u);
  EXPECT_EQ(*(*file)->GetString("general.architecture"), "llama");
  ASSERT_EQ((*file)->tensors().size(), 2u);
  const GgufTensor* tensor = (*file)->FindTensor("blk.0.attn_q.weight");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->type, GgmlType::kQ8_0);
  EXPECT_EQ(tensor->ShapeString(), "[32, 2]");
  EXPECT_EQ(tensor->values, 64u);
  EXPECT_EQ(tensor->data.size(), 68u);
  EXPECT_EQ(tensor->data[67], std::byte{3});
  EXPECT_EQ((*file)->FindTensor("norm")->offset % 32, 0u);
  EXPECT_EQ((*file)->FindTensor("absent"), nullptr);
}

TEST(GgufReader, ReadsVersionTwoAndAFileWithoutTensors) {
  GgufBuilder builder;
  builder.version = 2;
  const std::string bytes = builder.String("general.architecture", "llama").Build();
  const auto file = ParseGguf(bytes);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->version(), 2u);
  EXPECT_TRUE((*file)->tensors().empty());
}

TEST(GgufReader, OpensEveryTinyModel) {
  struct Case {
    const char* name;
    GgmlType type;
  };
  for (const auto& [name, type] : std::to_array<Case>({{"tiny-f32.gguf", GgmlType::kF32},
                                                       {"tiny-f16.gguf", GgmlType::kF16},
                                                       {"tiny-bf16.gguf", GgmlType::kBF16},
                                                       {"tiny-q8_0.gguf", GgmlType::kQ8_0},
                                                       {"tiny-q4_0.gguf", GgmlType::kQ4_0},
                                                       {"tiny-q4_1.gguf", GgmlType::kQ4_1},
                                                       {"tiny-q5_0.gguf", GgmlType::kQ5_0},
                                                       {"tiny-q5_1.gguf", GgmlType::kQ5_1}})) {
    const auto file = GgufFile::Open(ModelPath(name));
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(*(*file)->GetU32("llama.block_count"), 2u) << name;
    EXPECT_EQ((*file)->GetStringArray("tokenizer.ggml.tokens")->size(), 320u) << name;
    EXPECT_EQ((*file)->tensors().size(), 20u) << name;
    const GgufTensor* matrix = (*file)->FindTensor("blk.1.ffn_down.weight");
    ASSERT_NE(matrix, nullptr) << name;
    EXPECT_EQ(matrix->type, type) << name;
    EXPECT_EQ(matrix->ShapeString(), "[96, 64]") << name;
  }
}

TEST(GgufReader, OpenNamesThePathInEveryError) {
  const auto absent = GgufFile::Open("/no/such/model.gguf");
  EXPECT_TRUE(absl::IsNotFound(absent.status()));
  EXPECT_THAT(std::string(absent.status().message()), HasSubstr("/no/such/model.gguf"));
  const std::string script = std::string(BATON_TESTDATA) + "/../oracle/make_tiny_gguf.py";
  const auto other = GgufFile::Open(script);
  EXPECT_THAT(std::string(other.status().message()),
              AllOf(HasSubstr("make_tiny_gguf.py"), HasSubstr("magic")));
}

// ---- each check alone ---------------------------------------------------------------------------

void ExpectError(const GgufBuilder& builder, absl::StatusCode code, const std::string& part) {
  const std::string bytes = builder.Build();
  const auto file = ParseGguf(bytes);
  ASSERT_FALSE(file.ok()) << "expected: " << part;
  EXPECT_EQ(file.status().code(), code) << file.status();
  EXPECT_THAT(std::string(file.status().message()), HasSubstr(part));
}

TEST(GgufReader, RefusesOtherFormatsAndVersions) {
  GgufBuilder builder;
  builder.magic = "GGML";
  ExpectError(builder, absl::StatusCode::kInvalidArgument, "magic");
  builder.magic = "GGUF";
  builder.version = 1;
  ExpectError(builder, absl::StatusCode::kInvalidArgument, "version is 1, not 2 or 3");
  builder.version = 0x03000000;
  ExpectError(builder, absl::StatusCode::kInvalidArgument, "big-endian");
}

TEST(GgufReader, BoundsTheCountsOfTheHeaderByTheFileSize) {
  GgufBuilder builder;
  builder.extra_tensors = int64_t{1} << 60;
  ExpectError(builder, absl::StatusCode::kInvalidArgument, "tensor_count is 1152921504606846976");
  builder.extra_tensors = 0;
  builder.extra_keys = -1;
  ExpectError(builder, absl::StatusCode::kInvalidArgument,
              "metadata_kv_count is 18446744073709551615");
}

TEST(GgufReader, LimitsTheNumberOfKeysAndTensors) {
  GgufBuilder builder;
  builder.extra_keys = kGgufMaxKeys + 1;
  builder.Data(std::string(4 << 20, '\0'));
  ExpectError(builder, absl::StatusCode::kInvalidArgument,
              "metadata_kv_count is 65537, more than the limit of 65536");
  builder.extra_keys = 0;
  builder.extra_tensors = kGgufMaxTensors + 1;
  ExpectError(builder, absl::StatusCode::kInvalidArgument,
              "tensor_count is 65537, more than the limit of 65536");
}

TEST(GgufReader, BoundsLengthsOfStringsAndArrays) {
  const auto huge = GgufBuilder::Raw(~uint64_t{0});
  ExpectError(GgufBuilder().Key("k", GgufValueType::kString, huge), absl::StatusCode::kDataLoss,
              "key 'k': string takes 18446744073709551615 bytes");
  ExpectError(GgufBuilder().Array("k", GgufValueType::kUint64, uint64_t{1} << 61, ""),
              absl::StatusCode::kDataLoss, "key 'k': 2305843009213693952 values of 8 bytes");
  ExpectError(GgufBuilder().Array("k", GgufValueType::kString, uint64_t{1} << 61, ""),
              absl::StatusCode::kInvalidArgument, "key 'k': array length is 2305843009213693952");
  ExpectError(GgufBuilder().Array("k", GgufValueType::kString, 2, GgufBuilder::Text("ab") + huge),
              absl::StatusCode::kDataLoss, "key 'k': string 1 takes 18446744073709551615 bytes");
}

TEST(GgufReader, RefusesUnknownTypesNestedArraysAndOddBools) {
  ExpectError(GgufBuilder().Key("k", static_cast<GgufValueType>(13), "12345678"),
              absl::StatusCode::kInvalidArgument, "key 'k': type 13 is unknown");
  ExpectError(GgufBuilder().Array("k", static_cast<GgufValueType>(99), 0, ""),
              absl::StatusCode::kInvalidArgument, "key 'k': array element type 99 is unknown");
  ExpectError(GgufBuilder().Array("k", GgufValueType::kArray, 0, ""),
              absl::StatusCode::kInvalidArgument, "array of arrays");
  ExpectError(GgufBuilder().Scalar<uint8_t>("k", GgufValueType::kBool, 2),
              absl::StatusCode::kInvalidArgument, "key 'k': bool is 2");
  ExpectError(GgufBuilder().Array("k", GgufValueType::kBool, 2, "\1\3"),
              absl::StatusCode::kInvalidArgument, "key 'k': bool is 3");
}

TEST(GgufReader, RefusesEmptyAndRepeatedNames) {
  ExpectError(GgufBuilder().String("", "text"), absl::StatusCode::kInvalidArgument,
              "key 0 has 0 bytes");
  ExpectError(GgufBuilder().String(std::string(65536, 'k'), ""), absl::StatusCode::kInvalidArgument,
              "key 0 has 65536 bytes");
  ExpectError(GgufBuilder().String("k", "").Scalar<uint8_t>("k", GgufValueType::kUint8, 1),
              absl::StatusCode::kInvalidArgument, "key 'k' appears twice");
  const std::string data(16, '\0');
  ExpectError(GgufBuilder().Tensor("", {4}, GgmlType::kF32, data),
              absl::StatusCode::kInvalidArgument, "tensor 0: name has 0 bytes");
  ExpectError(GgufBuilder().Tensor(std::string(65, 't'), {4}, GgmlType::kF32, data),
              absl::StatusCode::kInvalidArgument, "tensor 0: name has 65 bytes");
  ExpectError(
      GgufBuilder().Tensor("t", {4}, GgmlType::kF32, data).Tensor("t", {4}, GgmlType::kF32, data),
      absl::StatusCode::kInvalidArgument, "tensor 't': name appears twice");
}

TEST(GgufReader, EscapesNamesInMessages) {
  ExpectError(GgufBuilder().Key("a\n\xff", static_cast<GgufValueType>(77), ""),
              absl::StatusCode::kInvalidArgument, "key 'a\\n\\xff': type 77");
}

TEST(GgufReader, ChecksTheAlignment) {
  for (const uint32_t alignment : {0u, 4u, 24u}) {
    ExpectError(GgufBuilder().Scalar("general.alignment", GgufValueType::kUint32, alignment),
                absl::StatusCode::kInvalidArgument, "key 'general.alignment' is");
  }
  ExpectError(GgufBuilder().String("general.alignment", "32"), absl::StatusCode::kInvalidArgument,
              "key 'general.alignment' should be an integer, is string");
  // An alignment beyond the file moves the data section to its end.
  ExpectError(GgufBuilder()
                  .Scalar("general.alignment", GgufValueType::kUint32, uint32_t{1} << 31)
                  .Tensor("t", {4}, GgmlType::kF32, std::string(16, '\0')),
              absl::StatusCode::kDataLoss, "tensor 't': data");
}

TEST(GgufReader, HonoursAnotherAlignment) {
  GgufBuilder builder;
  builder.alignment = 64;
  builder.Scalar("general.alignment", GgufValueType::kUint32, uint32_t{64})
      .Tensor("a", {1}, GgmlType::kF32, "1234")
      .Tensor("b", {1}, GgmlType::kF32, "5678");
  const std::string bytes = builder.Build();
  const auto file = ParseGguf(bytes);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->FindTensor("b")->offset - (*file)->FindTensor("a")->offset, 64u);
  EXPECT_EQ((*file)->FindTensor("b")->data[0], std::byte{'5'});
}

TEST(GgufReader, BoundsShapes) {
  const std::string data(64, '\0');
  ExpectError(GgufBuilder().TensorInfo("t", {}, kF32, 0).Data(data),
              absl::StatusCode::kInvalidArgument, "tensor 't': n_dimensions is 0, not 1 to 4");
  ExpectError(GgufBuilder().TensorInfo("t", {1, 1, 1, 1, 1}, kF32, 0).Data(data),
              absl::StatusCode::kInvalidArgument, "tensor 't': n_dimensions is 5, not 1 to 4");
  ExpectError(GgufBuilder().TensorInfo("t", {4, 0}, kF32, 0).Data(data),
              absl::StatusCode::kInvalidArgument, "tensor 't': shape [4, 0] has a zero dimension");
  const uint64_t half = uint64_t{1} << 32;  // the product wraps to 0
  ExpectError(GgufBuilder().TensorInfo("t", {half, half}, kF32, 0).Data(data),
              absl::StatusCode::kInvalidArgument,
              "tensor 't': shape [4294967296, 4294967296] of F32 exceeds file size");
  ExpectError(GgufBuilder().TensorInfo("t", {33}, 8, 0).Data(data),
              absl::StatusCode::kInvalidArgument,
              "tensor 't': row of 33 values is no multiple of the Q8_0 block of 32");
  ExpectError(GgufBuilder().TensorInfo("t", {4}, 4, 0).Data(data),
              absl::StatusCode::kInvalidArgument, "tensor 't': type 4 is unknown");
}

TEST(GgufReader, BoundsOffsetsAndRefusesSharedBytes) {
  const std::string data(64, '\0');
  ExpectError(GgufBuilder().TensorInfo("t", {4}, kF32, 4).Data(data),
              absl::StatusCode::kInvalidArgument,
              "tensor 't': offset 4 is no multiple of the alignment 32");
  ExpectError(GgufBuilder().TensorInfo("t", {9}, kF32, 32).Data(data), absl::StatusCode::kDataLoss,
              "tensor 't': data of 36 bytes at offset 32");
  ExpectError(GgufBuilder().TensorInfo("t", {4}, kF32, ~uint64_t{31}).Data(data),
              absl::StatusCode::kDataLoss, "tensor 't': data of 16 bytes");
  ExpectError(GgufBuilder().TensorInfo("a", {9}, kF32, 0).TensorInfo("b", {4}, kF32, 32).Data(data),
              absl::StatusCode::kInvalidArgument, "tensor 'b': data at");
  ExpectError(GgufBuilder().TensorInfo("a", {4}, kF32, 0).TensorInfo("b", {4}, kF32, 0).Data(data),
              absl::StatusCode::kInvalidArgument, "overlaps that of");
}

// ---- damage -------------------------------------------------------------------------------------

TEST(GgufReader, ASmallFileCutAnywhereIsRefused) {
  const std::string bytes = SmallFile();
  // Only the padding behind the last tensor's data may be missing.
  const std::string_view whole(bytes);
  const auto file = ParseGguf(whole);
  ASSERT_TRUE(file.ok());
  const GgufTensor* last = (*file)->FindTensor("norm");
  const size_t needed = last->offset + last->data.size();
  for (size_t size = 0; size < bytes.size(); ++size) {
    const std::string cut = bytes.substr(0, size);  // a separate buffer, so ASan checks its end
    ExpectFileOrNamedError(cut);
    EXPECT_EQ(ParseGguf(cut).ok(), size >= needed) << size;
  }
}

TEST(GgufReader, ASmallFileWithAnyBitFlippedGivesAFileOrANamedError) {
  std::string bytes = SmallFile();
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<char>(1 << bit % 8);
    ExpectFileOrNamedError(bytes);
    bytes[bit / 8] ^= static_cast<char>(1 << bit % 8);
  }
}

TEST(GgufReader, ASmallFileWithAnyByteReplacedGivesAFileOrANamedError) {
  std::string bytes = SmallFile();
  for (char& byte : bytes) {
    const char before = byte;
    for (const char other : {'\x00', '\x01', '\x7f', '\x80', '\xff'}) {
      byte = other;
      ExpectFileOrNamedError(bytes);
    }
    byte = before;
  }
}

TEST(GgufReader, ATinyModelCutAnywhereIsRefused) {
  const std::string bytes = ReadFile(ModelPath("tiny-q4_0.gguf"));
  ASSERT_GT(bytes.size(), 0u);
  for (size_t size = 0; size < bytes.size(); ++size) {
    const auto file = ParseGguf(std::string_view(bytes).substr(0, size));
    ASSERT_FALSE(file.ok()) << size;
    ASSERT_THAT(std::string(file.status().message()), StartsWith("gguf: ")) << size;
  }
}

TEST(GgufReader, ATinyModelWithSeveralRandomBytesReplacedGivesAFileOrANamedError) {
  constexpr uint64_t kSeed = 20261121;
  SCOPED_TRACE(kSeed);
  const std::string whole = ReadFile(ModelPath("tiny-q4_0.gguf"));
  const auto file = ParseGguf(whole);
  ASSERT_TRUE(file.ok()) << file.status();
  const size_t header_bytes = (*file)->tensors().front().offset;
  std::mt19937_64 random(kSeed);
  for (int round = 0; round < 1000; ++round) {
    std::string bytes = whole;
    for (uint64_t changes = 1 + random() % 4; changes > 0; --changes) {
      bytes[random() % header_bytes] = static_cast<char>(random());
    }
    ExpectFileOrNamedError(bytes);
  }
}

}  // namespace
}  // namespace baton
