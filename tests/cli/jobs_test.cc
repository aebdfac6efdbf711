#include "cli/jobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string Refusal(std::string_view line) {
  const absl::StatusOr<Job> job = ParseJob(line, 7);
  EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument) << line;
  EXPECT_THAT(std::string(job.status().message()), HasSubstr("line 7"));
  return std::string(job.status().message());
}

Job Parsed(std::string_view line, const Job& defaults = {}) {
  const absl::StatusOr<Job> job = ParseJob(line, 7, defaults);
  EXPECT_TRUE(job.ok()) << job.status();
  return job.value_or(Job());
}

std::string BatchLine(const std::string& url, const std::string& body) {
  return absl::StrCat(R"({"custom_id":"a","method":"POST","url":")", url, R"(","body":)", body,
                      "}");
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

TEST(Jobs, AcceptsTheFieldsThatOpenAiClientsSend) {
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

TEST(Jobs, NullMeansAbsent) {
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

TEST(Jobs, TheMemoryOfALineIsBounded) {
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
  EXPECT_EQ(LabelOfLine(with_ids(kMaxJobTokenIds + 1), 7).id, "a");
  EXPECT_EQ(LabelOfLine(with_ids(4 * kMaxJobTokenIds), 7).id, "7");
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
  EXPECT_EQ(LabelOfLine(R"({"id":"a","prompt":"x","temperature":"hot"})", 7).id, "a");
  EXPECT_EQ(LabelOfLine(R"({"id":5,"prompt":"x"})", 7).id, "5");
  EXPECT_EQ(LabelOfLine("[]", 7).id, "7");
  EXPECT_EQ(LabelOfLine(R"({"id": broken)", 7).id, "7");
  EXPECT_EQ(LabelOfLine(R"({"id":[1],"prompt":"x"})", 7).id, "7");
  const JobLabel batch = LabelOfLine(R"({"custom_id":"b","url":"/v1/completions"})", 7);
  EXPECT_EQ(batch.id, "b");
  EXPECT_EQ(batch.form, JobForm::kCompletionBatch);
  EXPECT_EQ(LabelOfLine(R"({"custom_id":"b","url":"/v1/embeddings"})", 7).form,
            JobForm::kChatBatch);
}

TEST(Jobs, ErrorsNameTheField) {
  EXPECT_THAT(Refusal(R"({"prompt":"a","temprature":1})"), HasSubstr("temprature"));
  EXPECT_THAT(Refusal(R"({"prompt":3})"), HasSubstr("\"prompt\" must be a string"));
  EXPECT_THAT(Refusal(R"({"prompt":"a","max_tokens":1.5})"), HasSubstr("max_tokens"));
  EXPECT_THAT(Refusal(R"({"prompt":"a","max_tokens":3000000000})"), HasSubstr("3000000000"));
  EXPECT_THAT(Refusal(R"({"prompt":"a","seed":1.5})"), HasSubstr("seed"));
  EXPECT_THAT(Refusal(R"({"prompt_token_ids":[1,"x"]})"), HasSubstr("prompt_token_ids[1]"));
  EXPECT_THAT(Refusal(R"({"messages":[{"role":1}]})"), HasSubstr("messages[0].role"));
  EXPECT_THAT(Refusal(R"({"prompt":"a","logit_bias":{"x":1}})"), HasSubstr("logit_bias"));
  EXPECT_THAT(Refusal("[1]"), HasSubstr("object"));
  EXPECT_THAT(Refusal("{\"prompt\":"), HasSubstr("not valid JSON: unexpected end of input"));
}

TEST(Jobs, AnIdCanBeAWholeNumberAndKeepsItsDigits) {
  const Job job = Parsed(R"({"id":18446744073709551615,"prompt":"a"})");
  EXPECT_EQ(job.id, "18446744073709551615");
  EXPECT_TRUE(job.id_is_number);
  EXPECT_EQ(Parsed(R"({"id":-3,"prompt":"a"})").id, "-3");
  EXPECT_FALSE(Parsed(R"({"id":"5","prompt":"a"})").id_is_number);
  EXPECT_FALSE(Parsed(R"({"prompt":"a"})").id_is_number);
  for (const char* id : {"1.5", "true", "[1]", "{}"}) {
    EXPECT_THAT(Refusal(absl::StrCat(R"({"id":)", id, R"(,"prompt":"a"})")),
                HasSubstr("line 7, column 7: \"id\" must be a string or a whole number"));
  }
}

TEST(Jobs, AbsentFieldsHaveTheFlagsValues) {
  Job defaults;
  defaults.n = 3;
  defaults.priority = 5;
  defaults.sampling.temperature = 0.25f;
  defaults.sampling.max_tokens = 9;
  defaults.sampling.min_tokens = 2;
  defaults.sampling.logprobs = 4;
  defaults.sampling.stop = {"x"};
  defaults.sampling.stop_token_ids = {1};
  defaults.sampling.logit_bias = {{7, 1.0f}};
  defaults.sampling.seed = 11;
  const Job same = Parsed(R"({"prompt":"a","temperature":null,"logprobs":null})", defaults);
  EXPECT_EQ(same.n, 3);
  EXPECT_EQ(same.priority, 5);
  EXPECT_EQ(same.sampling.temperature, 0.25f);
  EXPECT_EQ(same.sampling.max_tokens, 9);
  EXPECT_EQ(same.sampling.logprobs, 4);
  EXPECT_EQ(same.sampling.seed, 11u);
  EXPECT_THAT(same.sampling.stop, ElementsAre("x"));

  const Job own = Parsed(
      R"({"prompt":"a","n":1,"priority":-1,"temperature":2,"max_completion_tokens":3,"min_tokens":0,
          "logprobs":false,"stop":"y","stop_token_ids":[2],"logit_bias":{"8":2},"seed":12})",
      defaults);
  EXPECT_EQ(own.n, 1);
  EXPECT_EQ(own.priority, -1);
  EXPECT_EQ(own.sampling.temperature, 2);
  EXPECT_EQ(own.sampling.max_tokens, 3);
  EXPECT_EQ(own.sampling.min_tokens, 0);
  EXPECT_EQ(own.sampling.logprobs, std::nullopt);
  EXPECT_THAT(own.sampling.stop, ElementsAre("y"));
  EXPECT_THAT(own.sampling.stop_token_ids, ElementsAre(2));
  EXPECT_EQ(own.sampling.logit_bias.size(), 1u);
  EXPECT_EQ(own.sampling.seed, 12u);

  const Job batch = Parsed(BatchLine("/v1/completions", R"({"prompt":"a"})"), defaults);
  EXPECT_EQ(batch.sampling.max_tokens, 9);
}

TEST(Jobs, TextPartsAreJoinedByLineBreaksAndOthersRefusedByTypeAndPlace) {
  const auto with = [](const std::string& content) {
    return R"({"messages":[{"role":"user","content":)" + content + "}]}";
  };
  const Job job = Parsed(with(R"([{"type":"text","text":"a"},{"text":"b","type":"text"}])"));
  EXPECT_EQ((*job.messages)[0].content, "a\nb");
  EXPECT_EQ((*Parsed(with("[]")).messages)[0].content, "");
  const std::string image =
      with(R"([{"type":"text","text":"a"},{"type":"image_url","image_url":{}}])");
  EXPECT_EQ(Refusal(image), absl::StrCat("line 7, column ", image.find("\"image_url\"") + 1,
                                         ": \"messages[0].content[1].type\" is \"image_url\"; "
                                         "only \"text\" is supported"));
  EXPECT_THAT(Refusal(with(R"([{"text":"a"}])")), HasSubstr("content[0]\" has no \"type\""));
  EXPECT_THAT(Refusal(with(R"([{"type":"text"}])")), HasSubstr("content[0]\" has no \"text\""));
  EXPECT_THAT(Refusal(with(R"([{"type":"text","text":1}])")),
              HasSubstr("content[0].text\" must be a string"));
  EXPECT_THAT(Refusal(with(R"([{"type":"text","text":"a","cache":1}])")),
              HasSubstr("content[0].cache\" is not known"));
  EXPECT_THAT(Refusal(with(R"(["a"])")), HasSubstr("content[0]\" must be an object"));
  EXPECT_THAT(Refusal(with("1")), HasSubstr("must be a string or an array of text parts"));
}

TEST(Jobs, ALineOfAnOpenAiBatchIsAJob) {
  const Job chat = Parsed(BatchLine(
      "/v1/chat/completions",
      R"({"model":"m","messages":[{"role":"user","content":"hi"}],"max_completion_tokens":4,
          "logprobs":true,"top_logprobs":2,"n":2,"priority":3,"repetition_penalty":1.5})"));
  EXPECT_EQ(chat.id, "a");
  EXPECT_EQ(chat.form, JobForm::kChatBatch);
  EXPECT_EQ(chat.line, 7);
  EXPECT_EQ(chat.model, "m");
  EXPECT_EQ((*chat.messages)[0].content, "hi");
  EXPECT_EQ(chat.sampling.max_tokens, 4);
  EXPECT_EQ(chat.sampling.logprobs, 2);
  EXPECT_EQ(chat.n, 2);
  EXPECT_EQ(chat.priority, 3);
  const Job text = Parsed(BatchLine("/v1/completions", R"({"prompt":"hi"})"));
  EXPECT_EQ(text.form, JobForm::kCompletionBatch);
  EXPECT_EQ(text.prompt, "hi");
  const Job ids = Parsed(BatchLine("/v1/completions", R"({"prompt":[1,2]})"));
  EXPECT_THAT(*ids.prompt_token_ids, ElementsAre(1, 2));
}

TEST(Jobs, AMistypedFieldGetsTheNearestName) {
  EXPECT_THAT(Refusal(R"({"promt":"a"})"),
              HasSubstr("\"promt\" is not a field of a job; did you mean prompt?"));
  EXPECT_THAT(Refusal(R"({"prompt":"a","temprature":1})"), HasSubstr("did you mean temperature?"));
}

TEST(Jobs, RefusesAnUnsupportedBatchLineByName) {
  const auto body = [](const char* text) { return BatchLine("/v1/completions", text); };
  const std::string tools = body(R"({"prompt":"a","tools":[]})");
  EXPECT_EQ(Refusal(tools), absl::StrCat("line 7, column ", tools.find("\"tools\"") + 1,
                                         ": \"body.tools\" is not a field of a job"));
  EXPECT_THAT(Refusal(body(R"({"prompt":"a","id":"b"})")), HasSubstr("\"body.id\" is not a field"));
  EXPECT_THAT(Refusal(body(R"({"prompt":["a","b"]})")),
              HasSubstr("\"body.prompt[0]\" must be a whole number"));
  EXPECT_THAT(Refusal(body(R"({"messages":[]})")), HasSubstr("has no \"messages\""));
  EXPECT_THAT(Refusal(body("[]")), HasSubstr("\"body\" must be an object"));
  EXPECT_THAT(Refusal(BatchLine("/v1/chat/completions", R"({"prompt":"a"})")),
              HasSubstr("must have \"messages\""));
  EXPECT_THAT(Refusal(BatchLine("/v1/embeddings", "{}")), HasSubstr("\"url\" must be"));
  EXPECT_THAT(Refusal(R"({"custom_id":"a","method":"GET","url":"/v1/completions","body":{}})"),
              HasSubstr("\"method\" must be \"POST\""));
  EXPECT_THAT(Refusal(R"({"custom_id":"a","method":"POST","url":"/v1/completions"})"),
              HasSubstr("must have \"body\""));
  EXPECT_THAT(Refusal(R"({"custom_id":"a","prompt":"b"})"),
              HasSubstr("\"prompt\" is not a field of a batch line"));
}

TEST(Jobs, AFaultHasItsColumn) {
  const std::pair<const char*, int> cases[] = {
      {R"({"prompt":"a","temperature":"hot"})", 29},  // the value of a wrong type
      {R"({"prompt":"a","temperature":200})", 29},    // a value out of range
      {R"({"prompt":"é","max_tokens":0})", 28},       // characters, not bytes
      {R"({"prompt":"a","temprature":1})", 15},       // the key that is not known
      {R"({"prompt":"a","max_completion_tokens":0})", 39},
      {R"({"prompt":"a","logprobs":true,"top_logprobs":21})", 46},
      {R"({"prompt_token_ids":[1,"x"]})", 24},
      {R"({"prompt":"a","stop":["x",""]})", 22},
      {R"({"prompt":"a","logit_bias":{"x":1}})", 29},
      {R"({"prompt":"a" "n":1})", 15},  // a token out of place
      {R"({"prompt":"a","n":})", 19},
      {R"({"prompt":"a")", 14},     // the line's end
      {R"({"prompt":1e999})", 15},  // the number's end
      {"[1]", 1},
      {"  {}", 3},
  };
  for (const auto& [line, column] : cases) {
    EXPECT_THAT(Refusal(line), HasSubstr(absl::StrCat("line 7, column ", column, ": "))) << line;
  }
}

// A line with damage at any place is a job or gives a fault with its place. It never causes a
// crash.
TEST(Jobs, DamagedLinesAreRefusedWithTheirPlace) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const std::string whole[] = {
      R"({"id":5,"messages":[{"role":"user","content":[{"type":"text","text":"aé"}]}],"stop":["x"],
          "logit_bias":{"7":-1e1},"logprobs":true,"top_logprobs":2,"max_tokens":9,"n":2})",
      BatchLine("/v1/completions", R"({"prompt":[1,2],"model":"m","seed":1,"temperature":0.5})")};
  const std::string bytes = "{}[],:\"\\ 019e.-tn\xc3";
  for (int i = 0; i < 20000; ++i) {
    std::string line = whole[i % 2];
    for (int strikes = 1 + static_cast<int>(random() % 3); strikes > 0; --strikes) {
      line[random() % line.size()] = bytes[random() % bytes.size()];
    }
    const absl::StatusOr<Job> job = ParseJob(line, 7);
    if (!job.ok()) {
      EXPECT_THAT(std::string(job.status().message()), StartsWith("line 7, column "));
    }
    EXPECT_EQ(LabelOfLine(line, 7).line, 7);
  }
}

}  // namespace
}  // namespace baton
