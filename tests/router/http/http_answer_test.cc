// Tests an answer between an HTTP client on a real connection and calls that do as they are told.
#include "router/http/http_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "http/http_server.h"
#include "tests/http/raw_http_client.h"

namespace baton {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class FakeCall final : public ClientListener {
 public:
  void OnClientGone() override { ++gone; }
  void CallOff(absl::Status status) override { called_off = std::move(status); }

  int gone = 0;
  absl::Status called_off;
};

class HttpAnswerTest : public ::testing::Test {
 protected:
  HttpAnswerTest() : client_(StartServer()) {}

  int32_t StartServer() {
    HttpRoutes routes;
    routes.Add({.method = "GET", .path = "/", .handler = [this](HttpRequest, auto exchange) {
                  exchange_.set_value(std::move(exchange));
                }});
    server_ = *HttpServer::Start({}, std::move(routes));
    return server_->port();
  }
  // Makes the answer to the client's request, for `prompts` prompts.
  void Begin(bool stream, int32_t prompts = 1, int64_t left_us = CallDeadline::kForEverUs) {
    client_.Send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    answer_ = std::make_shared<HttpAnswer>(exchange_.get_future().get(),
                                           CallDeadline(left_us, &clock_), kKeepalive);
    answer_->Start({.endpoint = OpenAiEndpoint::kCompletions, .prompts = prompts, .stream = stream},
                   {.id = "cmpl-1", .created = 1, .model = "m", .system_fingerprint = ""}, {},
                   {{"X-More", "more"}});
    for (int32_t i = 0; i < prompts; ++i) {
      calls_.push_back(std::make_shared<FakeCall>());
      streams_.push_back(answer_->Stream(i));
      added_ = answer_->AddCall(calls_.back());
    }
  }
  static v1::GenerateResponse Tokens(const std::string& text) {
    v1::GenerateResponse event;
    event.mutable_tokens()->add_token_ids(7);
    event.mutable_tokens()->set_text(text);
    return event;
  }
  static v1::GenerateResponse Finished() {
    v1::GenerateResponse event;
    event.mutable_finished()->set_reason(v1::FINISH_REASON_STOP);
    event.mutable_finished()->mutable_usage()->set_completion_tokens(1);
    return event;
  }

  static constexpr std::chrono::milliseconds kKeepalive{1000};

  const SystemClock clock_;
  std::promise<std::shared_ptr<HttpExchange>> exchange_;
  std::unique_ptr<HttpServer> server_;
  RawHttpClient client_;
  std::shared_ptr<HttpAnswer> answer_;
  std::vector<std::shared_ptr<FakeCall>> calls_;
  std::vector<std::shared_ptr<ClientStream>> streams_;
  bool added_ = false;
};

TEST_F(HttpAnswerTest, AWholeAnswerComesWhenTheLastPromptHasEnded) {
  Begin(/*stream=*/false, /*prompts=*/2);
  for (const auto& stream : streams_) {
    EXPECT_TRUE(stream->Send(Tokens("a")));
    EXPECT_TRUE(stream->Send(Finished()));
    stream->End(absl::OkStatus());
  }
  EXPECT_TRUE(streams_[0]->Send(Tokens("b"))) << "it is dropped";
  const RawHttpAnswer answer = client_.Read();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.at("x-more"), "more");
  EXPECT_THAT(answer.body, HasSubstr("\"index\":1"));
}

TEST_F(HttpAnswerTest, AnErrorBeforeTheFirstTokenIsAStatus) {
  Begin(/*stream=*/true);
  streams_[0]->End(absl::ResourceExhaustedError("full"));
  const RawHttpAnswer answer = client_.Read();
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(answer.headers.at("x-more"), "more");
  EXPECT_THAT(answer.body, HasSubstr("full"));
}

