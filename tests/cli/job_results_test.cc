#include "cli/job_results.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

namespace baton {
namespace {

using Json = nlohmann::json;

JobResult SomeResult() {
  JobResult result;
  result.prompt_token_ids = {1};
  result.token_ids = {2, 3};
  result.text = "x\xff";  // the wire never has invalid UTF-8, but it must not crash
  result.finish_reason = "stop";
  result.prompt_tokens = 5;
  result.cached_tokens = 4;
  result.completion_tokens = 2;
  result.ledger = {{"total_us", 5}};
  return result;
}

Job BatchJob(JobForm form) {
  Job job;
  job.id = "a";
  job.form = form;
  job.line = 7;
  job.model = "m";
  return job;
}

TEST(JobResults, AResultLineHasTheFieldsThatScriptsRead) {
  const Json json = Json::parse(ResultLine({.id = "a"}, SomeResult()));
  EXPECT_EQ(json["id"], "a");
  EXPECT_EQ(json["token_ids"], Json({2, 3}));
  EXPECT_EQ(json["finish_reason"], "stop");
  EXPECT_EQ(json["usage"]["prompt_tokens"], 5);
  EXPECT_EQ(json["usage"]["cached_tokens"], 4);
  EXPECT_EQ(json["usage"]["completion_tokens"], 2);
  EXPECT_EQ(json["ledger"]["total_us"], 5);
}

TEST(JobResults, LogprobsHaveTheTextOfTheirTokens) {
  JobResult result = SomeResult();
  result.logprobs = {{.logprob = -0.5f, .top = {{.token = 9, .logprob = -0.25f}}},
                     {.logprob = -1.0f, .top = {}}};
  const Json json = Json::parse(ResultLine({.id = "a"}, result, {{2, "a"}, {9, "b"}}));
  EXPECT_EQ(json["logprobs"], Json::parse(R"([
    {"text": "a", "logprob": -0.5, "top": [{"token_id": 9, "text": "b", "logprob": -0.25}]},
    {"logprob": -1.0, "top": []}])"));
}

TEST(JobResults, AnErrorLineHasCodeAndMessage) {
  const Json json = Json::parse(ErrorLine({.id = "a"}, absl::UnavailableError("no \"worker\"")));
  EXPECT_EQ(json["id"], "a");
  EXPECT_EQ(json["error"]["code"], "UNAVAILABLE");
  EXPECT_EQ(json["error"]["message"], "no \"worker\"");
}

TEST(JobResults, ANumberAsIdStaysANumber) {
  const JobLabel label = {.id = "18446744073709551615", .id_is_number = true};
  EXPECT_EQ(Json::parse(ResultLine(label, SomeResult()))["id"], 18446744073709551615u);
  EXPECT_TRUE(Json::parse(ErrorLine(label, absl::InternalError("x")))["id"].is_number());
  EXPECT_EQ(Json::parse(ResultLine({.id = "5"}, SomeResult()))["id"], "5");
}

TEST(JobResults, TextHasALineForEachChoice) {
  Job job;
  job.id = "a";
  JobResult one = SomeResult();
  one.text = "x";
  EXPECT_EQ(JobResultText(job, {one}, /*json=*/false, 0), "[a] x");
  JobResult other = one;
  one.choice = 0;
  other.choice = 1;
  EXPECT_EQ(JobResultText(job, {one, other}, /*json=*/false, 0),
            "[a] choice 0 (stop): x\n[a] choice 1 (stop): x");
}

TEST(JobResults, AChatOfABatchHasOpenAisForm) {
  JobResult one = SomeResult();
  one.text = "x";
  one.choice = 0;
  one.logprobs = {{.logprob = -0.5f, .top = {{.token = 9, .logprob = -0.25f}}},
                  {.logprob = -1.0f, .top = {}}};
  JobResult other = one;
  other.choice = 1;
  other.finish_reason = "length";
  other.logprobs.clear();
  const Json json = Json::parse(JobResultText(BatchJob(JobForm::kChatBatch), {one, other},
                                              /*json=*/false, 1234, {{2, "a"}, {9, "\xc3"}}));
  EXPECT_EQ(json, Json::parse(R"({
    "id": "batch_req_7", "custom_id": "a", "error": null,
    "response": {"status_code": 200, "request_id": "req_7", "body": {
      "id": "chatcmpl-7", "object": "chat.completion", "created": 1234, "model": "m",
      "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop",
         "logprobs": {"content": [
           {"token": "a", "logprob": -0.5, "bytes": [97],
            "top_logprobs": [{"token": "\ufffd", "logprob": -0.25, "bytes": [195]}]},
           {"token": "token_id:3", "logprob": -1.0, "bytes": null, "top_logprobs": []}],
           "refusal": null}},
        {"index": 1, "message": {"role": "assistant", "content": "x"}, "finish_reason": "length",
         "logprobs": null}],
      "usage": {"prompt_tokens": 5, "completion_tokens": 4, "total_tokens": 9,
                "prompt_tokens_details": {"cached_tokens": 4}}}}})"));
}

TEST(JobResults, ACompletionOfABatchHasOpenAisForm) {
  JobResult result = SomeResult();
  result.text = "x";
  result.logprobs = {{.logprob = -0.5f, .top = {{.token = 9, .logprob = -0.25f}}},
                     {.logprob = -1.0f, .top = {}}};
  const Json json = Json::parse(JobResultText(BatchJob(JobForm::kCompletionBatch), {result}, true,
                                              1234, {{2, "a"}, {9, "b"}}));
  const Json body = json["response"]["body"];
  EXPECT_EQ(body["object"], "text_completion");
  EXPECT_EQ(body["choices"], Json::parse(R"([
    {"index": 0, "text": "x", "finish_reason": "stop",
     "logprobs": {"tokens": ["a", "token_id:3"], "token_logprobs": [-0.5, -1.0],
                  "top_logprobs": [{"b": -0.25, "a": -0.5}, {"token_id:3": -1.0}]}}])"));
}

TEST(JobResults, AFailedLineOfABatchHasTheStatusThatAServerWouldSend) {
  const Json json =
      Json::parse(ErrorLine(BatchJob(JobForm::kChatBatch), absl::InvalidArgumentError("wrong")));
  EXPECT_EQ(json, Json::parse(R"({
    "id": "batch_req_7", "custom_id": "a",
    "response": {"status_code": 400, "request_id": "req_7", "body": {"error": {
      "message": "wrong", "type": "invalid_request_error", "param": null,
      "code": "INVALID_ARGUMENT"}}},
    "error": {"code": "INVALID_ARGUMENT", "message": "wrong"}})"));
  const std::pair<absl::Status, int> cases[] = {{absl::UnavailableError(""), 503},
                                                {absl::ResourceExhaustedError(""), 429},
                                                {absl::DeadlineExceededError(""), 504},
                                                {absl::InternalError(""), 500}};
  for (const auto& [status, code] : cases) {
    const Json error = Json::parse(ErrorLine(BatchJob(JobForm::kChatBatch), status));
    EXPECT_EQ(error["response"]["status_code"], code);
  }
}

}  // namespace
}  // namespace baton
