#include "common/request_check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/request_bounds.h"

namespace baton {
namespace {

constexpr int32_t kVocabulary = 100;

absl::Status CheckWith(const std::function<void(SamplingParams&)>& change) {
  SamplingParams params;
  change(params);
  return CheckSampling(params, kVocabulary);
}

#define EXPECT_REFUSED(change, text) \
  EXPECT_EQ(CheckWith([](SamplingParams& p) { change; }), absl::InvalidArgumentError(text))
#define EXPECT_ACCEPTED(change) \
  EXPECT_TRUE(CheckWith([](SamplingParams& p) { change; }).ok()) << #change

TEST(CheckSampling, DefaultsAreValidAndChangeNothing) {
  const SamplingParams params;
  EXPECT_TRUE(CheckSampling(params, kVocabulary).ok());
  EXPECT_EQ(params.temperature, 1.0f);
  EXPECT_EQ(params.top_p, 1.0f);
  EXPECT_EQ(params.repetition_penalty, 1.0f);
  EXPECT_FALSE(params.max_tokens || params.logprobs || params.seed);
}

TEST(CheckSampling, EdgesOfEveryRangeAreAccepted) {
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

TEST(CheckSampling, RefusalsNameFieldValueAndRange) {
  EXPECT_REFUSED(p.temperature = -0.5f, "temperature is -0.5; [0, 100] is allowed");
  EXPECT_REFUSED(p.temperature = 101, "temperature is 101; [0, 100] is allowed");
  EXPECT_REFUSED(p.top_k = -1, "top_k is -1; at least 0 is allowed");
  EXPECT_REFUSED(p.top_p = 0, "top_p is 0; (0, 1] is allowed");
  EXPECT_REFUSED(p.top_p = 1.5f, "top_p is 1.5; (0, 1] is allowed");
  EXPECT_REFUSED(p.min_p = -0.5f, "min_p is -0.5; [0, 1] is allowed");
  EXPECT_REFUSED(p.repetition_penalty = 0, "repetition_penalty is 0; [0.01, 100] is allowed");
  EXPECT_REFUSED(p.presence_penalty = 3, "presence_penalty is 3; [-2, 2] is allowed");
  EXPECT_REFUSED(p.frequency_penalty = -3, "frequency_penalty is -3; [-2, 2] is allowed");
  EXPECT_REFUSED(p.logit_bias[100] = 1, "logit_bias's token is 100; [0, 99] is allowed");
  EXPECT_REFUSED(p.logit_bias[-1] = 1, "logit_bias's token is -1; [0, 99] is allowed");
  EXPECT_REFUSED(p.logit_bias[7] = 101, "logit_bias of token 7 is 101; [-100, 100] is allowed");
  EXPECT_REFUSED(p.stop.assign(17, "x"), "stop has 17 entries; at most 16 are allowed");
  EXPECT_REFUSED(p.stop = {""}, "stop[0] has 0 bytes; [1, 256] are allowed");
  EXPECT_REFUSED(p.stop = {std::string(257, 'x')}, "stop[0] has 257 bytes; [1, 256] are allowed");
  EXPECT_REFUSED(p.stop_token_ids.assign(65, 1),
                 "stop_token_ids has 65 entries; at most 64 are allowed");
  EXPECT_REFUSED(p.stop_token_ids = {100}, "stop_token_ids[0] is 100; [0, 99] is allowed");
  EXPECT_REFUSED(p.max_tokens = 0, "max_tokens is 0; at least 1 is allowed");
  EXPECT_REFUSED(p.min_tokens = -1, "min_tokens is -1; at least 0 is allowed");
  EXPECT_REFUSED(p.max_tokens = 3;
                 p.min_tokens = 4, "min_tokens is 4; at most max_tokens, 3, is allowed");
  EXPECT_REFUSED(p.logprobs = -1, "logprobs is -1; [0, 20] is allowed");
  EXPECT_REFUSED(p.logprobs = 21, "logprobs is 21; [0, 20] is allowed");
}

TEST(CheckSampling, NothingAcceptsNanOrInfinity) {
  for (float SamplingParams::*field :
       {&SamplingParams::temperature, &SamplingParams::top_p, &SamplingParams::min_p,
        &SamplingParams::repetition_penalty, &SamplingParams::presence_penalty,
        &SamplingParams::frequency_penalty}) {
    for (const float value : {NAN, INFINITY, -INFINITY}) {
      EXPECT_FALSE(CheckWith([&](SamplingParams& p) { p.*field = value; }).ok()) << value;
    }
  }
  EXPECT_REFUSED(p.logit_bias[3] = NAN, "logit_bias of token 3 is nan; [-100, 100] is allowed");
}

TEST(CheckSampling, WithoutAVocabularyTokensAreNotChecked) {
  SamplingParams params;
  params.stop_token_ids = {INT32_MAX, -1};
  params.logit_bias[-1] = 1;
  EXPECT_EQ(CheckSampling(params), absl::OkStatus());
  params.logit_bias[-1] = 101;
  EXPECT_EQ(CheckSampling(params),
            absl::InvalidArgumentError("logit_bias of token -1 is 101; [-100, 100] is allowed"));
}

absl::Status CheckFields(const std::function<void(RequestFields&)>& change) {
  RequestFields fields;
  change(fields);
  return CheckRequest(fields, {.max_prompt_bytes = 100,
                               .context_length = 64,
                               .vocabulary = kVocabulary,
                               .longest_token_bytes = 1});
}

TEST(CheckRequest, EveryFieldHasALimitAndTheRefusalNamesIt) {
  const std::string long_text(257, 'x');
  const std::vector<TokenId> ids(64, 7);
  const std::vector<TokenId> unknown = {7, 100};
  const std::vector<TokenId> too_many(kMaxPromptTokenIds + 1, 7);
  const struct {
    std::function<void(RequestFields&)> change;
    const char* refusal;
  } cases[] = {
      {[&](RequestFields& f) { f.request_id = long_text; },
       "request_id has 257 bytes; at most 128 are allowed"},
      {[&](RequestFields& f) { f.session_id = long_text; },
       "session_id has 257 bytes; at most 128 are allowed"},
      {[&](RequestFields& f) { f.tenant = long_text; },
       "tenant has 257 bytes; at most 256 are allowed"},
      {[&](RequestFields& f) { f.cache_salt = long_text; },
       "cache_salt has 257 bytes; at most 256 are allowed"},
      {[&](RequestFields& f) { f.chunk_separator = long_text; },
       "chunk_separator has 257 bytes; at most 256 are allowed"},
      {[&](RequestFields& f) { f.parts.chunks = 501; },
       "chunks has 501 entries; at most 500 are allowed"},
      {[&](RequestFields& f) {
         f.parts.bytes = 60;
         f.message_bytes = 41;
       },
       "the prompt has 101 bytes; at most 100 are allowed"},
      {[&](RequestFields& f) { f.parts.token_ids = kMaxPromptTokenIds + 1; },
       "the prompt has 1048577 token ids; at most 1048576 are allowed"},
      {[&](RequestFields& f) { f.priority = 101; }, "priority is 101; [-100, 100] is allowed"},
      {[&](RequestFields& f) { f.priority = -101; }, "priority is -101; [-100, 100] is allowed"},
      {[&](RequestFields& f) { f.n = 0; }, "n is 0; [1, 16] is allowed"},
      {[&](RequestFields& f) { f.n = 17; }, "n is 17; [1, 16] is allowed"},
      {[&](RequestFields& f) { f.sampling.top_k = -1; }, "top_k is -1; at least 0 is allowed"},
      {[&](RequestFields& f) { f.messages = 4097; },
       "messages has 4097 entries; at most 4096 are allowed"},
      {[&](RequestFields& f) { f.message_bytes = 101; },
       "the prompt has 101 bytes; at most 100 are allowed"},
      {[&](RequestFields& f) { f.prompt = std::string_view(long_text).substr(0, 101); },
       "the prompt has 101 bytes; at most 100 are allowed"},
      {[&](RequestFields& f) { f.prompt = std::string_view(long_text).substr(0, 65); },
       "the prompt has 65 bytes; the context of 64 tokens, each of at most 1 bytes, cannot hold "
       "it"},
      {[&](RequestFields& f) { f.prompt_token_ids = ids; },
       "the prompt has 64 tokens; the context of 64 tokens leaves none to generate"},
      {[&](RequestFields& f) { f.prompt_token_ids = std::span(ids).first(0); },
       "the prompt has no tokens"},
      {[&](RequestFields& f) { f.prompt_token_ids = unknown; },
       "prompt_token_ids[1] is 100; [0, 99] is allowed"},
      {[&](RequestFields& f) { f.prompt_token_ids = too_many; },
       "prompt_token_ids has 1048577 entries; at most 1048576 are allowed"}};
  for (const auto& [change, refusal] : cases) {
    EXPECT_EQ(CheckFields(change), absl::InvalidArgumentError(refusal));
  }
  EXPECT_EQ(CheckFields([](RequestFields&) {}), absl::OkStatus());
  EXPECT_EQ(CheckFields([&](RequestFields& f) { f.prompt_token_ids = std::span(ids).first(63); }),
            absl::OkStatus());
}

TEST(CheckRequest, FieldsThatNeedAnUnknownModelPropertyAreNotChecked) {
  std::vector<TokenId> ids(100'000, INT32_MAX);
  ids.back() = -1;
  const std::string text(10'000'000, 'x');
  RequestFields fields;
  fields.prompt_token_ids = ids;
  fields.prompt = text;
  EXPECT_EQ(CheckRequest(fields, RequestLimits()), absl::OkStatus());
}

}  // namespace
}  // namespace baton
