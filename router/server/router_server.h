// A complete router: the core, both edges and their servers, with the order of their shutdown. main
// runs it, and tests build it.
//
// Thread safety: Start, Tick, Shutdown and the destructor from one thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/watched_file.h"
#include "metrics/metric_set.h"
#include "observe/observation_server.h"
#include "router/failure_detector.h"
#include "router/fleet_log.h"
#include "router/grpc/inference_service.h"
#include "router/grpc/kv_event_subscriber.h"
#include "router/grpc/registry_service.h"
#include "router/grpc/role_changer.h"
#include "router/grpc/worker_prober.h"
#include "router/http/http_edge.h"
#include "router/request_log.h"
#include "router/server/router_server_options.h"
#include "router/tenant_gate.h"
#include "rpc/rpc_server.h"
#include "rpc/task_pool.h"
#include "security/api_keys.h"
#include "tracing/otlp/otlp_exporter.h"

namespace baton {

class RouterServer {
 public:
  static absl::StatusOr<std::unique_ptr<RouterServer>> Start(const RouterServerOptions& options);
  ~RouterServer();

  // Forgets workers without heartbeats, follows new ones and updates the health service. Call it
  // several times a second. Returns true if requests will succeed.
  bool Tick();

  // Reports that it is not ready, and still accepts requests for `shutdown_delay_ms`. Then refuses
  // new requests, lets running ones finish for up to `drain_ms`, and cancels the rest. Idempotent.
  void Shutdown();

  const RpcServer& rpc() const { return *server_; }
  const HttpEdge* http() const { return http_edge_.get(); }  // null: off
  RouterCore& core() { return core_; }
  MetricSet& metrics() { return metrics_; }
  // HOST:PORT of /metrics; empty: it is not served.
  std::string metrics_address() const {
    return observation_server_ == nullptr ? "" : observation_server_->address();
  }

 private:
  // Longest time between two calls of Tick. After it, the router counts as hung.
  static constexpr int64_t kLongestTickUs = 10'000'000;

  RouterServer(const RouterServerOptions& options, std::unique_ptr<ApiKeys> api_keys);
  GenerateHost Host();
  void AwaitShutdownDelay();
  // Reads --tenants. Fails if it cannot be read or is wrong.
  absl::Status ReadTenants();
  // Reads it again if it has changed, and keeps the tenants' limits as they are if it is wrong.
  void TickTenants(const std::vector<WorkerRecord>& workers);
  // Waits until no call is left, while deadlines still count. Returns false after `timeout_ms`.
  bool WaitUntilIdle(int64_t timeout_ms);
  ObservationSource Source();
  void SetAlive() { ticked_us_.store(clock_.NowUs(), std::memory_order_relaxed); }
  std::string StatusPage() const;
  absl::Status Alive() const;
  absl::Status Ready();

  const RouterServerOptions options_;
  const SystemClock clock_;
  const std::unique_ptr<ApiKeys> api_keys_;  // null: clients need no key
  MetricSet metrics_{MetricPrograms::kRouters};
  const std::unique_ptr<OtlpExporter> traces_;  // null: off
  RouterCore core_;
  FleetLog log_{&clock_, FleetLog::ToLog(), &metrics_};
  RequestLog request_log_;
  RecentRequests recent_;
  WorkerChannels channels_;
  FailureDetector failure_detector_;
  LatestHeartbeats heartbeats_;
  RefusedWorkers refused_{&clock_};
  ConcurrencyLimit limit_;
  std::unique_ptr<TenantGate> tenants_;  // null: tenants have no limits
  std::unique_ptr<WatchedFile> tenants_file_;
  StreamWatchdog streams_;
  ModelFetcher fetcher_;
  KvEventSubscriber subscriber_;
  RoleChanger role_changer_;
  RegistryService registry_service_;
  std::unique_ptr<HttpEdge> http_edge_;  // before text_tasks_, whose tasks use it
  TextTasks text_tasks_;
  InferenceService inference_service_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<WorkerProber> prober_;
  std::unique_ptr<ObservationServer> observation_server_;
  std::optional<Observation> observation_;
  std::atomic<int64_t> ticked_us_;
  std::atomic<bool> draining_ = false;
  bool serving_ = false;
  bool shut_down_ = false;
};

}  // namespace baton
