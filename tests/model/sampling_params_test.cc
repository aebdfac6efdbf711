#include "model/sampling_params.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>

namespace baton {
namespace {

constexpr int32_t kVocabulary = 100;

absl::Status ValidateWith(const std::function<void(SamplingParams&)>& change) {
  SamplingParams params;
  change(params);
  return Validate(params, kVocabulary);
}

#define EXPECT_REFUSED(change, text) \
  EXPECT_EQ(ValidateWith([](SamplingParams& p) { change; }), absl::InvalidArgumentError(text))
#define EXPECT_ACCEPTED(change) \
  EXPECT_TRUE(ValidateWith([](SamplingParams& p) { change; }).ok()) << #change

TEST(SamplingParams, DefaultsAreValidAndChangeNothing) {
  const SamplingParams params;
  EXPECT_TRUE(Validate(params, kVocabulary).ok());
  EXPECT_EQ(params.temperature, 1.0f);
  EXPECT_EQ(params.top_p, 1.0f);
  EXPECT_EQ(params.repetition_penalty, 1.0f);
  EXPECT_FALSE(params.max_tokens || params.logprobs || params.seed);
}

TEST(SamplingParams, EdgesOfEveryRangeAreAccepted) {
  EXPECT_ACCEPTED(p.temperature = 0);
  EXPECT_ACCEPTED(p.temperature = 100);
  EXPECT_ACCEPTED(p.top_k = INT32_MAX);
  EXPECT_ACCEPTED(p.top_p = 1e-9f);
  EXPECT_ACCEPTED(p.min_p = 1);
  EXPECT_ACCEPTED(p.repetition_penalty = 0.01f);
  EXPECT_ACCEPTED(p.presence_penalty = -2; p.frequency_penalty = 2);
  EXPECT_ACCEPTED((p.logit_bias = {{0, -100.0f}, {99, 100.0f}}));
  EXPECT_ACCEPTED(p.stop.assign(16, std::string(256, 'x')));
  EXPECT_ACCEPTED(p.stop_token_ids.assign(64, 99));
  EXPECT_ACCEPTED(p.max_tokens = 1; p.min_tokens = 1);
  EXPECT_ACCEPTED(p.logprobs = 0);
  EXPECT_ACCEPTED(p.logprobs = 20);
}

TEST(SamplingParams, RefusalsNameFieldValueAndRange) {
  EXPECT_REFUSED(p.temperature = -0.5f, "temperature is -0.5, not in [0, 100]");
  EXPECT_REFUSED(p.temperature = 101, "temperature is 101, not in [0, 100]");
  EXPECT_REFUSED(p.top_k = -1, "top_k is -1, below 0");
  EXPECT_REFUSED(p.top_p = 0, "top_p is 0, not in (0, 1]");
  EXPECT_REFUSED(p.top_p = 1.5f, "top_p is 1.5, not in (0, 1]");
  EXPECT_REFUSED(p.min_p = -0.5f, "min_p is -0.5, not in [0, 1]");
  EXPECT_REFUSED(p.repetition_penalty = 0, "repetition_penalty is 0, not in [0.01, 100]");
  EXPECT_REFUSED(p.presence_penalty = 3, "presence_penalty is 3, not in [-2, 2]");
  EXPECT_REFUSED(p.frequency_penalty = -3, "frequency_penalty is -3, not in [-2, 2]");
  EXPECT_REFUSED(p.logit_bias[100] = 1, "logit_bias has token 100, outside the vocabulary of 100");
  EXPECT_REFUSED(p.logit_bias[-1] = 1, "logit_bias has token -1, outside the vocabulary of 100");
  EXPECT_REFUSED(p.logit_bias[7] = 101, "logit_bias of token 7 is 101, not in [-100, 100]");
  EXPECT_REFUSED(p.stop.assign(17, "x"), "stop has 17 entries, at most 16");
  EXPECT_REFUSED(p.stop = {""}, "stop has a string of 0 bytes, not 1 to 256");
  EXPECT_REFUSED(p.stop = {std::string(257, 'x')}, "stop has a string of 257 bytes, not 1 to 256");
  EXPECT_REFUSED(p.stop_token_ids.assign(65, 1), "stop_token_ids has 65 entries, at most 64");
  EXPECT_REFUSED(p.stop_token_ids = {100},
                 "stop_token_ids has token 100, outside the vocabulary of 100");
  EXPECT_REFUSED(p.max_tokens = 0, "max_tokens is 0, below 1");
  EXPECT_REFUSED(p.min_tokens = -1, "min_tokens is -1, below 0");
  EXPECT_REFUSED(p.max_tokens = 3; p.min_tokens = 4, "min_tokens is 4, above max_tokens 3");
  EXPECT_REFUSED(p.logprobs = -1, "logprobs is -1, not in [0, 20]");
  EXPECT_REFUSED(p.logprobs = 21, "logprobs is 21, not in [0, 20]");
}

TEST(SamplingParams, NothingAcceptsNanOrInfinity) {
  for (float SamplingParams::*field :
       {&SamplingParams::temperature, &SamplingParams::top_p, &SamplingParams::min_p,
        &SamplingParams::repetition_penalty, &SamplingParams::presence_penalty,
        &SamplingParams::frequency_penalty}) {
    for (const float value : {NAN, INFINITY, -INFINITY}) {
      EXPECT_FALSE(ValidateWith([&](SamplingParams& p) { p.*field = value; }).ok()) << value;
    }
  }
  EXPECT_REFUSED(p.logit_bias[3] = NAN, "logit_bias of token 3 is nan, not in [-100, 100]");
}

}  // namespace
}  // namespace baton
