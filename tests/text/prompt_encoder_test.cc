#include "text/prompt_encoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

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
  EXPECT_EQ(Count(ids->tokens, "<|im_end|>"), 1);
  EXPECT_EQ(Count(ids->tokens, "<|im_start|>"), 2);
  EXPECT_EQ(*tokenizer_->DecodeText(ids->tokens, {.include_control = true}),
            "<|im_start|>user\na<|im_end|>b<|im_end|><|im_start|>assistant\n");
}

TEST_F(PromptEncoderTest, WithoutAGenerationPromptTheAssistantIsNotAsked) {
  const PromptEncoder encoder(tokenizer_.get(), kTemplate);
  const ChatMessage message{.role = "user", .content = "hi", .name = std::nullopt};
  const auto ids = encoder.EncodeMessages(std::span(&message, 1), false, now_);
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_EQ(Count(ids->tokens, "<|im_start|>"), 1);
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

// ---- parts
// ----------------------------------------------------------------------------------------

class ChunkedPromptEncoderTest : public PromptEncoderTest {
 protected:
  std::vector<TokenId> Plain(std::string_view text) {
    return tokenizer_->Encode(text, {.add_bos = false, .add_eos = false});
  }
  std::string Text(const std::vector<TokenId>& ids) {
    return *tokenizer_->DecodeText(ids, {.include_control = true});
  }
  static ChatMessage Message(const std::string& role, const std::string& content,
                             std::vector<PromptPart> chunks = {}) {
    return {.role = role, .content = content, .name = std::nullopt, .chunks = std::move(chunks)};
  }
  absl::StatusOr<EncodedPrompt> Encode(const std::vector<ChatMessage>& messages,
                                       std::string_view separator = "",
                                       const std::string& chat_template = kTemplate) {
    const PromptEncoder encoder(tokenizer_.get(), chat_template);
    return encoder.EncodeMessages(messages, true, now_, {.separator = separator, .options = {}});
  }
  // As SetUp, but the model asks for BOS and EOS.
  void AskForBosAndEos() {
    TokenizerSpec spec = SmallVocabulary("smollm");
    spec.add_bos = true;
    spec.add_eos = true;
    auto tokenizer = Tokenizer::Create(spec);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    tokenizer_ = std::move(*tokenizer);
  }
};

TEST_F(ChunkedPromptEncoderTest, EachPartOfATextIsTokenisedAlone) {
  const PromptEncoder encoder(tokenizer_.get(), kTemplate);
  const ChunkOptions options = {.positions = ChunkPositions::kSequential,
                                .scope = ChunkScope::kAlone};
  const auto out =
      encoder.EncodePrompt("the ##quick## brown", {.separator = "##", .options = options});
  ASSERT_TRUE(out.ok()) << out.status();
  ASSERT_TRUE(out->chunked.has_value());
  EXPECT_EQ(*out->chunked, (ChunkedPrompt{.options = options,
                                          .system = Plain("the "),
                                          .chunks = {Plain("quick")},
                                          .question = Plain(" brown")}));
  EXPECT_EQ(out->tokens, FlatTokens(*out->chunked));
}

// A merge across the separator would give other tokens than the parts alone.
TEST_F(ChunkedPromptEncoderTest, NoTokenSpansTwoParts) {
  const PromptEncoder encoder(tokenizer_.get(), kTemplate);
  const auto out = encoder.EncodePrompt("th##e", {.separator = "##", .options = {}});
  ASSERT_TRUE(out.ok()) << out.status();
  ASSERT_NE(Plain("the"), out->tokens);
  EXPECT_EQ(out->chunked->system, Plain("th"));
  EXPECT_EQ(out->chunked->question, Plain("e"));
  EXPECT_TRUE(out->chunked->chunks.empty());
}

TEST_F(ChunkedPromptEncoderTest, TextWithoutTheSeparatorIsAnOrdinaryPrompt) {
  AskForBosAndEos();
  const PromptEncoder encoder(tokenizer_.get(), kTemplate);
  const auto out = encoder.EncodePrompt("the quick", {.separator = "##", .options = {}});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_FALSE(out->chunked.has_value());
  EXPECT_EQ(out->tokens, encoder.EncodeText("the quick"));
}

TEST_F(ChunkedPromptEncoderTest, AllPartsTogetherHaveOneBosAndOneEos) {
  AskForBosAndEos();
  const PromptEncoder encoder(tokenizer_.get(), kTemplate);
  for (const char* system : {"the", ""}) {
    const auto out = encoder.EncodeParts(
        {.system = system, .chunks = {"quick", "brown"}, .question = "fox"}, {});
    ASSERT_TRUE(out.ok()) << out.status();
    std::vector<TokenId> begin = {*tokenizer_->bos()};
    const std::vector<TokenId> rest = Plain(system);
    begin.insert(begin.end(), rest.begin(), rest.end());
    EXPECT_EQ(out->chunked->system, begin);
    EXPECT_EQ(out->chunked->chunks[0], Plain("quick"));
    EXPECT_EQ(out->chunked->question.back(), *tokenizer_->eos());
    EXPECT_EQ(std::count(out->tokens.begin(), out->tokens.end(), *tokenizer_->bos()), 1);
    EXPECT_EQ(std::count(out->tokens.begin(), out->tokens.end(), *tokenizer_->eos()), 1);
  }
}

TEST_F(ChunkedPromptEncoderTest, TokenIdsAreTakenAsTheyAre) {
  AskForBosAndEos();
  const PromptEncoder encoder(tokenizer_.get(), kTemplate);
  const std::vector<TokenId> ids = {5, 6};
  const auto out =
      encoder.EncodeParts({.system = ids, .chunks = {ids, "quick"}, .question = ids}, {});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(*out->chunked,
            (ChunkedPrompt{
                .options = {}, .system = ids, .chunks = {ids, Plain("quick")}, .question = ids}));
}

TEST_F(ChunkedPromptEncoderTest, ChunksHaveNoControlTokens) {
  const auto out = Encode({Message("user", "hi", {"a<|im_end|>b"})});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(Count(out->chunked->chunks[0], "<|im_end|>"), 0);
}

TEST_F(ChunkedPromptEncoderTest, ChunksStandBeforeTheContentOfTheirMessage) {
  const auto out =
      Encode({Message("system", "Be brief."), Message("user", "first"),
              Message("user", "Who signed?", {"doc a", "doc b"}), Message("assistant", "x")});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(Text(out->chunked->system),
            "<|im_start|>system\nBe brief.<|im_end|><|im_start|>user\nfirst<|im_end|>"
            "<|im_start|>user\n");
  EXPECT_EQ(out->chunked->chunks,
            (std::vector<std::vector<TokenId>>{Plain("doc a"), Plain("doc b")}));
  EXPECT_EQ(Text(out->chunked->question),
            "Who signed?<|im_end|><|im_start|>assistant\nx<|im_end|><|im_start|>assistant\n");
}

TEST_F(ChunkedPromptEncoderTest, TextBeforeTheFirstSeparatorBelongsToTheSystemPart) {
  const auto out =
      Encode({Message("system", "a##b"), Message("user", "Use this.##doc##Who?")}, "##");
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(Text(out->chunked->system),
            "<|im_start|>system\na##b<|im_end|><|im_start|>user\nUse this.");
  EXPECT_EQ(out->chunked->chunks, (std::vector<std::vector<TokenId>>{Plain("doc")}));
  EXPECT_EQ(Text(out->chunked->question), "Who?<|im_end|><|im_start|>assistant\n");
}

// The content occurs in the template, in an earlier message and in the role, but only its own place
// counts.
TEST_F(ChunkedPromptEncoderTest, ThePlaceOfTheContentIsNotSearchedByItsText) {
  const auto out = Encode({Message("user", "user"), Message("user", "user", {"doc"})});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(Text(out->chunked->system), "<|im_start|>user\nuser<|im_end|><|im_start|>user\n");
}

TEST_F(ChunkedPromptEncoderTest, ATemplateMayTrimTheContent) {
  const auto out =
      Encode({Message("user", "  Who?  ", {"doc"})}, "", "<{{ messages[0]['content'] | trim }}>");
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(Text(out->chunked->system), "<");
  EXPECT_EQ(Text(out->chunked->question), "Who?>");
}

TEST_F(ChunkedPromptEncoderTest, ATemplateThatDropsTheContentIsRefused) {
  const auto out = Encode({Message("user", "a"), Message("user", "Who?", {"doc"})}, "",
                          "{{ messages[0]['content'] }}");
  EXPECT_EQ(out.status(),
            absl::InvalidArgumentError("the model's chat template does not write the content of "
                                       "messages[1], so its chunks have no place"));
}

TEST_F(ChunkedPromptEncoderTest, AConversationWithoutPartsIsAnOrdinaryPrompt) {
  const auto out = Encode({Message("user", "hi")}, "##");
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_FALSE(out->chunked.has_value());
  EXPECT_EQ(Text(out->tokens), "<|im_start|>user\nhi<|im_end|><|im_start|>assistant\n");
}

TEST_F(ChunkedPromptEncoderTest, BadPartsAreRefused) {
  const PromptEncoder encoder(tokenizer_.get(), kTemplate);
  EXPECT_EQ(encoder.EncodeParts({.system = "", .chunks = {"a", ""}, .question = "q"}, {}).status(),
            absl::InvalidArgumentError(
                "part 2 (chunks[1]) has 0 bytes; every part but the system part needs at least 1"));
  EXPECT_EQ(
      encoder
          .EncodeParts({.system = "", .chunks = std::vector<PromptPart>(501, "a"), .question = "q"},
                       {})
          .status(),
      absl::InvalidArgumentError("chunks has 501 entries; at most 500 are allowed"));
  EXPECT_EQ(encoder.EncodePrompt("S##", {.separator = "##", .options = {}}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace baton
