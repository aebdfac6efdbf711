// Tests of OpenAI's API over real HTTP, with scripted engines behind the router.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/host_port.h"
#include "tests/e2e/service_fixture.h"
#include "tests/http/raw_http_client.h"

namespace baton {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kChatTemplate[] = "{% for m in messages %}{{ m.content }}{% endfor %}";

class ServiceHttpTest : public ServiceTest {
 protected:
  explicit ServiceHttpTest(HttpEdgeOptions http = {.listen = "127.0.0.1:0",
                                                   .served_model_names = "gpt-x, org/model"})
      : ServiceTest(std::move(http)) {}
  ~ServiceHttpTest() override { StopTicking(); }

  // The router's main thread ticks all the time.
  void StartTicking() {
    ticker_ = std::thread([this] {
      while (!stop_) {
        router_->Tick();
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    });
  }
  void StopTicking() {
    stop_ = true;
    if (ticker_.joinable()) ticker_.join();
  }
  int32_t port() const { return ParseHostPort(router_->http()->address())->port; }

  static std::string PostText(const std::string& path, const std::string& body,
                              const std::string& headers = "") {
    return absl::StrCat("POST ", path, " HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n",
                        headers, "Content-Length: ", body.size(), "\r\n\r\n", body);
  }
  RawHttpAnswer Post(const std::string& path, const std::string& body,
                     const std::string& headers = "") {
    return RawHttpClient(port()).Ask(PostText(path, body, headers));
  }
  static std::string Timeout(int milliseconds) {
    return absl::StrCat("Baton-Timeout-Ms: ", milliseconds, "\r\n");
  }
  RawHttpAnswer Get(const std::string& path) {
    return RawHttpClient(port()).Ask(absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: h\r\n\r\n"));
  }
  // The events of a stream, without "data: ".
  static std::vector<std::string> Events(const std::string& body) {
    std::vector<std::string> events;
    size_t at = 0;
    while (at < body.size()) {
      const size_t end = body.find("\n\n", at);
      if (end == std::string::npos) break;
      const std::string event = body.substr(at, end - at);
      if (event.starts_with("data: ")) events.push_back(event.substr(6));
      at = end + 2;
    }
    return events;
  }
  static json ErrorOf(const RawHttpAnswer& answer) {
    const json body = json::parse(answer.body, nullptr, /*allow_exceptions=*/false);
    EXPECT_TRUE(body.is_object() && body.contains("error")) << answer.body;
    EXPECT_TRUE(answer.headers.contains("x-request-id"));
    return body.is_object() ? body.value("error", json::object()) : json::object();
  }

 private:
  std::atomic<bool> stop_ = false;
  std::thread ticker_;
};

constexpr char kPrompt[] = R"({"prompt": "hello"})";
constexpr char kStreamed[] = R"({"prompt": "hello", "stream": true})";

TEST_F(ServiceHttpTest, ACompletionHasTheTextTheReasonAndTheUsage) {
  AddDecode();
  const RawHttpAnswer answer = Post("/v1/completions", kPrompt, "x-request-id: mine\r\n");
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.headers.at("content-type"), "application/json");
  EXPECT_EQ(answer.headers.at("x-request-id"), "mine");
  const json body = json::parse(answer.body);
  EXPECT_EQ(body["choices"][0]["text"], "abc");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(body["usage"]["prompt_tokens"], 5);
  EXPECT_EQ(body["usage"]["completion_tokens"], 3);
  EXPECT_EQ(body["id"], "cmpl-mine");
  EXPECT_EQ(body["model"], "fake");
}

TEST_F(ServiceHttpTest, AChatHasAMessage) {
  AddDecode({.chat_template = kChatTemplate});
  const RawHttpAnswer answer =
      Post("/v1/chat/completions",
           R"({"model": "gpt-x", "messages": [{"role": "user", "content": "hi"}]})");
  ASSERT_EQ(answer.status, 200) << answer.body;
  const json body = json::parse(answer.body);
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_EQ(body["choices"][0]["message"]["content"], "abc");
  EXPECT_EQ(body["model"], "gpt-x");
}

TEST_F(ServiceHttpTest, AStreamHasTheSameTextInEventsAndEndsWithDone) {
  AddDecode();
  const RawHttpAnswer answer = Post("/v1/completions", kStreamed);
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_TRUE(answer.complete);
  EXPECT_THAT(answer.headers.at("content-type"), HasSubstr("text/event-stream"));
  const std::vector<std::string> events = Events(answer.body);
  ASSERT_GE(events.size(), 2u);
  EXPECT_EQ(events.back(), "[DONE]");
  std::string text;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const json event = json::parse(events[i]);
    for (const json& choice : event["choices"]) text += choice.value("text", "");
  }
  EXPECT_EQ(text, "abc");
}

TEST_F(ServiceHttpTest, TheTokensAreThoseOfTheOtherEdge) {
  AddDecode({.tokens = 20});
  const Answer grpc = Generate(LongPrompt());
  const RawHttpAnswer answer =
      Post("/v1/completions",
           json({{"prompt", std::string(200, 'x')}, {"return_token_ids", true}}).dump());
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(json::parse(answer.body)["choices"][0]["token_ids"].get<std::vector<int32_t>>(),
            grpc.ids);
}

TEST_F(ServiceHttpTest, EachPromptOfAListHasItsChoices) {
  FakeWorker& decode = AddDecode();
  const RawHttpAnswer answer =
      Post("/v1/completions", R"({"prompt": ["one", "two", [104, 105]], "n": 2})");
  ASSERT_EQ(answer.status, 200) << answer.body;
  const json body = json::parse(answer.body);
  ASSERT_EQ(body["choices"].size(), 6u);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(body["choices"][i]["index"], i);
    EXPECT_EQ(body["choices"][i]["text"], "abc");
  }
  EXPECT_EQ(body["usage"]["prompt_tokens"], 3 + 3 + 2);
  EXPECT_EQ(decode.engine().generated().size(), 3u);
}

