#include "cli/http_target_client.h"

#include <future>
#include <utility>

#include "absl/strings/str_cat.h"
#include "loadtest/openai_stream.h"

namespace baton {
namespace {

constexpr size_t kMaxErrorBodyBytes = 64 << 10;
constexpr size_t kMaxModelsBytes = 1 << 20;

// One answer on its way. Lives in the handlers of its call.
class StreamedAnswer {
 public:
  explicit StreamedAnswer(std::shared_ptr<AnswerSink> sink)
      : sink_(std::move(sink)), stream_(*sink_) {}

  void OnBody(int status, std::string_view bytes) {
    if (has_ended_) return;
    if (status == 200) {
      stream_.Feed(bytes);
      if (stream_.ended()) End(stream_.TakeEnd());
    } else if (error_body_.size() < kMaxErrorBodyBytes) {
      error_body_ += bytes.substr(0, kMaxErrorBodyBytes - error_body_.size());
    }
  }

  void OnEnd(int status, const std::string& error) {
    if (has_ended_) return;
    if (error.empty()) {
      return End(status == 200 ? stream_.TakeEnd() : OpenAiError(status, error_body_));
    }
    const bool is_known = error == kHttpCancelled || error == kHttpTimeout;
    AnswerEnd end;
    end.error = is_known ? error : "connection lost";
    end.error_message = error;
    End(std::move(end));
  }

 private:
  void End(AnswerEnd end) {
    has_ended_ = true;
    sink_->OnEnd(std::move(end));
  }

  const std::shared_ptr<AnswerSink> sink_;
  OpenAiStream stream_;
  std::string error_body_;
  bool has_ended_ = false;
};

struct FetchedBody {
  int status = 0;
  std::string error;
  std::string body;
};

}  // namespace

absl::StatusOr<TargetModel> HttpTarget::Describe(int64_t timeout_ms) {
  const auto fetched = std::make_shared<FetchedBody>();
  const auto done = std::make_shared<std::promise<void>>();
  client_.Start(options_.address.path + "/models", "", timeout_ms,
                {.on_body =
                     [fetched](int, std::string_view bytes) {
                       if (fetched->body.size() + bytes.size() <= kMaxModelsBytes) {
                         fetched->body += bytes;
                       }
                     },
                 .on_end =
                     [fetched, done](int status, const std::string& error) {
                       fetched->status = status;
                       fetched->error = error;
                       done->set_value();
                     }});
  done->get_future().wait();
  if (fetched->status == 0) {
    return absl::UnavailableError(
        absl::StrCat("no server answers at ",
                     JoinHostPort(options_.address.host_port.host, options_.address.host_port.port),
                     " (", fetched->error, ")"));
  }
  absl::StatusOr<TargetModel> model = ParseModels(fetched->body);
  if (!options_.requests.model.empty()) {
    if (!model.ok()) model = TargetModel();
    model->name = options_.requests.model;
  } else if (fetched->status == 404) {
    return absl::UnavailableError(
        absl::StrCat("GET ", options_.address.path,
                     "/models: status 404; the target is the address of the API, which often ends "
                     "in /v1"));
  } else if (!model.ok()) {
    return absl::UnavailableError(
        absl::StrCat("GET ", options_.address.path, "/models: status ", fetched->status, ": ",
                     std::string(model.status().message()), "; name one with --model"));
  }
  options_.requests.model = model->name;
  options_.requests.return_ledger = model->is_baton;
  return model;
}

void HttpTarget::Send(const LoadRequest& request, std::shared_ptr<AnswerSink> sink) {
  OpenAiCall call = MakeOpenAiCall(request, options_.requests);
  const auto answer = std::make_shared<StreamedAnswer>(std::move(sink));
  client_.Start(
      options_.address.path + call.path, std::move(call.body), options_.timeout_ms,
      {.on_body = [answer](int status, std::string_view bytes) { answer->OnBody(status, bytes); },
       .on_end = [answer](int status, const std::string& error) { answer->OnEnd(status, error); }});
}

}  // namespace baton
