#include "cli/jobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Refusal(std::string_view line) {
  const absl::StatusOr<Job> job = ParseJob(line, 7);
  EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument) << line;
  EXPECT_THAT(std::string(job.status().message()), HasSubstr("line 7"));
  return std::string(job.status().message());
}

TEST(Jobs, APromptAndEverySamplingFieldAreRead) {
  const absl::StatusOr<Job> job = ParseJob(
      R"({"id":"a","prompt":"hi","temperature":0,"top_k":5,"top_p":0.5,"min_p":0.1,
          "repetition_penalty":1.1,"presence_penalty":-1,"frequency_penalty":2,"seed":18446744073709551615,
          "max_tokens":9,"min_tokens":2,"logprobs":3,"ignore_eos":true,"stop":"x","stop_token_ids":[4],
          "logit_bias":{"7":-100},"tenant":"t","cache_salt":"s","session_id":"u","priority":-3})",
      1);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->id, "a");
  EXPECT_EQ(job->prompt, "hi");
  EXPECT_EQ(job->sampling.temperature, 0);
  EXPECT_EQ(job->sampling.top_k, 5);
  EXPECT_FLOAT_EQ(job->sampling.top_p, 0.5f);
  EXPECT_EQ(job->sampling.seed, 18446744073709551615u);
  EXPECT_EQ(job->sampling.max_tokens, 9);
  EXPECT_EQ(job->sampling.logprobs, 3);
  EXPECT_TRUE(job->sampling.ignore_eos);
  EXPECT_THAT(job->sampling.stop, ElementsAre("x"));
  EXPECT_THAT(job->sampling.stop_token_ids, ElementsAre(4));
  EXPECT_EQ(job->sampling.logit_bias.at(7), -100);
  EXPECT_EQ(job->tenant, "t");
  EXPECT_EQ(job->cache_salt, "s");
  EXPECT_EQ(job->session_id, "u");
  EXPECT_EQ(job->priority, -3);
}

TEST(Jobs, AbsentFieldsKeepTheDefaults) {
  const absl::StatusOr<Job> job = ParseJob(R"({"prompt_token_ids":[1,2]})", 12);
  ASSERT_TRUE(job.ok());
  EXPECT_EQ(job->id, "12");
  EXPECT_THAT(*job->prompt_token_ids, ElementsAre(1, 2));
  EXPECT_EQ(job->sampling.temperature, 1);
  EXPECT_FALSE(job->sampling.max_tokens.has_value());
  EXPECT_FALSE(job->sampling.seed.has_value());
}

TEST(Jobs, WhatOpenAiClientsSendIsUnderstood) {
  const auto sampling = [](const std::string& fields) {
    const absl::StatusOr<Job> job = ParseJob("{\"prompt\":\"a\"," + fields + "}", 1);
    EXPECT_TRUE(job.ok()) << job.status();
    return job.ok() ? job->sampling : SamplingParams();
  };
  EXPECT_EQ(sampling(R"("max_completion_tokens":9)").max_tokens, 9);
  EXPECT_EQ(sampling(R"("max_completion_tokens":9,"max_tokens":9)").max_tokens, 9);
  EXPECT_EQ(sampling(R"("n":1)").max_tokens, std::nullopt);
  EXPECT_EQ(sampling(R"("logprobs":true,"top_logprobs":5)").logprobs, 5);
  EXPECT_EQ(sampling(R"("logprobs":true)").logprobs, 0);
  EXPECT_EQ(sampling(R"("logprobs":false)").logprobs, std::nullopt);
  EXPECT_THAT(Refusal(R"({"prompt":"a","max_completion_tokens":9,"max_tokens":8})"),
              HasSubstr("one limit, but are 8 and 9"));
  EXPECT_THAT(Refusal(R"({"prompt":"a","n":0})"), HasSubstr("n is 0; [1, 16] is allowed"));
  EXPECT_THAT(Refusal(R"({"prompt":"a","n":17})"), HasSubstr("n is 17"));
  EXPECT_EQ(ParseJob(R"({"prompt":"a","n":16})", 1)->n, 16);
  EXPECT_THAT(Refusal(R"({"prompt":"a","n":true})"), HasSubstr("\"n\" must be a whole number"));
  for (const char* logprobs : {"", "\"logprobs\":3,", "\"logprobs\":false,"}) {
    EXPECT_THAT(Refusal(absl::StrCat("{\"prompt\":\"a\",", logprobs, "\"top_logprobs\":5}")),
                HasSubstr("\"top_logprobs\" needs \"logprobs\": true"));
  }
  EXPECT_THAT(Refusal(R"({"prompt":"a","logprobs":"yes"})"), HasSubstr("\"logprobs\" must be"));
}

