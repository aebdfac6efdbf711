#include "engine/model_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <set>

#include "tests/engine/tiny_engine.h"
#include "tests/model/tiny_model.h"

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
  EXPECT_EQ(model->info.architecture, "llama");
  EXPECT_EQ(model->info.config.name, "tiny-q4_1");
  EXPECT_EQ(model->info.fingerprint.size(), 32u);
  EXPECT_EQ(model->info.tokenizer.tokens.size(), 320u);
  EXPECT_THAT(model->info.chat_template, HasSubstr("im_start"));
  EXPECT_EQ(model->tokenizer->vocab_size(), 320);
  EXPECT_EQ(model->weights->layers().size(), 2u);
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
                      "llama3-rope-q4_0"};
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

// A worker with another end token would end a resumed answer elsewhere.
TEST_F(ModelLoaderTest, WhatMakesTokensOrPromptsChangesTheFingerprint) {
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
  EXPECT_EQ(Read(CopyModel(*file_, {"general.name"}))->config.name, "name");
}

TEST_F(ModelLoaderTest, NamesWhatIsWrongWithTheTokenizer) {
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

// Unsets a variable of the environment, and puts it back in the end.
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

TEST_F(ModelLoaderTest, TheDefaultModelLiesWhereTheEnvironmentSays) {
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
