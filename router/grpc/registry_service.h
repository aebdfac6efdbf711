// gRPC service that receives the workers' heartbeats.
//
// Thread safety: gRPC calls it from any thread.
#pragma once

#include <functional>

#include "baton/v1/worker.grpc.pb.h"
#include "router/fleet_log.h"
#include "router/grpc/latest_heartbeats.h"
#include "router/grpc/model_fetcher.h"
#include "router/refused_workers.h"
#include "router/router_core.h"

namespace baton {

class RegistryService final : public v1::Registry::CallbackService {
 public:
  // All must outlive the service.
  RegistryService(RouterCore* core, LatestHeartbeats* heartbeats, RefusedWorkers* refused,
                  ModelFetcher* fetcher, FleetLog* log, MetricSet* metrics)
      : core_(core),
        heartbeats_(heartbeats),
        refused_(refused),
        fetcher_(fetcher),
        log_(log),
        metrics_(metrics) {}

  grpc::ServerUnaryReactor* Heartbeat(grpc::CallbackServerContext* context,
                                      const v1::HeartbeatRequest* request,
                                      v1::HeartbeatResponse* response) override;

 private:
  void Count(HeartbeatOutcome outcome) {
    if (metrics_ != nullptr) metrics_->Add(Metric::kHeartbeats, 1, outcome);
  }

  RouterCore* const core_;
  LatestHeartbeats* const heartbeats_;
  RefusedWorkers* const refused_;
  ModelFetcher* const fetcher_;
  FleetLog* const log_;
  MetricSet* const metrics_;
};

}  // namespace baton
