#include "router/http/http_answer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "openai/api_error.h"
#include "router/http/error_response.h"
#include "rpc/answer_wire.h"

namespace baton {
namespace {

constexpr char kComment[] = ": keep-alive\n\n";
constexpr char kEndedBefore[] = "the answer ended before this prompt's";

class PromptStream final : public ClientStream {
 public:
  PromptStream(std::shared_ptr<HttpAnswer> answer, int32_t prompt)
      : answer_(std::move(answer)), prompt_(prompt) {}

  bool Send(const v1::GenerateResponse& event) override { return answer_->Send(prompt_, event); }
  void End(const absl::Status& status) override { answer_->EndPrompt(prompt_, status); }

 private:
  const std::shared_ptr<HttpAnswer> answer_;
  const int32_t prompt_;
};

}  // namespace

HttpAnswer::HttpAnswer(std::shared_ptr<HttpExchange> exchange, const CallDeadline& deadline,
                       std::chrono::milliseconds keepalive)
    : exchange_(std::move(exchange)),
      deadline_(deadline),
      keepalive_(keepalive),
      sent_at_(Clock::now()) {}

void HttpAnswer::Start(AnswerForm form, AnswerHead head, TokenText token_text,
                       std::vector<HttpHeader> headers) {
  std::lock_guard lock(mutex_);
  stream_ = form.stream;
  prompt_field_ = form.prompt_field;
  prompts_ = open_prompts_ = form.prompts;
  headers_ = std::move(headers);
  writer_ = std::make_unique<AnswerWriter>(std::move(form), std::move(head), std::move(token_text));
}

std::shared_ptr<ClientStream> HttpAnswer::Stream(int32_t prompt) {
  return std::make_shared<PromptStream>(shared_from_this(), prompt);
}

bool HttpAnswer::AddCall(const std::shared_ptr<ClientListener>& call) {
  bool failed = false;
  {
    std::lock_guard lock(mutex_);
    if (!ended_ && deadline_.Passed()) {
      FailLocked(ApiErrorOf(absl::DeadlineExceededError("the request's deadline has passed")));
    }
    if (!ended_) {
      calls_.push_back(call);
      return true;
    }
    failed = !client_gone_ && !deadline_.Passed();
  }
  if (failed) {
    call->CallOff(absl::CancelledError(kEndedBefore));
  } else {
    call->OnClientGone();
  }
  return false;
}

// ---- events of the calls ------------------------------------------------------------------------

bool HttpAnswer::Send(int32_t prompt, const v1::GenerateResponse& event) {
  std::lock_guard lock(mutex_);
  if (ended_) return !unread_;
  const std::optional<AnswerEvent> read = AnswerEventFromWire(event);
  if (!read.has_value()) return true;
  const std::string events = writer_->Event(prompt, *read);
  return events.empty() || WriteLocked(events);
}

void HttpAnswer::EndPrompt(int32_t prompt, const absl::Status& status) {
  std::lock_guard lock(mutex_);
  if (ended_) return;
  if (!status.ok()) return FailLocked(PromptErrorOf(status, prompt_field_, prompt, prompts_));
  if (--open_prompts_ > 0) return;
  if (!writer_->AllFinished()) {
    return FailLocked(ApiErrorOf(absl::InternalError("the answer ended before all its choices")));
  }
  const std::string last = writer_->Done();
  if (stream_) {
    WriteLocked(last);
    exchange_->End();
  } else {
    HttpResponse response = JsonResponse(200, last);
    response.headers = headers_;
    exchange_->Reply(std::move(response));
  }
  ended_ = true;
}

bool HttpAnswer::BeginLocked() {
  begun_ = true;
  HttpResponse head = {.status = 200,
                       .content_type = "text/event-stream; charset=utf-8",
                       .headers = headers_,
                       .body = ""};
  head.headers.push_back({"Cache-Control", "no-cache"});
  head.headers.push_back({"X-Accel-Buffering", "no"});  // nginx would hold events back
  return exchange_->Begin(std::move(head));
}

bool HttpAnswer::WriteLocked(const std::string& events) {
  sent_at_ = Clock::now();
  const bool sent = (begun_ || BeginLocked()) && exchange_->Write(events);
  if (!sent) ended_ = unread_ = true;
  return sent;
}

// ---- ends ---------------------------------------------------------------------------------------

void HttpAnswer::Fail(const absl::Status& status) { Fail(ApiErrorOf(status)); }

void HttpAnswer::Fail(const ApiError& error) {
  std::lock_guard lock(mutex_);
  if (!ended_) FailLocked(error);
}

void HttpAnswer::FailLocked(const ApiError& error) {
  ended_ = true;
  if (begun_) {
    exchange_->Write(AnswerWriter::StreamError(error));
    exchange_->End();
    return;
  }
  HttpResponse response = ErrorResponse(error);
  response.headers.insert(response.headers.end(), headers_.begin(), headers_.end());
  exchange_->Reply(std::move(response));
}

std::vector<std::shared_ptr<ClientListener>> HttpAnswer::Calls() {
  calls_end_ = true;
  std::vector<std::shared_ptr<ClientListener>> calls;
  for (const auto& weak : calls_) {
    if (auto call = weak.lock()) calls.push_back(std::move(call));
  }
  return calls;
}

void HttpAnswer::OnClientGone() {
  std::vector<std::shared_ptr<ClientListener>> calls;
  {
    std::lock_guard lock(mutex_);
    client_gone_ = ended_ = true;
    calls = Calls();
  }
  for (const auto& call : calls) call->OnClientGone();
}

void HttpAnswer::CallOff(const absl::Status& status) {
  std::vector<std::shared_ptr<ClientListener>> calls;
  {
    std::lock_guard lock(mutex_);
    if (!ended_) FailLocked(ApiErrorOf(status));
    calls = Calls();
  }
  for (const auto& call : calls) call->CallOff(status);
}

void HttpAnswer::Tick(Clock::time_point now) {
  std::vector<std::shared_ptr<ClientListener>> calls;
  bool failed = false;
  {
    std::lock_guard lock(mutex_);
    failed = ended_;
    const bool to_end = failed || deadline_.Passed();
    if (to_end && !calls_end_ && !calls_.empty()) calls = Calls();
    if (!failed && stream_ && now - sent_at_ >= keepalive_) WriteLocked(kComment);
  }
  for (const auto& call : calls) {
    if (failed) {
      call->CallOff(absl::CancelledError(kEndedBefore));
    } else {
      call->OnClientGone();  // the call knows that its deadline has passed
    }
  }
}

// ---- HttpAnswers --------------------------------------------------------------------------------

void HttpAnswers::Add(const std::shared_ptr<HttpAnswer>& answer) {
  std::lock_guard lock(mutex_);
  answers_.push_back(answer);
}

std::vector<std::shared_ptr<HttpAnswer>> HttpAnswers::Alive() {
  std::vector<std::shared_ptr<HttpAnswer>> alive;
  std::lock_guard lock(mutex_);
  std::erase_if(answers_, [](const auto& answer) { return answer.expired(); });
  for (const auto& weak : answers_) {
    if (auto answer = weak.lock()) alive.push_back(std::move(answer));
  }
  return alive;
}

void HttpAnswers::Tick() {
  const auto now = HttpAnswer::Clock::now();
  for (const auto& answer : Alive()) answer->Tick(now);
}

void HttpAnswers::CallOff(const absl::Status& status) {
  for (const auto& answer : Alive()) answer->CallOff(status);
}

}  // namespace baton
