#include "router/grpc/registry_service.h"

#include <utility>

#include "router/grpc/router_wire.h"

namespace baton {

grpc::ServerUnaryReactor* RegistryService::Heartbeat(grpc::CallbackServerContext* context,
                                                     const v1::HeartbeatRequest* request,
                                                     v1::HeartbeatResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (request->leaving()) {
    heartbeats_->PutLeaving(request->status(), request->drain_ms());
    core_->Leave(request->status().worker_id(), Epoch(request->status().epoch()));
    Count(HeartbeatOutcome::kLeaving);
    response->set_accepted(true);
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  absl::StatusOr<WorkerReport> report = ReportFromWire(*request);
  const absl::Status status = report.ok() ? core_->Heartbeat(*std::move(report)) : report.status();
  response->set_accepted(status.ok());
  Count(status.ok() ? HeartbeatOutcome::kAccepted : HeartbeatOutcome::kRefused);
  if (status.ok()) {
    v1::WorkerStatus worker = request->status();
    if (request->current_role() != v1::WORKER_ROLE_UNSPECIFIED) {
      worker.set_role(request->current_role());
    }
    heartbeats_->Put(worker, request->metrics_address());
    refused_->Remove(request->status().worker_id(), Epoch(request->status().epoch()));
    fetcher_->MaybeFetch();
  } else {
    const std::string reason(status.message());
    response->set_reason(reason);
    const v1::WorkerStatus& worker = request->status();
    if (refused_->Put(worker.worker_id(), Epoch(worker.epoch()), worker.address(), reason)) {
      log_->Refused(worker.worker_id(), worker.address(), reason);
    }
  }
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace baton