TEST_F(ServiceHttpTest, WrongRequestsAreRefusedByFieldAndReachNoWorker) {
  FakeWorker& decode = AddDecode({.chat_template = kChatTemplate});
  struct Case {
    std::string path, body;
    int status;
    std::string says;
  };
  const std::string chat = "/v1/chat/completions";
  const std::string plain = "/v1/completions";
  const std::vector<Case> cases = {
      {plain, "{", 400, "JSON"},
      {plain, "[]", 400, ""},
      {plain, R"({"prompt": "a", "temperature": -1})", 400, "temperature"},
      {plain, R"({"prompt": "a", "max_tokens": "x"})", 400, "max_tokens"},
      {plain, R"({"prompt": [300]})", 400, "300"},
      {plain, R"({})", 400, "prompt"},
      {plain, R"({"prompt": "a", "n": 17})", 400, "n is 17"},
      {plain, json({{"prompt", std::string(600, 'x')}}).dump(), 400, "600 tokens"},
      {plain, R"({"prompt": "a", "model": "other"})", 404, "other"},
      {chat, R"({"messages": []})", 400, "messages"},
      {chat, R"({"messages": [{"role": "user", "content": "a"}], "tools": [{"type": "x"}]})", 400,
       "tools"},
      {"/v1/embeddings", "{}", 404, "/v1/embeddings"},
      {"/v1/models", "{}", 405, "POST"},
  };
  for (const Case& wrong : cases) {
    const RawHttpAnswer answer = Post(wrong.path, wrong.body);
    EXPECT_EQ(answer.status, wrong.status) << wrong.body << answer.body;
    EXPECT_THAT(ErrorOf(answer).value("message", ""), HasSubstr(wrong.says)) << wrong.body;
  }
  EXPECT_EQ(ErrorOf(Post(plain, R"({"prompt": "a", "top_p": 0})"))["param"], "top_p");
  EXPECT_EQ(ErrorOf(Post(plain, R"({"prompt": "a", "model": "b"})"))["code"], "model_not_found");
  EXPECT_EQ(Post(plain, kPrompt, "Baton-Timeout-Ms: x\r\n").status, 400);
  EXPECT_EQ(Post(plain, kPrompt, "Baton-Timeout-Ms: 0\r\n").status, 400);
  const RawHttpAnswer other_type = RawHttpClient(port()).Ask(
      "POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Type: text/plain\r\nContent-Length: "
      "1\r\n\r\nx");
  EXPECT_EQ(other_type.status, 415);
  ErrorOf(other_type);
  const RawHttpAnswer too_long = RawHttpClient(port()).Ask(
      "POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999\r\n\r\n");
  EXPECT_EQ(too_long.status, 413);
  ErrorOf(too_long);
  EXPECT_TRUE(decode.engine().generated().empty());
}

TEST_F(ServiceHttpTest, IgnoredFieldsAreNamed) {
  AddDecode();
  const RawHttpAnswer answer = Post("/v1/completions", R"({"prompt": "a", "frobnicate": 1})");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.at("baton-ignored-fields"), "frobnicate");
  EXPECT_EQ(router_->http()->ignored_fields(), 1);
}

