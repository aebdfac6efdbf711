#include "worker_rpc/heartbeat_client.h"

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "common/check.h"
#include "common/shown_text.h"
#include "rpc/channel.h"

namespace baton {
namespace {

constexpr int64_t kHeartbeatTimeoutMs = 1000;
constexpr int64_t kGoodbyeTimeoutMs = 500;

}  // namespace

HeartbeatClient::HeartbeatClient(std::vector<std::string> routers, v1::KvFingerprint fingerprint,
                                 std::function<v1::WorkerStatus()> status)
    : fingerprint_(std::move(fingerprint)), status_(std::move(status)) {
  for (std::string& router : routers) {
    threads_.emplace_back([this, router = std::move(router)] { Run(router); });
  }
}

HeartbeatClient::~HeartbeatClient() { Leave(); }

void HeartbeatClient::Leave() {
  {
    std::lock_guard lock(mutex_);
    leaving_ = true;
    changed_.notify_all();
  }
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

bool HeartbeatClient::Pause(int64_t ms) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::milliseconds(ms), [this] { return leaving_; });
}

void HeartbeatClient::Run(const std::string& router) {
  const auto stub = v1::Registry::NewStub(MakeChannel(router));
  std::string last_trouble;
  bool last_words = false;
  while (true) {
    v1::HeartbeatRequest request;
    *request.mutable_status() = status_();
    *request.mutable_fingerprint() = fingerprint_;
    request.set_leaving(last_words);
    grpc::ClientContext context;
    context.set_deadline(DeadlineIn(last_words ? kGoodbyeTimeoutMs : kHeartbeatTimeoutMs));
    v1::HeartbeatResponse response;
    const grpc::Status status = stub->Heartbeat(&context, request, &response);
    if (last_words) return;

    const std::string trouble = !status.ok()          ? status.error_message()
                                : response.accepted() ? ""
                                                      : response.reason();
    // Once per change, not once a second: reasons tell how long ago something was.
    if (!SameButForNumbers(trouble, last_trouble)) {
      if (trouble.empty()) {
        LOG(INFO) << "router " << router << ": registered";
      } else {
        LOG(WARNING) << "router " << router << ": not registered: " << Printable(trouble);
      }
      last_trouble = trouble;
    }
    last_words = Pause(status.ok() ? kHeartbeatIntervalMs : kHeartbeatRetryMs);
  }
}

}  // namespace baton
