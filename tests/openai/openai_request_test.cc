#include "openai/openai_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "openai/api_error.h"
#include "requests/ignored_fields.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr OpenAiEndpoint kChat = OpenAiEndpoint::kChatCompletions;
constexpr OpenAiEndpoint kCompletions = OpenAiEndpoint::kCompletions;
constexpr size_t kMaxBytes = 1 << 20;

OpenAiRequest Chat(const std::string& body) {
  const absl::StatusOr<OpenAiRequest> read = ReadOpenAiRequest(kChat, body, kMaxBytes);
  EXPECT_TRUE(read.ok()) << read.status();
  return read.ok() ? *read : OpenAiRequest{.prompts = {{}}};
}

OpenAiRequest Completion(const std::string& body) {
  const absl::StatusOr<OpenAiRequest> read = ReadOpenAiRequest(kCompletions, body, kMaxBytes);
  EXPECT_TRUE(read.ok()) << read.status();
  return read.ok() ? *read : OpenAiRequest{.prompts = {{}}};
}

// Returns the message. `param` is what the client sees.
std::string Refusal(OpenAiEndpoint endpoint, const std::string& body, const std::string& param) {
  const absl::Status status = ReadOpenAiRequest(endpoint, body, kMaxBytes).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << body;
  EXPECT_EQ(ApiErrorOf(status).param, param) << body;
  return std::string(status.message());
}

std::string WithMessages(const std::string& fields) {
  return R"({"messages":[{"role":"user","content":"hi"}])" + (fields.empty() ? "" : "," + fields) +
         "}";
}

