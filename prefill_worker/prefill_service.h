// gRPC service of a prefill worker. Each Prefill call is one engine request, and they end together.
#pragma once

#include "baton/v1/worker.grpc.pb.h"
#include "engine/engine.h"
#include "rpc/concurrency_limit.h"
#include "worker_rpc/worker_server.h"

namespace baton {

class PrefillService final : public v1::PrefillWorker::CallbackService {
 public:
  // All must outlive the service and the calls. `tracer` may be null.
  PrefillService(Engine* engine, ConcurrencyLimit* limit, const Tracer* tracer)
      : engine_(engine), limit_(limit), tracer_(tracer) {}

  grpc::ServerUnaryReactor* Prefill(grpc::CallbackServerContext* context,
                                    const v1::PrefillRequest* wire,
                                    v1::PrefillResponse* response) override;

 private:
  Engine* const engine_;
  ConcurrencyLimit* const limit_;
  const Tracer* const tracer_;
};

// Returns the service that a worker of this role runs.
RoleService PrefillRoleService();

}  // namespace baton
