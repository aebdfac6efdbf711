#include "model/host_draws.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <vector>

namespace baton {
namespace {

constexpr int32_t kVocabulary = 300;

TokenDraw GreedyDraw() {
  TokenDraw draw;
  draw.temperature = 0;
  return draw;
}

std::vector<float> RandomRow(std::mt19937_64& random) {
  std::vector<float> row(kVocabulary);
  for (float& logit : row) logit = static_cast<float>(random() % 4000) * 0.002f;
  return row;
}

// Random parameters without penalties, and the additions that a step gets for them.
struct Asked {
  SamplingParams params;
  std::vector<LogitAddition> additions;
  TokenDraw draw;
};

void AskAtRandom(std::mt19937_64& random, Asked& asked) {
  SamplingParams& params = asked.params;
  params.temperature = random() % 4 == 0 ? 0.0f : static_cast<float>(random() % 30) * 0.1f + 0.1f;
  if (random() % 2) params.top_k = static_cast<int32_t>(random() % (kVocabulary + 20));
  if (random() % 2) params.top_p = static_cast<float>(random() % 99 + 1) * 0.01f;
  if (random() % 2) params.min_p = static_cast<float>(random() % 50) * 0.01f;
  for (uint64_t i = random() % 4; i > 0; --i) {
    params.logit_bias[static_cast<TokenId>(random() % kVocabulary)] =
        static_cast<float>(random() % 2000) * 0.1f - 100.0f;
  }
  if (random() % 2) {
    params.min_tokens = 1;
    params.stop_token_ids = {3, 17};
  }
  for (const auto& [token, bias] : params.logit_bias) asked.additions.push_back({token, bias});
  if (params.min_tokens > 0) {
    for (const TokenId token : {TokenId{299}, TokenId{3}, TokenId{17}}) {
      asked.additions.push_back({token, -std::numeric_limits<float>::infinity()});
    }
  }
  asked.draw = DrawAs(params, {.seed = random(), .sample = 0, .position = random() % 1000});
  asked.draw.additions = asked.additions;
}

TEST(HostDraws, DrawTheTokensOfTheHostSampler) {
  std::mt19937_64 random(20261122);
  for (int round = 0; round < 300; ++round) {
    std::vector<std::vector<float>> rows = {RandomRow(random), RandomRow(random),
                                            RandomRow(random)};
    std::vector<Asked> asked(4);
    for (Asked& one : asked) AskAtRandom(random, one);
    asked[2].draw.row = 1;
    const std::vector<TokenDraw> first = {asked[0].draw};
    const std::vector<TokenDraw> second = {asked[1].draw, asked[2].draw, asked[3].draw};
    StepInput input;
    input.chunks.push_back({.tokens = {}, .block_table = {}, .logit_rows = 1, .draws = first});
    input.chunks.push_back({.tokens = {}, .block_table = {}, .logit_rows = 2, .draws = second});
    HostDraws draws;
    const auto drawn =
        draws.Draw(input, [&](int32_t row) { return std::span<const float>(rows[row]); });
    ASSERT_EQ(drawn.size(), 4u);
    const size_t row_of[] = {0, 1, 2, 1};
    Sampler sampler({299});
    for (size_t i = 0; i < asked.size(); ++i) {
      const auto expected = sampler.Sample(rows[row_of[i]], asked[i].params, {}, asked[i].draw.key);
      ASSERT_TRUE(expected.ok());
      EXPECT_EQ(*drawn[i], expected->token) << "round " << round << ", draw " << i;
    }
  }
}

TEST(HostDraws, ReportARowThatAllowsNoTokenInItsDrawAlone) {
  std::vector<std::vector<float>> rows = {{0, std::numeric_limits<float>::quiet_NaN()}, {0, 1}};
  const std::vector<TokenDraw> greedy = {GreedyDraw()};
  StepInput input;
  for (int i = 0; i < 2; ++i) {
    input.chunks.push_back({.tokens = {}, .block_table = {}, .logit_rows = 1, .draws = greedy});
  }
  HostDraws draws;
  const auto drawn =
      draws.Draw(input, [&](int32_t row) { return std::span<const float>(rows[row]); });
  EXPECT_EQ(drawn[0].status(), absl::InternalError("logit of token 1 is nan"));
  EXPECT_EQ(*drawn[1], 1);
}

TEST(HostDraws, LeaveOutChunksThatAreNotWanted) {
  const std::vector<float> row = {0, 1};
  const std::vector<TokenDraw> greedy = {GreedyDraw()};
  StepInput input;
  for (int i = 0; i < 2; ++i) {
    input.chunks.push_back({.tokens = {}, .block_table = {}, .logit_rows = 1, .draws = greedy});
  }
  input.wanted = [] { return 1; };
  int rows_read = 0;
  HostDraws draws;
  const auto drawn = draws.Draw(input, [&](int32_t) {
    ++rows_read;
    return std::span<const float>(row);
  });
  ASSERT_EQ(drawn.size(), 2u);
  EXPECT_EQ(*drawn[0], 1);
  EXPECT_FALSE(drawn[1].ok());
  EXPECT_EQ(rows_read, 1);
}

}  // namespace
}  // namespace baton