TEST(OpenAiRequest, AConversationHasEveryFieldOfAJob) {
  const OpenAiRequest read = Chat(WithMessages(
      R"("model":"m","n":2,"seed":5,"stop":["x"],"ignore_eos":true,"min_tokens":1,"max_tokens":9,
         "temperature":0,"top_p":0.5,"top_k":3,"min_p":0.1,"repetition_penalty":1.1,
         "presence_penalty":1,"frequency_penalty":-1,"logit_bias":{"7":1},"stop_token_ids":[4],
         "priority":-2,"tenant":"t","cache_salt":"s","session_id":"u","chunk_scope":"alone",
         "stream":true,"return_token_ids":true,"return_ledger":true)"));
  EXPECT_EQ(read.model, "m");
  EXPECT_TRUE(read.ignored_fields.empty());
  ASSERT_EQ(read.prompts.size(), 1u);
  const ClientRequest& request = read.prompts[0];
  EXPECT_EQ((*request.messages)[0].content, "hi");
  EXPECT_EQ(request.n, 2);
  EXPECT_EQ(request.sampling.seed, 5u);
  EXPECT_THAT(request.sampling.stop, ElementsAre("x"));
  EXPECT_TRUE(request.sampling.ignore_eos);
  EXPECT_EQ(request.sampling.max_tokens, 9);
  EXPECT_EQ(request.sampling.top_k, 3);
  EXPECT_EQ(request.priority, -2);
  EXPECT_EQ(request.tenant, "t");
  EXPECT_EQ(request.cache_salt, "s");
  EXPECT_EQ(request.session_id, "u");
  EXPECT_EQ(request.chunk_options.scope, ChunkScope::kAlone);
  EXPECT_TRUE(request.return_prompt_token_ids);
  EXPECT_EQ(read.form.n, 2);
  EXPECT_EQ(read.form.prompts, 1);
  EXPECT_TRUE(read.form.stream && read.form.return_token_ids && read.form.return_ledger);
  EXPECT_FALSE(read.form.logprobs);
}

TEST(OpenAiRequest, BothFormsOfLogprobsAreRead) {
  const OpenAiRequest chat = Chat(WithMessages(R"("logprobs":true,"top_logprobs":3)"));
  EXPECT_EQ(chat.prompts[0].sampling.logprobs, 3);
  EXPECT_TRUE(chat.form.logprobs);
  const OpenAiRequest text = Completion(R"({"prompt":"a","logprobs":2})");
  EXPECT_EQ(text.prompts[0].sampling.logprobs, 2);
  EXPECT_TRUE(text.form.logprobs);
  EXPECT_FALSE(Chat(WithMessages(R"("logprobs":false)")).form.logprobs);
}

TEST(OpenAiRequest, UsageInEveryChunkNeedsUsage) {
  EXPECT_FALSE(Chat(WithMessages(R"("stream_options":{"continuous_usage_stats":true})"))
                   .form.continuous_usage);
  const OpenAiRequest both = Chat(WithMessages(
      R"("stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true})"));
  EXPECT_TRUE(both.form.include_usage && both.form.continuous_usage);
}

TEST(OpenAiRequest, TheCacheKeyIsASessionUnlessThereIsOne) {
  EXPECT_EQ(Chat(WithMessages(R"("prompt_cache_key":"k")")).prompts[0].session_id, "k");
  EXPECT_EQ(Chat(WithMessages(R"("prompt_cache_key":"k","session_id":"s")")).prompts[0].session_id,
            "s");
}

TEST(OpenAiRequest, AConversationHasNoLimitAndACompletionHasOpenAis) {
  EXPECT_EQ(Chat(WithMessages("")).prompts[0].sampling.max_tokens, std::nullopt);
  EXPECT_EQ(Completion(R"({"prompt":"a"})").prompts[0].sampling.max_tokens, 16);
  EXPECT_EQ(Completion(R"({"prompt":"a","max_tokens":null})").prompts[0].sampling.max_tokens, 16);
  EXPECT_EQ(Completion(R"({"prompt":"a","min_tokens":20})").prompts[0].sampling.max_tokens, 20);
  EXPECT_EQ(
      Completion(R"({"prompt":"a","max_completion_tokens":3})").prompts[0].sampling.max_tokens, 3);
}

TEST(OpenAiRequest, APromptIsTextOrIdsOrAListOfEither) {
  EXPECT_EQ(Completion(R"({"prompt":"a"})").prompts[0].prompt, "a");
  EXPECT_THAT(*Completion(R"({"prompt":[1,2]})").prompts[0].prompt_token_ids, ElementsAre(1, 2));
  const OpenAiRequest list = Completion(R"({"prompt":["a",[1,2],"c"],"n":2,"seed":3})");
  ASSERT_EQ(list.prompts.size(), 3u);
  EXPECT_EQ(list.prompts[0].prompt, "a");
  EXPECT_EQ(list.prompts[1].prompt, std::nullopt);
  EXPECT_THAT(*list.prompts[1].prompt_token_ids, ElementsAre(1, 2));
  EXPECT_EQ(list.prompts[2].prompt, "c");
  EXPECT_EQ(list.prompts[2].prompt_token_ids, std::nullopt);
  EXPECT_EQ(list.prompts[2].sampling.seed, 3u);
  EXPECT_EQ(list.form.prompts, 3);
  EXPECT_EQ(list.form.n, 2);
  EXPECT_EQ(Completion(R"({"question":"Q","chunks":["A"]})").prompts[0].parts->chunks.size(), 1u);
}

TEST(OpenAiRequest, AListOfPromptsIsBoundedAndItsFaultsHaveAPlace) {
  std::string most = R"({"prompt":["a")";
  for (size_t i = 1; i < kMaxPrompts; ++i) most += ",\"a\"";
  EXPECT_EQ(Completion(most + "]}").prompts.size(), kMaxPrompts);
  EXPECT_EQ(Refusal(kCompletions, most + ",\"a\"]}", "prompt"),
            "\"prompt\" has 33 prompts; 1 to 32 are allowed");
  EXPECT_THAT(Refusal(kCompletions, R"({"prompt":[]})", "prompt"), HasSubstr("has 0 prompts"));
  EXPECT_EQ(Refusal(kCompletions, R"({"prompt":["a",1]})", "prompt[1]"),
            "\"prompt[1]\" must be a string or an array of token ids");
  EXPECT_EQ(Refusal(kCompletions, R"({"prompt":[[1],[2,"x"]]})", "prompt[1][1]"),
            "\"prompt[1][1]\" must be a whole number");
  EXPECT_EQ(Refusal(kCompletions, R"({"prompt":[1,"x"]})", "prompt[1]"),
            "\"prompt[1]\" must be a whole number");
}

TEST(OpenAiRequest, EchoHasEveryPromptAndItsLimits) {
  const OpenAiRequest read = Completion(R"({"prompt":["a",[1,2]],"echo":true})");
  EXPECT_THAT(read.form.echo, ElementsAre(PromptPart("a"), PromptPart(std::vector<TokenId>{1, 2})));
  EXPECT_TRUE(Completion(R"({"prompt":"a","echo":false})").form.echo.empty());
  EXPECT_THAT(Refusal(kCompletions, R"({"prompt":"a","echo":true,"logprobs":1})", "echo"),
              HasSubstr("together with \"logprobs\""));
  EXPECT_THAT(Refusal(kCompletions, R"({"question":"a","echo":true})", "echo"),
              HasSubstr("a prompt in parts"));
  EXPECT_THAT(Refusal(kChat, WithMessages(R"("echo":true)"), "echo"), HasSubstr("conversation"));
}

TEST(OpenAiRequest, BestOfMayNotExceedN) {
  EXPECT_EQ(Completion(R"({"prompt":"a","best_of":2,"n":2})").prompts[0].n, 2);
  EXPECT_THAT(Refusal(kCompletions, R"({"prompt":"a","best_of":3,"n":2})", "best_of"),
              HasSubstr("\"best_of\" is 3; at most n, 2, is supported"));
}

TEST(OpenAiRequest, UnknownFieldsAreIgnoredAndNamed) {
  const OpenAiRequest read = Chat(
      R"({"zeta":1,"messages":[{"role":"user","content":"a","name":"x"},
          {"role":"user","content":"a","name":"y"}],"alpha":{"deep":[[[[[[[[[[1]]]]]]]]]]},
          "user":"u","metadata":{},"store":false,"service_tier":"auto","parallel_tool_calls":true,
          "tools":[],"response_format":{"type":"text"}})");
  EXPECT_THAT(read.ignored_fields, ElementsAre("alpha", "messages[].name", "zeta"));
  EXPECT_EQ(IgnoredFieldsHeader(read.ignored_fields), "alpha, messages[].name, zeta");
}

