#include "engine/model_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <limits>
#include <optional>
#include <set>

#include "tests/engine/tiny_engine.h"
#include "tests/model/model_files.h"
#include "tests/model/toy_architecture.h"

namespace baton {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ModelLoaderTest : public ::testing::Test {
 protected:
  absl::StatusOr<ModelInfo> Read(const GgufBuilder& builder) {
    bytes_ = builder.Build();
    return ReadModelInfo(**ParseGguf(bytes_), "/models/name.gguf");
  }
  std::unique_ptr<GgufFile> file_ = *GgufFile::Open(TinyModelFile());
  std::string bytes_;
};

TEST_F(ModelLoaderTest, LoadsAModelThatCanRun) {
  const auto model = LoadModel(TinyOptions());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->info.spec.architecture, "llama");
  EXPECT_EQ(model->info.spec.name, "tiny-q4_1");
  EXPECT_EQ(model->info.fingerprint.size(), 32u);
  EXPECT_EQ(model->info.tokenizer.tokens.size(), 320u);
  EXPECT_THAT(model->info.chat_template, HasSubstr("im_start"));
  EXPECT_EQ(model->tokenizer->vocab_size(), 320);
  EXPECT_EQ(model->info.spec.layers, 2);
  EXPECT_GT(model->weights->bytes(), 0u);
}

TEST_F(ModelLoaderTest, EveryModelHasAFingerprintOfItsOwn) {
  std::set<std::string> seen;
  const auto names = {"f32",
                      "f16",
                      "bf16",
                      "q8_0",
                      "q4_0",
                      "q4_1",
                      "untied-q4_0",
                      "linear-rope-q4_0",
                      "llama3-rope-q4_0",
                      "ntk-rope-f16",
                      "yarn-rope-f16"};
  for (const char* name : names) {
    seen.insert(ModelFingerprint(**GgufFile::Open(TinyModelFile(name))));
  }
  EXPECT_EQ(seen.size(), names.size());
}

TEST_F(ModelLoaderTest, OneBitOfAWeightChangesTheFingerprint) {
  const std::string before = ModelFingerprint(*file_);
  bytes_ = CopyModel(*file_, {}).Build();
  EXPECT_EQ(ModelFingerprint(**ParseGguf(bytes_)), before);
  bytes_[bytes_.size() - 100] ^= 1;
  EXPECT_NE(ModelFingerprint(**ParseGguf(bytes_)), before);
}

TEST_F(ModelLoaderTest, AHyperParameterChangesTheFingerprintANameDoesNot) {
  const std::string before = ModelFingerprint(*file_);
  const std::string key = "llama.context_length";
  bytes_ = CopyModel(*file_, {key}).Scalar<uint32_t>(key, GgufValueType::kUint32, 511).Build();
  EXPECT_NE(ModelFingerprint(**ParseGguf(bytes_)), before);
  bytes_ = CopyModel(*file_, {"general.name"}).String("general.name", "other").Build();
  EXPECT_EQ(ModelFingerprint(**ParseGguf(bytes_)), before);
}

TEST_F(ModelLoaderTest, ReadsTheRecommendedSampling) {
  EXPECT_EQ(ReadSamplingDefaults(*file_), SamplingDefaults());
  bytes_ = CopyModel(*file_, {})
               .Scalar<float>("general.sampling.temp", GgufValueType::kFloat32, 0.6f)
               .Scalar<int32_t>("general.sampling.top_k", GgufValueType::kInt32, 20)
               .Scalar<float>("general.sampling.top_p", GgufValueType::kFloat32, 0.9f)
               .Scalar<float>("general.sampling.min_p", GgufValueType::kFloat32, 0.05f)
               .Scalar<float>("general.sampling.penalty_repeat", GgufValueType::kFloat32, 1.05f)
               .Build();
  const std::unique_ptr<GgufFile> file = *ParseGguf(bytes_);
  const SamplingDefaults expected = {
      .temperature = 0.6f, .top_k = 20, .top_p = 0.9f, .min_p = 0.05f, .repetition_penalty = 1.05f};
  EXPECT_EQ(ReadSamplingDefaults(*file), expected);
  EXPECT_EQ(ReadModelInfo(*file, "it.gguf")->sampling, expected);
  EXPECT_EQ(ModelFingerprint(*file), ModelFingerprint(*file_))
      << "no answer depends on the recommended sampling";
}