// Requests that end before they have a call are counted too.
TEST_F(ServiceHttpTest, RequestsAreCountedByEndpoint) {
  AddDecode();
  MetricSet& metrics = router_->metrics();
  const auto ok = absl::StatusCode::kOk;
  const auto invalid = absl::StatusCode::kInvalidArgument;
  // The router counts before the client gets the end.
  EXPECT_EQ(Post("/v1/completions", R"({"prompt": ["a", "b"]})").status, 200);
  EXPECT_EQ(metrics.Cells(Metric::kRequests, Endpoint::kCompletions, ok), 2);
  EXPECT_EQ(Post("/v1/chat/completions", R"({"messages": 1})").status, 400);
  EXPECT_EQ(metrics.Cells(Metric::kRequests, Endpoint::kChatCompletions, invalid), 1);
  EXPECT_EQ(metrics.Cells(Metric::kRefused, Refusal::kInvalid), 1);
  EXPECT_EQ(metrics.Cells(Metric::kRequests, Endpoint::kGenerate, ok), 0);
}

TEST_F(ServiceHttpTest, WithoutWorkersNothingIsHealthy) {
  EXPECT_EQ(Get("/health").status, 503);
  const RawHttpAnswer answer = Post("/v1/completions", kPrompt);
  EXPECT_EQ(answer.status, 503);
  EXPECT_TRUE(answer.headers.contains("retry-after"));
  EXPECT_EQ(Get("/v1/models").status, 503);
  AddDecode();
  EXPECT_TRUE(Eventually([this] { return router_->Tick(); }));
  EXPECT_EQ(Get("/health").status, 200);
}

TEST_F(ServiceHttpTest, ModelsHaveAllTheirNames) {
  AddDecode();
  const json list = json::parse(Get("/v1/models").body);
  std::vector<std::string> ids;
  for (const json& model : list["data"]) ids.push_back(model["id"]);
  EXPECT_THAT(ids, ElementsAre("fake", "gpt-x", "org/model"));
  EXPECT_EQ(json::parse(Get("/v1/models/org/model").body)["id"], "org/model");
  EXPECT_EQ(json::parse(Get("/v1/models/org%2Fmodel").body)["id"], "org/model");
  const RawHttpAnswer unknown = Get("/v1/models/other");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(ErrorOf(unknown)["code"], "model_not_found");
  EXPECT_EQ(Get("/v1/models/%zz").status, 404);
}