TEST(OpenAiRequest, TheHeaderIsSafeAndBounded) {
  EXPECT_EQ(IgnoredFieldsHeader({}), "");
  EXPECT_EQ(IgnoredFieldsHeader({"a\r\nSet-Cookie: x", "é"}), "a%0D%0ASet-Cookie%3A%20x, %C3%A9");
  EXPECT_EQ(IgnoredFieldsHeader({""}), "-");
  EXPECT_EQ(IgnoredFieldsHeader({std::string(62, 'x') + "é"}), std::string(62, 'x'))
      << "no half of an encoded byte";
  EXPECT_EQ(IgnoredFieldsHeader({std::string(500, 'x')}), std::string(64, 'x'));
  const std::vector<std::string> many(20, "a");
  EXPECT_THAT(IgnoredFieldsHeader(many), ::testing::EndsWith("a, a, and 4 more"));
  const std::vector<std::string> most(IgnoredFields::kMostNames, "a");
  EXPECT_THAT(IgnoredFieldsHeader(most), ::testing::EndsWith("a, a, and at least 48 more"))
      << "the reader keeps no more names";
}

TEST(OpenAiRequest, WhatWouldChangeTheAnswerIsRefusedByName) {
  EXPECT_THAT(Refusal(kChat, WithMessages(R"("tools":[{"type":"function"}])"), "tools"),
              HasSubstr("not supported"));
  EXPECT_THAT(Refusal(kChat, WithMessages(R"("response_format":{"type":"json_object"})"),
                      "response_format.type"),
              HasSubstr("only \"text\""));
  EXPECT_THAT(Refusal(kCompletions, R"({"prompt":"a","suffix":"b"})", "suffix"),
              HasSubstr("not supported"));
  EXPECT_THAT(Refusal(kChat,
                      R"({"messages":[{"role":"user","content":[{"type":"image_url",
                          "image_url":{"url":"data:"}}]}]})",
                      "messages[0].content[0].type"),
              HasSubstr("image_url"));
}

