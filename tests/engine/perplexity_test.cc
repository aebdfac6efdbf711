#include "engine/perplexity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/engine/tiny_engine.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

class PerplexityTest : public ::testing::Test {
 protected:
  PerplexityTest() : options_(TinyOptions()), model_(*LoadModel(options_)) {}

  absl::StatusOr<PerplexityResult> Measure(std::span<const TokenId> tokens) {
    return MeasurePerplexity(model_, options_, tokens, nullptr);
  }

  EngineOptions options_;
  LoadedModel model_;
  const std::vector<TokenId> tokens_ = TinyRequest(100, 1, 3).prompt;
};

TEST_F(PerplexityTest, AWindowIsPredictedFromItsOwnFirstTokenOn) {
  options_.context_length = 40;  // windows of 40, 40 and 20
  const auto whole = Measure(tokens_);
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->tokens, 39 + 39 + 19);
  double sum = 0;
  for (const auto& [begin, count] : {std::pair{0, 40}, {40, 40}, {80, 20}}) {
    const auto window = Measure(std::span(tokens_).subspan(begin, count));
    ASSERT_TRUE(window.ok());
    sum += window->nll * static_cast<double>(window->tokens);
  }
  EXPECT_NEAR(whole->nll, sum / 97, 1e-12);
  EXPECT_DOUBLE_EQ(whole->perplexity, std::exp(whole->nll));
}

TEST_F(PerplexityTest, ALastWindowOfOneTokenPredictsNothing) {
  options_.context_length = 33;  // 33, 33, 33 and one
  const auto result = Measure(tokens_);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->tokens, 3 * 32);
}

TEST_F(PerplexityTest, ChunksAndBlocksChangeNothing) {
  const auto one = Measure(tokens_);
  options_.max_chunk_tokens = 7;
  options_.block_size = 8;
  options_.graph = false;
  const auto other = Measure(tokens_);
  ASSERT_TRUE(one.ok() && other.ok());
  EXPECT_EQ(one->tokens, 99);
  EXPECT_EQ(one->nll, other->nll);
}

TEST_F(PerplexityTest, ReportsProgress) {
  std::vector<double> seen;
  options_.max_chunk_tokens = 50;
  ASSERT_TRUE(MeasurePerplexity(model_, options_, tokens_, [&](double done) {
                seen.push_back(done);
              }).ok());
  EXPECT_THAT(seen, ::testing::ElementsAre(0.5, 0.99));
}

TEST_F(PerplexityTest, RefusalsNameTheValue) {
  EXPECT_THAT(Measure({}).status().message(), HasSubstr("the text has 0"));
  EXPECT_THAT(Measure(std::span(tokens_).first(1)).status().message(), HasSubstr("the text has 1"));
  const std::vector<TokenId> wrong = {1, 320};
  EXPECT_THAT(Measure(wrong).status().message(), HasSubstr("token 320"));
  options_.context_length = 1;
  EXPECT_THAT(Measure(tokens_).status().message(), HasSubstr("it is 1"));
  options_.context_length = 0;
  options_.block_size = 12;
  EXPECT_THAT(Measure(tokens_).status().message(), HasSubstr("12"));
}

}  // namespace
}  // namespace baton
