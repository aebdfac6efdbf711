#include "router/request_validation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace baton {
namespace {

using ::testing::HasSubstr;

constexpr RequestLimits kLimits{.max_prompt_bytes = 100, .context_length = 64, .vocabulary = 1000};

std::string Message(const absl::Status& status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(RequestValidation, APromptThatFillsTheContextIsRefusedWithBothNumbers) {
  EXPECT_TRUE(CheckPromptTokens(kLimits, 63).ok());
  EXPECT_THAT(Message(CheckPromptTokens(kLimits, 64)), HasSubstr("64 tokens"));
  EXPECT_THAT(Message(CheckPromptTokens(kLimits, 90)), HasSubstr("90 tokens"));
  Message(CheckPromptTokens(kLimits, 0));
}

TEST(RequestValidation, PromptBytesAreBounded) {
  EXPECT_TRUE(CheckPromptBytes(kLimits, 100).ok());
  EXPECT_THAT(Message(CheckPromptBytes(kLimits, 101)), HasSubstr("at most 100"));
  constexpr RequestLimits kModel{
      .max_prompt_bytes = 1000, .context_length = 20, .longest_token_bytes = 5};
  EXPECT_TRUE(CheckPromptBytes(kModel, 100).ok());
  EXPECT_THAT(Message(CheckPromptBytes(kModel, 101)),
              HasSubstr("101 bytes are more than 20 tokens"));
}

TEST(RequestValidation, TokenIdsOutsideTheVocabularyAreNamedWithTheirPosition) {
  EXPECT_TRUE(CheckTokenId(kLimits, 0, 999).ok());
  EXPECT_THAT(Message(CheckTokenId(kLimits, 5, 1000)), HasSubstr("prompt_token_ids[5] is 1000"));
  Message(CheckTokenId(kLimits, 0, -1));
}

TEST(RequestValidation, AbsentSamplingFieldsAreFine) { EXPECT_TRUE(CheckSampling({}).ok()); }

TEST(RequestValidation, EverySamplingFieldIsChecked) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  SamplingFields fields;
  fields.temperature = -0.1f;
  EXPECT_THAT(Message(CheckSampling(fields)), HasSubstr("temperature"));
  fields.temperature = nan;
  EXPECT_THAT(Message(CheckSampling(fields)), HasSubstr("temperature"));
  fields = {};
  fields.top_p = 0.0f;
  EXPECT_THAT(Message(CheckSampling(fields)), HasSubstr("top_p is 0; (0, 1]"));
  fields = {};
  fields.min_p = 1.5f;
  EXPECT_THAT(Message(CheckSampling(fields)), HasSubstr("min_p"));
  fields = {};
  fields.repetition_penalty = 0.0f;
  EXPECT_THAT(Message(CheckSampling(fields)), HasSubstr("repetition_penalty"));
  fields = {};
  fields.max_tokens = 0;
  EXPECT_THAT(Message(CheckSampling(fields)), HasSubstr("max_tokens is 0"));
  fields = {};
  fields.logprobs = 21;
  EXPECT_THAT(Message(CheckSampling(fields)), HasSubstr("logprobs is 21"));
  fields = {};
  fields.stop_strings = 17;
  EXPECT_THAT(Message(CheckSampling(fields)), HasSubstr("stop"));
  fields = {};
  fields.logit_bias_entries = 1025;
  EXPECT_THAT(Message(CheckSampling(fields)), HasSubstr("logit_bias"));
}

TEST(RequestValidation, PriorityAndIdentifiersAreBounded) {
  EXPECT_TRUE(CheckPriority(-100).ok());
  Message(CheckPriority(101));
  EXPECT_TRUE(CheckChoices(1).ok());
  EXPECT_TRUE(CheckChoices(16).ok());
  for (const int32_t n : {0, -1, 17}) {
    EXPECT_THAT(Message(CheckChoices(n)), HasSubstr("[1, 16] is allowed"));
  }
  EXPECT_TRUE(CheckIdentifier("tenant", std::string(10, 'x'), 10).ok());
  EXPECT_THAT(Message(CheckIdentifier("tenant", std::string(11, 'x'), 10)), HasSubstr("tenant"));
}

}  // namespace
}  // namespace baton
