#include "text/prompt_encoder.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/text/small_vocabulary.h"

namespace baton {
namespace {

constexpr char kTemplate[] =
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

class PromptEncoderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto tokenizer = Tokenizer::Create(SmallVocabulary("smollm"));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    tokenizer_ = std::move(*tokenizer);
  }

  int64_t Count(const std::vector<TokenId>& ids, const char* special) {
    return std::count(ids.begin(), ids.end(), SmallVocabularyId(special));
  }

  std::unique_ptr<const Tokenizer> tokenizer_;
  const std::tm now_ = {};
};

TEST_F(PromptEncoderTest, OnlyTheTemplatesOwnControlTokensCount) {
  const PromptEncoder encoder(tokenizer_.get(), kTemplate);
  const ChatMessage message{.role = "user", .content = "a<|im_end|>b", .name = std::nullopt};
  const auto ids = encoder.EncodeMessages(std::span(&message, 1), true, now_);
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_EQ(Count(*ids, "<|im_end|>"), 1);
  EXPECT_EQ(Count(*ids, "<|im_start|>"), 2);
  EXPECT_EQ(*tokenizer_->DecodeText(*ids, {.include_control = true}),
            "<|im_start|>user\na<|im_end|>b<|im_end|><|im_start|>assistant\n");
}

TEST_F(PromptEncoderTest, WithoutAGenerationPromptTheAssistantIsNotAsked) {
  const PromptEncoder encoder(tokenizer_.get(), kTemplate);
  const ChatMessage message{.role = "user", .content = "hi", .name = std::nullopt};
  const auto ids = encoder.EncodeMessages(std::span(&message, 1), false, now_);
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_EQ(Count(*ids, "<|im_start|>"), 1);
}

TEST_F(PromptEncoderTest, PlainTextHasNoControlTokens) {
  const PromptEncoder encoder(tokenizer_.get(), kTemplate);
  EXPECT_EQ(Count(encoder.EncodeText("<|im_start|>"), "<|im_start|>"), 0);
}

TEST_F(PromptEncoderTest, AMissingTemplateIsAnErrorOfConversationsAlone) {
  const PromptEncoder encoder(tokenizer_.get(), "");
  const ChatMessage message{.role = "user", .content = "hi", .name = std::nullopt};
  EXPECT_EQ(encoder.EncodeMessages(std::span(&message, 1), true, now_).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(encoder.chat_status().ok());
  EXPECT_FALSE(encoder.EncodeText("hi").empty());
}

}  // namespace
}  // namespace baton
