// libFuzzer target for HTTP bodies in OpenAI's form. The input's first byte chooses the endpoint,
// the rest is the body. A body must not crash or hang. What is read from it must be within the
// bounds that the router relies on, and an answer to it must be valid JSON.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "common/check.h"
#include "openai/answer_writer.h"
#include "openai/api_error.h"
#include "openai/openai_request.h"
#include "tests/fuzz/seed_corpus.h"

namespace {

using Json = nlohmann::json;

constexpr size_t kMaxBytes = size_t{1} << 20;

void CheckError(const absl::Status& status) {
  const baton::ApiError error = baton::ApiErrorOf(status);
  CHECK_EQ(error.status, 400);
  CHECK(Json::accept(baton::ErrorBody(error)));
}

// Sends one token and the end of each choice.
void CheckAnswer(const baton::OpenAiRequest& request) {
  baton::AnswerWriter writer(request.form, {.id = "x", .model = request.model}, nullptr);
  std::string out;
  for (int32_t prompt = 0; prompt < request.form.prompts; ++prompt) {
    out += writer.Started(prompt, {.prompt_tokens = 1});
    for (int32_t choice = 0; choice < request.form.n; ++choice) {
      out += writer.Tokens(
          prompt, {.choice = choice, .token_ids = {1}, .text = request.model, .logprobs = {{}}});
      out += writer.Finished(prompt, {.choice = choice, .finish_reason = "stop"});
    }
  }
  CHECK(writer.AllFinished());
  out += writer.Done();
  if (!request.form.stream) {
    CHECK(Json::accept(out));
    return;
  }
  CHECK(out.ends_with("data: [DONE]\n\n"));
  for (size_t at = 0; at < out.size();) {
    CHECK_EQ(out.substr(at, 6), "data: ");
    const size_t end = out.find("\n\n", at);
    CHECK_NE(end, std::string::npos);
    const std::string event = out.substr(at + 6, end - at - 6);
    CHECK(event == "[DONE]" || Json::accept(event)) << event;
    at = end + 2;
  }
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  baton::WriteSeeds(
      *argc, *argv,
      {{"chat",
        R"(0{"model":"m","messages":[{"role":"system","content":"a"},{"role":"user","name":"n",
             "content":[{"type":"text","text":"b"}]}],"max_completion_tokens":3,"stop":["x"],
             "logprobs":true,"top_logprobs":2,"logit_bias":{"7":-1},"n":2,"stream":true,
             "stream_options":{"include_usage":true,"continuous_usage_stats":true},"seed":1,
             "tools":[],"response_format":{"type":"text"},"return_ledger":true})"},
       {"completion",
        R"(1{"prompt":["a",[1,2],"\u00e9"],"echo":true,"best_of":1,"suffix":null,"user":"u",
             "return_token_ids":true,"temperature":0,"unknown":{"deep":[[[1]]]}})"},
       {"ids", R"(1{"prompt":[1,2,3],"logprobs":5,"max_tokens":4,"min_tokens":1})"},
       {"parts",
        R"(1{"question":"Q","chunks":["A",[1]],"system":"S","chunk_positions":"sequential",
             "chunk_scope":"alone","chunk_repair":"share:0.5","chunk_separator":"#"})"},
       {"images",
        R"(0{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{}}],
             "chunks":["A"],"tool_calls":[]}]})"}});
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const baton::OpenAiEndpoint endpoint = (data[0] & 1) == 0
                                             ? baton::OpenAiEndpoint::kChatCompletions
                                             : baton::OpenAiEndpoint::kCompletions;
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto request = baton::ReadOpenAiRequest(endpoint, body, kMaxBytes);
  if (!request.ok()) {
    CheckError(request.status());
    return 0;
  }
  CHECK_GE(request->prompts.size(), 1u);
  CHECK_LE(request->prompts.size(), baton::kMaxPrompts);
  CHECK_EQ(request->prompts.size(), static_cast<size_t>(request->form.prompts));
  for (const baton::ClientRequest& prompt : request->prompts) {
    CHECK_EQ(baton::InputsOf(prompt), 1);
    CHECK(baton::CheckRequest(prompt, baton::RequestLimits()).ok());
    CHECK_EQ(prompt.n, request->form.n);
  }
  for (const char c : baton::IgnoredFieldsHeader(request->ignored_fields)) {
    CHECK(c >= ' ' && c <= '~');
  }
  CheckAnswer(*request);
  return 0;
}
