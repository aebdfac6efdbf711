#include "rpc/sampling_wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace baton {
namespace {

using ::testing::HasSubstr;

TEST(SamplingWire, EveryFieldComesBack) {
  SamplingParams params;
  params.temperature = 0.5f;
  params.top_k = 7;
  params.top_p = 0.25f;
  params.min_p = 0.125f;
  params.repetition_penalty = 1.5f;
  params.presence_penalty = -1;
  params.frequency_penalty = 2;
  params.logit_bias = {{1, -3.0f}, {2, 4.0f}};
  params.stop = {"a", "b"};
  params.stop_token_ids = {5, 6};
  params.max_tokens = 9;
  params.min_tokens = 3;
  params.ignore_eos = true;
  params.logprobs = 4;
  params.seed = UINT64_MAX;
  const absl::StatusOr<SamplingParams> back = SamplingFromWire(SamplingToWire(params));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->temperature, params.temperature);
  EXPECT_EQ(back->top_k, params.top_k);
  EXPECT_EQ(back->top_p, params.top_p);
  EXPECT_EQ(back->min_p, params.min_p);
  EXPECT_EQ(back->repetition_penalty, params.repetition_penalty);
  EXPECT_EQ(back->presence_penalty, params.presence_penalty);
  EXPECT_EQ(back->frequency_penalty, params.frequency_penalty);
  EXPECT_EQ(back->logit_bias, params.logit_bias);
  EXPECT_EQ(back->stop, params.stop);
  EXPECT_EQ(back->stop_token_ids, params.stop_token_ids);
  EXPECT_EQ(back->max_tokens, params.max_tokens);
  EXPECT_EQ(back->min_tokens, params.min_tokens);
  EXPECT_EQ(back->ignore_eos, params.ignore_eos);
  EXPECT_EQ(back->logprobs, params.logprobs);
  EXPECT_EQ(back->seed, params.seed);
}

TEST(SamplingWire, AnAbsentFieldHasItsDefault) {
  const absl::StatusOr<SamplingParams> params = SamplingFromWire(v1::SamplingParams());
  ASSERT_TRUE(params.ok()) << params.status();
  EXPECT_EQ(params->temperature, 1.0f);
  EXPECT_EQ(params->top_p, 1.0f);
  EXPECT_EQ(params->repetition_penalty, 1.0f);
  EXPECT_FALSE(params->max_tokens || params->logprobs || params->seed);
}

TEST(SamplingWire, ListsAreBoundedBeforeTheyAreCopied) {
  const auto refusal = [](const v1::SamplingParams& wire) {
    const absl::Status status = SamplingFromWire(wire).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  v1::SamplingParams biases;
  for (int32_t token = 0; token < 1025; ++token) (*biases.mutable_logit_bias())[token] = 1;
  EXPECT_THAT(refusal(biases), HasSubstr("logit_bias has 1025 entries; at most 1024"));
  v1::SamplingParams stops;
  for (int i = 0; i < 17; ++i) stops.add_stop("x");
  EXPECT_THAT(refusal(stops), HasSubstr("stop has 17 entries; at most 16"));
  v1::SamplingParams tokens;
  for (int i = 0; i < 65; ++i) tokens.add_stop_token_ids(1);
  EXPECT_THAT(refusal(tokens), HasSubstr("stop_token_ids has 65 entries; at most 64"));
}

TEST(SamplingWire, RecommendedSamplingTravelsAndIsNotTrusted) {
  const SamplingDefaults defaults = {.temperature = 0.6f, .top_k = 20, .min_p = 0.0f};
  EXPECT_EQ(SamplingDefaultsFromWire(SamplingDefaultsToWire(defaults)), defaults);
  EXPECT_EQ(SamplingDefaultsFromWire(v1::SamplingParams()), SamplingDefaults());
  v1::SamplingParams hostile;
  hostile.set_temperature(1e30f);
  hostile.set_top_p(0.5f);
  EXPECT_EQ(SamplingDefaultsFromWire(hostile), SamplingDefaults{.top_p = 0.5f});
}

}  // namespace
}  // namespace baton
