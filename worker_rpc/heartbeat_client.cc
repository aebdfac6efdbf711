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

HeartbeatClient::HeartbeatClient(const std::vector<std::string>& routers,
                                 v1::KvFingerprint fingerprint,
                                 std::function<v1::WorkerStatus()> status, int64_t drain_ms,
                                 std::string metrics_address, MetricSet* metrics,
                                 std::shared_ptr<grpc::ChannelCredentials> credentials)
    : fingerprint_(std::move(fingerprint)),
      status_(std::move(status)),
      drain_ms_(drain_ms),
      metrics_address_(std::move(metrics_address)),
      metrics_(metrics),
      credentials_(std::move(credentials)) {
  SetRouters(routers);
}

HeartbeatClient::~HeartbeatClient() { Leave(); }

void HeartbeatClient::SetRouters(const std::vector<std::string>& routers) {
  std::vector<std::unique_ptr<Router>> ended;
  {
    std::lock_guard lock(mutex_);
    if (leaving_) return;
    for (auto it = routers_.begin(); it != routers_.end();) {
      it->second->listed = false;
      if (!it->second->ended) {
        ++it;
        continue;
      }
      ended.push_back(std::move(it->second));
      it = routers_.erase(it);
    }
    for (const std::string& address : routers) {
      std::unique_ptr<Router>& router = routers_[address];
      if (router == nullptr) {
        router = std::make_unique<Router>();
        router->address = address;
        router->thread = std::thread([this, added = router.get()] { Run(*added); });
      }
      router->listed = true;
    }
    SetMetricsLocked();
  }
  for (const auto& router : ended) router->thread.join();
}

void HeartbeatClient::Leave() {
  {
    std::lock_guard lock(mutex_);
    leaving_ = true;
    changed_.notify_all();
  }
  // The map does not change any more.
  for (const auto& [address, router] : routers_) {
    if (router->thread.joinable()) router->thread.join();
  }
}

int32_t HeartbeatClient::ActiveLocked() const {
  return static_cast<int32_t>(std::count_if(
      routers_.begin(), routers_.end(), [](const auto& entry) { return !entry.second->ended; }));
}

int32_t HeartbeatClient::routers() const {
  std::lock_guard lock(mutex_);
  return ActiveLocked();
}

int32_t HeartbeatClient::TellNow(int64_t timeout_ms) {
  std::unique_lock lock(mutex_);
  const int64_t call = ++asked_;
  changed_.notify_all();
  const auto count = [this, call] {
    return std::count_if(routers_.begin(), routers_.end(), [call](const auto& entry) {
      return !entry.second->ended && entry.second->told >= call;
    });
  };
  changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms),
                    [&] { return leaving_ || count() == ActiveLocked(); });
  return static_cast<int32_t>(count());
}

bool HeartbeatClient::Pause(int64_t ms, const Router& router) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::milliseconds(ms),
                    [this, &router] { return leaving_ || router.sent < asked_; });
  return leaving_;
}

int64_t HeartbeatClient::BeginHeartbeat(Router& router) {
  std::lock_guard lock(mutex_);
  return router.sent = asked_;
}

void HeartbeatClient::SetTold(Router& router, int64_t call) {
  std::lock_guard lock(mutex_);
  router.told = call;
  router.answered_at = std::chrono::steady_clock::now();
  changed_.notify_all();
}

void HeartbeatClient::SetMetricsLocked() {
  if (metrics_ == nullptr) return;
  metrics_->Set(Metric::kWorkerRouters, ActiveLocked());
  metrics_->Set(Metric::kWorkerRoutersRegistered,
                std::count_if(routers_.begin(), routers_.end(), [](const auto& entry) {
                  return !entry.second->ended && entry.second->accepted;
                }));
}

void HeartbeatClient::Count(Router& router, HeartbeatOutcome outcome) {
  if (metrics_ != nullptr) metrics_->Add(Metric::kWorkerHeartbeats, 1, outcome);
  std::lock_guard lock(mutex_);
  router.accepted = outcome == HeartbeatOutcome::kAccepted;
  SetMetricsLocked();
}

void HeartbeatClient::SplitRole(v1::HeartbeatRequest& request) {
  request.set_current_role(request.status().role());
  std::lock_guard lock(mutex_);
  if (first_role_ == v1::WORKER_ROLE_UNSPECIFIED) first_role_ = request.current_role();
  request.mutable_status()->set_role(first_role_);
}

void HeartbeatClient::SetPlace(const Router& router, v1::HeartbeatRequest& request) const {
  std::lock_guard lock(mutex_);
  int32_t count = 0;
  for (const auto& [address, other] : routers_) {
    if (other.get() == &router) request.set_router_place(count);
    if (other.get() == &router || (other->listed && other->accepted)) ++count;
  }
  request.set_routers(count);
}

bool HeartbeatClient::Forget(Router& router) {
  std::lock_guard lock(mutex_);
  const auto silent = std::chrono::steady_clock::now() - router.answered_at;
  if (router.listed || silent < std::chrono::milliseconds(kForgetMs)) return false;
  router.ended = true;
  SetMetricsLocked();
  changed_.notify_all();
  LOG(INFO) << "router " << router.address << ": forgotten. Its name does not list it any more, "
            << "and it has not answered for " << kForgetMs << " ms";
  return true;
}

void HeartbeatClient::Run(Router& router) {
  const auto stub = v1::Registry::NewStub(MakeChannel(router.address, credentials_));
  Registration registration;
  while (true) {
    const Registration::Heartbeat heartbeat = registration.Next();
    const int64_t call = BeginHeartbeat(router);  // before the status is taken
    v1::HeartbeatRequest request;
    *request.mutable_status() = status_();
    SplitRole(request);
    SetPlace(router, request);
    *request.mutable_fingerprint() = fingerprint_;
    request.set_metrics_address(metrics_address_);
    request.set_leaving(heartbeat.leaving);
    if (heartbeat.leaving) request.set_drain_ms(drain_ms_);
    grpc::ClientContext context;
    context.set_deadline(DeadlineIn(heartbeat.timeout_ms));
    v1::HeartbeatResponse response;
    const grpc::Status status = stub->Heartbeat(&context, request, &response);
    if (status.ok()) SetTold(router, call);
    Count(router, !status.ok()          ? HeartbeatOutcome::kFailed
                  : heartbeat.leaving   ? HeartbeatOutcome::kLeaving
                  : response.accepted() ? HeartbeatOutcome::kAccepted
                                        : HeartbeatOutcome::kRefused);
    const Registration::Outcome outcome = registration.OnAnswer(
        FromGrpcStatus(status),
        response.accepted() ? absl::OkStatus() : absl::FailedPreconditionError(response.reason()));
    if (!outcome.pause_ms.has_value()) return;
    if (outcome.trouble.has_value()) {
      if (outcome.trouble->empty()) {
        LOG(INFO) << "router " << router.address << ": registered";
      } else {
        LOG(WARNING) << "router " << router.address
                     << ": not registered: " << Printable(*outcome.trouble);
      }
    }
    if (!status.ok() && Forget(router)) return;
    if (Pause(*outcome.pause_ms, router)) registration.Leave();
  }
}

}  // namespace baton
