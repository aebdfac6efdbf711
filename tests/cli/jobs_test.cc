#include "cli/jobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

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
          "logit_bias":{"7":-100},"tenant":"t","cache_salt":"s","priority":-3})",
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
