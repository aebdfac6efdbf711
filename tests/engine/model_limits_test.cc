#include "engine/model_limits.h"

#include <gtest/gtest.h>

#include <string>

namespace baton {
namespace {

constexpr ModelLimits kLimits = {.vocabulary = 50, .context_length = 10};

absl::Status Check(std::vector<TokenId> prompt, std::vector<TokenId> generated = {},
                   int32_t n = 1) {
  const GeneratedPart part{.tokens = std::move(generated)};
  SamplingParams sampling;
  return kLimits.CheckRequest(prompt, n, std::span(&part, 1), sampling);
}

void ExpectRefused(const absl::Status& status, const std::string& value, const std::string& limit) {
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_NE(status.message().find(value), std::string::npos) << status;
  EXPECT_NE(status.message().find(limit), std::string::npos) << status;
}

TEST(ModelLimits, RefusalsNameTheValueAndTheLimit) {
  EXPECT_TRUE(Check({1, 2, 49}, {3, 4}).ok());
  ExpectRefused(Check({1, 50}), "50", "49");
  ExpectRefused(Check({1, -1}), "-1", "49");
  ExpectRefused(Check({1}, {50}), "generated_token_ids", "50");
  ExpectRefused(Check(std::vector<TokenId>(10, 1)), "10 tokens", "context of 10");
  ExpectRefused(Check(std::vector<TokenId>(7, 1), std::vector<TokenId>(4, 1)), "4 generated",
                "context of 10");
  ExpectRefused(Check({1}, {}, 0), "0", "1");
  SamplingParams sampling;
  sampling.top_p = 2;
  EXPECT_TRUE(absl::IsInvalidArgument(kLimits.CheckRequest(
      std::vector<TokenId>{1}, 1, std::span<const GeneratedPart>(), sampling)));
}

TEST(ModelLimits, APrefixMayFillTheContext) {
  EXPECT_TRUE(kLimits.CheckPrefix(std::vector<TokenId>(10, 1)).ok());
  ExpectRefused(kLimits.CheckPrefix(std::vector<TokenId>(11, 1)), "11", "10");
  ExpectRefused(kLimits.CheckPrefix(std::vector<TokenId>{99}), "token_ids", "99");
}

TEST(ModelLimits, AnAnswerEndsWithTheContextAtTheLatest) {
  GenerateRequest request;
  request.prompt = {1, 2, 3};
  EXPECT_EQ(kLimits.LengthLimit(request), 10);
  request.sampling.max_tokens = 4;
  EXPECT_EQ(kLimits.LengthLimit(request), 7);
  request.sampling.max_tokens = std::numeric_limits<int32_t>::max();
  EXPECT_EQ(kLimits.LengthLimit(request), 10);
}

}  // namespace
}  // namespace baton