TEST(Jobs, BoundsAreThoseOfARouter) {
  EXPECT_THAT(Refusal(R"({"prompt":"a","priority":101})"), HasSubstr("priority is 101"));
  EXPECT_THAT(Refusal(R"({"prompt":"a","priority":-101})"), HasSubstr("[-100, 100]"));
  EXPECT_EQ(ParseJob(R"({"prompt":"a","priority":-100})", 1)->priority, -100);
  const auto with = [](const char* field, size_t bytes) {
    return absl::StrCat("{\"prompt\":\"a\",\"", field, "\":\"", std::string(bytes, 'x'), "\"}");
  };
  EXPECT_THAT(Refusal(with("tenant", 257)), HasSubstr("tenant has 257 bytes"));
  EXPECT_THAT(Refusal(with("cache_salt", 257)), HasSubstr("at most 256"));
  EXPECT_THAT(Refusal(with("session_id", 129)), HasSubstr("at most 128"));
  EXPECT_EQ(ParseJob(with("tenant", 256), 1)->tenant.size(), 256u);
}

TEST(Jobs, NullIsAsGoodAsAbsent) {
  const absl::StatusOr<Job> job = ParseJob(
      R"({"id":null,"prompt":"a","messages":null,"prompt_token_ids":null,"temperature":null,"n":null,
          "max_tokens":null,"max_completion_tokens":4,"logprobs":null,"top_logprobs":null,"stop":null,
          "logit_bias":null,"seed":null,"ignore_eos":null,"priority":null,"tenant":null})",
      12);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->id, "12");
  EXPECT_FALSE(job->messages.has_value());
  EXPECT_EQ(job->sampling.temperature, 1);
  EXPECT_EQ(job->sampling.max_tokens, 4);
  EXPECT_FALSE(job->sampling.logprobs.has_value());
  EXPECT_THAT(Refusal(R"({"prompt":null})"), HasSubstr("this one has 0"));
  EXPECT_THAT(Refusal(R"({"prompt":"a","best_of":null})"), HasSubstr("best_of"));
}

TEST(Jobs, WhatALineMayCostIsBounded) {
  const auto with_ids = [](size_t count) {
    std::string line = R"({"id":"a","prompt_token_ids":[0)";
    for (size_t i = 1; i < count; ++i) line += ",0";
    return line + "]}";
  };
  const absl::StatusOr<Job> most = ParseJob(with_ids(kMaxJobTokenIds), 1);
  ASSERT_TRUE(most.ok()) << most.status();
  EXPECT_EQ(most->prompt_token_ids->size(), kMaxJobTokenIds);
  EXPECT_THAT(Refusal(with_ids(kMaxJobTokenIds + 1)),
              HasSubstr("\"prompt_token_ids\" has 1048577 token ids; at most 1048576"));
  EXPECT_THAT(Refusal(with_ids(4 * kMaxJobTokenIds)), HasSubstr("more than 1114112 values"));
  EXPECT_THAT(Refusal("{\"prompt\":" + std::string(1 << 20, '[')), HasSubstr("nested"));
  EXPECT_THAT(Refusal(std::string(kMaxJobLineBytes + 1, ' ')), HasSubstr("33554433 bytes"));
  EXPECT_EQ(JobId(with_ids(kMaxJobTokenIds + 1), 7), "a");
  EXPECT_EQ(JobId(with_ids(4 * kMaxJobTokenIds), 7), "7");
}

