#include "worker_rpc/heartbeat_client.h"

#include <algorithm>
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
                                 std::function<v1::WorkerStatus()> status, int64_t drain_ms,
                                 std::string metrics_address, MetricSet* metrics,
                                 std::shared_ptr<grpc::ChannelCredentials> credentials)
    : fingerprint_(std::move(fingerprint)),
      status_(std::move(status)),
      drain_ms_(drain_ms),
      metrics_address_(std::move(metrics_address)),
      metrics_(metrics),
      credentials_(std::move(credentials)) {
  accepted_.resize(routers.size());
  if (metrics_ != nullptr) {
    metrics_->Set(Metric::kWorkerRouters, static_cast<int64_t>(routers.size()));
  }
  told_.resize(routers.size());
  sent_.resize(routers.size());
  for (size_t i = 0; i < routers.size(); ++i) {
    threads_.emplace_back([this, i, router = std::move(routers[i])] { Run(router, i); });
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

int32_t HeartbeatClient::TellNow(int64_t timeout_ms) {
  std::unique_lock lock(mutex_);
  const int64_t call = ++asked_;
  changed_.notify_all();
  const auto count = [this, call] {
    return std::count_if(told_.begin(), told_.end(), [call](int64_t told) { return told >= call; });
  };
  changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms),
                    [&] { return leaving_ || count() == std::ssize(told_); });
  return static_cast<int32_t>(count());
}

bool HeartbeatClient::Pause(int64_t ms, size_t index) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::milliseconds(ms),
                    [this, index] { return leaving_ || sent_[index] < asked_; });
  return leaving_;
}

int64_t HeartbeatClient::BeginHeartbeat(size_t index) {
  std::lock_guard lock(mutex_);
  return sent_[index] = asked_;
}

void HeartbeatClient::SetTold(size_t index, int64_t call) {
  std::lock_guard lock(mutex_);
  told_[index] = call;
  changed_.notify_all();
}

void HeartbeatClient::Count(size_t index, HeartbeatOutcome outcome) {
  if (metrics_ == nullptr) return;
  metrics_->Add(Metric::kWorkerHeartbeats, 1, outcome);
  std::lock_guard lock(mutex_);
  accepted_[index] = outcome == HeartbeatOutcome::kAccepted;
  metrics_->Set(Metric::kWorkerRoutersRegistered,
                std::count(accepted_.begin(), accepted_.end(), true));
}

void HeartbeatClient::Run(const std::string& router, size_t index) {
  const auto stub = v1::Registry::NewStub(MakeChannel(router, credentials_));
  Registration registration;
  while (true) {
    const Registration::Heartbeat heartbeat = registration.Next();
    const int64_t call = BeginHeartbeat(index);  // before the status is taken
    v1::HeartbeatRequest request;
    *request.mutable_status() = status_();
    *request.mutable_fingerprint() = fingerprint_;
    request.set_metrics_address(metrics_address_);
    request.set_leaving(heartbeat.leaving);
    if (heartbeat.leaving) request.set_drain_ms(drain_ms_);
    grpc::ClientContext context;
    context.set_deadline(DeadlineIn(heartbeat.timeout_ms));
    v1::HeartbeatResponse response;
    const grpc::Status status = stub->Heartbeat(&context, request, &response);
    if (status.ok()) SetTold(index, call);
    Count(index, !status.ok()          ? HeartbeatOutcome::kFailed
                 : heartbeat.leaving   ? HeartbeatOutcome::kLeaving
                 : response.accepted() ? HeartbeatOutcome::kAccepted
                                       : HeartbeatOutcome::kRefused);
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
    if (Pause(*outcome.pause_ms, index)) registration.Leave();
  }
}

}  // namespace baton
