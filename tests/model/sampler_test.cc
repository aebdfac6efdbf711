#include "model/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "tests/model/naive_sampler.h"

namespace baton {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// ---- the distribution ---------------------------------------------------------------------------

// Draws `draws` tokens and returns their chi-square statistic against the probabilities.
double ChiSquare(std::span<const float> logits, const SamplingParams& params,
                 std::span<const double> probabilities, int draws, uint64_t seed) {
  Sampler sampler;
  std::vector<int> counts(logits.size());
  for (int i = 0; i < draws; ++i) {
    // Varies both seed and position, as many requests do.
    const DrawKey key{seed + i / 100, 0, static_cast<uint64_t>(i % 100)};
    ++counts[sampler.Sample(logits, params, {}, key)->token];
  }
  double chi = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    const double expected = probabilities[i] * draws;
    if (expected == 0) {
      EXPECT_EQ(counts[i], 0) << "token " << i;
    } else {
      chi += (counts[i] - expected) * (counts[i] - expected) / expected;
    }
  }
  return chi;
}

std::vector<double> Softmax(std::span<const float> logits, double temperature) {
  std::vector<double> result;
  double sum = 0;
  for (const float logit : logits) sum += result.emplace_back(std::exp(logit / temperature));
  for (double& value : result) value /= sum;
  return result;
}

// 99.99th percentile of chi-square with 9 degrees of freedom. Draws are deterministic, so the test
// is not flaky.
constexpr double kChiSquareLimit = 33.7;
const std::vector<float> kTenLogits = {0, 1, 2, -1, 0.5f, 1.5f, -2, 0, 1, 2};

TEST(Sampler, DrawsFollowTheSoftmax) {
  for (const uint64_t seed : {0u, 1000000u, 77u}) {
    EXPECT_LT(ChiSquare(kTenLogits, {}, Softmax(kTenLogits, 1), 50000, seed), kChiSquareLimit);
  }
}

TEST(Sampler, DrawsFollowTheTemperature) {
  SamplingParams params;
  params.temperature = 2.5f;
  EXPECT_LT(ChiSquare(kTenLogits, params, Softmax(kTenLogits, 2.5), 50000, 5), kChiSquareLimit);
  EXPECT_GT(ChiSquare(kTenLogits, params, Softmax(kTenLogits, 1), 50000, 5), 1000);
}

TEST(Sampler, DrawsFromTheTopFollowTheirShares) {
  SamplingParams params;
  params.top_k = 4;  // keeps tokens 2, 9, 5 and the first token with logit 1
  std::vector<double> probabilities = Softmax(kTenLogits, 1);
  for (const size_t token : {0u, 3u, 4u, 6u, 7u, 8u}) probabilities[token] = 0;
  const double sum = std::accumulate(probabilities.begin(), probabilities.end(), 0.0);
  for (double& probability : probabilities) probability /= sum;
  EXPECT_LT(ChiSquare(kTenLogits, params, probabilities, 50000, 6), kChiSquareLimit);
}

// ---- single parameters --------------------------------------------------------------------------

// Returns all tokens that are drawn over many positions.
std::vector<TokenId> Drawn(std::span<const float> logits, const SamplingParams& params,
                           const SamplerState& state = {}) {
  Sampler sampler({0});
  std::vector<TokenId> tokens;
  for (uint64_t position = 0; position < 300; ++position) {
    tokens.push_back(sampler.Sample(logits, params, state, {9, 0, position})->token);
  }
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  return tokens;
}

TEST(Sampler, GreedyTakesTheLowestIdAmongEquals) {
  SamplingParams params;
  params.temperature = 0;
  EXPECT_THAT(Drawn(std::vector<float>{1, 3, 2, 3}, params), ElementsAre(1));
  std::vector<float> wide(5000, -1.0f);
  wide[4999] = wide[2048] = 2;
  EXPECT_THAT(Drawn(wide, params), ElementsAre(2048));
}

TEST(Sampler, TopKOneAndTinyTopPAndFullMinPAreGreedy) {
  const std::vector<float> logits = {1, 3, 2, 2.999f};
  SamplingParams params;
  params.top_k = 1;
  EXPECT_THAT(Drawn(logits, params), ElementsAre(1));
  params = {};
  params.top_p = 1e-30f;
  EXPECT_THAT(Drawn(logits, params), ElementsAre(1));
  params = {};
  params.min_p = 1;
  EXPECT_THAT(Drawn(logits, params), ElementsAre(1));
}

