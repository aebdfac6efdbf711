#include "model/llama/llama_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/model/model_files.h"

namespace baton {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class LlamaConfigTest : public ::testing::Test {
 protected:
  absl::StatusOr<LlamaConfig> Read(const GgufBuilder& builder) {
    const std::string bytes = builder.Build();
    const auto file = ParseGguf(bytes);
    EXPECT_TRUE(file.ok()) << file.status();
    return ReadLlamaConfig(**file);
  }
  // Reads the model's configuration with one value changed.
  template <typename T>
  absl::StatusOr<LlamaConfig> With(const std::string& key, GgufValueType type, T value) {
    return Read(CopyModel(*file_, {key}).Scalar(key, type, value));
  }
  absl::StatusOr<LlamaConfig> WithCount(const std::string& key, int64_t value) {
    return With(key, GgufValueType::kInt64, value);
  }
  absl::StatusOr<LlamaConfig> WithFloat(const std::string& key, float value) {
    return With(key, GgufValueType::kFloat32, value);
  }

  std::unique_ptr<GgufFile> file_ = *GgufFile::Open(TinyModelPath("f32"));
};

TEST_F(LlamaConfigTest, ReadsTheFilesValues) {
  const auto config = ReadLlamaConfig(*file_);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->name, "tiny-f32");
  EXPECT_EQ(config->layers, 2);
  EXPECT_EQ(config->hidden, 64);
  EXPECT_EQ(config->query_heads, 4);
  EXPECT_EQ(config->kv_heads, 2);
  EXPECT_EQ(config->head_dim, 16);
  EXPECT_EQ(config->feed_forward, 96);
  EXPECT_EQ(config->vocabulary, 320);
  EXPECT_EQ(config->context_length, 512);
  EXPECT_FLOAT_EQ(config->norm_epsilon, 1e-5f);
  ASSERT_EQ(config->rope_frequencies.size(), 8u);
  EXPECT_EQ(config->rope_frequencies[0], 1.0);
}

TEST_F(LlamaConfigTest, RefusesAMixtureOfExperts) {
  EXPECT_THAT(WithCount("llama.expert_count", 8).status().message(), HasSubstr("8"));
}

constexpr char kWindow[] = "llama.attention.sliding_window";
constexpr char kPattern[] = "llama.attention.sliding_window_pattern";

TEST_F(LlamaConfigTest, AWindowMakesAGroupOfItsLayers) {
  const auto file = *GgufFile::Open(TinyModelPath("window-q4_0"));
  const auto config = ReadLlamaConfig(*file);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->window, 24);
  const KvCacheSpec kv = config->Kv();
  EXPECT_TRUE(CheckKvCacheSpec(kv).ok());
  EXPECT_EQ(kv, (KvCacheSpec{.groups = {{.kind = KvGroupKind::kFullAttention,
                                         .layers = 1,
                                         .kv_heads = 2,
                                         .head_dim = 16,
                                         .model_layers = {1}},
                                        {.kind = KvGroupKind::kSlidingWindow,
                                         .layers = 3,
                                         .kv_heads = 2,
                                         .head_dim = 16,
                                         .window = 24,
                                         .model_layers = {0, 2, 3}}}}));
  EXPECT_EQ(ReadLlamaConfig(*file_)->Kv(),
            (KvCacheSpec{.groups = {{.layers = 2, .kv_heads = 2, .head_dim = 16}}}));
}

