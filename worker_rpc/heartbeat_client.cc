#include "worker_rpc/heartbeat_client.h"

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "common/check.h"
#include "common/printable_text.h"
#include "rpc/channel.h"
#include "rpc/status_conversion.h"
#include "worker_rpc/registration.h"

namespace baton {

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
  Registration registration;
  while (true) {
    const Registration::Heartbeat heartbeat = registration.Next();
    v1::HeartbeatRequest request;
    *request.mutable_status() = status_();
    *request.mutable_fingerprint() = fingerprint_;
    request.set_leaving(heartbeat.leaving);
    grpc::ClientContext context;
    context.set_deadline(DeadlineIn(heartbeat.timeout_ms));
    v1::HeartbeatResponse response;
    const grpc::Status status = stub->Heartbeat(&context, request, &response);
    const Registration::Outcome outcome = registration.OnAnswer(
        FromGrpcStatus(status),
        response.accepted() ? absl::OkStatus() : absl::FailedPreconditionError(response.reason()));
    if (!outcome.pause_ms.has_value()) return;
    if (outcome.trouble.has_value()) {
      if (outcome.trouble->empty()) {
        LOG(INFO) << "router " << router << ": registered";
      } else {
        LOG(WARNING) << "router " << router << ": not registered: " << Printable(*outcome.trouble);
      }
    }
    if (Pause(*outcome.pause_ms)) registration.Leave();
  }
}

}  // namespace baton