TEST(Sampler, TopKBeyondTheVocabularyIsOff) {
  const std::vector<float> logits = {1, 3, 2, 2.5f};
  Sampler sampler;
  SamplingParams all;
  all.top_k = 1000;
  for (uint64_t position = 0; position < 100; ++position) {
    const DrawKey key{3, 0, position};
    EXPECT_EQ(*sampler.Sample(logits, all, {}, key), *sampler.Sample(logits, {}, {}, key));
  }
}

TEST(Sampler, TopPTakesTheFewestTokensThatReachTheShare) {
  // Probabilities 1/2, 1/4, 1/8, 1/8.
  const float ln2 = std::log(2.0f);
  const std::vector<float> logits = {0, ln2, -ln2, -ln2};
  SamplingParams params;
  params.top_p = 0.49f;
  EXPECT_THAT(Drawn(logits, params), ElementsAre(1));
  params.top_p = 0.51f;
  EXPECT_THAT(Drawn(logits, params), ElementsAre(0, 1));
  params.top_p = 0.76f;  // the tie goes to the lower id
  EXPECT_THAT(Drawn(logits, params), ElementsAre(0, 1, 2));
  params.top_p = 0.9f;
  EXPECT_THAT(Drawn(logits, params), ElementsAre(0, 1, 2, 3));
}

TEST(Sampler, TopPCountsSharesOfWhatTopKLeft) {
  const float ln2 = std::log(2.0f);
  SamplingParams params;
  params.top_k = 2;  // 2/3 and 1/3
  params.top_p = 0.66f;
  EXPECT_THAT(Drawn(std::vector<float>{0, ln2, -ln2, -ln2}, params), ElementsAre(1));
}

TEST(Sampler, MinPIsRelativeToTheMostLikelyToken) {
  const std::vector<float> logits = {0, std::log(0.5f), std::log(0.3f), std::log(0.1f)};
  SamplingParams params;
  params.min_p = 0.2f;
  EXPECT_THAT(Drawn(logits, params), ElementsAre(0, 1, 2));
  params.min_p = 0.4f;
  EXPECT_THAT(Drawn(logits, params), ElementsAre(0, 1));
}

TEST(Sampler, EqualLogitsAreAllDrawnAtAnyTemperature) {
  SamplingParams params;
  for (const float temperature : {1e-30f, 1.0f, 100.0f}) {
    params.temperature = temperature;
    EXPECT_THAT(Drawn(std::vector<float>{7, 7, 7}, params), ElementsAre(0, 1, 2)) << temperature;
  }
}

TEST(Sampler, ATinyTemperatureIsNearlyGreedy) {
  SamplingParams params;
  params.temperature = std::numeric_limits<float>::denorm_min();
  EXPECT_THAT(Drawn(std::vector<float>{-3e38f, 2, 3e38f, 2.99e38f}, params), ElementsAre(2));
}

TEST(Sampler, MinusInfinityIsNeverDrawn) {
  EXPECT_THAT(Drawn(std::vector<float>{-kInfinity, 1, -kInfinity, 0}, {}), ElementsAre(1, 3));
  SamplingParams params;
  params.temperature = 100;
  params.top_k = 3;
  EXPECT_THAT(Drawn(std::vector<float>{-kInfinity, 1, -kInfinity, 0}, params), ElementsAre(1, 3));
}

TEST(Sampler, RepetitionPenaltyCountsThePromptAndShrinksEitherSign) {
  SamplingParams params;
  params.temperature = 0;
  params.repetition_penalty = 2;
  const SamplerState state(std::vector<TokenId>{0, 0, 0});
  EXPECT_THAT(Drawn(std::vector<float>{5, 3}, params), ElementsAre(0));
  EXPECT_THAT(Drawn(std::vector<float>{5, 3}, params, state), ElementsAre(1));  // 2.5, once
  EXPECT_THAT(Drawn(std::vector<float>{5, 2}, params, state), ElementsAre(0));
  EXPECT_THAT(Drawn(std::vector<float>{-2, -3}, params, state), ElementsAre(1));  // -4
}

