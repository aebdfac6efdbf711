#include "cli/chat_sampling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

namespace baton {
namespace {

FlagIsGiven Given(const std::set<std::string>& flags) {
  return [flags](const std::string& flag) { return flags.contains(flag); };
}

TEST(ChatSampling, UsesTheConstantsWithoutFlagsAndRecommendation) {
  SamplingParams sampling;
  SetChatSampling({}, Given({}), sampling);
  EXPECT_EQ(sampling.temperature, kChatTemperature);
  EXPECT_EQ(sampling.top_p, kChatTopP);
  EXPECT_EQ(sampling.top_k, 0);
  EXPECT_EQ(sampling.min_p, 0);
  EXPECT_EQ(sampling.repetition_penalty, 1);
  EXPECT_EQ(DescribeChatSampling({}, Given({}), sampling),
            "temperature 0.4 (default), top-p 0.9 (default)");
}

TEST(ChatSampling, TheModelOverridesTheConstantsForEachSetting) {
  const SamplingDefaults model = {
      .temperature = 0.6f, .top_k = 20, .min_p = 0.05f, .repetition_penalty = 1.1f};
  SamplingParams sampling;
  SetChatSampling(model, Given({}), sampling);
  EXPECT_EQ(sampling.temperature, 0.6f);
  EXPECT_EQ(sampling.top_k, 20);
  EXPECT_EQ(sampling.top_p, kChatTopP);
  EXPECT_EQ(sampling.min_p, 0.05f);
  EXPECT_EQ(sampling.repetition_penalty, 1.1f);
  EXPECT_EQ(DescribeChatSampling(model, Given({}), sampling),
            "temperature 0.6 (model), top-k 20 (model), top-p 0.9 (default), min-p 0.05 (model), "
            "repetition-penalty 1.1 (model)");
}

TEST(ChatSampling, AFlagOverridesTheModelAlsoWithTheRequestsDefault) {
  const SamplingDefaults model = {.temperature = 0.6f, .top_k = 20};
  SamplingParams sampling;
  sampling.temperature = 1;
  sampling.top_k = 0;
  const FlagIsGiven given = Given({"--temperature", "--top-k"});
  SetChatSampling(model, given, sampling);
  EXPECT_EQ(sampling.temperature, 1);
  EXPECT_EQ(sampling.top_k, 0);
  EXPECT_EQ(DescribeChatSampling(model, given, sampling),
            "temperature 1 (flag), top-k 0 (flag), top-p 0.9 (default)");
}

TEST(ChatSampling, OtherFieldsStayUnchanged) {
  SamplingParams sampling;
  sampling.max_tokens = 7;
  sampling.presence_penalty = 0.5f;
  sampling.seed = 3;
  SetChatSampling({}, Given({}), sampling);
  EXPECT_EQ(sampling.max_tokens, 7);
  EXPECT_EQ(sampling.presence_penalty, 0.5f);
  EXPECT_EQ(sampling.seed, 3);
}

TEST(ChatSampling, TheHelpNamesTheConstants) {
  EXPECT_THAT(kChatSamplingHelp, ::testing::HasSubstr("--temperature 0.4 and --top-p 0.9"));
}

TEST(ChatSampling, TheLineOfShowSettingsNamesEachSource) {
  SamplingDefaults model;
  model.top_k = 20;
  SamplingParams flags;
  flags.top_p = 0.5f;
  EXPECT_EQ(ChatSamplingLine(model, Given({"--top-p"}), flags),
            "conversations: temperature 0.4 (default), top-k 20 (model), top-p 0.5 (flag)\n");
  EXPECT_EQ(ChatSamplingLine(std::nullopt, Given({"--top-p"}), flags),
            "conversations: temperature 0.4 (default), top-p 0.5 (flag); the router's model may "
            "recommend others, except for flags\n");
}

}  // namespace
}  // namespace baton
