// Compares the sampler on random logits and parameters with the naive sampler, the device's op, and
// a new sampler.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cpu/cpu_device.h"
#include "kernels/ops.h"
#include "model/sampler.h"
#include "tests/model/naive_sampler.h"

namespace baton {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

SamplingParams RandomParams(std::mt19937_64& random, size_t vocabulary) {
  const auto pick = [&](std::vector<float> choices) { return choices[random() % choices.size()]; };
  const auto token = [&] { return static_cast<TokenId>(random() % vocabulary); };
  SamplingParams params;
  params.temperature = pick({0, 0.01f, 0.7f, 1, 1, 2, 100});
  params.top_k = static_cast<int32_t>(pick({0, 0, 1, 2, 40, 300, 100000}));
  params.top_p = pick({1, 1, 0.95f, 0.5f, 0.999f, 1e-6f});
  params.min_p = pick({0, 0, 0.05f, 0.5f, 1});
  params.repetition_penalty = pick({1, 1, 1.3f, 0.8f});
  params.presence_penalty = pick({0, 0, 1.5f, -1});
  params.frequency_penalty = pick({0, 0, 0.7f, -0.3f});
  for (uint64_t i = random() % 3; i > 0; --i) params.logit_bias[token()] = pick({-100, 5, 3, -1});
  for (uint64_t i = random() % 3; i > 0; --i) params.stop_token_ids.push_back(token());
  params.min_tokens = static_cast<int32_t>(pick({0, 0, 4}));
  return params;
}

TEST(SamplerRandom, EqualsTheNaiveModelOverRandomLogitsAndParameters) {
  constexpr uint64_t kSeed = 20261121;
  std::mt19937_64 random(kSeed);
  Sampler sampler({1, 0});
  for (uint64_t round = 0; round < 3000; ++round) {
    SCOPED_TRACE(::testing::Message() << "seed " << kSeed << " round " << round);
    const size_t vocabulary = 2 + random() % (round % 10 == 0 ? 5000 : 300);
    std::vector<float> logits =
        NormalLogits(random, vocabulary, static_cast<float>(random() % 8) + 0.5f);
    if (random() % 3 == 0) {  // ties
      for (float& logit : logits) logit = std::round(logit);
    }
    if (vocabulary > 4 && random() % 3 == 0) logits[2 + random() % (vocabulary - 2)] = -kInfinity;
    const SamplingParams params = RandomParams(random, vocabulary);
    std::vector<TokenId> prompt(random() % 20);
    for (TokenId& token : prompt) token = static_cast<TokenId>(random() % vocabulary);
    SamplerState state(prompt);
    for (uint64_t i = random() % 8; i > 0; --i) {
      state.Accept(static_cast<TokenId>(random() % vocabulary));
    }
    const DrawKey key{random(), static_cast<uint32_t>(round % 3), round};
    const auto result = sampler.Sample(logits, params, state, key);
    if (!result.ok()) {  // a vocabulary that consists only of end tokens
      EXPECT_TRUE(absl::IsInternal(result.status())) << result.status();
      EXPECT_LE(vocabulary, 6u) << result.status();
      continue;
    }
    EXPECT_EQ(result->token, NaiveSample(logits, params, state, std::vector<TokenId>{1, 0}, key));
  }
}

// Returns the additions to logits for these parameters, as the op expects them.
std::vector<LogitAddition> AdditionsOf(const SamplingParams& params, const SamplerState& state,
                                       std::span<const TokenId> end_tokens) {
  std::vector<LogitAddition> additions;
  for (const auto& [token, bias] : params.logit_bias) additions.push_back({token, bias});
  if (state.generated() < params.min_tokens) {
    for (const TokenId token : end_tokens) additions.push_back({token, -kInfinity});
    for (const TokenId token : params.stop_token_ids) additions.push_back({token, -kInfinity});
  }
  return additions;
}

// Runs all draws of a round as one step, with one thread and with three.
TEST(SamplerRandom, TheSampleOpOfADeviceDrawsTheSameTokens) {
  constexpr uint64_t kSeed = 20261122;
  const std::vector<TokenId> end_tokens = {1, 0};
  std::mt19937_64 random(kSeed);
  Sampler sampler(end_tokens);
  const auto one_thread = *CreateCpuDevice({.threads = 1});
  const auto three_threads = *CreateCpuDevice({.threads = 3});
  int errors = 0;
  for (uint64_t round = 0; round < 1500; ++round) {
    SCOPED_TRACE(::testing::Message() << "seed " << kSeed << " round " << round);
    const size_t vocabulary = 2 + random() % (round % 10 == 0 ? 5000 : 300);
    const std::vector<float> logits = RandomLogits(random, vocabulary);
    const SamplerState state;
    std::vector<RowDraw> draws;
    std::vector<LogitAddition> additions;
    std::vector<int32_t> first_addition = {0};
    std::vector<TokenId> expected;
    for (uint64_t i = 0; i < 1 + round % 9; ++i) {
      SamplingParams params = RandomParams(random, vocabulary);
      params.repetition_penalty = 1;
      params.presence_penalty = params.frequency_penalty = 0;
      const DrawKey key{random(), static_cast<uint32_t>(round % 3), round};
      draws.push_back({.row = 0, .rule = DrawRuleOf(params), .key = key});
      for (const LogitAddition& addition : AdditionsOf(params, state, end_tokens)) {
        additions.push_back(addition);
      }
      first_addition.push_back(static_cast<int32_t>(additions.size()));
      const auto result = sampler.Sample(logits, params, state, key);
      expected.push_back(result.ok() ? result->token : kDrawSkipped);
      errors += !result.ok();
    }
    for (Device* device : {one_thread.get(), three_threads.get()}) {
      std::vector<TokenId> drawn(draws.size(), 12345);
      device->ops().Sample(*device->CreateStream(), {.logits = logits.data(),
                                                     .vocabulary = static_cast<int64_t>(vocabulary),
                                                     .draws = draws.data(),
                                                     .additions = additions.data(),
                                                     .first_addition = first_addition.data(),
                                                     .tokens = drawn.data(),
                                                     .count = static_cast<int64_t>(draws.size())});
      for (size_t i = 0; i < draws.size(); ++i) {
        if (expected[i] >= 0) {
          EXPECT_EQ(drawn[i], expected[i]) << i;
        } else {
          EXPECT_TRUE(drawn[i] == kDrawNotANumber || drawn[i] == kDrawNothingAllowed) << drawn[i];
        }
      }
    }
  }
  EXPECT_GT(errors, 50);
}

TEST(SamplerRandom, AResultDependsOnlyOnItsArguments) {
  constexpr uint64_t kSeed = 3;
  std::mt19937_64 random(kSeed);
  Sampler used;
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE(::testing::Message() << "seed " << kSeed << " round " << round);
    const std::vector<float> logits = NormalLogits(random, 50 + random() % 2000, 3);
    SamplingParams params = RandomParams(random, logits.size());
    params.logprobs = 3;
    const DrawKey key{random(), 0, random()};
    Sampler fresh;
    EXPECT_EQ(*used.Sample(logits, params, {}, key), *fresh.Sample(logits, params, {}, key));
  }
}

}  // namespace
}  // namespace baton