TEST(OpenAiRequest, BoundsAreThoseOfEveryEdge) {
  EXPECT_EQ(Refusal(kChat, WithMessages(R"("n":3e9)"), "n"),
            "\"n\" is 3000000000.0; [1, 16] is allowed");
  EXPECT_EQ(Refusal(kChat, WithMessages(R"("temperature":101)"), "temperature"),
            "temperature is 101; [0, 100] is allowed");
  EXPECT_EQ(Refusal(kChat, WithMessages(R"("max_completion_tokens":0)"), "max_completion_tokens"),
            "max_completion_tokens is 0; at least 1 is allowed");
  EXPECT_EQ(Refusal(kChat, WithMessages(R"("n":17)"), "n"), "n is 17; [1, 16] is allowed");
  EXPECT_EQ(Refusal(kChat, "{}", "messages"),
            "a body for /v1/chat/completions must have \"messages\"");
  EXPECT_EQ(Refusal(kChat, "[]", ""), "the body must be a JSON object");
}

TEST(OpenAiRequest, TheLastOfEqualKeysCounts) {
  EXPECT_EQ(Completion(R"({"prompt":"a","n":1,"n":3})").prompts[0].n, 3);
  EXPECT_THAT(Refusal(kCompletions, R"({"prompt":"a","n":1,"n":17})", "n"), HasSubstr("n is 17"));
}

TEST(OpenAiRequest, HostileBodiesAreRefused) {
  EXPECT_THAT(Refusal(kChat, "", ""), HasSubstr("not valid JSON"));
  EXPECT_THAT(Refusal(kChat, "{\"prompt\":\"\xFF\"}", ""), HasSubstr("ill-formed UTF-8"));
  EXPECT_THAT(Refusal(kChat, R"({"prompt":"\ud800"})", ""), HasSubstr("not valid JSON"));
  EXPECT_THAT(Refusal(kChat, WithMessages("\"x\":" + std::string(100000, '[')), ""),
              HasSubstr("nested more than 64 deep"));
  EXPECT_THAT(Refusal(kChat, std::string(kMaxBytes + 1, ' '), ""),
              HasSubstr("has 1048577 bytes; at most 1048576"));
  const std::string many = R"({"prompt":"a","x":[0)" + [] {
    std::string values;
    for (int i = 0; i < 1200000; ++i) values += ",0";
    return values;
  }() + "]}";
  EXPECT_THAT(std::string(ReadOpenAiRequest(kCompletions, many, 1 << 24).status().message()),
              HasSubstr("more than 1114112 values"));
}

// A damaged body is read or refused. It never causes a crash, and its header stays safe.
TEST(OpenAiRequest, DamagedBodiesDoNoHarm) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const std::string wholes[] = {
      WithMessages(R"("stop":["a"],"stream_options":{"include_usage":true},"logit_bias":{"7":1},)"
                   R"("tools":[],"response_format":{"type":"text"},"x":{"y":[1]})"),
      R"({"prompt":["a",[1,2],"\u00e9"],"echo":true,"best_of":1,"n":1,"suffix":null})"};
  const std::string bytes = "{}[],:\"\\ 1e.-tn\xC3\n" + std::string(1, '\0');
  int read = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string body = wholes[i % 2];
    for (int strikes = static_cast<int>(random() % 3); strikes > 0; --strikes) {
      body[random() % body.size()] = bytes[random() % bytes.size()];
    }
    if (random() % 4 == 0) body.resize(random() % (body.size() + 1));
    const auto request = ReadOpenAiRequest(i % 2 == 0 ? kChat : kCompletions, body, kMaxBytes);
    if (!request.ok()) {
      EXPECT_EQ(ApiErrorOf(request.status()).status, 400) << body;
      continue;
    }
    ++read;
    EXPECT_EQ(request->form.prompts, static_cast<int32_t>(request->prompts.size()));
    for (const char c : IgnoredFieldsHeader(request->ignored_fields)) EXPECT_GE(c, ' ');
  }
  EXPECT_GT(read, 1000);
}

}  // namespace
}  // namespace baton
