#include "loadtest/openai_requests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace baton {
namespace {

using ::testing::HasSubstr;

LoadRequest WithPieces(std::vector<PromptPiece> pieces) {
  LoadRequest request;
  request.pieces = std::move(pieces);
  request.output_tokens = 9;
  return request;
}

TEST(OpenAiRequests, APromptIsACompletionOfTokenIdsOrText) {
  const LoadRequest request =
      WithPieces({{.role = PieceRole::kPrompt, .tokens = {5, 6}, .answer = {}}});
  const OpenAiCall call = MakeOpenAiCall(request, {.model = "m"});
  EXPECT_EQ(call.path, "/completions");
  const auto body = nlohmann::json::parse(call.body);
  EXPECT_EQ(body["prompt"], (std::vector<int>{5, 6}));
  EXPECT_EQ(body["model"], "m");
  EXPECT_EQ(body["max_tokens"], 9);
  EXPECT_EQ(body["stream"], true);
  EXPECT_EQ(body["stream_options"]["include_usage"], true);
  EXPECT_EQ(body["ignore_eos"], true);
  EXPECT_FALSE(body.contains("return_ledger"));
  const auto text = nlohmann::json::parse(
      MakeOpenAiCall(request, {.model = "m", .as_text = true, .ignore_eos = false}).body);
  EXPECT_EQ(text["prompt"], PieceText(request.pieces[0]));
  EXPECT_FALSE(text.contains("ignore_eos"));
}

TEST(OpenAiRequests, AConversationIsAChatCompletion) {
  LoadRequest request =
      WithPieces({{.role = PieceRole::kSystem, .tokens = {1}, .answer = {}},
                  {.role = PieceRole::kUser, .tokens = {2}, .answer = {}},
                  {.role = PieceRole::kAssistant, .tokens = {}, .answer = "bad \xFF byte"},
                  {.role = PieceRole::kUser, .tokens = {3}, .answer = {}}});
  request.conversation = 0;
  const OpenAiCall call = MakeOpenAiCall(request, {.model = "m"});
  EXPECT_EQ(call.path, "/chat/completions");
  const auto messages = nlohmann::json::parse(call.body)["messages"];
  ASSERT_EQ(messages.size(), 4u);
  EXPECT_EQ(messages[0]["role"], "system");
  EXPECT_EQ(messages[2]["role"], "assistant");
  EXPECT_EQ(messages[2]["content"], "bad \xEF\xBF\xBD byte");
  EXPECT_EQ(messages[3]["role"], "user");
}

TEST(OpenAiRequests, APromptWithChunksHasBatonsFields) {
  const LoadRequest request =
      WithPieces({{.role = PieceRole::kSystem, .tokens = {1}, .answer = {}},
                  {.role = PieceRole::kChunk, .tokens = {2, 3}, .answer = {}},
                  {.role = PieceRole::kQuestion, .tokens = {4}, .answer = {}}});
  const auto body =
      nlohmann::json::parse(MakeOpenAiCall(request, {.model = "m", .return_ledger = true}).body);
  EXPECT_EQ(body["system"], (std::vector<int>{1}));
  EXPECT_EQ(body["chunks"], (std::vector<std::vector<int>>{{2, 3}}));
  EXPECT_EQ(body["question"], (std::vector<int>{4}));
  EXPECT_FALSE(body.contains("prompt"));
  EXPECT_EQ(body["return_ledger"], true);
}

TEST(OpenAiRequests, TheFirstModelIsRead) {
  const auto vllm = ParseModels(R"({"data":[{"id":"a","max_model_len":4096},{"id":"b"}]})");
  ASSERT_TRUE(vllm.ok()) << vllm.status();
  EXPECT_EQ(vllm->name, "a");
  EXPECT_EQ(vllm->context_length, 4096);
  EXPECT_EQ(vllm->vocabulary, 0);
  const auto llama =
      ParseModels(R"({"data":[{"id":"x.gguf","meta":{"n_vocab":49152,"n_ctx_train":8192}}]})");
  ASSERT_TRUE(llama.ok()) << llama.status();
  EXPECT_EQ(llama->vocabulary, 49152);
  EXPECT_EQ(llama->context_length, 8192);
  for (const char* bad : {"", "[]", "{}", R"({"data":[]})", R"({"data":[5]})",
                          R"({"data":[{"id":7}]})", R"({"data":{"id":"a"}})"}) {
    EXPECT_THAT(std::string(ParseModels(bad).status().message()), HasSubstr("names no model"))
        << bad;
  }
  EXPECT_EQ(ParseModels(R"({"data":[{"id":"a","meta":5,"max_model_len":-3}]})")->context_length, 0);
}

}  // namespace
}  // namespace baton
