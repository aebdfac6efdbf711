#include "router/served_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/byte_alphabet.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Token b is byte b.
ModelDescription ByteModel() {
  ModelDescription description;
  description.name = "bytes";
  description.context_length = 64;
  description.tokenizer.model = "gpt2";
  description.tokenizer.pre = "gpt-2";
  for (int byte = 0; byte < 256; ++byte) {
    description.tokenizer.tokens.push_back(ByteToAlphabet(static_cast<uint8_t>(byte)));
  }
  description.tokenizer.token_types.assign(256, 1);
  return description;
}

TEST(ServedModel, EncodesWithTheTokenizerOfItsDescription) {
  const auto model = ServedModel::Create(ByteModel());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->tokenizer().vocab_size(), 256);
  EXPECT_THAT((*model)->encoder().EncodeText("ab"), ElementsAre('a', 'b'));
}

TEST(ServedModel, KeepsTheDescriptionWithoutTheTokenizersTables) {
  const auto model = ServedModel::Create(ByteModel());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->description().name, "bytes");
  EXPECT_TRUE((*model)->description().tokenizer.tokens.empty());
}

TEST(ServedModel, NeedsAContextForAPromptAndAnAnswer) {
  ModelDescription description = ByteModel();
  description.context_length = 1;
  const absl::Status status = ServedModel::Create(description).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("context_length is 1; at least 2"));
}

TEST(ServedModel, ReportsATokenizerThatIsNotKnown) {
  ModelDescription description = ByteModel();
  description.tokenizer.model = "unheard-of";
  EXPECT_THAT(std::string(ServedModel::Create(description).status().message()),
              HasSubstr("unheard-of"));
}

}  // namespace
}  // namespace baton
