// gRPC service of a decode worker. Each Decode stream is one engine request, and they end together.
//
// A slow reader is tolerated. At most one message per token is queued, so max_tokens bounds the
// queue, as long as it stays below the limit in bytes of rpc/stream_writer.h.
#pragma once

#include "baton/v1/worker.grpc.pb.h"
#include "engine/engine.h"
#include "rpc/concurrency_limit.h"
#include "worker_rpc/worker_server.h"

namespace baton {

class DecodeService final : public v1::DecodeWorker::CallbackService {
 public:
  // All must outlive the service and the calls. `tracer` may be null.
  DecodeService(Engine* engine, ConcurrencyLimit* limit, const Tracer* tracer);

  grpc::ServerWriteReactor<v1::DecodeEvent>* Decode(grpc::CallbackServerContext* context,
                                                    const v1::DecodeRequest* request) override;
  grpc::ServerUnaryReactor* PrefillLocally(grpc::CallbackServerContext* context,
                                           const v1::PrefillLocallyRequest* request,
                                           v1::PrefillLocallyResponse* response) override;

 private:
  Engine* const engine_;
  ConcurrencyLimit* const limit_;
  const Tracer* const tracer_;
};

// Returns the service that a worker of this role runs.
RoleService DecodeRoleService();

}  // namespace baton