TEST_F(HttpAnswerTest, AnErrorAfterTheFirstTokenIsAnEvent) {
  Begin(/*stream=*/true);
  EXPECT_TRUE(streams_[0]->Send(Tokens("abc")));
  streams_[0]->End(absl::UnavailableError("lost"));
  const RawHttpAnswer answer = client_.Read();
  EXPECT_EQ(answer.status, 200);
  EXPECT_TRUE(answer.complete);
  EXPECT_THAT(answer.body, HasSubstr("abc"));
  EXPECT_THAT(answer.body, HasSubstr("lost"));
  EXPECT_THAT(answer.body, Not(HasSubstr("[DONE]")));
}

TEST_F(HttpAnswerTest, CommentsComeOnlyAfterSilence) {
  Begin(/*stream=*/true);
  const auto now = HttpAnswer::Clock::now();
  answer_->Tick(now + kKeepalive / 2);
  answer_->Tick(now + 2 * kKeepalive);
  EXPECT_TRUE(client_.Sees(": keep-alive\n\n"));
  EXPECT_TRUE(streams_[0]->Send(Finished()));
  streams_[0]->End(absl::OkStatus());
  const std::string body = client_.Read().body;
  EXPECT_EQ(body.find(": keep-alive"), body.rfind(": keep-alive"));
  EXPECT_THAT(body, HasSubstr("[DONE]"));
}

TEST_F(HttpAnswerTest, AFailedPromptCallsTheOthersOffAtTheNextTick) {
  Begin(/*stream=*/false, /*prompts=*/2);
  streams_[0]->End(absl::InvalidArgumentError("too long"));
  EXPECT_TRUE(calls_[1]->called_off.ok()) << "not from within the first prompt's call";
  EXPECT_TRUE(streams_[1]->Send(Tokens("a"))) << "the client reads, so this is not why it ends";
  answer_->Tick(HttpAnswer::Clock::now());
  answer_->Tick(HttpAnswer::Clock::now());
  EXPECT_EQ(calls_[1]->called_off.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(calls_[1]->gone, 0);
  EXPECT_EQ(client_.Read().status, 400);
}

TEST_F(HttpAnswerTest, APassedDeadlineEndsTheCallsOnce) {
  Begin(/*stream=*/false, /*prompts=*/1, /*left_us=*/200'000);
  ASSERT_TRUE(added_);
  while (calls_[0]->gone == 0) answer_->Tick(HttpAnswer::Clock::now());
  answer_->Tick(HttpAnswer::Clock::now());
  EXPECT_EQ(calls_[0]->gone, 1);
}

TEST_F(HttpAnswerTest, ACallAfterTheDeadlineMustNotStart) {
  Begin(/*stream=*/false, /*prompts=*/1, /*left_us=*/0);
  EXPECT_FALSE(added_);
  EXPECT_EQ(calls_[0]->gone, 1) << "the answer ends this call";
  EXPECT_EQ(client_.Read().status, 504);
}

TEST_F(HttpAnswerTest, ACallMustNotStartAfterItsClientHasLeft) {
  Begin(/*stream=*/false);
  answer_->OnClientGone();
  EXPECT_EQ(calls_[0]->gone, 1);
  const auto late = std::make_shared<FakeCall>();
  EXPECT_FALSE(answer_->AddCall(late));
  EXPECT_EQ(late->gone, 1) << "the answer ends this call";
  EXPECT_TRUE(streams_[0]->Send(Tokens("a"))) << "it is dropped";
  streams_[0]->End(absl::CancelledError(""));
}

TEST_F(HttpAnswerTest, TheShutdownsReasonReachesTheClient) {
  Begin(/*stream=*/false);
  HttpAnswers answers;
  answers.Add(answer_);
  answers.CallOff(absl::UnavailableError("shutting down"));
  EXPECT_EQ(calls_[0]->called_off.message(), "shutting down");
  EXPECT_THAT(client_.Read().body, HasSubstr("shutting down"));
}

TEST_F(HttpAnswerTest, AnAnswerThatEveryoneForgetsIsAnError) {
  Begin(/*stream=*/false);
  streams_.clear();
  answer_.reset();
  EXPECT_EQ(client_.Read().status, 500);
}

}  // namespace
}  // namespace baton
