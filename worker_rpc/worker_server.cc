#include "worker_rpc/worker_server.h"

#include <chrono>
#include <thread>
#include <utility>

#include "common/host_port.h"
#include "common/status_macros.h"
#include "rpc/tls_credentials.h"
#include "worker_rpc/registration.h"
#include "worker_rpc/wire_conversion.h"

namespace baton {

WorkerServer::WorkerServer(Engine* engine, ConcurrencyLimit* limit,
                           const WorkerServerOptions& options)
    : options_(options),
      limit_(limit),
      worker_service_(engine,
                      {.worker_id = options.worker_id, .address = "", .role = options.role}) {}

absl::StatusOr<std::unique_ptr<WorkerServer>> WorkerServer::Start(
    Engine* engine, ConcurrencyLimit* limit, const WorkerServerOptions& options,
    const std::vector<RoleService>& role_services) {
  std::vector<RouterTarget> targets;
  for (const std::string& router : options.routers) {
    ASSIGN_OR_RETURN(RouterTarget target, ParseRouterTarget(router));
    targets.push_back(std::move(target));
  }
  RouterAddresses routers(std::move(targets));
  std::unique_ptr<WorkerServer> out(new WorkerServer(engine, limit, options));
  std::vector<grpc::Service*> services = {&out->worker_service_};
  std::vector<std::string> names = {v1::Worker::service_full_name()};
  for (const RoleService& role_service : role_services) {
    out->role_services_.push_back(role_service.make(engine, limit, options.tracer));
    services.push_back(out->role_services_.back().get());
    names.push_back(role_service.name);
  }
  ASSIGN_OR_RETURN(out->server_, RpcServer::Start(options.server, services, std::move(names)));
  out->address_ = out->server_->address();
  if (!options.advertise.empty()) {
    const HostPort advertised = AdvertisedHostPort(options.advertise, out->server_->port());
    out->address_ = JoinHostPort(advertised.host, advertised.port);
  }
  out->worker_service_.SetAddress(out->address_);
  out->server_->SetServing(true);
  out->heartbeats_ = std::make_shared<HeartbeatClient>(
      routers.All(), FingerprintToWire(engine->fingerprint()),
      [service = &out->worker_service_] { return service->CurrentStatus(); },
      options.server.shutdown_delay_ms + options.server.drain_ms, options.metrics_address,
      options.metrics, FleetCredentials(options.server.tls, CallerRole::kRouter));
  if (!routers.names().empty()) {
    out->resolver_ = std::make_unique<RouterResolver>(
        std::move(routers), [heartbeats = out->heartbeats_](const std::vector<std::string>& found) {
          heartbeats->SetRouters(found);
        });
  }
  // The service outlives the heartbeats.
  out->worker_service_.SetTellRouters([weak = std::weak_ptr(out->heartbeats_)] {
    const std::shared_ptr<HeartbeatClient> heartbeats = weak.lock();
    if (heartbeats == nullptr) return WorkerService::Told();
    return WorkerService::Told{.routers = heartbeats->routers(),
                               .confirmed = heartbeats->TellNow(kHeartbeatTimeoutMs)};
  });
  return out;
}

void WorkerServer::Shutdown() {
  Drain(*this,
        {.delay_ms = options_.server.shutdown_delay_ms, .drain_ms = options_.server.drain_ms},
        [] {});
}

void WorkerServer::SetServing(bool serving) { server_->SetServing(serving); }

void WorkerServer::Fail() {
  constexpr int64_t kFailingCallsMs = 1000;
  RefuseCalls();  // first: this worker answers nothing any more
  ReportDraining();
  LeaveRouters([] {});
  limit_->WaitUntilIdle(kFailingCallsMs);
  CutOffCalls();
}

void WorkerServer::ReportDraining() {
  worker_service_.SetDraining();
  server_->SetServing(false);
}

void WorkerServer::LeaveRouters(std::function<void()> done) {
  if (resolver_ != nullptr) resolver_->Stop();  // it finds no more routers for a worker that leaves
  heartbeats_->Leave();
  done();
}

void WorkerServer::AwaitDelay(int64_t delay_ms, std::function<void()> done) {
  std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms));
  done();
}

void WorkerServer::RefuseCalls() { limit_->Close(); }

void WorkerServer::AwaitCalls(int64_t most_ms, std::function<void()> done) {
  limit_->WaitUntilIdle(most_ms);
  done();
}

}  // namespace baton
