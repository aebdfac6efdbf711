#include "cli/mock_server.h"

#include <sys/prctl.h>

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <queue>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "http/http_server.h"

namespace baton {
namespace {

using MockJson = nlohmann::ordered_json;

constexpr size_t kMaxMockBodyBytes = 64 << 20;
constexpr int64_t kMaxMockTokens = 1 << 20;
constexpr char kMockModel[] = "mock";

// One streamed answer.
struct MockAnswer {
  std::shared_ptr<HttpExchange> exchange;
  bool is_chat = false;
  int32_t prompt_tokens = 0;
  std::vector<int64_t> times_us;
  size_t sent = 0;  // tokens
};

HttpResponse MockError(int status, const std::string& message) {
  const MockJson body = {{"error", {{"message", message}, {"type", "invalid_request_error"}}}};
  return {.status = status,
          .content_type = "application/json",
          .headers = {},
          .body = body.dump(-1, ' ', false, MockJson::error_handler_t::replace)};
}

std::string MockEvent(const MockJson& data) { return absl::StrCat("data: ", data.dump(), "\n\n"); }

std::string TokenEvent(const MockAnswer& answer) {
  MockJson choice = {{"index", 0}, {"finish_reason", nullptr}};
  if (answer.is_chat) {
    choice["delta"] = {{"content", " word"}};
  } else {
    choice["text"] = " word";
  }
  return MockEvent({{"model", kMockModel}, {"choices", MockJson::array({choice})}});
}

std::string LastEvents(const MockAnswer& answer) {
  const auto tokens = static_cast<int64_t>(answer.times_us.size());
  MockJson choice = {{"index", 0}, {"finish_reason", "length"}};
  if (answer.is_chat) {
    choice["delta"] = MockJson::object();
  } else {
    choice["text"] = "";
  }
  return absl::StrCat(MockEvent({{"model", kMockModel}, {"choices", MockJson::array({choice})}}),
                      MockEvent({{"model", kMockModel},
                                 {"choices", MockJson::array()},
                                 {"usage",
                                  {{"prompt_tokens", answer.prompt_tokens},
                                   {"completion_tokens", tokens},
                                   {"total_tokens", answer.prompt_tokens + tokens}}}}),
                      "data: [DONE]\n\n");
}

// Tokens of a prompt: ids count one by one, text by its blanks.
int32_t CountPrompt(const MockJson& value) {
  if (value.is_string()) {
    const std::string& text = value.get_ref<const std::string&>();
    return 1 + static_cast<int32_t>(std::count(text.begin(), text.end(), ' '));
  }
  if (!value.is_structured()) return value.is_number() ? 1 : 0;
  int32_t count = 0;
  for (const MockJson& part : value) count += CountPrompt(part);
  return count;
}

}  // namespace

// Writes tokens at their times, on a thread of its own.
class MockServer::Impl {
 public:
  explicit Impl(const MockTimes& times)
      : times_(times), start_us_(clock_.NowUs()), thread_([this] { WriteTokens(); }) {}
  ~Impl() {
    server_.reset();  // no handler runs from here on
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  absl::Status Listen(const std::string& listen) {
    HttpRoutes routes;
    routes.Add({.method = "GET",
                .path = "/v1/models",
                .handler = [](const HttpRequest&, const std::shared_ptr<HttpExchange>& exchange) {
                  exchange->Reply({.status = 200,
                                   .content_type = "application/json",
                                   .headers = {},
                                   .body = R"({"object":"list","data":[{"id":"mock","object":)"
                                           R"("model","created":0,"owned_by":"mock"}]})"});
                }});
    for (const bool is_chat : {false, true}) {
      routes.Add(
          {.method = "POST",
           .path = is_chat ? "/v1/chat/completions" : "/v1/completions",
           .handler =
               [this, is_chat](const HttpRequest& request, std::shared_ptr<HttpExchange> exchange) {
                 Answer(is_chat, request, std::move(exchange));
               },
           .max_body_bytes = kMaxMockBodyBytes});
    }
    ASSIGN_OR_RETURN(server_, HttpServer::Start({.listen = listen}, std::move(routes)));
    return absl::OkStatus();
  }

  const std::string& address() const { return server_->address(); }

 private:
  struct DueToken {
    int64_t at_us;
    int64_t place;
    std::shared_ptr<MockAnswer> answer;
    bool operator>(const DueToken& other) const {
      return at_us != other.at_us ? at_us > other.at_us : place > other.place;
    }
  };

  int64_t NowUs() const { return clock_.NowUs() - start_us_; }

  void Answer(bool is_chat, const HttpRequest& request, std::shared_ptr<HttpExchange> exchange) {
    const int64_t arrival_us = NowUs();
    const MockJson body = MockJson::parse(request.body, nullptr, /*allow_exceptions=*/false);
    if (!body.is_object()) return exchange->Reply(MockError(400, "the body is not a JSON object"));
    if (body.value("stream", MockJson()) != true) {
      return exchange->Reply(MockError(400, "stream must be true"));
    }
    const MockJson wanted = body.value("max_tokens", MockJson(16));
    if (!wanted.is_number_integer() || wanted < 1 || wanted > kMaxMockTokens) {
      return exchange->Reply(
          MockError(400, absl::StrCat("max_tokens must be 1 to ", kMaxMockTokens)));
    }
    auto answer = std::make_shared<MockAnswer>();
    answer->is_chat = is_chat;
    answer->prompt_tokens = CountPrompt(body.value(is_chat ? "messages" : "prompt", MockJson()));
    answer->times_us = TokenTimes(times_, arrival_us, wanted.get<int32_t>());
    // The role comes at once, as some servers send it. It is no content.
    const MockJson role = {{"index", 0}, {"delta", {{"role", "assistant"}, {"content", ""}}}};
    const std::string first =
        is_chat ? MockEvent({{"model", kMockModel}, {"choices", MockJson::array({role})}}) : "";
    exchange->Begin({.status = 200,
                     .content_type = "text/event-stream",
                     .headers = {{"Cache-Control", "no-cache"}},
                     .body = first});
    answer->exchange = std::move(exchange);
    Plan(std::move(answer));
  }

  void Plan(std::shared_ptr<MockAnswer> answer) {
    const int64_t at_us = answer->times_us[answer->sent];
    std::lock_guard lock(mutex_);
    due_.push({.at_us = at_us, .place = planned_++, .answer = std::move(answer)});
    changed_.notify_all();
  }

  void WriteTokens() {
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      if (due_.empty()) {
        changed_.wait(lock);
        continue;
      }
      const int64_t wait_us = due_.top().at_us - NowUs();
      if (wait_us > 0) {
        changed_.wait_for(lock, std::chrono::microseconds(wait_us));
        continue;
      }
      std::shared_ptr<MockAnswer> answer = due_.top().answer;
      due_.pop();
      lock.unlock();
      WriteToken(std::move(answer));
      lock.lock();
    }
  }

  void WriteToken(std::shared_ptr<MockAnswer> answer) {
    if (!answer->exchange->Write(TokenEvent(*answer))) return;  // the client has left
    if (++answer->sent < answer->times_us.size()) return Plan(std::move(answer));
    answer->exchange->Write(LastEvents(*answer));
    answer->exchange->End();
  }

  const MockTimes times_;
  const SystemClock clock_;
  const int64_t start_us_;
  std::unique_ptr<HttpServer> server_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // guarded by mutex_
  std::priority_queue<DueToken, std::vector<DueToken>, std::greater<>> due_;
  int64_t planned_ = 0;    // guarded by mutex_
  bool stopping_ = false;  // guarded by mutex_
  std::thread thread_;     // the last member: it uses the others
};

MockServer::MockServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MockServer::~MockServer() = default;

absl::StatusOr<std::unique_ptr<MockServer>> MockServer::Start(const std::string& listen,
                                                              const MockTimes& times) {
  auto impl = std::make_unique<Impl>(times);
  RETURN_IF_ERROR(impl->Listen(listen));
  return std::unique_ptr<MockServer>(new MockServer(std::move(impl)));
}

const std::string& MockServer::address() const { return impl_->address(); }

}  // namespace baton
