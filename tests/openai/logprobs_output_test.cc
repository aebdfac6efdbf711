#include "openai/logprobs_output.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace baton {
namespace {

// 0: "a", 1: "é", 2 and 3: the two bytes of "é", 4: "a" again.
const TokenText kText = [](TokenId token) -> std::string_view {
  static const std::string texts[] = {"a", "\xC3\xA9", "\xC3", "\xA9", "a"};
  return token >= 0 && token < 5 ? std::string_view(texts[token]) : std::string_view();
};

TEST(LogprobsOutput, AChatHasTextBytesAndAlternativesOfEachToken) {
  LogprobsOutput out(OpenAiEndpoint::kChatCompletions, &kText);
  EXPECT_EQ(out.Take(), "null");
  out.Add(0, {.logprob = -0.5f, .top = {{.token = 1, .logprob = -0.25f}}});
  out.Add(2, {.logprob = -1, .top = {}});
  EXPECT_FALSE(out.empty());
  EXPECT_EQ(out.Take(),
            "{\"content\":[{\"token\":\"a\",\"logprob\":-0.5,\"bytes\":[97],\"top_logprobs\":["
            "{\"token\":\"é\",\"logprob\":-0.25,\"bytes\":[195,169]}]},"
            "{\"token\":\"\xEF\xBF\xBD\",\"logprob\":-1,\"bytes\":[195],\"top_logprobs\":[]}],"
            "\"refusal\":null}");
  EXPECT_EQ(out.Take(), "null");
}

TEST(LogprobsOutput, ACompletionHasListsWhoseOffsetsGoOn) {
  LogprobsOutput out(OpenAiEndpoint::kCompletions, &kText);
  EXPECT_EQ(out.Take(), "null");
  out.Add(1,
          {.logprob = -0.5f, .top = {{.token = 1, .logprob = -0.5f}, {.token = 0, .logprob = -2}}});
  out.Add(2, {.logprob = -1, .top = {{.token = 0, .logprob = -0.1f}}});
  EXPECT_EQ(out.Take(),
            "{\"text_offset\":[0,1],\"token_logprobs\":[-0.5,-1],"
            "\"tokens\":[\"é\",\"bytes:\\\\xc3\"],"
            "\"top_logprobs\":[{\"é\":-0.5,\"a\":-2},{\"a\":-0.1,\"bytes:\\\\xc3\":-1}]}");
  out.Add(3, {.logprob = -1, .top = {}});
  out.Add(0, {.logprob = -1, .top = {}});
  EXPECT_EQ(
      out.Take(),
      "{\"text_offset\":[2,2],\"token_logprobs\":[-1,-1],\"tokens\":[\"bytes:\\\\xa9\",\"a\"],"
      "\"top_logprobs\":[{\"bytes:\\\\xa9\":-1},{\"a\":-1}]}");
}

TEST(LogprobsOutput, OfTokensWithEqualTextTheMostLikelyStays) {
  LogprobsOutput out(OpenAiEndpoint::kCompletions, &kText);
  out.Add(4, {.logprob = -3, .top = {{.token = 0, .logprob = -0.1f}}});
  EXPECT_EQ(out.Take(),
            "{\"text_offset\":[0],\"token_logprobs\":[-3],\"tokens\":[\"a\"],"
            "\"top_logprobs\":[{\"a\":-0.1}]}");
}

TEST(LogprobsOutput, WithoutTextsTheNumbersRemain) {
  const TokenText none;
  LogprobsOutput out(OpenAiEndpoint::kChatCompletions, &none);
  out.Add(7, {.logprob = -1, .top = {}});
  EXPECT_EQ(out.Take(),
            "{\"content\":[{\"token\":\"\",\"logprob\":-1,\"bytes\":[],\"top_logprobs\":[]}],"
            "\"refusal\":null}");
}

}  // namespace
}  // namespace baton