TEST(Sampler, PresenceAndFrequencyPenaltiesCountGeneratedTokensAlone) {
  SamplingParams presence;
  presence.temperature = 0;
  presence.presence_penalty = 1.5f;
  SamplingParams frequency;
  frequency.temperature = 0;
  frequency.frequency_penalty = 0.5f;
  const std::vector<float> logits = {5, 3.7f};
  SamplerState state(std::vector<TokenId>{0, 0, 0, 0});
  EXPECT_THAT(Drawn(logits, presence, state), ElementsAre(0));
  EXPECT_THAT(Drawn(logits, frequency, state), ElementsAre(0));
  state.Accept(0);
  state.Accept(0);
  EXPECT_THAT(Drawn(logits, presence, state), ElementsAre(1));   // 3.5
  EXPECT_THAT(Drawn(logits, frequency, state), ElementsAre(0));  // 4
  state.Accept(0);
  EXPECT_THAT(Drawn(logits, presence, state), ElementsAre(1));
  EXPECT_THAT(Drawn(logits, frequency, state), ElementsAre(1));  // 3.5
}

TEST(Sampler, LogitBiasForcesAndForbids) {
  SamplingParams params;
  params.logit_bias = {{0, -100}, {2, 100}};
  EXPECT_THAT(Drawn(std::vector<float>{9, 1, 0}, params), ElementsAre(2));
}

TEST(Sampler, EndTokensAreHeldBackUntilMinTokens) {
  SamplingParams params;
  params.temperature = 0;
  params.min_tokens = 2;
  params.stop_token_ids = {1};
  const std::vector<float> logits = {3, 2, 1};  // token 0 is the model's end token
  SamplerState state;
  EXPECT_THAT(Drawn(logits, params, state), ElementsAre(2));
  state.Accept(2);
  EXPECT_THAT(Drawn(logits, params, state), ElementsAre(2));
  state.Accept(2);
  EXPECT_THAT(Drawn(logits, params, state), ElementsAre(0));
}

// ---- log-probabilities --------------------------------------------------------------------------

TEST(Sampler, LogprobsAreTheLogSoftmaxOfTheUntouchedLogits) {
  constexpr uint64_t kSeed = 12;
  std::mt19937_64 random(kSeed);
  const std::vector<float> logits = NormalLogits(random, 3000, 4);
  SamplingParams params;
  params.temperature = 0.3f;
  params.top_k = 5;
  params.logit_bias = {{17, 100}};
  params.logprobs = 20;
  Sampler sampler;
  const auto result = sampler.Sample(logits, params, {}, {kSeed, 0, 0});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->token, 17);
  const std::vector<double> probabilities = Softmax(logits, 1);
  ASSERT_TRUE(result->logprob);
  EXPECT_NEAR(*result->logprob, std::log(probabilities[17]), 1e-6);
  ASSERT_EQ(result->top_logprobs.size(), 20u);
  std::vector<TokenId> ranked(logits.size());
  std::iota(ranked.begin(), ranked.end(), 0);
  std::sort(ranked.begin(), ranked.end(), [&](int a, int b) { return logits[a] > logits[b]; });
  for (size_t i = 0; i < 20; ++i) {
    EXPECT_EQ(result->top_logprobs[i].token, ranked[i]);
    EXPECT_NEAR(result->top_logprobs[i].logprob, std::log(probabilities[ranked[i]]), 1e-6);
  }
}

TEST(Sampler, LogprobsAreAbsentUnlessAskedForAndMayBeTheChosenTokensAlone) {
  const std::vector<float> logits = {1, 1, -kInfinity};
  Sampler sampler;
  const auto without = sampler.Sample(logits, {}, {}, {});
  EXPECT_FALSE(without->logprob);
  SamplingParams params;
  params.logprobs = 0;
  const auto chosen = sampler.Sample(logits, params, {}, {});
  EXPECT_FLOAT_EQ(*chosen->logprob, -std::log(2.0f));
  EXPECT_TRUE(chosen->top_logprobs.empty());
  params.logprobs = 20;
  const auto all = sampler.Sample(logits, params, {}, {});
  ASSERT_EQ(all->top_logprobs.size(), 3u);
  EXPECT_EQ(all->top_logprobs[1], (TokenLogprob{1, *chosen->logprob}));
  EXPECT_EQ(all->top_logprobs[2].logprob, -kInfinity);
}