TEST(Jobs, MessagesKeepTheirOrder) {
  const absl::StatusOr<Job> job = ParseJob(
      R"({"messages":[{"role":"system","content":"a"},{"role":"user","content":"b"}]})", 1);
  ASSERT_TRUE(job.ok());
  ASSERT_EQ(job->messages->size(), 2);
  EXPECT_EQ((*job->messages)[0].role, "system");
  EXPECT_EQ((*job->messages)[1].content, "b");
}

TEST(Jobs, AJobWithoutOrWithTwoInputsIsRefused) {
  EXPECT_THAT(Refusal("{}"), HasSubstr("this one has 0"));
  EXPECT_THAT(Refusal(R"({"prompt":"a","prompt_token_ids":[1]})"), HasSubstr("this one has 2"));
}

TEST(Jobs, ARefusedLineKeepsItsId) {
  EXPECT_EQ(JobId(R"({"id":"a","prompt":"x","temperature":"hot"})", 7), "a");
  EXPECT_EQ(JobId(R"({"id":5,"prompt":"x"})", 7), "7");
  EXPECT_EQ(JobId("[]", 7), "7");
  EXPECT_EQ(JobId(R"({"id": broken)", 7), "7");
}

TEST(Jobs, ErrorsNameTheField) {
  EXPECT_THAT(Refusal(R"({"prompt":"a","temprature":1})"), HasSubstr("temprature"));
  EXPECT_THAT(Refusal(R"({"prompt":3})"), HasSubstr("\"prompt\" must be a string"));
  EXPECT_THAT(Refusal(R"({"prompt":"a","max_tokens":1.5})"), HasSubstr("max_tokens"));
  EXPECT_THAT(Refusal(R"({"prompt":"a","max_tokens":3000000000})"), HasSubstr("3000000000"));
  EXPECT_THAT(Refusal(R"({"prompt":"a","seed":-1})"), HasSubstr("seed"));
  EXPECT_THAT(Refusal(R"({"prompt_token_ids":[1,"x"]})"), HasSubstr("prompt_token_ids[1]"));
  EXPECT_THAT(Refusal(R"({"messages":[{"role":1}]})"), HasSubstr("messages[0].role"));
  EXPECT_THAT(Refusal(R"({"prompt":"a","logit_bias":{"x":1}})"), HasSubstr("logit_bias"));
  EXPECT_THAT(Refusal("[1]"), HasSubstr("object"));
  EXPECT_THAT(Refusal("{\"prompt\":"), HasSubstr("JSON"));
}

TEST(Jobs, AResultLineHoldsWhatScriptsReadFromIt) {
  JobResult result;
  result.id = "a";
  result.prompt_token_ids = {1};
  result.token_ids = {2, 3};
  result.text = "x\xff";  // never invalid on the wire, but never a crash either
  result.finish_reason = "stop";
  result.prompt_tokens = 1;
  result.completion_tokens = 2;
  result.ledger = {{"total_us", 5}};
  const nlohmann::json json = nlohmann::json::parse(ResultLine(result));
  EXPECT_EQ(json["id"], "a");
  EXPECT_EQ(json["token_ids"], nlohmann::json({2, 3}));
  EXPECT_EQ(json["finish_reason"], "stop");
  EXPECT_EQ(json["usage"]["prompt_tokens"], 1);
  EXPECT_EQ(json["usage"]["cached_tokens"], 0);
  EXPECT_EQ(json["usage"]["completion_tokens"], 2);
  EXPECT_EQ(json["ledger"]["total_us"], 5);
}

TEST(Jobs, AnErrorLineHoldsCodeAndMessage) {
  const nlohmann::json json =
      nlohmann::json::parse(ErrorLine("a", absl::UnavailableError("no \"worker\"")));
  EXPECT_EQ(json["error"]["code"], "UNAVAILABLE");
  EXPECT_EQ(json["error"]["message"], "no \"worker\"");
}

}  // namespace
}  // namespace baton