TEST_F(ServiceHttpTest, ADeadlineEndsARequestEverywhere) {
  FakeWorker& decode = AddDecode({.finish = false});
  StartTicking();
  // On a slow machine a short deadline passes before the engine gets the request.
  for (int timeout_ms = 300; decode.engine().generated().empty(); timeout_ms *= 2) {
    ASSERT_LT(timeout_ms, 20'000);
    const RawHttpAnswer answer = Post("/v1/completions", kPrompt, Timeout(timeout_ms));
    EXPECT_EQ(answer.status, 504);
    EXPECT_EQ(answer.headers.at("x-should-retry"), "false");
    ErrorOf(answer);
  }
  EXPECT_TRUE(
      decode.engine().Eventually([](auto& engine) { return engine.cancelled_count() == 1; }));
}

TEST_F(ServiceHttpTest, AnErrorInAStreamIsAnEventWithoutDone) {
  AddDecode({.finish = false});
  StartTicking();
  RawHttpAnswer answer;
  // On a slow machine a short deadline passes before the first token.
  for (int timeout_ms = 300; answer.status != 200; timeout_ms *= 2) {
    ASSERT_LT(timeout_ms, 20'000);
    answer = Post("/v1/completions", kStreamed, Timeout(timeout_ms));
    EXPECT_TRUE(answer.status == 200 || answer.status == 504) << answer.status;
  }
  EXPECT_TRUE(answer.complete);
  const std::vector<std::string> events = Events(answer.body);
  ASSERT_GE(events.size(), 2u);
  EXPECT_THAT(events.back(), HasSubstr("\"error\""));
  EXPECT_THAT(answer.body, Not(HasSubstr("[DONE]")));
}

TEST_F(ServiceHttpTest, AClientThatLeavesEndsItsRequestAtTheWorker) {
  FakeWorker& decode = AddDecode({.finish = false});
  size_t cancelled = 0;
  for (const char* body : {kPrompt, kStreamed}) {
    RawHttpClient client(port());
    client.Send(PostText("/v1/completions", body));
    ++cancelled;
    EXPECT_TRUE(decode.engine().Eventually(
        [&](auto& engine) { return engine.generated_count() == cancelled; }));
    client.Close();
    EXPECT_TRUE(decode.engine().Eventually(
        [&](auto& engine) { return engine.cancelled_count() == cancelled; }));
  }
  EXPECT_TRUE(Eventually([this] { return router_->core().counters().active_requests == 0; }));
}

TEST_F(ServiceHttpTest, AWorkersRefusalIsAStatusAndSaysWhenToRetry) {
  AddDecode({.refusal = absl::ResourceExhaustedError("the queue has 9 requests, the limit")});
  for (const char* body : {kPrompt, kStreamed}) {
    const RawHttpAnswer answer = Post("/v1/completions", body);
    EXPECT_EQ(answer.status, 503);
    EXPECT_TRUE(answer.headers.contains("retry-after"));
    EXPECT_THAT(ErrorOf(answer).value("message", ""), HasSubstr("9 requests"));
  }
}

TEST_F(ServiceHttpTest, OnePromptThatFailsEndsTheOthers) {
  FakeWorker& decode = AddDecode({.finish = false});
  StartTicking();
  const std::string prompts = json({{"prompt", {"a", std::string(600, 'x')}}}).dump();
  const RawHttpAnswer answer = Post("/v1/completions", prompts);
  EXPECT_EQ(answer.status, 400);
  EXPECT_THAT(ErrorOf(answer).value("message", ""), HasSubstr("600 tokens"));
  EXPECT_TRUE(Eventually([this] { return router_->core().counters().active_requests == 0; }));
  EXPECT_LE(decode.engine().generated().size(), 1u);
}

TEST_F(ServiceHttpTest, ManyClientsShareAConnectionEach) {
  AddDecode({.tokens = 10});
  constexpr int kClients = 16;
  std::vector<std::thread> clients;
  std::atomic<int> right = 0;
  for (int i = 0; i < kClients; ++i) {
    clients.emplace_back([this, &right, i] {
      RawHttpClient client(port());
      for (int turn = 0; turn < 10; ++turn) {
        const RawHttpAnswer answer =
            client.Ask(PostText("/v1/completions", (i + turn) % 2 == 0 ? kPrompt : kStreamed));
        if (answer.status == 200 && answer.complete) ++right;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(right, kClients * 10);
}

TEST_F(ServiceHttpTest, AShutdownTellsClientsAndRefusesNewOnes) {
  AddDecode({.finish = false});
  RawHttpClient streaming(port());
  streaming.Send(PostText("/v1/completions", kStreamed));
  EXPECT_TRUE(streaming.Sees("\"text\""));
  RawHttpClient waiting(port());
  waiting.Send(PostText("/v1/completions", kPrompt));
  EXPECT_TRUE(Eventually([this] { return router_->core().counters().active_requests == 2; }));
  router_->Shutdown();
  const RawHttpAnswer stream = streaming.Read();
  EXPECT_TRUE(stream.complete);
  EXPECT_THAT(stream.body, HasSubstr("is shutting down"));
  EXPECT_THAT(stream.body, Not(HasSubstr("[DONE]")));
  const RawHttpAnswer refused = waiting.Read();
  EXPECT_EQ(refused.status, 503);
  EXPECT_THAT(refused.body, HasSubstr("is shutting down"));
  EXPECT_TRUE(waiting.IsClosed());
}

class ServiceHttpKeepaliveTest : public ServiceHttpTest {
 protected:
  ServiceHttpKeepaliveTest()
      : ServiceHttpTest(HttpEdgeOptions{.listen = "127.0.0.1:0", .keepalive_ms = 50}) {}
};

TEST_F(ServiceHttpKeepaliveTest, ASilentStreamGetsCommentsAndLaterErrorsAreEvents) {
  AddDecode({.tokens = 0, .finish = false});
  StartTicking();
  RawHttpAnswer answer;
  // On a slow machine a short deadline passes before the first comment.
  for (int timeout_ms = 1000; answer.status != 200; timeout_ms *= 2) {
    ASSERT_LT(timeout_ms, 20'000);
    answer = Post("/v1/completions", kStreamed, Timeout(timeout_ms));
    EXPECT_TRUE(answer.status == 200 || answer.status == 504) << answer.status;
  }
  EXPECT_THAT(answer.body, HasSubstr(": keep-alive\n\n"));
  ASSERT_EQ(Events(answer.body).size(), 1u);
  EXPECT_THAT(Events(answer.body)[0], HasSubstr("\"error\""));
}

TEST_F(ServiceHttpKeepaliveTest, AWholeAnswerHasNoComments) {
  AddDecode({.tokens = 0, .finish = false});
  StartTicking();
  const RawHttpAnswer answer = Post("/v1/completions", kPrompt, "Baton-Timeout-Ms: 500\r\n");
  EXPECT_EQ(answer.status, 504);
  EXPECT_THAT(answer.body, Not(HasSubstr("keep-alive")));
}

}  // namespace
}  // namespace baton