// ---- determinism and errors ---------------------------------------------------------------------

TEST(Sampler, GivesTheSameTokensOnEveryMachine) {
  std::vector<float> logits(1000);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i * 7919 % 1000) / 100;
  SamplingParams params;
  params.top_p = 0.9f;
  Sampler sampler;
  std::vector<TokenId> tokens;
  for (uint64_t position = 0; position < 8; ++position) {
    tokens.push_back(sampler.Sample(logits, params, {}, {42, 0, position})->token);
  }
  EXPECT_THAT(tokens, ElementsAre(482, 322, 655, 667, 852, 297, 742, 409));
}

TEST(Sampler, LogitsThatAreNoNumbersAreNamed) {
  Sampler sampler;
  std::vector<float> logits(2000, 1.0f);
  for (const size_t token : {0u, 1023u, 1999u}) {
    for (const float value : {std::numeric_limits<float>::quiet_NaN(), kInfinity}) {
      logits[token] = value;
      const auto result = sampler.Sample(logits, {}, {}, {});
      EXPECT_TRUE(absl::IsInternal(result.status()));
      EXPECT_THAT(std::string(result.status().message()),
                  AnyOf("logit of token " + std::to_string(token) + " is nan",
                        "logit of token " + std::to_string(token) + " is inf"));
      logits[token] = 1;
    }
  }
}

TEST(Sampler, NoTokenLeftIsAnError) {
  Sampler sampler({0});
  EXPECT_EQ(sampler.Sample(std::vector<float>(40, -kInfinity), {}, {}, {}).status(),
            absl::InternalError("every logit is -infinity: no token can be chosen"));
  SamplingParams params;
  params.min_tokens = 1;
  EXPECT_TRUE(absl::IsInternal(sampler.Sample(std::vector<float>{1.0f}, params, {}, {}).status()));
}

TEST(Sampler, TokensOutsideTheLogitsAreRefused) {
  Sampler sampler({8});
  const std::vector<float> logits(5, 1.0f);
  SamplingParams params;
  params.min_tokens = 1;
  EXPECT_EQ(sampler.Sample(logits, params, {}, {}).status(),
            absl::InvalidArgumentError("token 8 is outside the vocabulary of 5"));
  params = {};
  params.frequency_penalty = 1;
  const SamplerState state(std::vector<TokenId>{-1});
  EXPECT_EQ(sampler.Sample(logits, params, state, {}).status(),
            absl::InvalidArgumentError("token -1 is outside the vocabulary of 5"));
  EXPECT_TRUE(absl::IsInvalidArgument(sampler.Sample({}, {}, {}, {}).status()));
}

TEST(Sampler, LogprobsEqualThoseReturnedWithASample) {
  std::mt19937_64 random(11);
  Sampler sampler;
  for (int round = 0; round < 20; ++round) {
    const std::vector<float> logits = RandomLogits(random, 50 + random() % 2000);
    SamplingParams params;
    params.logprobs = static_cast<int32_t>(random() % 5);
    const auto sample = sampler.Sample(logits, params, {}, {random(), 0, 7});
    if (!sample.ok()) {  // some rows contain a NaN
      EXPECT_EQ(sampler.Logprobs(logits, 0, *params.logprobs).status(), sample.status());
      continue;
    }
    EXPECT_EQ(*sampler.Logprobs(logits, sample->token, *params.logprobs), *sample);
  }
}

TEST(Sampler, ADrawNamesATokenThatTheLogitsDoNotHave) {
  const std::vector<float> logits = {0, 1, 2};
  const std::vector<LogitAddition> additions = {{3, 1.0f}};
  TokenDraw draw;
  draw.additions = additions;
  EXPECT_EQ(Sampler().Draw(logits, draw).status(),
            absl::InvalidArgumentError("token 3 is outside the vocabulary of 3"));
  EXPECT_TRUE(absl::IsInvalidArgument(Sampler().Draw({}, {}).status()));
}

}  // namespace
}  // namespace baton