TEST_F(LlamaConfigTest, APeriodEndsWithALayerOfFullAttention) {
  const auto with_period = [&](uint32_t period) {
    return Read(CopyModel(*file_, {})
                    .Scalar<uint32_t>(kWindow, GgufValueType::kUint32, 24)
                    .Scalar<uint32_t>(kPattern, GgufValueType::kUint32, period));
  };
  EXPECT_EQ(with_period(2)->window_layers, (std::vector<bool>{true, false}));
  EXPECT_EQ(with_period(1)->Kv().groups.size(), 1u) << "every layer has full attention";
  EXPECT_EQ(with_period(3).status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(with_period(0).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(LlamaConfigTest, APatternHasAValueForEachLayer) {
  const auto file = *GgufFile::Open(TinyModelPath("window-q4_0"));
  const auto with_pattern = [&](GgufValueType type, std::string_view bytes) {
    return Read(
               CopyModel(*file, {kPattern}).Array(kPattern, type, bytes.size(), std::string(bytes)))
        .status();
  };
  EXPECT_TRUE(with_pattern(GgufValueType::kBool, std::string_view("\1\1\1\0", 4)).ok());
  EXPECT_TRUE(with_pattern(GgufValueType::kBool, std::string_view("\0\0\0\0", 4)).ok());
  const absl::Status shorter = with_pattern(GgufValueType::kBool, std::string_view("\1\0\1", 3));
  EXPECT_EQ(shorter.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(shorter.message(), HasSubstr("has 3 values, the model has 4 layers"));
  const absl::Status bytes = with_pattern(GgufValueType::kUint8, std::string_view("\1\0\1\1", 4));
  EXPECT_EQ(bytes.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(bytes.message(), HasSubstr(kPattern));
}

TEST_F(LlamaConfigTest, RefusesAWindowInAllLayersAndReadsOneOfTheWholeContextAsFullAttention) {
  const std::string key = kWindow;
  const absl::Status all = WithCount(key, 511).status();
  EXPECT_EQ(all.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(all.message(),
              AllOf(HasSubstr("llama.attention.sliding_window is 511,"),
                    HasSubstr("the context length is 512"), HasSubstr("all 2 layers")));
  for (const int64_t value : {0, 512, 4096}) {
    EXPECT_EQ(WithCount(key, value)->Kv().groups.size(), 1u) << value;
  }
  EXPECT_EQ(WithCount(key, -1).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(With(key, GgufValueType::kUint64, uint64_t{1} << 63).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(LlamaConfigTest, NamesAKeyThatIsMissing) {
  for (const char* key : {"llama.block_count", "llama.embedding_length",
                          "llama.feed_forward_length", "llama.context_length",
                          "llama.attention.head_count", "llama.attention.layer_norm_rms_epsilon"}) {
    const absl::Status status = Read(CopyModel(*file_, {key})).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(status.message(), HasSubstr(key));
  }
  EXPECT_THAT(Read(CopyModel(*file_, {"token_embd.weight"})).status().message(),
              HasSubstr("token_embd.weight"));
}

TEST_F(LlamaConfigTest, NamesACountOutOfRange) {
  for (const char* key :
       {"llama.block_count", "llama.embedding_length", "llama.feed_forward_length",
        "llama.context_length", "llama.attention.head_count", "llama.attention.head_count_kv"}) {
    for (const int64_t value : {int64_t{-1}, int64_t{0}, int64_t{1} << 40}) {
      const absl::Status status = WithCount(key, value).status();
      EXPECT_FALSE(status.ok());
      EXPECT_THAT(status.message(), AllOf(HasSubstr(key), HasSubstr(std::to_string(value))));
    }
  }
}

// The sampler does not support a larger vocabulary. Such a model must not load, because it would
// refuse every request.
TEST_F(LlamaConfigTest, RefusesAVocabularyThatCannotBeSampled) {
  const auto with_rows = [this](uint64_t rows) {
    return Read(CopyModel(*file_, {"token_embd.weight"})
                    .Tensor("token_embd.weight", {32, rows}, GgmlType::kQ4_0,
                            std::string(rows * 18, '\0')));
  };
  EXPECT_EQ(with_rows(1 << 19)->vocabulary, 1 << 19);
  EXPECT_THAT(with_rows((1 << 19) + 1).status().message(),
              HasSubstr("token_embd.weight has 524289 rows, must have at most 524288"));
}

TEST_F(LlamaConfigTest, HeadsMustDivide) {
  EXPECT_THAT(WithCount("llama.attention.head_count_kv", 3).status().message(),
              HasSubstr("must divide head_count 4"));
  EXPECT_FALSE(WithCount("llama.attention.head_count", 5).ok());
  EXPECT_FALSE(WithCount("llama.attention.head_count_kv", 8).ok());
  EXPECT_THAT(WithCount("llama.embedding_length", 4096).status().message(),
              HasSubstr("head dimension is 1024; must be at most 256"));
}

TEST_F(LlamaConfigTest, TheHeadDimensionMayBeGiven) {
  const auto config = WithCount("llama.attention.key_length", 32);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->head_dim, 32);
  EXPECT_EQ(config->rope_frequencies.size(), 8u);  // rope.dimension_count says 16
  EXPECT_FALSE(WithCount("llama.attention.key_length", 257).ok());
  EXPECT_FALSE(
      Read(CopyModel(*file_, {})
               .Scalar<uint32_t>("llama.attention.key_length", GgufValueType::kUint32, 32)
               .Scalar<uint32_t>("llama.attention.value_length", GgufValueType::kUint32, 16))
          .ok());
}

TEST_F(LlamaConfigTest, RefusesInvalidEpsilonAndRopeValues) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float value : {0.0f, -1.0f, 2.0f, nan}) {
    EXPECT_THAT(WithFloat("llama.attention.layer_norm_rms_epsilon", value).status().message(),
                HasSubstr("must be in (0, 1]"));
  }
  for (const float value : {0.0f, -1.0f, nan, std::numeric_limits<float>::infinity()}) {
    EXPECT_FALSE(WithFloat("llama.rope.freq_base", value).ok());
    EXPECT_FALSE(WithFloat("llama.rope.scale_linear", value).ok());
  }
  EXPECT_FALSE(WithCount("llama.rope.dimension_count", 7).ok());
  EXPECT_FALSE(WithCount("llama.rope.dimension_count", 18).ok());
}

TEST_F(LlamaConfigTest, ReadsRopeScalings) {
  const auto plain = ReadLlamaConfig(*file_);
  const auto old_key = WithFloat("llama.rope.scale_linear", 4);
  const auto linear = ReadLlamaConfig(**GgufFile::Open(TinyModelPath("linear-rope-q4_0")));
  const auto llama3 = ReadLlamaConfig(**GgufFile::Open(TinyModelPath("llama3-rope-q4_0")));
  const auto key = Read(CopyModel(*file_, {})
                            .String("llama.rope.scaling.type", "llama3")
                            .Scalar<float>("llama.rope.scaling.factor", GgufValueType::kFloat32, 8)
                            .Scalar<uint32_t>("llama.rope.scaling.original_context_length",
                                              GgufValueType::kUint32, 256));
  ASSERT_TRUE(plain.ok() && old_key.ok() && linear.ok() && llama3.ok() && key.ok());
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_DOUBLE_EQ(linear->rope_frequencies[i], plain->rope_frequencies[i] / 4);
    EXPECT_DOUBLE_EQ(old_key->rope_frequencies[i], linear->rope_frequencies[i]);
    EXPECT_NEAR(llama3->rope_frequencies[i], key->rope_frequencies[i], 1e-6);
  }
  EXPECT_LT(llama3->rope_frequencies[7], plain->rope_frequencies[7] / 7.9);
  EXPECT_DOUBLE_EQ(llama3->rope_frequencies[0], 1.0);
  EXPECT_NE(plain->rope, linear->rope);
  EXPECT_NE(plain->rope, llama3->rope);
}

TEST_F(LlamaConfigTest, AFactorWithoutATypeIsLinear) {
  const auto plain = ReadLlamaConfig(*file_);
  const auto linear = WithFloat("llama.rope.scaling.factor", 4);
  ASSERT_TRUE(plain.ok() && linear.ok());
  EXPECT_DOUBLE_EQ(linear->rope_frequencies[3], plain->rope_frequencies[3] / 4);
  EXPECT_THAT(linear->rope, HasSubstr("scaling linear, factor 4"));
  const auto none = Read(CopyModel(*file_, {})
                             .String("llama.rope.scaling.type", "none")
                             .Scalar<float>("llama.rope.scaling.factor", GgufValueType::kFloat32, 4)
                             .Scalar<float>("llama.rope.scale_linear", GgufValueType::kFloat32, 4));
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ(none->rope_frequencies, plain->rope_frequencies);
}

TEST_F(LlamaConfigTest, RefusesScalingsWithoutAFactorAndAnglesTooLargeForExactSines) {
  for (const char* type : {"ntk", "yarn"}) {
    EXPECT_THAT(
        Read(CopyModel(*file_, {}).String("llama.rope.scaling.type", type)).status().message(),
        AllOf(HasSubstr(type), HasSubstr("llama.rope.scaling.factor is missing")));
  }
  for (const char* type : {"linear", "llama3", "ntk", "yarn"}) {
    const auto with = [&](float factor) {
      return Read(CopyModel(*file_, {})
                      .String("llama.rope.scaling.type", type)
                      .Scalar<float>("llama.rope.scaling.factor", GgufValueType::kFloat32, factor));
    };
    EXPECT_TRUE(with(0.5).ok());
    EXPECT_THAT(with(1e-38f).status().message(),
                AllOf(HasSubstr("radians"), HasSubstr("512 tokens"), HasSubstr("factor 1e-38")))
        << type;
  }
  EXPECT_THAT(WithFloat("llama.rope.scaling.attn_factor", 1e10f).status().message(),
              HasSubstr("attention_factor is 1e+10, it must be at most 100"));
}

TEST_F(LlamaConfigTest, NtkIsPlainRopeWithAnotherBase) {
  const auto ntk = ReadLlamaConfig(**GgufFile::Open(TinyModelPath("ntk-rope-f16")));
  const auto based = WithFloat("llama.rope.freq_base", 10000 * std::pow(4.0f, 16.0f / 14));
  ASSERT_TRUE(ntk.ok() && based.ok());
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_NEAR(ntk->rope_frequencies[i] / based->rope_frequencies[i], 1, 1e-6);
  }
  EXPECT_EQ(ntk->rope_attention_factor, 1);
}

TEST_F(LlamaConfigTest, ReadsYarn) {
  const auto plain = ReadLlamaConfig(*file_);
  const auto yarn = ReadLlamaConfig(**GgufFile::Open(TinyModelPath("yarn-rope-f16")));
  ASSERT_TRUE(plain.ok() && yarn.ok());
  // Pair 2.6 turns once in the original 128 tokens. No pair turns 32 times.
  for (int i = 0; i < 8; ++i) {
    const double stretched = std::min(i / 3.0, 1.0);
    EXPECT_NEAR(yarn->rope_frequencies[i] / plain->rope_frequencies[i],
                stretched / 4 + 1 - stretched, 1e-14);
  }
  EXPECT_NEAR(yarn->rope_attention_factor, 0.1 * std::log(4) + 1, 1e-15);
  EXPECT_THAT(yarn->rope, HasSubstr("scaling yarn, factor 4, attention factor 1.13863"));
  EXPECT_THAT(plain->rope, Not(HasSubstr("attention")));
  const auto with = [this](const char* key, float value) {
    return Read(CopyModel(*file_, {})
                    .String("llama.rope.scaling.type", "yarn")
                    .Scalar<float>("llama.rope.scaling.factor", GgufValueType::kFloat32, 4)
                    .Scalar<float>(key, GgufValueType::kFloat32, value));
  };
  // The original context is the model's, 512 tokens, if the file does not name it.
  const auto longer = with("llama.rope.scaling.yarn_beta_fast", 32);
  const auto faster = with("llama.rope.scaling.yarn_beta_fast", 10);
  const auto slower = with("llama.rope.scaling.yarn_beta_slow", 0.1f);
  const auto level = with("llama.rope.scaling.yarn_log_multiplier", 1);
  const auto larger = with("llama.rope.scaling.attn_factor", 2);
  ASSERT_TRUE(longer.ok() && faster.ok() && slower.ok() && level.ok() && larger.ok());
  EXPECT_GT(longer->rope_frequencies[1], yarn->rope_frequencies[1]);
  EXPECT_GT(faster->rope_frequencies[1], longer->rope_frequencies[1]);
  EXPECT_GT(slower->rope_frequencies[4], longer->rope_frequencies[4]);
  EXPECT_EQ(level->rope_frequencies, longer->rope_frequencies);
  EXPECT_EQ(level->rope_attention_factor, 1);
  EXPECT_NE(level->rope, longer->rope);
  EXPECT_EQ(larger->rope_attention_factor, 2 * longer->rope_attention_factor);
  for (const char* key :
       {"llama.rope.scaling.yarn_ext_factor", "llama.rope.scaling.yarn_attn_factor"}) {
    EXPECT_TRUE(with(key, 1).ok());
    EXPECT_THAT(with(key, 0.5f).status().message(), AllOf(HasSubstr(key), HasSubstr("0.5")));
    EXPECT_EQ(with(key, 0.5f).status().code(), absl::StatusCode::kUnimplemented);
  }
  EXPECT_THAT(with("llama.rope.scaling.yarn_beta_fast", 1).status().message(),
              HasSubstr("beta_fast is 1"));
}

TEST_F(LlamaConfigTest, RefusesOtherRopeByName) {
  const auto refused = [this](const char* type) {
    const absl::Status status =
        Read(CopyModel(*file_, {}).String("llama.rope.scaling.type", type)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    return std::string(status.message());
  };
  EXPECT_THAT(refused("dynamic"), HasSubstr("dynamic NTK"));
  EXPECT_THAT(refused("longrope"), AllOf(HasSubstr("longrope"), HasSubstr("linear")));
  const absl::Status sections = WithCount("llama.rope.dimension_sections", 16).status();
  EXPECT_EQ(sections.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(sections.message(), HasSubstr("M-RoPE"));
}

TEST_F(LlamaConfigTest, RefusesRopeDivisorsOfAnotherShape) {
  EXPECT_THAT(Read(CopyModel(*file_, {})
                       .Tensor("rope_freqs.weight", {4}, GgmlType::kF32, std::string(16, '\1')))
                  .status()
                  .message(),
              AllOf(HasSubstr("rope_freqs.weight"), HasSubstr("[4]"), HasSubstr("[8]")));
  EXPECT_FALSE(Read(CopyModel(*file_, {})
                        .Tensor("rope_freqs.weight", {8}, GgmlType::kF32, std::string(32, '\0')))
                   .ok());
}

TEST_F(LlamaConfigTest, RanksShareHeadsAndColumns) {
  LlamaConfig config;
  config.hidden = 64;
  config.query_heads = 12;
  config.kv_heads = 6;
  config.feed_forward = 100;
  config.vocabulary = 320;
  EXPECT_TRUE(config.CheckTensorParallel(1).ok());
  EXPECT_TRUE(config.CheckTensorParallel(3).ok());
  EXPECT_TRUE(config.CheckTensorParallel(6).ok());
  for (const int32_t degree : {-3, 0, 4, 12}) {
    EXPECT_EQ(config.CheckTensorParallel(degree),
              absl::InvalidArgumentError("tensor-parallel is " + std::to_string(degree) +
                                         "; it must divide the model's 6 KV heads"));
  }
  const LlamaConfig first = config.OfRank({.rank = 0, .degree = 3});
  EXPECT_EQ(first.query_heads, 4);
  EXPECT_EQ(first.kv_heads, 2);
  EXPECT_EQ(first.feed_forward, 33);
  EXPECT_EQ(first.vocabulary, 320);
  EXPECT_EQ(first.hidden, 64);
  const LlamaConfig last = config.OfRank({.rank = 2, .degree = 3});
  EXPECT_EQ(last.feed_forward, 34);
  EXPECT_EQ(last.vocabulary, 107);
  config.feed_forward = 2;
  EXPECT_EQ(config.CheckTensorParallel(3),
            absl::InvalidArgumentError(
                "tensor-parallel is 3; the model's smallest matrix allows at most 2"));
}

}  // namespace
}  // namespace baton
