#include "model/llama/llama_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/model/tiny_model.h"

namespace baton {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class LlamaWeightsTest : public ::testing::Test {
 protected:
  // Returns the status of loading a changed copy of the model.
  absl::Status Load(const GgufBuilder& builder) {
    const std::string bytes = builder.Build();
    const auto file = ParseGguf(bytes);
    EXPECT_TRUE(file.ok()) << file.status();
    const auto config = ReadLlamaConfig(**file);
    EXPECT_TRUE(config.ok()) << config.status();
    return LlamaWeights::Load(**file, *config, *device_, nullptr).status();
  }
  GgufBuilder Without(const std::string& name) { return CopyModel(*file_, {name}); }
  std::string Data(const std::string& name) {
    const GgufTensor* tensor = file_->FindTensor(name);
    return {reinterpret_cast<const char*>(tensor->data.data()), tensor->data.size()};
  }

  std::unique_ptr<GgufFile> file_ = *GgufFile::Open(TinyModelPath("f32"));
  std::unique_ptr<Device> device_ = *CreateCpuDevice({.threads = 1});
};

TEST_F(LlamaWeightsTest, NamesEveryTensorThatIsMissing) {
  for (const GgufTensor& tensor : file_->tensors()) {
    const std::string name(tensor.name);
    if (name == "token_embd.weight") continue;  // the configuration needs it
    const absl::Status status = Load(Without(name));
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(status.message(), HasSubstr(name));
  }
}

TEST_F(LlamaWeightsTest, NamesATensorOfAnotherShape) {
  const std::string name = "blk.1.ffn_up.weight";
  EXPECT_THAT(Load(Without(name).Tensor(name, {96, 64}, GgmlType::kF32, Data(name))).message(),
              AllOf(HasSubstr(name), HasSubstr("[96, 64]"), HasSubstr("[64, 96]")));
  EXPECT_THAT(
      Load(Without(name).Tensor(name, {64, 96, 1, 1}, GgmlType::kF32, Data(name))).message(),
      HasSubstr(name));
  const std::string norm = "blk.0.attn_norm.weight";
  EXPECT_THAT(
      Load(Without(norm).Tensor(norm, {32}, GgmlType::kF32, std::string(128, '\0'))).message(),
      AllOf(HasSubstr(norm), HasSubstr("[32]"), HasSubstr("[64]")));
}

TEST_F(LlamaWeightsTest, NamesATensorThatItDoesNotKnow) {
  const absl::Status status =
      Load(Without("").Tensor("blk.0.attn_q.bias", {64}, GgmlType::kF32, std::string(256, '\0')));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(status.message(), HasSubstr("blk.0.attn_q.bias"));
}

TEST_F(LlamaWeightsTest, ALayerBeyondTheLastIsRefused) {
  EXPECT_THAT(Load(Without("").Tensor("blk.2.attn_norm.weight", {64}, GgmlType::kF32,
                                      std::string(256, '\0')))
                  .message(),
              HasSubstr("blk.2.attn_norm.weight"));
}

TEST_F(LlamaWeightsTest, NamesATypeThatItDoesNotSupport) {
  const std::string name = "blk.0.ffn_gate.weight";
  const absl::Status status =
      Load(Without(name).Tensor(name, {64, 96}, GgmlType::kQ8_1, std::string(2 * 96 * 36, '\0')));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(status.message(), AllOf(HasSubstr(name), HasSubstr("Q8_1"), HasSubstr("Q6_K")));
  const std::string norm = "output_norm.weight";
  EXPECT_THAT(
      Load(Without(norm).Tensor(norm, {64}, GgmlType::kF16, std::string(128, '\0'))).message(),
      AllOf(HasSubstr(norm), HasSubstr("F16")));
}

TEST_F(LlamaWeightsTest, FusesNeighboursOfOneFormatAndKeepsOthersApart) {
  const auto q4 = GgufFile::Open(TinyModelPath("q4_0"));
  const GgufTensor* k = (*q4)->FindTensor("blk.0.attn_k.weight");
  const std::string bytes =
      Without("blk.0.attn_k.weight")
          .Tensor("blk.0.attn_k.weight", {64, 32}, GgmlType::kQ4_0,
                  {reinterpret_cast<const char*>(k->data.data()), k->data.size()})
          .Build();
  const auto file = ParseGguf(bytes);
  const auto config = ReadLlamaConfig(**file);
  const auto weights = LlamaWeights::Load(**file, *config, *device_, nullptr);
  ASSERT_TRUE(weights.ok()) << weights.status();
  const FusedWeight& mixed = (*weights)->layers()[0].qkv;
  ASSERT_EQ(mixed.parts.size(), 3u);
  EXPECT_EQ(mixed.parts[1].column, 64);
  EXPECT_EQ(mixed.parts[2].column, 96);
  EXPECT_EQ(mixed.rows, 128);
  EXPECT_TRUE(mixed.WantsInt8() && mixed.WantsF32());
  const FusedWeight& fused = (*weights)->layers()[1].qkv;
  ASSERT_EQ(fused.parts.size(), 1u);
  EXPECT_EQ(fused.rows, 128);
  EXPECT_FALSE(fused.WantsInt8());
}

TEST_F(LlamaWeightsTest, TakesAnotherTypeForEachTensor) {
  const TinyModel model("k-types", 1);
  EXPECT_EQ(model.weights->embedding().format, WeightFormat::kQ6_K);
  const LlamaLayerWeights& layer = model.weights->layers()[0];
  std::vector<WeightFormat> formats;
  for (const WeightPart& part : layer.qkv.parts) formats.push_back(part.matrix.format);
  EXPECT_EQ(formats, (std::vector{WeightFormat::kQ4_K, WeightFormat::kQ5_K, WeightFormat::kQ6_K}));
  EXPECT_EQ(layer.attention_output.parts[0].matrix.format, WeightFormat::kQ5_K);
  ASSERT_EQ(layer.gate_up.parts.size(), 1u);
  EXPECT_EQ(layer.gate_up.parts[0].matrix.format, WeightFormat::kQ4_K);
  EXPECT_FALSE(layer.qkv.WantsF32());
}

TEST_F(LlamaWeightsTest, TiesTheOutputToTheEmbeddingOnlyWhereTheFileDoes) {
  const TinyModel tied("q4_0", 1);
  EXPECT_EQ(tied.weights->output().parts[0].matrix.data, tied.weights->embedding().data);
  const TinyModel untied("untied-q4_0", 1);
  EXPECT_NE(untied.weights->output().parts[0].matrix.data, untied.weights->embedding().data);
}

TEST_F(LlamaWeightsTest, MakesMatricesInsteadOfReadingThem) {
  const auto config = ReadLlamaConfig(*file_);
  std::vector<const std::byte*> made;
  const auto make = [&](const PackedMatrix& matrix, std::byte* to) {
    EXPECT_EQ(matrix.data, nullptr);
    std::memset(to, static_cast<int>(made.size()) + 1,
                device_->ops().PackedBytes(matrix.format, matrix.rows, matrix.cols));
    made.push_back(to);
    return absl::OkStatus();
  };
  const auto weights = LlamaWeights::Load(*file_, *config, *device_, nullptr, {}, make);
  ASSERT_TRUE(weights.ok()) << weights.status();
  ASSERT_EQ(made.size(), 1u + 2 * 4);  // the embedding; of two layers four matrices each
  EXPECT_EQ((*weights)->embedding().data, made[0]);
  const LlamaLayerWeights& last = (*weights)->layers()[1];
  EXPECT_EQ(last.down.parts[0].matrix.data, made[8]);
  EXPECT_EQ(*last.down.parts[0].matrix.data, std::byte{9});
  const GgufTensor& norm = *file_->FindTensor("blk.1.ffn_norm.weight");
  EXPECT_EQ(std::memcmp(last.ffn_norm, norm.data.data(), norm.data.size()), 0);

  const auto fail = [](const PackedMatrix&, std::byte*) { return absl::InternalError("planted"); };
  EXPECT_EQ(LlamaWeights::Load(*file_, *config, *device_, nullptr, {}, fail).status().message(),
            "planted");
}

TEST_F(LlamaWeightsTest, ReportsProgressUpToTheEnd) {
  const auto config = ReadLlamaConfig(*file_);
  std::vector<double> seen;
  ASSERT_TRUE(LlamaWeights::Load(*file_, *config, *device_, [&](double done) {
                seen.push_back(done);
              }).ok());
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_LT(seen[0], seen[1]);
  EXPECT_DOUBLE_EQ(seen[1], 1.0);
}

}  // namespace
}  // namespace baton
