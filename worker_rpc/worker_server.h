// Server of a worker: gRPC services, heartbeats, and their shutdown order. The role is data:
// routers are told it, and it may change. The worker programs use it, and tests run it with an
// engine of their own.
//
// Thread safety: Start, Shutdown and the destructor on one thread.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "rpc/concurrency_limit.h"
#include "rpc/rpc_server.h"
#include "tracing/tracer.h"
#include "worker_rpc/heartbeat_client.h"
#include "worker_rpc/router_resolver.h"
#include "worker_rpc/worker_drain.h"
#include "worker_rpc/worker_service.h"

namespace baton {

// Service that a role adds to those of every worker.
struct RoleService {
  std::string name;  // "baton.v1.PrefillWorker", for health checks
  // Creates the service. Engine, limit and tracer outlive it. The tracer may be null.
  std::function<std::unique_ptr<grpc::Service>(Engine*, ConcurrencyLimit*, const Tracer*)> make;
};

struct WorkerServerOptions {
  RpcServerOptions server;
  std::string worker_id;
  std::string advertise;  // HOST or HOST:PORT; empty: the address that it listens at
  v1::WorkerRole role = v1::WORKER_ROLE_UNSPECIFIED;
  std::vector<std::string> routers;  // HOST:PORT or dns:///NAME:PORT of each
  std::string metrics_address = {};  // HOST:PORT that routers are told; empty: there is none
  MetricSet* metrics = nullptr;      // counts heartbeats; outlives the server; null: nothing counts
  const Tracer* tracer = nullptr;    // outlives the server and the engine; null: no spans
};

class WorkerServer final : private DrainingWorker {
 public:
  // `engine` and `limit` must outlive this. `limit` must also outlive `engine`, because the
  // engine's sinks hold slots. Errors are those of RpcServer::Start and ParseRouterTarget.
  static absl::StatusOr<std::unique_ptr<WorkerServer>> Start(
      Engine* engine, ConcurrencyLimit* limit, const WorkerServerOptions& options,
      const std::vector<RoleService>& role_services);

  // HOST:PORT that the worker advertises.
  const std::string& address() const { return address_; }
  RpcServer& rpc() { return *server_; }

  // Returns the status that routers get. Does not wait for the engine.
  v1::WorkerStatus CurrentStatus() { return worker_service_.CurrentStatus(); }
  // Sends the present status to all routers soon, before the next heartbeat. Does not wait.
  void TellRouters() { heartbeats_->TellNow(/*timeout_ms=*/0); }
  int32_t routers() const { return heartbeats_->routers(); }
  // Sets the health status of the process and its services. Initially serving.
  void SetServing(bool serving);
  // For an engine that cannot compute any more: fails health checks, refuses calls, says goodbye to
  // the routers, and gives running calls a second to fail. No call is left when this returns.
  void Fail();

  // Accepts calls for `shutdown_delay_ms`, then drains for up to `drain_ms`
  // (worker_rpc/worker_drain.h). No call is left when this returns.
  void Shutdown();

 private:
  WorkerServer(Engine* engine, ConcurrencyLimit* limit, const WorkerServerOptions& options);

  void ReportDraining() override;
  void LeaveRouters(std::function<void()> done) override;
  void AwaitDelay(int64_t delay_ms, std::function<void()> done) override;
  void RefuseCalls() override;
  void AwaitCalls(int64_t most_ms, std::function<void()> done) override;
  void CutOffCalls() override { server_->Shutdown(0); }

  const WorkerServerOptions options_;
  ConcurrencyLimit* const limit_;
  WorkerService worker_service_;
  std::vector<std::unique_ptr<grpc::Service>> role_services_;
  std::unique_ptr<RpcServer> server_;
  std::string address_;
  std::shared_ptr<HeartbeatClient> heartbeats_;
  std::unique_ptr<RouterResolver> resolver_;  // null: no router is given by name
};

}  // namespace baton