TEST_F(ModelLoaderTest, IgnoresRecommendedSamplingWithAWrongTypeOrValue) {
  const auto read = [this](GgufBuilder builder) {
    bytes_ = builder.Build();
    return ReadSamplingDefaults(**ParseGguf(bytes_));
  };
  const auto with = [this](std::string_view key, float value) {
    return CopyModel(*file_, {}).Scalar<float>(key, GgufValueType::kFloat32, value);
  };
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(read(with("general.sampling.temp", kNan)), SamplingDefaults());
  EXPECT_EQ(read(with("general.sampling.temp", -1)), SamplingDefaults());
  EXPECT_EQ(read(with("general.sampling.top_p", 0)), SamplingDefaults());
  EXPECT_EQ(read(with("general.sampling.penalty_repeat", 0)), SamplingDefaults());
  EXPECT_EQ(read(with("general.sampling.top_k", 20)), SamplingDefaults())
      << "top_k must be an integer";
  EXPECT_EQ(read(CopyModel(*file_, {}).String("general.sampling.temp", "hot")), SamplingDefaults());
  for (const int64_t top_k : {int64_t{-1}, int64_t{1} << 40}) {
    EXPECT_EQ(read(CopyModel(*file_, {})
                       .Scalar<int64_t>("general.sampling.top_k", GgufValueType::kInt64, top_k)),
              SamplingDefaults());
  }
  EXPECT_EQ(read(with("general.sampling.temp", 0.5f)
                     .Scalar<float>("general.sampling.top_p", GgufValueType::kFloat32, 9)),
            SamplingDefaults{.temperature = 0.5f});
}

// A worker with another end token would end a resumed answer at another token.
TEST_F(ModelLoaderTest, TokenizerAndTemplateChangeTheFingerprint) {
  const std::string before = ModelFingerprint(*file_);
  const std::string eos = "tokenizer.ggml.eos_token_id";
  bytes_ = CopyModel(*file_, {eos}).Scalar<uint32_t>(eos, GgufValueType::kUint32, 3).Build();
  EXPECT_NE(ModelFingerprint(**ParseGguf(bytes_)), before);
  for (const char* key : {"tokenizer.ggml.pre", "tokenizer.chat_template"}) {
    bytes_ = CopyModel(*file_, {key}).String(key, "other").Build();
    EXPECT_NE(ModelFingerprint(**ParseGguf(bytes_)), before) << key;
  }
  bytes_ = CopyModel(*file_, {"tokenizer.ggml.merges"}).Build();
  EXPECT_NE(ModelFingerprint(**ParseGguf(bytes_)), before);
}

TEST_F(ModelLoaderTest, AModelWithoutANameIsCalledAsItsFile) {
  EXPECT_EQ(Read(CopyModel(*file_, {"general.name"}))->spec.name, "name");
}

TEST_F(ModelLoaderTest, NamesTheTokenizersError) {
  for (const char* key :
       {"tokenizer.ggml.model", "tokenizer.ggml.tokens", "tokenizer.ggml.merges"}) {
    EXPECT_THAT(Read(CopyModel(*file_, {key})).status().message(), HasSubstr(key));
  }
  const std::string eos = "tokenizer.ggml.eos_token_id";
  EXPECT_THAT(Read(CopyModel(*file_, {eos}).Scalar<uint32_t>(eos, GgufValueType::kUint32, 320))
                  .status()
                  .message(),
              AllOf(HasSubstr(eos), HasSubstr("320")));
  const std::string tokens = "tokenizer.ggml.tokens";
  std::string entries;
  for (int i = 0; i < 10; ++i) entries += GgufBuilder::Text("a");
  EXPECT_THAT(Read(CopyModel(*file_, {tokens}).Array(tokens, GgufValueType::kString, 10, entries))
                  .status()
                  .message(),
              AllOf(HasSubstr("10 entries"), HasSubstr("320 rows")));
}

// A checkpoint of the toy architecture, with the small model's tokenizer.
class ToyModelTest : public ::testing::Test {
 protected:
  ToyModelTest() {
    const auto file = *GgufFile::Open(TinyModelFile());
    GgufBuilder builder = CopyModel(*file, {"general.architecture"});
    builder.String("general.architecture", "toy");
    builder.Scalar<uint32_t>("toy.context_length", GgufValueType::kUint32, 256);
    std::ofstream(path_, std::ios::binary) << builder.Build();
    options_.model = path_;
    options_.kv_type = KvType::kF32;
    options_.architectures = known_;
  }
  ~ToyModelTest() override { std::remove(path_.c_str()); }

  const std::string path_ = ::testing::TempDir() + "baton_toy_model.gguf";
  const ToyArchitecture toy_;
  const Architecture* const known_[1] = {&toy_};
  EngineOptions options_ = TinyOptions();
};

TEST_F(ToyModelTest, AnArchitectureThatOnlyATestKnowsServesRequests) {
  const auto engine = Engine::Create(options_);
  ASSERT_TRUE(engine.ok()) << engine.status();
  EXPECT_EQ((*engine)->model_info().spec.architecture, "toy");
  const GenerateRequest request = TinyRequest(/*prompt_tokens=*/70, /*max_tokens=*/40, /*seed=*/2);
  std::vector<TokenId> tokens = request.prompt;
  for (int i = 0; i < 40; ++i) tokens.push_back(ToyNext(tokens));
  const std::vector<TokenId> expected(tokens.begin() + 70, tokens.end());
  const SinkRecord answer = Ask(**engine, request);
  EXPECT_FALSE(answer.error.has_value()) << *answer.error;
  EXPECT_EQ(answer.tokens, expected);
  EXPECT_EQ(Ask(**engine, request).tokens, expected) << "with a cached prefix";
}

TEST_F(ToyModelTest, AModelIsRefusedByTheNameOfItsArchitecture) {
  options_.architectures = Architectures();
  const absl::Status status = LoadModel(options_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(status.message(), "general.architecture is \"toy\", supported: \"llama\"");
}

TEST_F(ToyModelTest, AModelWhoseKvGroupsCannotBeCachedIsRefused) {
  class TwoGroups final : public Architecture {
   public:
    std::string_view name() const override { return "toy"; }
    absl::StatusOr<ModelSpec> ReadSpec(const GgufFile& file) const override {
      ASSIGN_OR_RETURN(ModelSpec spec, ToyArchitecture().ReadSpec(file));
      spec.kv.groups.push_back({.kind = KvGroupKind::kRecurrentState,
                                .layers = 1,
                                .model_layers = {1},
                                .state_bytes = 64});
      spec.kv.groups.front().model_layers = {0};
      return spec;
    }
    absl::StatusOr<std::unique_ptr<ModelWeights>> Load(const GgufFile& file,
                                                       Device& device) const override {
      return ToyArchitecture().Load(file, device);
    }
  };
  const TwoGroups two_groups;
  const Architecture* const known[] = {&two_groups};
  options_.architectures = known;
  const absl::Status status = LoadModel(options_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(status.message(), HasSubstr("KV group 1: recurrent states"));
}

TEST_F(ToyModelTest, ItsOwnKeysAreInTheFingerprint) {
  const auto file = *GgufFile::Open(path_);
  const std::string before = ModelFingerprint(*file);
  const std::string bytes = CopyModel(*file, {"toy.context_length"})
                                .Scalar<uint32_t>("toy.context_length", GgufValueType::kUint32, 255)
                                .Build();
  EXPECT_NE(ModelFingerprint(**ParseGguf(bytes)), before);
}

// Unsets an environment variable and restores it at the end.
class UnsetVariable {
 public:
  explicit UnsetVariable(const char* name) : name_(name) {
    if (const char* value = std::getenv(name); value != nullptr) kept_ = value;
    unsetenv(name);
  }
  ~UnsetVariable() {
    if (kept_.has_value()) {
      setenv(name_, kept_->c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }

 private:
  const char* name_;
  std::optional<std::string> kept_;
};

TEST_F(ModelLoaderTest, TheEnvironmentSetsTheFolderOfTheDefaultModel) {
  const UnsetVariable directory("BATON_MODEL_DIR"), cache("XDG_CACHE_HOME"), home("HOME");
  EXPECT_EQ(ModelDirectory(), "/tmp/baton/models");
  setenv("HOME", "", 1);
  EXPECT_EQ(ModelDirectory(), "/tmp/baton/models");
  setenv("HOME", "/nowhere", 1);
  EXPECT_EQ(ModelDirectory(), "/nowhere/.cache/baton/models");
  setenv("XDG_CACHE_HOME", "/nowhere/cache", 1);
  EXPECT_EQ(ModelDirectory(), "/nowhere/cache/baton/models");
  setenv("BATON_MODEL_DIR", "/nowhere/models", 1);
  EXPECT_EQ(ModelDirectory(), "/nowhere/models");
  const absl::Status status = OpenModel("").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("/nowhere/models/"), HasSubstr("fetch_model.sh")));
}

}  // namespace
}  // namespace baton
